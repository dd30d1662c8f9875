# SPDX-License-Identifier: Apache-2.0
"""`porter selfcheck`: the simulator held against a real GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.inputs import require_file
from porter.cli.options import read_gpu_options, read_sizes, sim_options, split_list
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError
from porter.report import json as report_json
from porter.report.exits import bits_exit, simulated_exit
from porter.report.tables import plain_table, quantity
from porter.verify.backends import SimBackend
from porter.verify.case import Case, cases_of, load_case
from porter.verify.choose_backend import make_backend
from porter.verify.gpu.selfcheck import BitsRow, compare_bits, read_simulated, simulated
from porter.verify.outcome import Verdict
from porter.verify.record import environment


@command
def selfcheck(
    session: Session,
    path: Path,
    gpu: bool,
    simulate: Path | None,
    earlier: Path | None,
    families: tuple[str, ...],
    sizes: tuple[str, ...],
    seed: int,
    gpu_timeout: float,
) -> ExitCode:
    if gpu == (simulate is not None):
        raise PorterError(Code.BAD_OPTION, option="--gpu, --simulate", problem="choose one")
    known = read_simulated(_rows(earlier)) if earlier is not None else {}
    builder = make_builder(find_toolkit(session.toolkit))
    settings = replace(
        sim_options(seed, "late", "exact", None), gpu=read_gpu_options("deferred", gpu_timeout, session.toolkit)
    )
    simulator = SimBackend(settings)
    wanted = split_list(families) or None
    if simulate is not None:
        found, errors = _each(
            session, path, sizes, lambda case, chosen: simulated(case, chosen, wanted, builder, simulator, seed)
        )
        return _keep(session, simulate, found, errors)
    hardware = make_backend("gpu", settings)
    rows, errors = _each(
        session, path, sizes,
        lambda case, chosen: compare_bits(case, chosen, wanted, builder, simulator, hardware, seed, known),
    )  # fmt: skip
    return _report(session, rows, errors)


def _each(
    session: Session, path: Path, sizes: tuple[str, ...], work: Callable[[Case, Any], Sequence[Any]]
) -> tuple[list[Any], list[Diagnostic]]:
    """`work` for every case and size; what cannot be run does not hide the rest."""
    rows: list[Any] = []
    errors: list[Diagnostic] = []
    with session.progress() as tell:
        for item in cases_of(path):
            try:
                case = load_case(item)
                if tell is not None:
                    tell(case.name)
                for chosen in read_sizes(sizes, case):
                    rows += work(case, chosen)
            except PorterError as error:
                errors += error.diagnostics
    return rows, errors


def _rows(path: Path) -> list[dict[str, Any]]:
    require_file(path, "selfcheck --simulated")
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["simulated"]
        read_simulated(rows)
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise PorterError(Code.RECORD_UNREADABLE, Location(str(path)), path=path, problem=problem) from None
    return rows


def _keep(session: Session, path: Path, found: list[Any], errors: list[Diagnostic]) -> ExitCode:
    session.report(errors)
    rows = [{**vars(one), "sizes": dict(one.sizes), "outputs": dict(one.outputs)} for one in found]
    failed = sum(one.status != "ok" for one in found)
    code = simulated_exit(found, errors)
    facts = environment(" ".join(sys.argv))
    try:
        path.write_text(json.dumps({"environment": facts, "simulated": rows}, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=path, reason=error.strerror) from None
    session.show(Text(f"{quantity(len(rows), 'run')} in {path}, {failed} did not finish"))
    body = {"environment": facts, "rows": [], "simulated": rows, "diagnostics": report_json.diagnostics(errors)}
    session.write_json(report_json.document("selfcheck", code, body))
    return code


def _report(session: Session, rows: list[BitsRow], errors: list[Diagnostic]) -> ExitCode:
    session.report(errors)
    session.show(_table(rows))
    different = sum(r.verdict is Verdict.ERROR for r in rows)
    session.show(Text(f"{len(rows) - different} of {len(rows)} agree in every bit or are for review"))
    code = bits_exit(rows, errors)
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
    table = plain_table("case", "sizes", "inputs", "compared", "different bits", "verdict")
    for row in rows:
        sizes = " ".join(f"{k}={v}" for k, v in row.sizes.items())
        what = f"{row.different} of {row.elements}" + (f": {row.problem}" if row.problem else "")
        table.add_row(row.case, sizes, row.family, f"{row.left} / {row.right}", what, row.verdict.value)
    return table
