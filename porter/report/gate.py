# SPDX-License-Identifier: Apache-2.0
"""What the compile gate of `porter port` did, for people and as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from porter.build.entry import without_arguments
from porter.build.gate import Gated
from porter.build.table import Metric, ResourceRow, Room
from porter.report.tables import plain_table


def summary(results: Sequence[Gated]) -> list[RenderableType]:
    """Per kernel registers and spills, original → port; per file what was not compiled."""
    shown: list[RenderableType] = []
    rows = [row for g in results for row in g.rows]
    if rows:
        shown.append(_table(_unique(rows)))
    for g in results:
        if g.status == "refused":
            shown.append(Text(f"{g.path}: the port does not compile", style="bold red"))
        elif g.status == "not compiled":
            shown.append(Text(f"{g.path}: not compiled: {g.reason}", style="yellow"))
        elif not g.rows:
            shown.append(Text(f"{g.path}: compiled; no kernel is instantiated", style="yellow"))
    return shown


def document(results: Iterable[Gated]) -> list[dict[str, Any]]:
    return [
        {
            "path": g.path,
            "status": g.status,
            "reason": g.reason,
            "kernels": [row.as_json() for row in g.rows],
            "host_headers": list(g.stood_in),
            "not_instantiated": list(g.unmade),
        }
        for g in results
    ]


def _unique(rows: Iterable[ResourceRow]) -> list[ResourceRow]:
    found: list[ResourceRow] = []
    for row in rows:
        if row not in found:
            found.append(row)
    return found


def _table(rows: Sequence[ResourceRow]) -> Table:
    table = plain_table()
    first = rows[0]
    table.add_column(f"compiled for {first.before_arch} → {first.after_arch}", overflow="fold")
    table.add_column("registers", justify="right")
    table.add_column("spilled (bytes)", justify="right")
    table.add_column("CTAs an SM", justify="right")
    for row in rows:
        spilled = (row.metric("spill_stores"), row.metric("spill_loads"))
        worse = not any(m.before for m in spilled) and any(m.after for m in spilled)
        table.add_row(
            without_arguments(row.kernel).rstrip("(").removeprefix("void "),
            _arrow(row.metric("registers")),
            Text(_sum(spilled), style="red" if worse else ""),
            room_text(row.room),
        )
    return table


def room_text(room: Room | None) -> Text:
    """`3 → 2 (Tensor Memory)`: how many CTAs share an SM, with what bounds the port's if they are fewer."""
    if room is None:
        return Text("-")
    most = "≤ " if room.at_most else ""
    fewer = room.after.blocks < room.before.blocks
    said = f"{most}{room.before.blocks} → {most}{room.after.blocks}" + (f" ({room.after.by})" if fewer else "")
    return Text(said, style="yellow" if room.why else "")


def _arrow(metric: Metric) -> str:
    return f"{_number(metric.before)} → {_number(metric.after)}"


def _sum(spilled: Sequence[Metric]) -> str:
    before = [m.before for m in spilled if m.before is not None]
    after = [m.after for m in spilled if m.after is not None]
    return f"{sum(before) if before else '-'} → {sum(after) if after else '-'}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
