# SPDX-License-Identifier: Apache-2.0
"""`porter mutate`: what happens if a synchronizing instruction of a port is left out, and who notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.checking import mutation_setups
from porter.cli.context import Session, command
from porter.cli.options import read_sizes, sim_options
from porter.cli.porting import plan_of
from porter.diagnostics import Code, ExitCode, PorterError, worst_exit
from porter.report import mutation as report_mutation
from porter.report.mutation_review import load_explanations, unexplained
from porter.verify.case import Case, cases_of, load_case
from porter.verify.mutant_runs import Setup
from porter.verify.mutation import MutationResult
from porter.verify.mutation import mutate as run_mutants
from porter.verify.mutation_record import (
    Record,
    make_record,
    port_digest,
    ptx_digest,
    read_record,
    record_path,
    write_record,
)
from porter.verify.settings import SimOptions


@dataclass(frozen=True)
class _Wanted:
    """What one invocation does with every case."""

    program: str
    options: SimOptions
    port: Path | None
    jobs: int
    folder: Path | None
    again: bool


@command
def mutate(
    session: Session,
    path: Path,
    case_path: Path | None,
    port_path: Path | None,
    original: bool,
    sizes: tuple[str, ...],
    jobs: int,
    folder: Path | None,
    again: bool,
    seed: int,
    schedule: str,
    arithmetic: str,
    budget: int | None,
) -> ExitCode:
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    if folder is not None and original:
        raise PorterError(Code.BAD_OPTION, option="--record", problem="results of originals are not kept")
    options = sim_options(seed, schedule, arithmetic, budget)
    wanted = _Wanted("original" if original else "port", options, port_path, jobs, folder, again)
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    results: list[tuple[str, MutationResult]] = []
    records: list[Record] = []
    codes: list[ExitCode] = []
    for item in [case_path] if case_path is not None else cases_of(path):
        case = load_case(item)
        kept = _kept(case, wanted)
        if kept is not None:
            session.show(Text(f"{case.name} {wanted.program}, kept: {report_mutation.counts(kept.rows)}"))
            records.append(kept)
            continue
        chosen = read_sizes(sizes, case) if sizes else case.mutation_sizes()
        setups, left = mutation_setups(case, wanted.program, builder, chosen, seed, port_path)
        session.report(left)
        codes += [d.code.value.exit_code for d in left]
        if not setups:
            continue
        kept = _moved(case, wanted, setups)
        if kept is not None:
            session.show(Text(f"{case.name} {wanted.program}, compiled as before: {report_mutation.counts(kept.rows)}"))
            records.append(kept)
            continue
        with session.progress() as tell:

            def step(text: str, name: str = case.name) -> None:
                if tell is not None:
                    tell(f"{name}: {text}")

            result = run_mutants(setups, options, step, jobs)
        results.append((case.name, result))
        codes.append(report_mutation.exit_code(result))
        session.show(*report_mutation.table(case.name, wanted.program, result))
        records.append(_keep(case, wanted, setups, result))
    if len(records) > 1:
        session.show(Text(report_mutation.summary(records)))
    if folder is not None:
        open_ = unexplained(records, load_explanations(folder))
        for record, row in open_:
            session.show(Text(f"{record.case}: unexplained: {report_mutation.label(row)}"))
        codes += [ExitCode.FINDINGS] * bool(open_)
    code = worst_exit(codes)
    session.write_json(report_mutation.document(wanted.program, results, code))
    return code


def _port(case: Case, wanted: _Wanted) -> str:
    plan, _ = plan_of(case.to_port, wanted.port, case.include_dirs, case.entry)
    return "" if plan is None else port_digest(case, plan)


def _found(case: Case, wanted: _Wanted) -> Record | None:
    """The result that is there already, with the same settings."""
    if wanted.folder is None or wanted.again:
        return None
    found, o = read_record(record_path(wanted.folder, case)), wanted.options
    same = found is not None and (found.seed, found.schedule, found.arithmetic) == (o.seed, o.schedule, o.arithmetic)
    return found if same else None


def _kept(case: Case, wanted: _Wanted) -> Record | None:
    """The result that is there already, of the same port."""
    found = _found(case, wanted)
    return found if found is not None and found.port == _port(case, wanted) else None


def _moved(case: Case, wanted: _Wanted, setups: Sequence[Setup]) -> Record | None:
    """The result that is there already, of a port with another text that is compiled to the same."""
    found = _found(case, wanted)
    if found is None or wanted.folder is None or found.ptx != ptx_digest(case, setups):
        return None
    record = replace(found, port=_port(case, wanted))
    write_record(record_path(wanted.folder, case), record)
    return record


def _keep(case: Case, wanted: _Wanted, setups: Sequence[Setup], result: MutationResult) -> Record:
    port = "" if wanted.folder is None else _port(case, wanted)
    record = make_record(case, port, setups, wanted.options, result)
    if wanted.folder is not None:
        write_record(record_path(wanted.folder, case), record)
    return record
