# SPDX-License-Identifier: Apache-2.0
"""Rows that were made before in the same process: what proves a port need not be run again to verify it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from porter.verify.results import Row
from porter.verify.trial import Program


@dataclass
class Known:
    """Rows by their digest, each with what the runs of its programs counted."""

    _rows: dict[str, tuple[Row, dict[str, Any]]] = field(default_factory=dict)

    def note(self, row: Row, counted: dict[str, Any]) -> None:
        """Know a row from now on; `counted` by the names of programs."""
        self._rows[row.digest] = row, counted

    def row(self, digest: str, programs: Sequence[Program], add: Callable[[Program, Any], None]) -> Row | None:
        """A row that was made of these programs, whose counts are handed on; None where there is none."""
        found = self._rows.get(digest)
        if found is None:
            return None
        for program in programs:
            add(program, found[1].get(program.name))
        return replace(found[0], added="")
