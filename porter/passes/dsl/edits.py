# SPDX-License-Identifier: Apache-2.0
"""Edits of one Python file: whole statements go, blocks move under a condition, unused names follow."""

from __future__ import annotations

import re
import textwrap

import libcst as cst

from porter.lang.cute_dsl import DslFile, assigned
from porter.lang.text import Edit, Span
from porter.model.dsl.scope import Scope

_HEADING = re.compile(rb"#\s*(?:/{4,}|-{4,}|={4,}|#{4,})")


class FileEdits:
    """Collects edits by rule ID. An edit inside text that another one replaces is dropped."""

    def __init__(self, file: DslFile) -> None:
        self.file = file
        self._items: list[tuple[str, Span, str]] = []
        self._moved: list[tuple[str, Span, str, str]] = []

    def replace(self, rule: str, node: cst.CSTNode | Span, text: str) -> None:
        span = node if isinstance(node, Span) else self.file.span(node)
        self._items.append((rule, span, text))

    def insert_before(self, rule: str, statement: cst.CSTNode, text: str, gap: bool = False) -> None:
        """Put lines above a statement and its comments, indented like it; with `gap` and a blank line around."""
        at = self.file.comments_above(statement).start
        self._insert(rule, statement, at, text, gap)

    def insert_after(self, rule: str, statement: cst.CSTNode, text: str, gap: bool = False) -> None:
        """Put lines below a statement, indented like it; with `gap` and a blank line around."""
        self._insert(rule, statement, self.file.whole_lines(statement).end, text, gap)

    def _insert(self, rule: str, statement: cst.CSTNode, at: int, text: str, gap: bool) -> None:
        lines, source = self._lines(statement, text), self.file.source
        if gap:
            above = source[self.file.line_start(max(at - 1, 0)) : at].strip()
            lines = ("\n" if above else "") + lines
            lines += "\n" if source[at : self.file.line_end(at)].strip() else ""
        self._items.append((rule, Span(at, at), lines))

    def replace_lines(self, rule: str, statement: cst.CSTNode, text: str, comments: bool = False) -> None:
        """Put lines in the place of a statement, with `comments` also of the comments above it."""
        span = self.file.whole_lines(statement)
        if comments:
            span = Span(self._own_comments(statement), span.end)
        self._items.append((rule, span, self._lines(statement, text)))

    def delete(self, rule: str, statement: cst.CSTNode) -> None:
        """Remove a statement's lines and the comments that belong to it."""
        span = self.file.whole_lines(statement)
        self._items.append((rule, Span(self._own_comments(statement), span.end), ""))

    def move_under(
        self, rule: str, span: Span, header: str, head: str, tail: str, behind: str = ""
    ) -> None:
        """Put whole lines under a compound statement's `header`, between the lines `head` and `tail`; the lines
        `behind` follow at the header's indentation."""
        indent = self.file.source[span.start :].split(b"\n", 1)[0]
        outer = indent[: len(indent) - len(indent.lstrip())].decode("utf-8")
        inner = outer + "    "
        first = textwrap.indent(header + "\n", outer) + textwrap.indent(head, inner)
        self._moved.append((rule, span, first, textwrap.indent(tail, inner) + textwrap.indent(behind, outer)))

    def removed(self, node: cst.CSTNode) -> bool:
        """Whether some edit takes a node's text away."""
        span = self.file.span(node)
        return any(s.contains(span) and len(s) for _, s, _ in self._items)

    def mentions(self, name: str) -> bool:
        """Whether new text uses a name."""
        word = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
        return any(word.search(text) for _, _, text in self._items)

    def drop_unused(self, rule: str, scope: Scope) -> None:
        """Delete assignments to local names that nothing reads any more because of the edits so far."""
        changed = True
        while changed:
            changed = False
            for statement in scope.statements:
                pair = assigned(statement)
                if pair is None or not isinstance(pair[0], cst.Name) or self.removed(statement):
                    continue
                uses = scope.uses(pair[0].value)
                if not uses or self.mentions(pair[0].value) or not all(self.removed(u) for u in uses):
                    continue
                self.delete(rule, statement)
                changed = True

    def lost(self, scope: Scope) -> list[tuple[str, cst.CSTNode]]:
        """Uses of local names that nothing defines any more."""
        found: list[tuple[str, cst.CSTNode]] = []
        names = {pair[0].value for s in scope.statements if (pair := assigned(s)) and isinstance(pair[0], cst.Name)}
        for name in sorted(names):
            if all(self.removed(s) for s, _ in scope.definitions(name)) and not self._defines(name):
                found += [(name, use) for use in scope.uses(name) if not self.removed(use)]
        return found

    def _defines(self, name: str) -> bool:
        word = re.compile(rf"^\s*{re.escape(name)} = ", re.MULTILINE)
        return any(word.search(text) for _, _, text in self._items)

    def finish(self) -> dict[str, list[Edit]]:
        """The edits by rule ID."""
        kept = [
            item
            for i, item in enumerate(self._items)
            if not any(
                j != i and len(other[1]) and other[1].contains(item[1]) and self._covers(other[1], item[1], j < i)
                for j, other in enumerate(self._items)
            )
        ]
        found: dict[str, list[Edit]] = {}
        for rule, span, text in self._without_double_gaps(kept):
            for _, region, _, _ in self._moved:
                if text and self._inside(region, span):
                    text = self._deeper(span, text)
            found.setdefault(rule, []).append(Edit(self.file.path, span, text.encode("utf-8")))
        for rule, region, first, last in self._joined():
            edits = found.setdefault(rule, [])
            edits.insert(0, Edit(self.file.path, Span(region.start, region.start), first.encode("utf-8")))
            edits.extend(self._indentation(region, [s for _, s, _ in kept]))
            if last:
                edits.append(Edit(self.file.path, Span(region.end, region.end), last.encode("utf-8")))
        return found

    def _joined(self) -> list[tuple[str, Span, str, str]]:
        """Where one moved block ends and the next begins, the end of the first comes before the second's header."""
        found: list[tuple[str, Span, str, str]] = []
        for rule, region, first, last in sorted(self._moved, key=lambda m: m[1].start):
            if found and found[-1][1].end == region.start:
                before = found.pop()
                found.append((*before[:3], ""))
                first = before[3] + first
            found.append((rule, region, first, last))
        return found

    def _without_double_gaps(self, items: list[tuple[str, Span, str]]) -> list[tuple[str, Span, str]]:
        """Where a run of deleted lines stood between two blank lines, or at a block's beginning, the second
        blank line goes too."""
        source, found = self.file.source, []
        gone = {span.end: span for _, span, text in items if len(span) and not text}
        ends = {span.start for _, span, text in items if len(span) and not text}
        for rule, span, text in items:
            end = span.end
            if len(span) and not text and end not in ends and end < len(source):
                first = span.start
                while first in gone:
                    first = gone[first].start
                before = source[self.file.line_start(max(first - 1, 0)) : first].strip()
                if not source[end : self.file.line_end(end)].strip() and (not before or before.endswith(b":")):
                    end = self.file.line_end(end)
            found.append((rule, Span(span.start, end), text))
        return found

    @staticmethod
    def _inside(region: Span, span: Span) -> bool:
        return region.contains(span) and (bool(len(span)) or region.start < span.start < region.end)

    @staticmethod
    def _covers(outer: Span, inner: Span, earlier: bool) -> bool:
        if not len(inner):
            return outer.start < inner.start < outer.end
        return len(outer) > len(inner) or (outer == inner and earlier)

    def _deeper(self, span: Span, text: str) -> str:
        """New text in a block that moves in: all its lines if it begins a line, else those after the first."""
        first = self.file.line_start(span.start) == span.start
        lines = text.splitlines(keepends=True)
        return "".join("    " + line if line.strip() and (i or first) else line for i, line in enumerate(lines))

    def _indentation(self, region: Span, taken: list[Span]) -> list[Edit]:
        edits = []
        at = region.start
        while at < region.end:
            after = self.file.line_end(at)
            inside = any(s.start < at < s.end or (s.start == at and len(s)) for s in taken)
            if self.file.source[at:after].strip() and not inside:
                edits.append(Edit(self.file.path, Span(at, at), b"    "))
            at = after
        return edits

    def _own_comments(self, statement: cst.CSTNode) -> int:
        above = self.file.comments_above(statement)
        text = self.file.source[above.start : above.end]
        return above.end if _HEADING.search(text) else above.start

    def _lines(self, statement: cst.CSTNode, text: str) -> str:
        return textwrap.indent(textwrap.dedent(text).strip("\n") + "\n", self.file.indent(statement))
