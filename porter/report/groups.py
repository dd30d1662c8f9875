# SPDX-License-Identifier: Apache-2.0
"""Edit groups as data."""

from __future__ import annotations

from typing import Any

from porter.lang.text import EditGroup


def group_body(g: EditGroup) -> dict[str, Any]:
    edits = [{"path": e.path, "start": e.span.start, "end": e.span.end,
              "replacement": e.replacement.decode("utf-8", "replace")} for e in g.edits]  # fmt: skip
    return {
        "rule": g.rule,
        "title": g.title,
        "safety": g.safety.value,
        "reason": g.reason,
        "references": list(g.references),
        "notes": list(g.notes),
        "edits": edits,
    }
