# SPDX-License-Identifier: Apache-2.0
"""The conditionals of a file, as the preprocessor pairs them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from porter.lang.cuda import CudaFile
from porter.lang.lexical import Lexed
from porter.lang.text import Span

_WORD = re.compile(rb"[ \t]*#[ \t]*(\w+)[ \t]*([^\n]*)")
_GUARD = re.compile(rb"ifndef[ \t]+(\w+)|if[ \t]+!\s*defined\s*\(?\s*(\w+)\s*\)?[ \t]*$")


@dataclass(frozen=True)
class Conditional:
    """`#if … #endif`: `span` covers both directives, `head` is the first one's text without `#`. `body` is the
    offset behind the line at which its code begins; for an include guard that is behind its `#define`. Without
    `branches` there is no `#else` or `#elif`."""

    span: Span
    head: bytes
    body: int
    branches: bool

    def holds(self, at: int) -> bool:
        return self.span.start <= at < self.span.end


def conditionals(file: CudaFile) -> tuple[Conditional, ...]:
    """Every complete conditional of a file, by where it begins."""
    return _conditionals(file.lexed)


@lru_cache(maxsize=128)
def _conditionals(text: Lexed) -> tuple[Conditional, ...]:
    source = text.source
    found: list[Conditional] = []
    open_: list[tuple[Span, bytes, bool]] = []
    for span in text.directives:
        match = _WORD.match(source, span.start, span.end)
        if match is None:
            continue
        word = match.group(1)
        if word in (b"if", b"ifdef", b"ifndef"):
            open_.append((span, match.group(1) + b" " + match.group(2), False))
        elif word in (b"else", b"elif", b"elifdef", b"elifndef") and open_:
            first, head, _ = open_[-1]
            open_[-1] = (first, head, True)
        elif word == b"endif" and open_:
            first, head, branches = open_.pop()
            found.append(Conditional(Span(first.start, span.end), head, line_end(source, first.end), branches))
    return tuple(sorted(found, key=lambda c: c.span))


def outermost(found: Iterable[Conditional]) -> list[Conditional]:
    """Those of a file's conditionals, sorted, that stand in no other one."""
    kept: list[Conditional] = []
    for conditional in found:
        if not kept or not kept[-1].holds(conditional.span.start):
            kept.append(conditional)
    return kept


def include_guard(file: CudaFile) -> Conditional | None:
    """The conditional that lets a file's code be read once: `#ifndef X`, its first directive `#define X`, and no
    code outside of it."""
    plain = file.lexed.plain
    for conditional in conditionals(file):
        match = _GUARD.match(conditional.head.rstrip())
        if match is None or conditional.branches:
            continue
        name = match.group(1) or match.group(2)
        inside = next((s for s in file.lexed.directives if s.start >= conditional.body), None)
        if inside is None:
            continue
        define = re.match(rb"[ \t]*#[ \t]*define[ \t]+(\w+)", file.source[inside.start : inside.end])
        if define is None or define.group(1) != name:
            continue
        start, end = conditional.span.start, conditional.span.end
        if plain[:start].strip() or plain[end:].strip():
            continue
        return Conditional(conditional.span, conditional.head, line_end(file.source, inside.end), False)
    return None


def line_end(source: bytes, at: int) -> int:
    """The offset behind the line end that follows."""
    end = source.find(b"\n", at)
    return len(source) if end < 0 else end + 1
