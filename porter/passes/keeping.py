# SPDX-License-Identifier: Apache-2.0
"""Places that comments in sources ask to be left as they are (`// porter: keep PTR150`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from porter.diagnostics import Code, Diagnostic
from porter.lang.keeps import Keep, Keeps
from porter.lang.text import EditGroup, LineIndex
from porter.rules.rule import Rule


class Kept:
    """What the sources of one port ask for."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._asked = Keeps(lambda path: sources.get(path, b""))
        self._indexes = {p: LineIndex(text) for p, text in sources.items() if self._asked.of(p)}

    def refused(self, groups: Iterable[EditGroup]) -> list[Diagnostic]:
        """What has to be said of edits that are to be left out: a kernel's port cannot do without them."""
        found = [(keep, group) for group in groups for keep in self._touching(group)]
        return [Diagnostic(Code.RULE_IGNORED, keep.where, {"rule": group.rule}) for keep, group in found]

    def left(self, groups: Sequence[EditGroup]) -> tuple[list[EditGroup], list[Diagnostic]]:
        """Groups that stand alone, without those that are to be left out, of which a note is made."""
        rest, notes = [], []
        for group in groups:
            keep = next(iter(self._touching(group)), None)
            if keep is None:
                rest.append(group)
            else:
                notes.append(Diagnostic(Code.PLACE_KEPT, keep.where, {"rule": group.rule, "title": group.title}))
        return rest, notes

    def unused(self, path: str, rules: Iterable[Rule]) -> list[Diagnostic]:
        """Comments of a file that kept no edit, among those that name a rule which makes some."""
        able = {rule.id for rule in rules if rule.report is None}
        found = [keep for keep in self._asked.unused([path]) if keep.id in able]
        return [Diagnostic(Code.KEEP_UNUSED, keep.where, {"id": keep.id}) for keep in found]

    def _touching(self, group: EditGroup) -> list[Keep]:
        found = []
        for edit in group.edits:
            index = self._indexes.get(edit.path)
            if index is None:
                continue
            first = index.line_column(edit.span.start)[0]
            last = index.line_column(max(edit.span.end - 1, edit.span.start))[0]
            keep = self._asked.covers(edit.path, range(first, last + 1), [group.rule])
            if keep is not None and keep not in found:
                found.append(keep)
        return found
