# SPDX-License-Identifier: Apache-2.0
"""The form of tables for people."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table


def quantity(number: int, noun: str) -> str:
    """`1 file`, `2 files`: nouns whose plural ends in s."""
    return f"{number} {noun}{'s' * (number != 1)}"


def plain_table(*headings: str, title: str | None = None, **column: Any) -> Table:
    """A table with a line under its headings and none around it; `column` is what `add_column` takes of each: with
    `overflow="fold"` nothing is left out on a narrow terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=title)
    for heading in headings:
        table.add_column(heading, **column)
    return table
