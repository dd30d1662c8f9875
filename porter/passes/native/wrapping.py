# SPDX-License-Identifier: Apache-2.0
"""A block around statements that are there: whole lines move to the right, with what passes wrote among them."""

from __future__ import annotations

from dataclasses import replace

from porter.lang.text import Edit, Span, as_bytes
from porter.model.functions import Function
from porter.passes.context import PortContext
from porter.passes.native.sites import OWN_LINES, Left

_PAD = b"    "


def lines_of(function: Function, first: Span, block: Span) -> Span:
    """The lines from that of a statement on to the end of the block that it stands in.

    Raises:
        Left: they begin or end within a line.
    """
    source = function.file.source
    start = source.rfind(b"\n", 0, first.start) + 1
    end = source.rfind(b"\n", 0, block.end - 1) + 1
    if source[start : first.start].strip() or source[end : block.end - 1].strip() or end <= start:
        raise Left(function, first, OWN_LINES)
    return Span(start, end)


def wrap(context: PortContext, rule: str, function: Function, lines: Span, head: str, tail: str) -> None:
    """Put whole lines between the lines `head` and `tail`. What is written in front of the end of the lines stands in
    the block.

    Raises:
        Left: something is written across one of both ends.
    """
    path, source = function.file.path, function.file.source
    starts = [lines.start, *(i + 1 for i in range(lines.start, lines.end) if source[i : i + 1] == b"\n")]
    spans = [e.span for edits in context.edits.values() for e in edits if e.path == path]
    across = any(span.start < at < span.end for span in spans for at in (lines.start, lines.end))
    if starts[-1] != lines.end or across:
        raise Left(function, lines, OWN_LINES)
    at_starts: dict[int, list[tuple[int, str, int]]] = {}
    covered: list[Span] = []
    for name, edits in context.edits.items():
        for index, edit in enumerate(edits):
            last = lines.end - 1 if len(edit.span) else lines.end
            if edit.path != path or not lines.start <= edit.span.start <= last:
                continue
            at_start = edit.span.start in starts
            edits[index] = _moved(edit, at_start)
            covered += [edit.span] if len(edit.span) else []
            if at_start:
                at_starts.setdefault(edit.span.start, []).append((len(edit.span), name, index))
    mine: dict[int, bytes] = {}
    for at in starts[:-1]:
        line = source[at : source.find(b"\n", at)]
        if not line.strip() or line.startswith(b"#") or any(s.start <= at < s.end for s in covered):
            continue
        if at in at_starts:
            _add(context, max(at_starts[at]), b"", _PAD)
        else:
            mine[at] = _PAD
    for at, text in ((lines.start, head), (lines.end, tail)):
        whole = as_bytes(text.replace("\n", function.file.newline))
        if at not in at_starts:
            mine[at] = whole + mine.get(at, b"")
        elif at == lines.start:
            _add(context, min(at_starts[at]), whole, b"")
        else:
            _add(context, max(at_starts[at]), b"", whole)
    context.edits.setdefault(rule, []).extend(Edit(path, Span(at, at), text) for at, text in mine.items())


def _add(context: PortContext, place: tuple[int, str, int], before: bytes, behind: bytes) -> None:
    """More text of an edit, which is given by its length, rule and number."""
    _, name, index = place
    edit = context.edits[name][index]
    context.edits[name][index] = replace(edit, replacement=before + edit.replacement + behind)


def _moved(edit: Edit, at_start: bool) -> Edit:
    """With its lines further to the right; `at_start`: the first of them begins there."""
    pieces = edit.replacement.split(b"\n")
    found = []
    for index, piece in enumerate(pieces):
        whole = index > 0 or at_start
        shifts = whole and piece.strip() != b"" and not piece.lstrip().startswith(b"#")
        # white space in front of a statement that stays is a part of a line
        shifts = shifts or (index > 0 and index == len(pieces) - 1 and piece != b"")
        found.append((_PAD if shifts else b"") + piece)
    return replace(edit, replacement=b"\n".join(found))
