# SPDX-License-Identifier: Apache-2.0
"""Where functions are defined and named, and whether all of those places are understood."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tree_sitter import Node

from porter.lang.text import Span, as_bytes
from porter.model.functions import Call, Function, Style
from porter.model.program import Program

_WORD = re.compile(rb"[\w\x80-\xff]+")
_Place = tuple[str, int]


def body_of(function: Function) -> Span:
    """Between the braces of a function, or the directive of a macro."""
    if function.style is Style.MACRO:
        return definition_of(function)
    body = function.span(function.body)
    return Span(body.start + 1, body.end - 1)


def definition_of(function: Function) -> Span:
    """A whole definition with its template heads; of a macro the directive."""
    if function.style is Style.MACRO and function.asm and function.asm[0].macro is not None:
        return function.asm[0].macro.span
    node: Node = function.node
    while node.parent is not None and node.parent.type == "template_declaration":
        node = node.parent
    return Span(node.start_byte + function.shift, node.end_byte + function.shift)


class Mentions:
    """The places of the names of some functions of a program, apart from declarations: each file is searched once."""

    def __init__(self, program: Program, functions: Sequence[Function]) -> None:
        self._program = program
        self._whole = {id(f): definition_of(f) for f in functions}
        self._places: dict[str, list[_Place]] = defaultdict(list)
        self._calls: dict[_Place, list[Call]] = defaultdict(list)
        # operators are called without their name
        names = {as_bytes(f.name): f.name for f in functions if f.style is not Style.KERNEL and _is_word(f.name)}
        if not names:
            return
        declared = [*program.functions, *program.forward]
        known = {(f.file.path, f.name_span.start) for f in declared if f.name_span is not None}
        for path, file in program.sources.files.items():
            for match in _WORD.finditer(file.lexed.code):
                name = names.get(match.group())
                if name is not None and (path, match.start()) not in known:
                    self._places[name].append((path, match.start()))
        for name in names.values():
            for call in program.calls_named(name):
                self._calls[call.caller.file.path, call.name_span.start].append(call)

    def understood(self, left: Iterable[Function]) -> list[Function]:
        """Those of `left`, which the functions given at first hold, that are kernels or whose every mention outside of
        the definitions of `left` is a declaration, or a call of another."""
        left = list(left)
        inside: dict[str, list[Span]] = defaultdict(list)
        for function in left:
            inside[function.file.path].append(self._whole[id(function)])
        within = {path: _outermost(spans) for path, spans in inside.items()}
        outside = {
            name: [p for p in self._places.get(name, ()) if not _is_in(p[1], within.get(p[0], []))]
            for name in {f.name for f in left}
        }
        return [
            f
            for f in left
            if f.style is Style.KERNEL
            or (_is_word(f.name) and all(self._is_of_another(f, place) for place in outside[f.name]))
        ]

    def _is_of_another(self, function: Function, place: _Place) -> bool:
        return any(function not in self._program.targets(call) for call in self._calls.get(place, ()))


def _is_word(name: str) -> bool:
    return re.fullmatch(r"\w+", name) is not None


def _outermost(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, without those that lie in another."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        if not found or span.end > found[-1].end:
            found.append(span)
    return found


def _is_in(at: int, spans: Sequence[Span]) -> bool:
    """Whether an offset lies in one of some spans in order of which none lies in another."""
    last = bisect_right(spans, at, key=lambda s: s.start) - 1
    return last >= 0 and at < spans[last].end
