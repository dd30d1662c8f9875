# SPDX-License-Identifier: Apache-2.0
"""`porter selfcheck`: the simulator held against a real GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click
from rich import box
from rich.table import Table
from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.context import Session, command
from porter.cli.options import read_gpu_options, read_sizes, sim_options, split_list
from porter.diagnostics import Diagnostic, ExitCode, PorterError
from porter.report import json as report_json
from porter.verify.backends import SimBackend, make_backend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import cases_of, load_case
from porter.verify.gpu.selfcheck import BitsRow, compare_bits
from porter.verify.record import environment
from porter.verify.results import Verdict


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("corpus"))
@click.option("--gpu", is_flag=True, required=True, help="Compare with the GPU of this machine.")
@click.option("--families", multiple=True, metavar="NAMES", help="Input families, comma-separated, or `all`.")
@click.option("--sizes", multiple=True, metavar="SIZES", help="`default`, `all`, or M=128,N=256,...; repeatable.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs.")
@click.option("--gpu-timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="SECONDS",
              help="Longest time for one launch on the GPU.")  # fmt: skip
@command
def selfcheck(
    session: Session,
    path: Path,
    gpu: bool,
    families: tuple[str, ...],
    sizes: tuple[str, ...],
    seed: int,
    gpu_timeout: float,
) -> ExitCode:
    """Run every original below PATH in the simulator, with the hardware's arithmetic, and on the GPU, and
    compare all bits of the outputs."""
    toolkit = find_toolkit(session.toolkit)
    builder = ToolkitBuilder(toolkit)
    settings = replace(
        sim_options(seed, "late", "exact", None), gpu=read_gpu_options("deferred", gpu_timeout, session.toolkit)
    )
    simulator, hardware = SimBackend(settings), make_backend("gpu", settings)
    rows: list[BitsRow] = []
    errors: list[Diagnostic] = []
    with session.progress() as tell:
        for item in cases_of(path):
            try:
                case = load_case(item)
                if tell is not None:
                    tell(case.name)
                for chosen in read_sizes(sizes, case):
                    rows += compare_bits(case, chosen, split_list(families) or None, builder, simulator, hardware, seed)
            except PorterError as error:
                errors.append(error.diagnostic)
    session.report(errors)
    session.show(_table(rows))
    different = sum(r.verdict is Verdict.ERROR for r in rows)
    session.show(Text(f"{len(rows) - different} of {len(rows)} agree in every bit"))
    code = ExitCode.OK
    if different:
        code = ExitCode.DIFFERENT
    elif errors or not rows or any(r.verdict is not Verdict.CLEAN for r in rows):
        code = ExitCode.INCONCLUSIVE
    body = {
        "environment": environment(" ".join(sys.argv), gpu=sorted({r.right for r in rows})),
        "rows": [_row(r) for r in rows],
        "diagnostics": report_json.diagnostics(errors),
    }
    session.write_json(report_json.document("selfcheck", code, body))
    return code


def _row(row: BitsRow) -> dict[str, object]:
    return {**vars(row), "sizes": dict(row.sizes), "outputs": dict(row.outputs), "verdict": row.verdict.value}


def _table(rows: list[BitsRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("case", "sizes", "inputs", "compared", "different bits", "verdict"):
        table.add_column(heading)
    for row in rows:
        sizes = " ".join(f"{k}={v}" for k, v in row.sizes.items())
        what = f"{row.different} of {row.elements}" + (f": {row.problem}" if row.problem else "")
        table.add_row(row.case, sizes, row.family, f"{row.left} / {row.right}", what, row.verdict.value)
    return table
