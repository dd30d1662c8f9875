# SPDX-License-Identifier: Apache-2.0
"""Mutation results: the table of mutants, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from porter.diagnostics import ExitCode
from porter.report import json as report_json
from porter.report.hazards import hazard
from porter.report.tables import plain_table, quantity
from porter.verify.mutation import MutantRow, MutationResult
from porter.verify.mutation_record import Record, Row, record_row

HARMLESS = {
    "unreached": "no warp comes to it",
    "unused": "the mbarrier is not used",
    "execution": "the order of execution is enough for all that depends on it (docs/rulings.md, relaxed-order)",
    "idle": "there never is anything to wait for or to order",
}


def by_hazard(row: Row) -> str:
    """What is reported; kinds that only the strict level makes errors stand in parentheses."""
    return " ".join((*row.errors, *(f"({kind})" for kind in row.reviews), *([row.ended] if row.ended else [])))


def label(row: Row) -> str:
    """A mutant in a sentence."""
    return f"{row.how} {row.opcode} at {row.place}"


def reason(row: Row, rows: Sequence[Row]) -> str:
    """Why nobody notices a mutant, as far as runs show it."""
    if row.reason is None:
        return ""
    by = [rows[n] for n in row.by]
    if row.reason == "weaker":
        return f"weaker than: {by[0].how}, which goes unnoticed as well"
    if row.reason == "covered":
        return f"covered: with {' and '.join(map(label, by))}, {' '.join(row.then)}"
    return HARMLESS[row.reason]


def table(name: str, program: str, result: MutationResult) -> Iterator[RenderableType]:
    found = plain_table(
        "line", "mutant", "level", "by value", "by hazard", "not caught because", title=f"{name} {program}"
    )
    rows = [record_row(row) for row in result.rows]
    for row in rows:
        mutant = f"{row.how} {row.opcode}" + (f" ({row.at})" if row.at else "")
        because = "" if row.caught else reason(row, rows) or "no run shows why"
        found.add_row(row.place, mutant, row.level, "yes" if row.value else "no", by_hazard(row) or "no", because)
    yield found
    yield Text(_line(name, program, result))


def _line(name: str, program: str, result: MutationResult) -> str:
    left = f"{quantity(result.not_run, 'mutant')} not run" if result.not_run else "survivors not run again"
    if not result.rows and result.stopped:
        return f"{name} {program}: no mutants run; stopped: {left}"
    if not result.rows:
        ended = result.baseline.findings[0].message if result.baseline.findings else "it has nothing to mutate"
        return f"{name} {program}: no mutants run: {ended}"
    done = f"{name} {program}: {counts(result.rows)}"
    if not result.stopped:
        return done
    return f"{done}; stopped: {left}"


def counts(rows: Sequence[MutantRow | Row]) -> str:
    """A summary of some mutants of which the survivors may be explained."""
    caught = sum(r.caught for r in rows)
    values = sum(r.value if isinstance(r, Row) else r.by_value for r in rows)
    unexplained = sum(not r.caught and r.reason is None for r in rows)
    text = f"{caught} of {quantity(len(rows), 'mutant')} caught by hazard, {values} by value"
    return f"{text}; no run shows why {unexplained} do no harm" if unexplained else text


def summary(records: Sequence[Record]) -> str:
    rows = [row for record in records for row in record.rows]
    return f"{quantity(len(records), 'kernel')}: {counts(rows)}"


def document(
    program: str,
    results: Sequence[tuple[str, MutationResult, str]],
    code: ExitCode,
    earlier: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """`results`: of each case its name, what became of its mutants, and the digest of what that depends on. `earlier`:
    kernels of an earlier document that were not mutated again."""
    kernels = [
        {
            "name": name,
            "program": program,
            "kernel": r.kernel,
            "status": r.baseline.status,
            "hazards": [hazard(h) for h in r.baseline.hazards],
            "mutants": [_row(row) for row in r.rows],
            "digest": digest or None,
            "stopped": r.stopped or None,
            "not_run": r.not_run,
        }
        for name, r, digest in results
    ]
    return report_json.document("mutate", code, {"kernels": [*earlier, *kernels]})


def _row(row: MutantRow) -> dict[str, Any]:
    ins = row.mutant.instruction
    return {
        "how": row.mutant.how,
        "opcode": ins.opcode,
        "level": row.mutant.level,
        "ptx_line": ins.line or None,
        "source": ins.loc.file if ins.loc else None,
        "line": ins.loc.line if ins.loc else None,
        "run": row.at,
        "by_value": row.by_value,
        "by_run": row.by_run or None,
        "by_hazard": [*row.errors, *row.reviews],
        "strict_only": not row.caught_in_practice and row.caught,
        "caught": row.caught,
        "reason": row.reason.kind if row.reason else None,
        "covered_by": list(row.reason.by) if row.reason else [],
    }
