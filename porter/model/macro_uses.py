# SPDX-License-Identifier: Apache-2.0
"""Accumulators that the bodies of macros name."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.lang.macros import Macros
from porter.model.accumulators import Accumulator
from porter.model.events import Event, Item, Kind
from porter.model.frames import Frame
from porter.model.functions import Function
from porter.model.program import Program


class MacroUses:
    """The macros of a program, and which of their uses a flow has come by."""

    def __init__(self, program: Program, accumulators: list[Accumulator]) -> None:
        self._program = program
        self._accumulators = accumulators
        macros = Macros.of(m for file in program.sources.files.values() for m in file.lexed.macros())
        # with the bodies of the macros that it uses in turn
        self._bodies = {name: macros.text(name) for name in macros.by_name}
        self._seen: set[tuple[int, int]] = set()
        self._read: set[tuple[int, int]] = set()
        self._changed: set[tuple[int, int]] = set()

    def named(self, frame: Frame, node: Node, name: str) -> list[Item]:
        """What the macro `name`, used at `node`, does to accumulators of the function that uses it."""
        body = self._bodies.get(name)
        if body is None:
            return []
        self._seen.add((id(frame.function), node.start_byte))
        items: list[Item] = []
        for accumulator in self._accumulators:
            if accumulator.function is not frame.function:
                continue
            for word in accumulator.home.names:
                if re.search(rf"\b{re.escape(word)}\b", body) is None:
                    continue
                at = frame.at or node
                items.append(Event(Kind.READ, at, accumulator))
                self._read.add((id(frame.function), node.start_byte))
                if re.search(rf"\b{re.escape(word)}\b(?:\s*\[[^\]]*\])*\s*(?:[-+*/|&^]|<<|>>)?=(?!=)", body):
                    items.append(Event(Kind.WRITE, at, accumulator))
                    self._changed.add((id(frame.function), node.start_byte))
                break
        return items

    def unseen(self, accumulator: Accumulator) -> list[tuple[str, int]]:
        """(name, byte offset) of macros that name the accumulator and stand where the grammar did not see a use: a
        statement macro without a semicolon, say. Call when the flow has been built."""
        function = accumulator.function
        names = accumulator.home.names
        found = []
        code = function.file.lexed.code
        for macro, body in self._bodies.items():
            if not any(re.search(rf"\b{re.escape(n)}\b", body) for n in names):
                continue
            for match in re.finditer(rb"\b" + macro.encode() + rb"\b", code):
                inside = function.body.start_byte <= match.start() < function.body.end_byte
                line = code[code.rfind(b"\n", 0, match.start()) + 1 : match.start()].lstrip()
                if inside and not line.startswith(b"#") and not self.has_seen(function, match.start()):
                    found.append((macro, match.start()))
        return found

    def has_seen(self, function: Function, offset: int) -> bool:
        """Whether a flow came by the macro that is used at a byte offset."""
        if (id(function), offset) in self._seen:
            return True
        return any(c.name_span.start == offset for f in self._family(function) for c in f.calls)

    def has_read(self, function: Function, offset: int) -> bool:
        """Whether the macro at a byte offset is known to use an accumulator."""
        return (id(function), offset) in self._read

    def has_changed(self, function: Function, offset: int) -> bool:
        """Whether the macro at a byte offset is known to change an accumulator."""
        return (id(function), offset) in self._changed

    def _family(self, function: Function) -> list[Function]:
        """The function and the lambdas in it."""
        return [f for f in self._program.functions if f is function or f.parent is function]
