# SPDX-License-Identifier: Apache-2.0
"""`porter mutate`: what happens if a synchronizing instruction of a port is left out, and who notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.inputs import read_document
from porter.cli.launches import require_launch
from porter.cli.making import Ports
from porter.cli.options import read_sizes, sim_options
from porter.cli.porting import case_of_port
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError
from porter.report import mutation as report_mutation
from porter.report.exits import mutation_exit
from porter.report.mutation_review import load_explanations, unexplained
from porter.report.program import finding_diagnostic
from porter.verify.budget import Budget
from porter.verify.case import Case, cases_of, load_case
from porter.verify.launch_file import load_launch
from porter.verify.mutant_runs import Setup
from porter.verify.mutation import MutationResult
from porter.verify.mutation import mutate as run_mutants
from porter.verify.mutation_record import Record
from porter.verify.mutation_sweep import Mutated, Sweep, settled
from porter.verify.prepare import PortOf
from porter.verify.settings import SimOptions


def _launch(session: Session, launch: Path, ptx: Path | None, jobs: int, options: SimOptions) -> ExitCode:
    """The mutants of a kernel that is known as PTX with its launch."""
    found = load_launch(launch, ptx, None, None, options.seed)
    name = found.problem.case.name
    setup = Setup("", found.kernel, found.problem, found.launch, found.images)
    with session.progress() as tell:
        result = run_mutants([setup], options, tell, jobs)
    session.report(finding_diagnostic(f, found.problem.case.kernel) for f in result.baseline.findings)
    session.show(*report_mutation.table(name, "kernel", result))
    code = mutation_exit([result], [], False)
    session.write_json(report_mutation.document("kernel", [(name, result, "")], code))
    return code


def _require_none(of_cases: Mapping[str, object]) -> None:
    """Options that say nothing of a launch. Raises BAD_OPTION."""
    for option, given in of_cases.items():
        if given:
            raise PorterError(Code.BAD_OPTION, option=option, problem="is for kernels with a case, not for a launch")


def _require_options(folder: Path | None, original: bool, resume: Path | None) -> None:
    """Raises BAD_OPTION."""
    if folder is not None and original:
        raise PorterError(Code.BAD_OPTION, option="--record", problem="results of originals are not kept")
    if folder is not None and resume is not None:
        raise PorterError(Code.BAD_OPTION, option="--record, --resume", problem="choose one")


def _stopped(case: Case, result: MutationResult, seconds: float | None) -> list[Diagnostic]:
    if result.stopped != "time":
        return []
    return [Diagnostic(Code.TIME_SPENT, Location(str(case.path)), {"seconds": seconds})]


def _summed_up(session: Session, records: list[Record], folder: Path | None) -> bool:
    """Show what all results come to; whether a mutant is left that nobody explains."""
    if len(records) > 1:
        session.show(Text(report_mutation.summary(records)))
    left = unexplained(records, load_explanations(folder)) if folder is not None else []
    for record, row in left:
        session.show(Text(f"{record.case}: unexplained: {report_mutation.label(row)}"))
    return bool(left)


def _done(resume: Path | None) -> Mapping[str, Any]:
    return settled(read_document(resume, "mutate")) if resume is not None else {}


def _port_of(session: Session, port: Path | None, seconds: float | None, prove_seconds: float) -> PortOf:
    """Gives the port of a case as `porter port` chooses it."""
    return partial(Ports(session, seconds, prove_seconds).of_case, port=port)


def _earlier(session: Session, name: str, sweep: Sweep, found: Mutated) -> list[Mapping[str, Any]]:
    """Show a result that was there already; what the document of an earlier run has of it."""
    if found.how == "earlier":
        session.show(Text(f"{name}: of the earlier run"))
        return [sweep.done[found.digest]]
    if found.record is not None:
        session.show(Text(f"{name}, {found.how}: {report_mutation.counts(found.record.rows)}"))
    return []


def _ended(results: Sequence[tuple[str, MutationResult, str]], code: ExitCode) -> ExitCode:
    if any(result.stopped == "interrupted" for _, result, _ in results):
        raise KeyboardInterrupt
    return code


@command
def mutate(
    session: Session,
    path: Path | None,
    case_path: Path | None,
    port_path: Path | None,
    original: bool,
    sizes: tuple[str, ...],
    jobs: int,
    folder: Path | None,
    again: bool,
    seconds: float | None,
    prove_seconds: float,
    resume_path: Path | None,
    ptx_path: Path | None,
    launch_path: Path | None,
    seed: int,
    schedule: str,
    arithmetic: str,
    budget: int | None,
) -> ExitCode:
    launch_file = require_launch(path, ptx_path, launch_path)
    if path is not None and not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    _require_options(folder, original, resume_path)
    options = sim_options(seed, schedule, arithmetic, budget)
    if path is None:
        assert launch_file is not None
        _require_none({"--case": case_path, "--port": port_path, "--original": original, "--sizes": sizes,
                       "--record": folder, "--seconds": seconds is not None, "--resume": resume_path})  # fmt: skip
        return _launch(session, launch_file, ptx_path, jobs, options)
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    program, time = "original" if original else "port", Budget(seconds)
    port_of = _port_of(session, port_path, seconds, prove_seconds)
    sweep = Sweep(program, options, builder, port_of, jobs, folder, again, _done(resume_path), time)
    results, earlier = list[tuple[str, MutationResult, str]](), list[Mapping[str, Any]]()
    records, errors = list[Record](), list[Diagnostic]()
    for item in [case_path] if case_path is not None else cases_of(path):
        case = load_case(item)
        if time.is_spent:
            errors.append(Diagnostic(Code.TIME_SPENT, Location(str(case.path)), {"seconds": seconds}))
            continue
        with session.progress() as tell:
            taken = case_of_port(case, None if original else port_path)
            found = sweep.case(case, read_sizes(sizes, taken) if sizes else taken.mutation_sizes(), tell)
        session.report(found.diagnostics)
        errors += found.diagnostics
        if found.result is not None:
            results.append((case.name, found.result, found.digest))
            session.show(*report_mutation.table(case.name, program, found.result))
            errors += _stopped(case, found.result, seconds)
            if found.result.stopped == "interrupted":
                break
        else:
            earlier += _earlier(session, f"{case.name} {program}", sweep, found)
        records += [found.record] if found.record is not None else []
    is_unexplained = _summed_up(session, records, folder)
    session.report(d for d in errors if d.code is Code.TIME_SPENT)
    code = mutation_exit([result for _, result, _ in results], errors, is_unexplained)
    session.write_json(report_mutation.document(program, results, code, earlier))
    return _ended(results, code)
