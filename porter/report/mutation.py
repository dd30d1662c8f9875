# SPDX-License-Identifier: Apache-2.0
"""Mutation results: the table of mutants, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from porter.diagnostics import ExitCode
from porter.report import json as report_json
from porter.report.hazards import hazard
from porter.verify.mutation import MutantRow, MutationResult


def exit_code(result: MutationResult) -> ExitCode:
    """DIFFERENT if the kernel itself is not clean, FINDINGS if a mutant with wrong values goes unnoticed."""
    if result.baseline.status == "incomplete":
        return ExitCode.INCONCLUSIVE
    if result.baseline.status == "error" or any(h.severity == "error" for h in result.baseline.hazards):
        return ExitCode.DIFFERENT
    return ExitCode.FINDINGS if any(r.by_value for r in result.survivors) else ExitCode.OK


def place(row: MutantRow) -> str:
    """The line of the kernel that the instruction was inlined into."""
    loc = row.mutant.instruction.loc
    if loc is None:
        return f"PTX {row.mutant.instruction.line}"
    while loc.inlined_at is not None:
        loc = loc.inlined_at
    return f"{loc.file.rpartition('/')[2]}:{loc.line}"


def by_hazard(row: MutantRow) -> str:
    return " ".join((*row.by_hazard, *([row.by_run] if row.by_run else [])))


def table(name: str, program: str, result: MutationResult) -> Iterator[RenderableType]:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=f"{name} {program}")
    for heading in ("line", "mutant", "by value", "by hazard", "not caught because"):
        found.add_column(heading)
    for row in result.rows:
        found.add_row(place(row), row.mutant.name, "yes" if row.by_value else "no", by_hazard(row) or "no", row.reason)
    yield found
    yield Text(_line(name, program, result))


def _line(name: str, program: str, result: MutationResult) -> str:
    if not result.rows:
        ended = result.baseline.findings[0].message if result.baseline.findings else "it has nothing to mutate"
        return f"{name} {program}: no mutants run: {ended}"
    caught = len(result.rows) - len(result.survivors)
    values = sum(r.by_value for r in result.rows)
    return f"{name} {program}: {caught} of {len(result.rows)} mutants caught by hazard, {values} by value"


def summary(results: Sequence[tuple[str, MutationResult]]) -> str:
    total = sum(len(r.rows) for _, r in results)
    left = sum(len(r.survivors) for _, r in results)
    return f"{len(results)} kernels: {total - left} of {total} mutants caught by hazard"


def document(program: str, results: Sequence[tuple[str, MutationResult]], code: ExitCode) -> dict[str, Any]:
    kernels = [
        {
            "name": name,
            "program": program,
            "kernel": r.kernel,
            "status": r.baseline.status,
            "hazards": [hazard(h) for h in r.baseline.hazards],
            "mutants": [_row(row) for row in r.rows],
        }
        for name, r in results
    ]
    return report_json.document("mutate", code, {"kernels": kernels})


def _row(row: MutantRow) -> dict[str, Any]:
    ins = row.mutant.instruction
    return {
        "how": row.mutant.how,
        "opcode": ins.opcode,
        "ptx_line": ins.line or None,
        "source": ins.loc.file if ins.loc else None,
        "line": ins.loc.line if ins.loc else None,
        "by_value": row.by_value,
        "by_run": row.by_run or None,
        "by_hazard": list(row.by_hazard),
        "caught": row.caught,
        "reason": row.reason or None,
    }
