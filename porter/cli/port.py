# SPDX-License-Identifier: Apache-2.0
"""`porter port`: the Blackwell version of sources, as a diff, into a directory, or in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rich.text import Text

from porter.build.files import placed_below, require_clean, write_all, write_below
from porter.build.gate import Gated
from porter.build.port_plan import PortPlan
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.comparing import Told, compared_ports, lines_of, unproved, wrong_in
from porter.cli.context import Session, command
from porter.cli.endings import named
from porter.cli.gate import compile_ports, not_compiled
from porter.cli.grading import brief
from porter.cli.includers import compared_includers
from porter.cli.inputs import processes, require_directories
from porter.cli.making import UNCOMPILED, port_in_style
from porter.cli.mending import mend
from porter.cli.nearby import looked_in
from porter.cli.options import split_list
from porter.cli.placing import ASTRAY, Placed, how_to_compile, placed
from porter.cli.porting import plan_in, port_paths, unasked
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError, exit_code_of, worst_exit
from porter.lang.diff import file_diff, unified_diff
from porter.passes.marks import marked
from porter.passes.ported import Ported
from porter.report import gate as report_gate
from porter.report import json as report_json
from porter.report.exits import gate_exit, port_exit
from porter.report.grade import Brief
from porter.report.groups import group_bodies
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.gate import GateOptions
from porter.verify.preprocessed import preprocessed

_LISTED = 3
"""Files with nothing to port that are named."""


@command
def port(
    session: Session,
    paths: tuple[Path, ...],
    output: Path | None,
    apply: bool,
    check: bool,
    allow_dirty: bool,
    whole: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    include_dirs: tuple[Path, ...],
    inline: bool,
    marks: bool,
    storage: str,
    compiles: bool,
    defines: tuple[str, ...],
    flags: tuple[str, ...],
    instantiate: tuple[str, ...],
    grades: bool,
    seconds: float | None,
    jobs: int | None,
    prove_seconds: float,
) -> ExitCode:
    _require_options(output, apply, check, allow_dirty, whole, include_dirs)
    include_dirs, nearby = looked_in(paths, include_dirs)
    options = GateOptions(include_dirs, defines, flags, session.toolkit, jobs, session.target, named, instantiate)
    make = partial(
        port_paths, paths, include_dirs, split_list(select), split_list(ignore), inline, processes(jobs, paths),
        storage=storage, gate=options, compiles=compiles, ask=partial(preprocessed, options) if compiles else unasked,
    )  # fmt: skip
    held, proves = ("", prove_seconds) if compiles else (UNCOMPILED, 0)
    ported = port_in_style(session, make, held, seconds, options, proves)
    _added(session, ported, marks)
    if apply and not allow_dirty:
        require_clean(Path(path) for path in ported.changed if path in ported.old or _differs(path, ported.new[path]))
    port = placed(ported, whole, include_dirs, paths)
    options = options if output is None else _away(ported, port, options)
    unseen = ASTRAY if port.astray else "" if compiles else "--no-compile"
    gated, compared = _seen(session, ported, options, unseen, 0 if check else prove_seconds)
    hazards = wrong_in(compared)
    refused = gate_exit(gated) is not ExitCode.OK or bool(hazards)
    graded = _grade(session, ported) if grades and not refused else []
    diagnostics = [*nearby, *ported.diagnostics, *ported.left_over, *unproved(gated, compared), *hazards]
    # with lines of the originals, which --apply replaces
    session.report(diagnostics if session.verbosity > 0 else _brief(diagnostics))
    written = [] if refused else _write(ported, output, apply, port)
    session.report(said := how_to_compile(ported, port, output if written else None))
    code = _exit_code(ported, gated, hazards, check)
    shows_diff = output is None and not apply and not check
    if shows_diff and not refused and not session.json:
        session.write(unified_diff(ported.old, ported.new, ported.groups))
    lines = [*(one.line for one in graded), *lines_of(compared)]
    # standard output is the diff's alone, for whoever applies it
    (session.remark if shows_diff else session.show)(*report_gate.summary(gated), *map(Text, lines))
    if not refused:
        session.show(*(Text(f"{'would change' if check else 'wrote'} {path}")
                       for path in (ported.changed if check else written)))  # fmt: skip
    document = port_document(ported, gated, [*diagnostics, *said], written, code)
    session.write_json(document | _more(compared, graded if grades else None))
    return code


def _more(compared: Sequence[Told], graded: Sequence[Brief] | None) -> dict[str, object]:
    """What a document has where kernels were looked at, and where there is a case."""
    more: dict[str, object] = {"proofs": [one.body for one in compared]} if compared else {}
    return more if graded is None else more | {"grades": [one.body() for one in graded]}


def _added(session: Session, ported: Ported, marks: bool) -> None:
    """What a port has beside its edits, where that was asked for."""
    if session.mend and ported.exit_code is ExitCode.OK:
        mend(ported, make_builder(find_toolkit(session.toolkit) if session.toolkit else None))
    if marks:
        ported.new |= marked(ported.old, ported.new, [*ported.diagnostics, *ported.left_over], ported.groups)


def _grade(session: Session, ported: Ported) -> list[Brief]:
    """The originals that have a case and this port of them.

    Raises:
        PorterError: BAD_OPTION where no file has a case to say how it is launched; what compiling raises.
    """
    roots = [Path(root.path) for root in ported.roots]
    found = [load_case(path).on(root) for root in roots for path in cases_if_any(root)[:1]]
    if not found:
        raise PorterError(Code.BAD_OPTION, option="--grade", problem="needs a case beside the kernel, for its launch")

    return [brief(session, case, None, partial(_plan, session, ported)) for case in found]


def _plan(session: Session, ported: Ported, case: Case) -> tuple[PortPlan | None, list[Diagnostic]]:
    """This port, as a case launches it."""
    plan = plan_in(session, ported, case)
    return plan, [] if plan is not None else [Diagnostic(Code.PORT_INCOMPLETE, None, {"path": str(case.to_port)})]


def _require_options(
    output: Path | None, apply: bool, check: bool, allow_dirty: bool, whole: bool, include_dirs: tuple[Path, ...]
) -> None:
    """Raises BAD_OPTION."""
    require_directories("-I", include_dirs)
    if sum([output is not None, apply, check]) > 1:
        raise PorterError(Code.BAD_OPTION, option="-o, --apply, --check", problem="choose one")
    if allow_dirty and not apply:
        raise PorterError(Code.BAD_OPTION, option="--allow-dirty", problem="goes with --apply only")
    if whole and output is None:
        raise PorterError(Code.BAD_OPTION, option="--whole", problem="goes with -o only")


def _brief(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """Many files with nothing to port are counted at the end, not listed."""
    idle = [d for d in diagnostics if d.code is Code.NOTHING_TO_PORT]
    if len(idle) <= _LISTED:
        return diagnostics
    count = Diagnostic(Code.NOTHING_TO_PORT, None, {"path": f"{len(idle)} files"})
    return [*(d for d in diagnostics if d.code is not Code.NOTHING_TO_PORT), count]


def _away(ported: Ported, port: Placed, options: GateOptions) -> GateOptions:
    """How what is written away from the originals is compiled; what cannot lie elsewhere is left over."""
    ported.left_over += port.astray
    return replace(options, written=frozenset(port.files), layout=port.layout)


def _exit_code(ported: Ported, gated: list[Gated], hazards: list[Diagnostic], check: bool) -> ExitCode:
    if hazards:
        return exit_code_of(hazards)
    left = worst_exit([ported.exit_code, exit_code_of(ported.left_over)])
    return port_exit(left, gated, check and bool(ported.changed))


def _seen(
    session: Session, ported: Ported, options: GateOptions, unseen: str, seconds: float
) -> tuple[list[Gated], list[Told]]:
    """What the compiler says of the port, and what is proved of what it makes of both; nothing where it is `unseen`
    for a reason."""
    if unseen:
        return not_compiled(ported, unseen), []
    with session.progress() as status:
        tell = None
        if status is not None:
            show = status

            def tell(done: int, total: int) -> None:
                show(f"compiling: {done} of {total} done")

            tell(0, 2 * len(ported.roots))
        gated = compile_ports(ported, options, tell)
    compared = compared_ports(session, ported, gated, options, seconds)
    if options.written is None and gate_exit(gated) is ExitCode.OK:
        compared += compared_includers(session, ported, options, seconds)
    return gated, compared


def _differs(path: str, data: bytes) -> bool:
    """Whether a file of the port would land on another one."""
    return Path(path).is_file() and Path(path).read_bytes() != data


def _write(ported: Ported, output: Path | None, apply: bool, port: Placed) -> list[str]:
    """The files written, as the user would name them."""
    if (not ported.changed and ported.exit_code is not ExitCode.OK) or (output is not None and port.astray):
        # What was left is named; a copy of the original would only look like a port.
        return []
    if output is not None:
        targets = placed_below(port.files, output, ported.new, port.layout)
        write_below(targets, output, port.layout)
        return [str(path) for path in targets]
    if apply:
        # a link stays one, and what it leads to is ported
        write_all({Path(path).resolve(): ported.new[path] for path in ported.changed})
        return ported.changed
    return []


def port_document(
    ported: Ported, gated: list[Gated], diagnostics: list[Diagnostic], written: list[str], code: ExitCode
) -> dict[str, object]:
    files = [
        {
            "path": path,
            "changed": path in set(ported.changed),
            "diff": file_diff(path, ported.old.get(path), ported.new[path], ported.groups).decode("utf-8", "replace"),
        }
        for path in sorted(ported.new)
    ]
    body = {
        "files": files,
        "written": written,
        "left": [asdict(k) for k in ported.left],
        "groups": group_bodies(ported.groups, ported.old),
        "compiled": report_gate.document(gated),
        "diagnostics": report_json.diagnostics(diagnostics),
    }
    return report_json.document("port", code, body)
