# SPDX-License-Identifier: Apache-2.0
"""`porter case`: drafts of cases."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from porter.build.entry import function_name
from porter.build.files import write_all
from porter.build.toolchain import find_toolkit
from porter.cli.context import Session, command
from porter.cli.inputs import require_directories, require_file
from porter.cli.launched import LONGEST_RUN
from porter.cli.programs import program_request
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError
from porter.report import json as report_json
from porter.scan.draft.draft import UNKNOWN, Draft
from porter.scan.draft.new import draft_case, has_main
from porter.verify.capture.program import CaptureOptions
from porter.verify.capture.simulated import capture_simulated
from porter.verify.capture.write import Source, write_cases
from porter.verify.case import CASE_FILE, Case, load_case
from porter.verify.drafted import Agreement, against_launch
from porter.verify.problem import bind
from porter.verify.program import build_runtime
from porter.verify.program.source import executable_of
from porter.verify.record import environment
from porter.verify.yaml_file import load_yaml

MOST_GUESSES = 3
"""Values that somebody can be asked to fill in."""


@command
def case_new(
    session: Session,
    kernel: Path,
    arguments: tuple[str, ...],
    entry: str | None,
    output: Path | None,
    program: Path | None,
    no_run: bool,
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    flags: tuple[str, ...],
) -> ExitCode:
    require_file(kernel, "case new")
    require_directories("-I", include_dirs)
    target = output or kernel.parent / CASE_FILE
    draft = draft_case(kernel, entry, include_dirs, tuple(map(str, session.rules)))
    draft.fields["kernel"] = Path(os.path.relpath(kernel.resolve(), target.parent.resolve())).as_posix()
    draft.place_files(target.name.removesuffix(".yaml").removesuffix(".case"))
    files = {target: b"", **{target.parent / name: text.encode() for name, text in draft.files.items()}}
    for path in files:
        if path.exists():
            raise PorterError(Code.WOULD_OVERWRITE, path=path, reason="it is there already")
    own = program is None and not no_run and has_main(kernel, defines)
    program = kernel if own else program
    notes: list[Diagnostic] = []
    try:
        files[target] = draft.text().encode()
        write_all(files)
        if program is not None:
            require_file(program, "case new --program")
            request = (program, arguments, include_dirs, defines, flags)
            try:
                said, recorded = _held_against(session, draft, target, kernel, request)
                notes += said
                if recorded is not None:
                    _take_back(files)
                    return _of_launch(session, kernel, recorded, notes)
            except PorterError as error:
                if not own:
                    raise
                # nobody asked for it to be run: what its text tells stands
                values = {"program": str(program), "reason": error.diagnostic.message}
                notes.append(Diagnostic(Code.DRAFT_NOT_RUN, None, values, error.diagnostic.detail))
            files[target] = draft.text().encode()
            write_all({target: files[target]})
    except PorterError:
        _take_back(files)
        raise
    notes += [*_complaints(target), *_objects(draft)]
    return _of_draft(session, kernel, draft, files, notes)


def _of_draft(
    session: Session, kernel: Path, draft: Draft, files: Mapping[Path, bytes], notes: list[Diagnostic]
) -> ExitCode:
    session.report(notes)
    session.show(*(Text(f"wrote {path}") for path in files))
    session.show(*(Text(f"guess: {where}: {why}") for where, why in draft.guesses.items()))
    session.show(Text(f"{len(draft.guesses)} guess{'es' * (len(draft.guesses) != 1)}; next: porter verify {kernel}"))
    body: dict[str, Any] = {
        "written": list(map(str, files)),
        "guesses": [{"field": where, "assumed": why} for where, why in draft.guesses.items()],
        "case": draft.fields,
        "diagnostics": report_json.diagnostics(notes),
    }
    session.write_json(report_json.document("case-new", ExitCode.OK, body))
    return ExitCode.OK


def _of_launch(session: Session, kernel: Path, case: Path, notes: list[Diagnostic]) -> ExitCode:
    """The case is a recorded launch."""
    session.report(notes)
    session.show(Text(f"wrote {case}"), Text(f"0 guesses; next: porter verify {case.parent}"))
    body = {"written": [str(case)], "guesses": [], "case": load_yaml(case, "case"),
            "diagnostics": report_json.diagnostics(notes)}  # fmt: skip
    session.write_json(report_json.document("case-new", ExitCode.OK, body))
    return ExitCode.OK


def _take_back(files: dict[Path, bytes]) -> None:
    for path in files:
        path.unlink(missing_ok=True)


def _held_against(
    session: Session, draft: Draft, target: Path, kernel: Path, request: tuple[Any, ...]
) -> tuple[list[Diagnostic], Path | None]:
    """Run the program, and hold its first launch of the kernel against the draft. Where more is open than somebody can
    be asked for, the launch itself becomes the case."""
    program, arguments, include_dirs, defines, flags = request
    toolkit = find_toolkit(session.toolkit)
    name = str(draft.fields["entry"]).split("::")[-1]
    with tempfile.TemporaryDirectory(prefix="porter-case-") as scratch, session.progress() as tell:
        if tell is not None:
            tell(f"running {program}")
        folder = Path(scratch)
        wanted = program_request(program, arguments, None, include_dirs, defines, flags, (), tell=tell)
        executable = executable_of(wanted, toolkit, folder)
        budget = LONGEST_RUN if program == kernel else CaptureOptions.budget
        options = CaptureOptions(rf"\b{re.escape(name)}\b", 1, stops=True, budget=budget)
        captured, notes = capture_simulated(
            [str(executable), *arguments], folder, options, None, 4, build_runtime(toolkit)
        )
        written = write_cases(captured, folder / "cases", {}, Source(None, ()), None)
        if not written.cases:
            reason = written.refusals[0].text if written.refusals else f"it launches no {function_name(name)}"
            said = Diagnostic(Code.CAPTURE_NOTHING, None, {"program": str(program), "reason": reason})
            return [*notes, said], None
        mine = _loaded(target)
        if mine is not None:
            _taken_over(draft, against_launch(mine, load_case(written.cases[0])))
            if len(draft.guesses) <= MOST_GUESSES:
                return list(notes), None
        facts = environment(shlex.join([str(program), *arguments]))
        (case,) = write_cases(captured, target.parent, facts, Source(kernel, include_dirs)).cases
    values = {"kernel": name, "program": str(program), "count": len(draft.guesses)}
    return [*notes, Diagnostic(Code.DRAFT_RECORDED, None, values)], case


def _loaded(target: Path) -> Case | None:
    """The draft as a case, None if it says too little to be one."""
    try:
        return load_case(target)
    except PorterError:
        return None


def _taken_over(draft: Draft, agreement: Agreement) -> None:
    """What a launch shows is no guess; where it shows another value, that one is taken and marked."""
    draft.fields["sizes"] |= agreement.sizes
    for where in agreement.same:
        draft.guesses.pop(where, None)
    for where, what in agreement.different.items():
        draft.guess(where, f"the launch {what}" if what.startswith("was") else what)
    for name, value in agreement.values.items():
        draft.fields["launch"][name] = value


def _objects(draft: Draft) -> list[Diagnostic]:
    """Parameters of which so many are not known that a launch had better say them."""
    unknown = [why.removeprefix(UNKNOWN) for why in draft.guesses.values() if why.startswith(UNKNOWN)]
    if len(unknown) <= MOST_GUESSES:
        return []
    values = {"count": str(len(unknown)), "kernel": draft.fields["entry"], "names": ", ".join(unknown)}
    return [Diagnostic(Code.DRAFT_OBJECTS, None, values)]


def _complaints(target: Path) -> list[Diagnostic]:
    """What keeps a draft from being run."""
    try:
        bind(load_case(target))
    except PorterError as error:
        return list(error.diagnostics)
    return []
