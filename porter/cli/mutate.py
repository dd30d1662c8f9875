# SPDX-License-Identifier: Apache-2.0
"""`porter mutate`: what happens if a synchronizing instruction of a port is left out, and who notices."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.checking import prepare
from porter.cli.context import Session, command
from porter.cli.options import read_sizes, sim_options, simulator_options
from porter.diagnostics import Code, ExitCode, PorterError
from porter.report import mutation as report_mutation
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import cases_of, load_case
from porter.verify.mutation import MutationResult
from porter.verify.mutation import mutate as run_mutants
from porter.verify.results import worst_exit


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The case to use instead of the one beside the kernel.")  # fmt: skip
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="A finished port to mutate; without it Porter makes one.")  # fmt: skip
@click.option("--original", is_flag=True, help="Mutate the original instead of its port.")
@click.option("--sizes", default="default", show_default=True, help="Problem size.")
@simulator_options
@command
def mutate(
    session: Session,
    path: Path,
    case_path: Path | None,
    port_path: Path | None,
    original: bool,
    sizes: str,
    seed: int,
    schedule: str,
    arithmetic: str,
    budget: int | None,
) -> ExitCode:
    """Drop or weaken each commit, wait, fence, barrier, arrival and allocation of PATH's port in turn.

    Every mutant runs once in the checking simulator. The table says whether its values are wrong and which
    hazards are reported. Exit code 1 if a mutant gives wrong values and no hazard, 5 if the kernel itself is
    not clean.
    """
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    options = sim_options(seed, schedule, arithmetic, budget)
    builder = ToolkitBuilder(find_toolkit(session.toolkit) if session.toolkit else None)
    program = "original" if original else "port"
    results: list[tuple[str, MutationResult]] = []
    codes: list[ExitCode] = []
    for item in [case_path] if case_path is not None else cases_of(path):
        case = load_case(item)
        prepared, left = prepare(case, [program], builder, read_sizes([sizes], case)[0], seed, port_path)
        session.report(left)
        codes += [d.code.value.exit_code for d in left]
        for p in prepared:
            with session.progress() as tell:

                def step(done: int, of: int, name: str = case.name) -> None:
                    if tell is not None:
                        tell(f"{name}: mutant {done + 1} of {of}")

                result = run_mutants(p.kernel, p.problem, p.launch, p.images, options, step)
            results.append((case.name, result))
            codes.append(report_mutation.exit_code(result))
            session.show(*report_mutation.table(case.name, program, result))
    if len(results) > 1:
        session.show(Text(report_mutation.summary(results)))
    code = worst_exit(codes)
    session.write_json(report_mutation.document(program, results, code))
    return code
