# SPDX-License-Identifier: Apache-2.0
"""Edit groups as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from porter.lang.text import Edit, EditGroup, LineIndex


def group_bodies(groups: list[EditGroup], old: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The groups with the spans of their edits, in bytes, and as lines and characters of the files they are for."""
    indexes = {path: LineIndex(text) for path, text in old.items()}
    return [_group(g, old, indexes) for g in groups]


def _group(g: EditGroup, old: Mapping[str, bytes], indexes: Mapping[str, LineIndex]) -> dict[str, Any]:
    def place(e: Edit, offset: int) -> dict[str, int]:
        if e.path not in indexes:
            return {"line": 1, "column": 1}
        line, column = indexes[e.path].line_column(offset)
        before = old[e.path][offset - column + 1 : offset].decode("utf-8", "replace")
        return {"line": line, "column": len(before) + 1}

    edits = [
        {
            "path": e.path,
            "start": e.span.start,
            "end": e.span.end,
            "from": place(e, e.span.start),
            "to": place(e, e.span.end),
            "replacement": e.replacement.decode("utf-8", "replace"),
        }
        for e in g.edits
    ]
    return {
        "rule": g.rule,
        "title": g.title,
        "safety": g.safety.value,
        "reason": g.reason,
        "references": list(g.references),
        "notes": list(g.notes),
        "edits": edits,
    }
