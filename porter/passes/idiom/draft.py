# SPDX-License-Identifier: Apache-2.0
"""Edits of a port in SM100's own words, which are made together or not at all."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tree_sitter import Node

from porter.lang.cuda import CudaFile
from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups, as_bytes, as_text
from porter.model.functions import Function
from porter.passes.context import PortContext
from porter.passes.native.sites import Left, whole_line


class Ported(Protocol):
    """What a part of a file becomes, without parts of it that go."""

    def __call__(self, span: Span, gone: Sequence[Span] = ()) -> str: ...


@dataclass(frozen=True)
class Moved:
    """Text that stands at `at` in the file of `function`, and parts that go, as `write` makes both of what others want
    of the file."""

    rule: str
    function: Function
    at: int
    write: Callable[[Ported], tuple[str, list[Span]]]


@dataclass(eq=False)
class Draft:
    """What rules want of texts. Insertions at one place keep the order in which they are asked for."""

    port: PortContext
    unit: str = "    "
    """By how much lines are indented; what rules write has four blanks for it."""
    _edits: dict[str, dict[Edit, Function]] = field(default_factory=dict)
    _inserted: list[tuple[str, Edit, Function]] = field(default_factory=list)
    _removed: dict[int, tuple[str, Function, Node]] = field(default_factory=dict)
    _shifted: list[tuple[str, Function, Span, str]] = field(default_factory=list)
    _moved: list[Moved] = field(default_factory=list)

    def end_of(self, function: Function, node: Node) -> int:
        """Where lines begin that stand behind a statement: behind a comment that ends its line, too."""
        span, source = function.span(node), function.file.source
        end = source.find(b"\n", span.end)
        rest = source[span.end : end] if end >= 0 else b""
        return end if rest.strip().startswith(b"//") else span.end

    def replace(self, rule: str, function: Function, span: Span, text: str) -> None:
        """Another text for a part of the function's file; the same one may be asked for twice."""
        edit = Edit(function.file.path, span, as_bytes(text.replace("\n", function.file.newline)))
        if len(span):
            self._edits.setdefault(rule, {}).setdefault(edit, function)
        else:
            self._inserted.append((rule, edit, function))

    def insert(self, rule: str, function: Function, at: int, text: str) -> None:
        self.replace(rule, function, Span(at, at), text)

    def is_written(self, path: str, span: Span) -> bool:
        """Whether a part of a file has another text already, or is a part of what has."""
        edits = (e for edits in self._edits.values() for e in edits)
        return any(e.path == path and e.span.contains(span) for e in edits)

    def takes_away(self, path: str, span: Span) -> bool:
        """Whether a part of a file goes."""
        edits = (e for edits in self._edits.values() for e in edits)
        return any(e.path == path and not e.replacement and e.span.contains(span) for e in edits)

    def remove(self, rule: str, function: Function, node: Node) -> None:
        """Take a statement away, with its line if it has that to itself."""
        self._removed.setdefault(node.id, (rule, function, node))
        self.replace(rule, function, whole_line(function, function.span(node)), "")

    def _comments(self) -> None:
        """Take away comments that lead nothing but statements that go."""
        for rule, function, node in list(self._removed.values()):
            lead = node.prev_named_sibling
            if lead is None or lead.type != "comment" or _blank_between(function, lead, node):
                continue
            current, follows = node, node.next_named_sibling
            while (
                follows is not None and follows.id in self._removed and not _blank_between(function, current, follows)
            ):
                current, follows = follows, follows.next_named_sibling
            if follows is not None and not _blank_between(function, current, follows):
                continue
            self._empty_line(rule, function, lead, current)
            while lead is not None and lead.type == "comment" and not _shares_line(function, lead):
                span = whole_line(function, function.span(lead))
                if not _blank_between(function, lead, lead.next_named_sibling):
                    self.replace(rule, function, span, "")
                lead = lead.prev_named_sibling

    def _empty_line(self, rule: str, function: Function, first: Node, last: Node) -> None:
        """Of the empty lines in front of what goes and behind it, one stays."""
        source, end = function.file.source, whole_line(function, function.span(last)).end
        while first.prev_named_sibling is not None and first.prev_named_sibling.type == "comment":
            if _blank_between(function, first.prev_named_sibling, first):
                break
            first = first.prev_named_sibling
        start = source.rfind(b"\n", 0, function.span(first).start) + 1
        if source[:start].endswith(b"\n\n") and source[end : end + 1] == b"\n":
            self.replace(rule, function, Span(end, end + 1), "")

    def before(self, rule: str, function: Function, node: Node, text: str, above_comments: bool = False) -> None:
        """Lines in front of a statement."""
        at, lines = self.port.statement_before(function, node, text.lstrip("\n"), above_comments=above_comments)
        start = function.file.source.rfind(b"\n", 0, at.start) + 1
        pad = function.file.source[start : at.start].decode("utf-8", "replace")
        if not pad.strip():
            # whole lines, so that an empty one in front has no blanks
            at, lines = Span(start, start), pad + lines[: len(lines) - len(pad)] if pad else lines
        self.replace(rule, function, at, ("\n" if text.startswith("\n") else "") + lines)

    def behind(self, rule: str, function: Function, node: Node, text: str) -> None:
        """Lines behind a statement, and behind a comment that ends its line."""
        pad = "\n" + self.port.indent(function, function.span(node))
        lines = "".join(pad + line if line else "\n" for line in text.split("\n"))
        self.insert(rule, function, self.end_of(function, node), lines)

    def shift(self, rule: str, function: Function, span: Span, unit: str) -> None:
        """Indent the lines that begin in a span by one unit more."""
        self._shifted.append((rule, function, span, unit))

    def move(self, rule: str, function: Function, at: int, write: Callable[[Ported], tuple[str, list[Span]]]) -> None:
        """Text that is made of parts of a file as they will be, and parts that go."""
        self._moved.append(Moved(rule, function, at, write))

    def _insertions(self) -> dict[tuple[str, int], list[tuple[str, Edit, Function]]]:
        """What is inserted at each place. It is one edit there, as edits of several rules have the rules' order."""
        found: dict[tuple[str, int], list[tuple[str, Edit, Function]]] = {}
        for one in self._inserted:
            found.setdefault((one[1].path, one[1].span.start), []).append(one)
        return found

    def make(self) -> None:
        """Add the edits to the port.

        Raises:
            Left: two rules want different texts for one place.
        """
        self._comments()
        every = {edit: function for edits in self._edits.values() for edit, function in edits.items()}
        gone = [e for e in every if not e.replacement]
        owners = {e: f for e, f in every.items() if not any(_goes_with(e, other) for other in gone)}
        made = {rule: [e for e in edits if e in owners] for rule, edits in self._edits.items()}
        taken = sorted(owners, key=lambda e: (e.path, e.span))
        for one, other in itertools.pairwise(taken):
            if one.path == other.path and one.span.overlaps(other.span):
                raise Left(owners[other], other.span, "two rules want different texts for one place")
        for (path, at), there in self._insertions().items():
            rule, function = there[0][0], there[0][2]
            if any(e.path == path and e.span.start < at < e.span.end for e in taken):
                raise Left(function, Span(at, at), "two rules want different texts for one place")
            made.setdefault(rule, []).append(Edit(path, Span(at, at), b"".join(e.replacement for _, e, _ in there)))
        for rule, function, span, unit in self._shifted:
            cut = [e.span for e in taken if e.path == function.file.path]
            for at in _lines(function.file, span):
                if not any(s.start <= at < s.end for s in cut):
                    made.setdefault(rule, []).append(Edit(function.file.path, Span(at, at), as_bytes(unit)))
        for moved in self._moved:
            _move(made, moved)
        for rule, edits in made.items():
            self.port.edits.setdefault(rule, []).extend(edits)


def _move(made: dict[str, list[Edit]], moved: Moved) -> None:
    path, source = moved.function.file.path, moved.function.file.source

    def inside(span: Span, edit: Edit) -> bool:
        within = span.start < edit.span.start < span.end
        return edit.path == path and span.contains(edit.span) and (bool(len(edit.span)) or within)

    def ported(span: Span, gone: Sequence[Span] = ()) -> str:
        edits = [e for edits in made.values() for e in edits if not any(inside(part, e) for part in gone)]
        edits += [Edit(path, part, b"") for part in gone]
        moved = tuple(
            Edit(path, Span(e.span.start - span.start, e.span.end - span.start), e.replacement)
            for e in edits if inside(span, e)
        )  # fmt: skip
        groups = [EditGroup("", "", Safety.SAFE, moved)]
        return as_text(apply_groups({path: source[span.start : span.end]}, groups)[path])

    text, gone = moved.write(ported)
    for rule, edits in made.items():
        made[rule] = [e for e in edits if not any(inside(span, e) for span in gone)]
    newline = moved.function.file.newline
    new = [Edit(path, span, b"") for span in gone]
    new.append(Edit(path, Span(moved.at, moved.at), as_bytes(text.replace("\n", newline))))
    made.setdefault(moved.rule, []).extend(new)


def _blank_between(function: Function, first: Node, second: Node | None) -> bool:
    """Whether an empty line stands between two nodes."""
    if second is None:
        return True
    between = function.file.source[function.span(first).end : function.span(second).start]
    return between.count(b"\n") > 1


def _shares_line(function: Function, node: Node) -> bool:
    """Whether something stands in front of a node on its line."""
    start = function.file.source.rfind(b"\n", 0, function.span(node).start) + 1
    return bool(function.file.source[start : function.span(node).start].strip())


def _goes_with(edit: Edit, other: Edit) -> bool:
    """Whether what is written anew stands in what is taken away."""
    return edit is not other and edit.path == other.path and other.span.contains(edit.span) and edit.span != other.span


def _lines(file: CudaFile, span: Span) -> list[int]:
    """Where the lines begin that begin in a span and are not empty."""
    starts = [0, *(i + 1 for i, c in enumerate(file.source) if c == 10)]
    first, last = bisect.bisect_left(starts, span.start), bisect.bisect_left(starts, span.end)
    return [s for s in starts[first:last] if file.source[s : s + 1] not in (b"\n", b"\r", b"#")]
