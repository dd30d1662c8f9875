# SPDX-License-Identifier: Apache-2.0
"""`porter hazards --prove`: synchronization proved on PTX, without a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, current
from porter.cli.inputs import each_case
from porter.cli.options import Level, read_sizes
from porter.diagnostics import Diagnostic, ExitCode, PorterError
from porter.report import proofs as report_proofs
from porter.verify.budget import Budget
from porter.verify.builder import Builder
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.case_program import Program
from porter.verify.launch_file import load_launch
from porter.verify.program.results import has_failed
from porter.verify.program.source import Request, run_source_or_executable
from porter.verify.proved_program import Launches, prove_launches
from porter.verify.proving import Proof, Prover
from porter.verify.settings import SimOptions

SECONDS = 60.0
"""For each program, where nothing else is asked for."""


def prove_cases(
    session: Session, path: Path, case_path: Path | None, port: Path | None, programs: Sequence[str], arch: str | None,
    sizes: str, seconds: float | None, rulings: Level = "strict",
) -> ExitCode:  # fmt: skip
    """Prove the programs of each case of a path, or its kernel for `arch`."""
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    proofs: list[Proof] = []
    unported: list[Diagnostic] = []

    def prove(case: Case) -> None:
        for program in _programs(case, builder, programs, port, arch, unported):
            chosen = read_sizes([sizes], case) if sizes != "default" else [{}, *case.other_sizes]
            proofs.append(program.prove(chosen, seconds or SECONDS, rulings))

    left = each_case(session, path, case_path, prove)
    return _report(session, proofs, [*unported, *left])


def proofs_below(session: Session, paths: Iterable[Path], arch: str) -> tuple[list[Proof], list[Diagnostic]]:
    """Of the kernels with a case of some paths, compiled for a chip; and what keeps others from being proved."""
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    proofs: list[Proof] = []
    left: list[Diagnostic] = []
    with session.progress() as tell:
        for path in paths:
            for found in cases_if_any(path):
                try:
                    case = load_case(found) if path.is_dir() else load_case(found).on(path)
                    if tell is not None:
                        tell(case.name)
                    proofs.append(
                        Program(case, builder, arch=arch).prove([case.sizes, *case.other_sizes], SECONDS, "practice")
                    )
                except PorterError as error:
                    left += error.diagnostics
    return proofs, left


def prove_program(
    session: Session, request: Request, options: SimOptions, seconds: float | None, rulings: Level
) -> ExitCode:
    """Run a program, and prove the kernels that it launches, at these launches."""
    with session.progress():
        outcome = run_source_or_executable(request, options, find_toolkit(session.toolkit))
        launches = Launches(request.path, outcome.launches)
        proofs = list(prove_launches(request.path.name, "program", launches, seconds or SECONDS, rulings))
    return _report(session, proofs, [*has_failed(outcome, request.path), *outcome.diagnostics])


def prove_launch(
    session: Session, launch: Path, ptx: Path | None, kernel: str | None, arch: str | None, seconds: float | None,
    rulings: Level = "practice",
) -> ExitCode:  # fmt: skip
    """Prove the kernel of a launch file at its launch."""
    found = load_launch(launch, ptx, kernel, arch)
    budget = Budget(seconds or SECONDS)
    proof = Prover("kernel", lambda sizes: (found.kernel, found.problem), budget, rulings).prove([{}])
    return _report(session, [proof], [])


def _programs(
    case: Case, builder: Builder, programs: Sequence[str], port: Path | None, arch: str | None,
    errors: list[Diagnostic],
) -> Iterator[Program]:  # fmt: skip
    # A program with its own main() starts sooner without the port engine.
    from porter.cli.making import Ports

    if arch:
        yield Program(case, builder, arch=arch)
        return
    if "original" in programs:
        yield Program(case, builder)
    if "port" in programs:
        plan, left = Ports(current()).of_case(case, port)
        errors += left if plan is None else []
        if plan is not None:
            yield Program(case, builder, plan)


def _report(session: Session, proofs: Sequence[Proof], errors: Sequence[Diagnostic]) -> ExitCode:
    session.report(errors)
    if not session.json and session.verbosity >= 0:
        for line in report_proofs.text(proofs):
            session.out.print(Text(line), soft_wrap=True)
    session.write_json(report_proofs.document(proofs, errors))
    return report_proofs.proofs_exit(proofs, errors)
