# SPDX-License-Identifier: Apache-2.0
"""Edits of several rules that are about the same text: none of them is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from porter.diagnostics import Code, Diagnostic
from porter.lang.text import EditConflict, EditGroup, LineIndex, apply_groups, as_text

_SHOWN = 60
"""Characters of the text that a message shows."""


def clashes(files: Mapping[str, bytes], groups: Sequence[EditGroup]) -> list[Diagnostic]:
    """EDITS_CLASH for the first two edits that overlap; nothing where all can be made."""
    try:
        apply_groups(dict(files), groups)
    except EditConflict as clash:
        path, span = clash.edit.path, clash.edit.span
        source = files[path]
        where = LineIndex(source).location(path, span)
        shown = " ".join(as_text(source[span.start : span.end]).split())
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        values = {"text": shown, "first": clash.first.rule, "second": clash.second.rule}
        return [Diagnostic(Code.EDITS_CLASH, where, values)]
    return []
