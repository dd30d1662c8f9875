# SPDX-License-Identifier: Apache-2.0
"""Source text as bytes: spans, edits, edit groups, and applying them without touching anything else."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from porter.diagnostics import Location


def as_text(data: bytes) -> str:
    """Source as text; bytes that are no UTF-8 are kept."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """What `as_text` was made of."""
    return text.encode("utf-8", "surrogateescape")


class Safety(StrEnum):
    """How much a reviewer has to trust an edit group."""

    SAFE = "safe"
    """The meaning is kept by construction."""
    REVIEW = "review"
    """The meaning is kept under a stated assumption."""
    SKETCH = "sketch"
    """Shown only; does not claim to work."""


@dataclass(frozen=True, order=True)
class Span:
    """Half-open byte range [start, end) of one file."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"bad span [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def contains(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end

    def overlaps(self, other: Span) -> bool:
        """True if both claim a byte, or one inserts strictly inside the other."""
        if len(self) == 0 or len(other) == 0:
            point, whole = (self, other) if len(self) == 0 else (other, self)
            return whole.start < point.start < whole.end
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Edit:
    """Replace the bytes of `span` in file `path` by `replacement`. An empty span inserts."""

    path: str
    span: Span
    replacement: bytes


@dataclass(frozen=True)
class EditGroup:
    """Edits that mean something only together: applied whole or not at all.

    `rule` is the stable rule ID, `title` one line for a diff header, `reason` why the edit is right,
    `references` PTX ISA sections or CUTLASS paths.
    """

    rule: str
    title: str
    safety: Safety
    edits: tuple[Edit, ...]
    reason: str = ""
    references: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


class EditConflict(ValueError):
    """Two edit groups claim the same bytes."""

    def __init__(self, first: EditGroup, second: EditGroup, edit: Edit) -> None:
        super().__init__(f"{first.rule} and {second.rule} both edit {edit.path}[{edit.span.start}:{edit.span.end}]")
        self.first, self.second, self.edit = first, second, edit


MARK = b"\xef\xbb\xbf"
"""Of UTF-8, at the beginning of some files. Nothing is written in front of it, and no copy of a text takes it along."""


def _behind_mark(edit: Edit, source: bytes) -> Edit:
    if not source.startswith(MARK) or (edit.span.start >= len(MARK) and MARK not in edit.replacement):
        return edit
    start = max(edit.span.start, len(MARK))
    where = Span(start, max(edit.span.end, start))
    return replace(edit, span=where, replacement=edit.replacement.replace(MARK, b""))


def apply_groups(sources: dict[str, bytes], groups: Sequence[EditGroup]) -> dict[str, bytes]:
    """The sources with all edits of `groups` made; bytes outside the edits are kept.

    Insertions at one offset keep the order of `groups`.

    Raises:
        EditConflict: two edits overlap.
        ValueError: an edit lies outside its file, or names a file not in `sources`.
    """
    placed: dict[str, list[tuple[Span, int, Edit, EditGroup]]] = {}
    order = 0
    for group in groups:
        for edit in group.edits:
            if edit.path not in sources:
                raise ValueError(f"edit of unknown file {edit.path}")
            if edit.span.end > len(sources[edit.path]):
                raise ValueError(f"edit outside {edit.path}: {edit.span}")
            one = _behind_mark(edit, sources[edit.path])
            placed.setdefault(edit.path, []).append((one.span, order, one, group))
            order += 1
    result = dict(sources)
    for path, items in placed.items():
        items.sort(key=lambda item: (item[0].start, item[0].end, item[1]))
        pieces: list[bytes] = []
        cursor = 0
        previous: tuple[Span, int, Edit, EditGroup] | None = None
        for item in items:
            span, _, edit, group = item
            if previous is not None and (previous[0].overlaps(span) or span.start < cursor):
                raise EditConflict(previous[3], group, edit)
            pieces.append(sources[path][cursor : span.start])
            pieces.append(edit.replacement)
            cursor = span.end
            previous = item
        pieces.append(sources[path][cursor:])
        result[path] = b"".join(pieces)
    return result


def gap_edits(path: str, source: bytes, whole: Span, texts: Sequence[str], kept: Sequence[Span]) -> Iterator[Edit]:
    """The edits that put `texts` around the spans `kept` of `whole`, which stay: one text more than spans."""
    at = whole.start
    for text, span in zip(texts, [*kept, Span(whole.end, whole.end)], strict=True):
        if source[at : span.start] != text.encode():
            yield Edit(path, Span(at, span.start), text.encode())
        at = span.end


class LineIndex:
    """Byte offsets of one file to 1-based lines and columns."""

    def __init__(self, source: bytes) -> None:
        self._starts = [0]
        self._starts.extend(m.end() for m in re.finditer(rb"\n", source))

    def line_column(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def location(self, path: str, span: Span) -> Location:
        """The place of a span, in the file of that name."""
        line, column = self.line_column(span.start)
        return Location(path, line, column, span.start, span.end, *self.line_column(span.end))

    def line_start(self, line: int) -> int:
        """Byte offset of the first byte of a 1-based line."""
        return self._starts[line - 1]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The spans as a sorted list without overlaps or neighbours that touch."""
    result: list[Span] = []
    for span in sorted(spans):
        if result and span.start <= result[-1].end:
            result[-1] = Span(result[-1].start, max(result[-1].end, span.end))
        else:
            result.append(span)
    return result
