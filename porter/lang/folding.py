# SPDX-License-Identifier: Apache-2.0
"""Long stretches of generated Python, of which no tree is made: assignments of arithmetic in which no rule's word
stands.

libcst makes 5,000 lines of a tree in a second. In place of a stretch stands `...`, and spaces up to its end, so that
all other bytes keep their places. What is taken for a stretch by its letters is proved by the tree: it is a statement
of a function, and its names are none that imports lead to, but those of packages whose other names have rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from porter.lang.text import Span

_LEAST = 1000
"""Lines in stretches from which on a file counts as generated."""
_STRETCH = 64
_LINE = re.compile(rb"([ \t]+)[A-Za-z_]\w* = (?=.*[\w)] [-+*/%&|^<>]+ [\w(])([\w.()\[\]+\-*/%&|^~<>, ]+)")
_STANDS_FOR = b"..."
_NAME = re.compile(rb"\b[A-Za-z_]\w*")
_TARGET = re.compile(rb"^[ \t]*(\w+) =", re.MULTILINE)


@dataclass(frozen=True)
class Folded:
    """A text without its stretches, the names in those, and which of them are set there."""

    text: bytes
    stretches: tuple[Span, ...]
    names: frozenset[str]
    set_names: frozenset[str]


def folded(source: bytes, words: Sequence[bytes]) -> Folded | None:
    """A text in which stretches without names that hold any of these words are folded; None where that is not worth its
    while."""
    if not all(words) or not words or source.count(b"\n") < _LEAST:
        return None
    stretches = _stretches(source, re.compile(b"|".join(map(re.escape, words))))
    text, inside = bytearray(source), b"\n".join(source[s.start : s.end] for s in stretches)
    if inside.count(b"\n") < _LEAST:
        return None
    for span in stretches:
        text[span.start : span.end] = _STANDS_FOR.ljust(len(span))
    names, targets = ({n.decode() for n in found.findall(inside)} for found in (_NAME, _TARGET))
    return Folded(bytes(text), tuple(stretches), frozenset(names), frozenset(targets))


def _stretches(source: bytes, words: re.Pattern[bytes]) -> list[Span]:
    """Where lines that can be folded follow one another with the same indentation, without the first and the last."""
    found: list[Span] = []
    run: list[Span] = []
    margin, at = b"", 0
    for line in [*source.split(b"\n"), b""]:
        match = _LINE.fullmatch(line)
        if match is not None and not _fits(match[2], words):
            match = None
        if run and (match is None or match[1] != margin):
            if len(run) >= _STRETCH:
                found.append(Span(run[1].start, run[-2].end))
            run = []
        if match is not None:
            margin = match[1]
            run.append(Span(at + len(margin), at + len(line)))
        at += len(line) + 1
    return found


def _fits(value: bytes, words: re.Pattern[bytes]) -> bool:
    closed = value.count(b"(") == value.count(b")") and value.count(b"[") == value.count(b"]")
    names = _NAME.findall(value)
    return closed and b"for" not in names and not any(words.search(name) for name in names)
