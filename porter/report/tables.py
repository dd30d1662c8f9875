# SPDX-License-Identifier: Apache-2.0
"""The form of tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_ENDLESS = 100_000
_READABLE = 24
"""Columns that words of a table's last column need at least to be read as a text."""


def quantity(number: int, noun: str) -> str:
    """`1 file`, `2 files`: nouns whose plural ends in s."""
    return f"{number} {noun}{'s' * (number != 1)}"


class Fitted(Table):
    """A table that has another form where its columns do not stand side by side: of each row a line with its first cell
    and those of the columns `beside`, and below it the others, each under its heading. Nothing is left out at any
    width, and no word is broken that has room. A last column of words may have several lines.

    `beside`: headings of columns that say what a row comes to.
    """

    def __init__(self, *args: Any, beside: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.beside = beside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(max_width=_ENDLESS)
        widths = [
            max(Measurement.get(console, endless, cell).maximum for cell in (column.header, *column.cells))
            for column in self.columns
        ]
        last = widths[-1] if widths else 0
        needed = Measurement.get(console, endless, self).maximum - last + min(last, _READABLE)
        if self.columns and needed > options.max_width:
            yield from self._rows(console)
            return
        for column, width in zip(self.columns[:-1], widths, strict=False):
            column.min_width = max(width, column.min_width or 0)
        yield from super().__rich_console__(console, options)

    def _rows(self, console: Console) -> Iterator[Text | Padding]:
        headings = [_flat(console, column.header) for column in self.columns]
        # a column without a heading belongs to what is left of it
        lead = [i for i, heading in enumerate(headings) if i == 0 or not heading.plain or heading.plain in self.beside]
        cells = [list(column.cells) for column in self.columns]
        if self.title:
            yield Text(str(self.title), style="italic")
        for row in range(self.row_count):
            given = [_flat(console, column[row]) for column in cells]
            if not given[0].plain:
                # a row that goes on with the one above it
                yield Padding(_pairs(headings, given, [1, *range(2, len(given))], named=False), (0, 0, 0, 2))
                continue
            first = _pairs(headings, given, lead, named=False)
            yield first
            others = _pairs(headings, given, [i for i in range(len(given)) if i not in lead])
            if others.plain:
                yield Padding(others, (0, 0, 0, 2))


def _pairs(headings: list[Text], cells: list[Text], which: list[int], named: bool = True) -> Text:
    """`original / reference equal, hazards clean`: cells under their headings. `named`: the first has its own, too."""
    found: list[Text] = []
    for n, i in enumerate(which):
        if not cells[i].plain:
            continue
        heading = headings[i].plain if named or n else ""
        found.append(Text.assemble((f"{heading} " if heading else "", "dim"), cells[i]))
    return Text(", ").join(found)


def _flat(console: Console, cell: Any) -> Text:
    """A cell as one text; its lines stand one behind the other."""
    text = (
        cell.copy() if isinstance(cell, Text) else Text(str(cell) if isinstance(cell, str) else _written(console, cell))
    )
    return Text("; ").join(line for line in text.split("\n") if line.plain)


def _written(console: Console, cell: Any) -> str:
    with console.capture() as captured:
        console.print(cell, end="")
    return captured.get()


def plain_table(*headings: str, title: str | None = None, beside: tuple[str, ...] = (), **column: Any) -> Fitted:
    """A table with a line under its headings and none around it; `column` is what `add_column` takes of each, `beside`
    what `Fitted` has."""
    table = Fitted(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=title, beside=beside)
    for heading in headings:
        table.add_column(heading, **column)
    return table


def bare_table(*headings: str, beside: tuple[str, ...] = (), **column: Any) -> Fitted:
    """The same without the line, for what stands below other lines."""
    table = Fitted(box=None, beside=beside)
    for heading in headings:
        table.add_column(heading, **{"overflow": "fold", **column})
    return table
