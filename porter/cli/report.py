# SPDX-License-Identifier: Apache-2.0
"""`porter report`: results of one or several commands as files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from porter.build.entry import display_name
from porter.build.files import write_all
from porter.build.port_plan import PortPlan, materialize
from porter.build.table import ResourceRow
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.grading import brief
from porter.cli.inputs import read_document, require_directories, require_file, require_source
from porter.cli.making import Ports, as_launched, port_in_style
from porter.cli.options import sim_options
from porter.cli.port import port_document
from porter.cli.porting import case_of_port, port_paths
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError, worst_exit
from porter.diagnostics.reading import read_file
from porter.lang.sources import is_python
from porter.passes.ported import Ported
from porter.project.include_dirs import stated_directories
from porter.report import coverage, page, verification
from porter.report import json as report_json
from porter.report.formats import render
from porter.report.timeline import lines as timeline_lines
from porter.tune.layouts import layout_of
from porter.tune.searching import compilable
from porter.verify.builder import PORT_ARCH
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.depot import depots
from porter.verify.gate import GateOptions
from porter.verify.launching import port_problem
from porter.verify.prepare import run_once
from porter.verify.problem import bind
from porter.verify.proved import SECONDS
from porter.verify.resources import rows_of_case, rows_of_files
from porter.verify.room import crowded
from porter.verify.settings import make_recorder
from porter.verify.sweep import Wanted, verify_cases

_TIMELINE_COLUMNS = 160
_UNRUN = "with `--no-run` nothing is run"


@command
def report(
    session: Session,
    paths: tuple[Path, ...],
    html_path: Path | None,
    sarif_path: Path | None,
    junit_path: Path | None,
    markdown_path: Path | None,
    port_path: Path | None,
    case_path: Path | None,
    runs: bool,
    include_dirs: tuple[Path, ...],
) -> ExitCode:
    wanted = {"sarif": sarif_path, "junit": junit_path, "markdown": markdown_path}
    if html_path is None and not any(wanted.values()) and not session.json:
        problem = "name at least one file to write"
        raise PorterError(Code.BAD_OPTION, option="--html, --sarif, --junit, --markdown", problem=problem)
    require_directories("-I", include_dirs)
    documents = [read_document(path) for path in paths if path.suffix == ".json"]
    kernels = [path for path in paths if path.suffix != ".json"]
    if len(kernels) > 1:
        raise PorterError(Code.BAD_OPTION, option="report", problem="takes one kernel, and documents of others")
    subject = page.Subject(", ".join(p.name for p in paths), documents)
    if kernels:
        with session.progress() as tell:
            subject = _Kernel(session, kernels[0], port_path, case_path, include_dirs, tell).subject(runs, documents)
    files = {path: render(form, subject.documents).encode() for form, path in wanted.items() if path is not None}
    if html_path is not None:
        files[html_path] = page.html(subject).encode("utf-8", "replace")
    write_all(files)
    session.show(*(Text(f"wrote {path}") for path in files))
    session.show(*(Text(line) for d in subject.documents for line in _lines(d)))
    code = worst_exit(ExitCode(d["exit_code"]) for d in subject.documents)
    body = {"written": [str(p) for p in files], "kinds": [d["kind"] for d in subject.documents], "diagnostics": []}
    # of JSON there is one document; the other formats hold all
    made = report_json.document("report", code, body)
    session.write_documents([made] if session.format == "json" else subject.documents)
    return code


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """What a document comes to."""
    if document["kind"] == "verify":
        counts = Counter(row["verdict"] for row in document["rows"])
        yield f"verdict: {document['verdict']} ({', '.join(f'{n} {verdict}' for verdict, n in counts.items())})"
        yield from coverage.lines(document)
    if document["kind"] == "grade" and document.get("line"):
        yield str(document["line"])


class _Kernel:
    """One kernel, ported and, where there is a case, run."""

    def __init__(
        self, session: Session, kernel: Path, port: Path | None, case: Path | None, include_dirs: tuple[Path, ...],
        tell: Any,
    ) -> None:  # fmt: skip
        for path in (kernel, *([port] if port else [])):
            require_file(path, "report")
            require_source(path)
        self.session, self.kernel, self.port = session, kernel, port
        self.tell = tell or (lambda text: None)
        found = [case] if case is not None else cases_if_any(kernel)
        self.case: Case | None = load_case(found[0]).on(kernel) if found else None
        self.include_dirs = (*include_dirs, *stated_directories(kernel))
        self.documents: list[Mapping[str, Any]] = []

    def subject(self, runs: bool, documents: Sequence[Mapping[str, Any]]) -> page.Subject:
        self.tell(f"porting {self.kernel}")
        options = GateOptions(self.include_dirs, toolkit=self.session.toolkit)
        make = partial(port_paths, [self.kernel], self.include_dirs)
        ported = port_in_style(self.session, make, "" if runs else _UNRUN, None, options, SECONDS if runs else 0)
        diagnostics = [*ported.diagnostics, *ported.left_over]
        if self.port is None:
            self.documents.append(port_document(ported, [], diagnostics, [], ported.exit_code))
        place: Path | None = self.port
        if place is None and ported.changed:
            plan = PortPlan(files=ported.elsewhere(), keeps_hopper=ported.keeps_hopper, layout=layout_of(ported))
            place = materialize(plan, self.kernel)
        assembly, timeline = None, list[Text]()
        if runs and place is not None:
            assembly, timeline = self._run(place, ported)
        sources = self._sources(ported, place)
        return page.Subject(self.kernel.name, [*self.documents, *documents], sources, assembly, timeline)

    def _sources(self, ported: Ported, place: Path | None) -> list[page.Source]:
        if self.port is not None:
            return [page.source(str(self.kernel), read_file(self.kernel), read_file(self.port), str(self.port))]
        changed = sorted(ported.changed, key=lambda path: path != str(self.kernel))
        return [
            page.source(path, ported.old.get(path), ported.new[path], _beside(path, self.kernel, place))
            for path in changed
        ]

    def _given(self, ported: Ported, case: Case) -> tuple[PortPlan | None, list[Diagnostic]]:
        """The port that is reported on, as a case launches it."""
        if self.port is not None:
            return Ports(self.session).of_case(case, self.port)
        return as_launched(self.session, ported, case)

    def _run(self, place: Path, made: Ported) -> tuple[page.Assembly | None, list[Text]]:
        """What compilers, comparison and recorder say; what stops one of them is a message of the page."""
        try:
            toolkit = find_toolkit(self.session.toolkit)
            self.tell("compiling")
            if self.case is None:
                if not is_python(self.kernel):
                    self._add_build(rows_of_files(self.kernel, place, toolkit, self.include_dirs)[0], toolkit.name)
                raise PorterError(Code.CASE_NOT_FOUND, path=self.kernel)
            builder = make_builder(toolkit)
            problem = bind(self.case)
            own = port_problem(problem, self.case.port if self.port is not None else None)
            self._add_build(rows_of_case(problem, own, self.kernel, place, toolkit, compilable)[0], toolkit.name)
            settings = sim_options(0, "late", "float64", None)
            given = partial(self._given, made)
            self.tell("verifying")
            wanted = Wanted(settings, port_of=given, finished=self.port is not None, include_dirs=self.include_dirs)
            self.documents.append(verification.document(verify_cases([self.case], wanted, builder, self.tell)))
            graded = brief(self.session, self.case, self.port, None if self.port else given)
            self.documents.append(report_json.document("grade", ExitCode.OK, graded.body() | {"diagnostics": []}))
            self.tell("recording")
            recorder = make_recorder(None, None, None)
            traced = replace(settings, trace=recorder)
            ported = case_of_port(self.case, self.port)
            _, built, _ = run_once(ported, ported.sizes, "integers", PORT_ARCH, builder, traced, place)
        except PorterError as error:
            self.documents.append(report_json.error(list(error.diagnostics), error.exit_code))
            return None, []
        function = built.function
        places = {} if function is None else page.places_of(function)
        assembly = page.Assembly(display_name(built.entry), built.arch, built.ptx, places)
        return assembly, list(timeline_lines(recorder, _TIMELINE_COLUMNS))

    def _add_build(self, rows: Sequence[ResourceRow], toolkit: str) -> None:
        said = report_json.diagnostics([*depots(rows, self.kernel), *crowded(rows, self.kernel)])
        body = {"toolkit": toolkit, "kernels": [row.as_json() for row in rows], "diagnostics": said}
        self.documents.append(report_json.document("build", ExitCode.OK, body))


def _beside(path: str, kernel: Path, place: Path | None) -> str:
    """Where a file of a port lies whose kernel is at `place`."""
    return "" if place is None else os.path.normpath(place.parent / os.path.relpath(path, kernel.parent))
