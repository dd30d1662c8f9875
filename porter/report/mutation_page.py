# SPDX-License-Identifier: Apache-2.0
"""Kept mutation results as a page: a table of the kernels, one of the mutations, and one of why mutants survive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from porter.report.mutation import HARMLESS
from porter.report.mutation_review import Explanation, explained
from porter.verify.mutation_record import Record, Row

_HEAD = ("mutants", "of error level", "caught by value", "by hazard in practice", "by hazard", "harmless by a run",
         "harmless by review", "unexplained")  # fmt: skip


def mutation_tables(records: Sequence[Record], explanations: Sequence[Explanation]) -> Iterator[str]:
    """Lines of Markdown."""
    rows = [row for record in records for row in record.rows]
    yield "## Kernels"
    yield ""
    yield (
        f"The checker notices {sum(row.caught for row in rows)} of {len(rows)} mutants; comparing the values of the "
        f"same runs notices {sum(row.value for row in rows)}."
    )
    yield ""
    yield from port_table(records, explanations)
    yield ""
    yield "## Mutations"
    yield ""
    by_how: dict[str, list[tuple[Record, Row]]] = {}
    for record in records:
        for row in record.rows:
            by_how.setdefault(f"{row.how} `{family(row.opcode)}`", []).append((record, row))
    yield from _table("mutation", sorted(by_how.items(), key=lambda item: item[0].split("`")[1]), explanations)
    yield ""
    yield "## Survivors"
    yield ""
    yield "Why nobody notices a mutant. Each one stands with its line and what covers it in the record of its port."
    yield ""
    yield "| why | mutants |"
    yield "|-----|--------:|"
    found = Counter(_why(r, row, explanations) for r in records for row in r.survivors)
    yield from (f"| {why} | {count} |" for why, count in sorted(found.items(), key=lambda item: (-item[1], item[0])))


def port_table(records: Sequence[Record], explanations: Sequence[Explanation]) -> Iterator[str]:
    """A table of ports, with their sum."""
    groups = [(r.case, [(r, row) for row in r.rows]) for r in records]
    yield from _table("port", groups, explanations, total=True)


def family(opcode: str) -> str:
    """An opcode without what does not matter to synchronization."""
    parts = opcode.split(".")
    if parts[0] in ("bar", "barrier"):
        if "cluster" in parts:
            return "barrier.cluster." + ("arrive" if "arrive" in parts else "wait")
        return "bar.warp.sync" if "warp" in parts else "bar.arrive" if "arrive" in parts else "bar.sync"
    left_out = ("sync", "aligned", "b64", "b32", "shared", "cta_group", "mbarrier::", "L2::")
    kept = [p for p in parts if p not in ("cta", "cluster") and not any(p.startswith(x) for x in left_out)]
    return ".".join(kept)


def _table(
    first: str,
    groups: Iterable[tuple[str, Sequence[tuple[Record, Row]]]],
    explanations: Sequence[Explanation],
    total: bool = False,
) -> Iterator[str]:
    yield f"| {first} | " + " | ".join(_HEAD) + " |"
    yield "|------|" + "-----:|" * len(_HEAD)
    everything: list[tuple[Record, Row]] = []
    for name, rows in groups:
        everything += rows
        yield _counts(name, rows, explanations)
    if total:
        yield _counts("**all**", everything, explanations)


def _counts(name: str, found: Sequence[tuple[Record, Row]], explanations: Sequence[Explanation]) -> str:
    rows = [row for _, row in found]
    survivors = [(record, row) for record, row in found if not row.caught]
    reviewed = sum(row.reason is None and explained(explanations, rec, row) is not None for rec, row in survivors)
    shown = sum(row.reason is not None for _, row in survivors)
    cells = (
        len(rows),
        sum(row.level == "error" for row in rows),
        sum(row.value for row in rows),
        sum(row.caught_in_practice for row in rows),
        sum(row.caught for row in rows),
        shown,
        reviewed,
        len(survivors) - shown - reviewed,
    )
    return f"| {name} | " + " | ".join(map(str, cells)) + " |"


def _why(record: Record, row: Row, explanations: Sequence[Explanation]) -> str:
    if row.reason is not None:
        return row.reason if row.reason in ("covered", "weaker") else HARMLESS[row.reason]
    found = explained(explanations, record, row)
    return f"*reviewed:* {found.why}" if found is not None else "**unexplained**"
