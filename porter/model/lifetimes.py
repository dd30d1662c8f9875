# SPDX-License-Identifier: Apache-2.0
"""Accumulators of a kernel whose tiles may lie in the same columns of Tensor Memory.

Two of them are never live at once if neither is declared, and nothing that declares it is called, while the other is in
scope: what a tile held is then not asked for again, since a new one starts out cleared. One may follow the other in its
columns if on every path the MMAs of the first are over, and the warps have met since they last moved it, before an MMA
of the second begins. What is not shown is taken to be live.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span, as_bytes
from porter.model.accumulators import Accumulator
from porter.model.events import Event, Item, Kind
from porter.model.flow import FlowBuilder
from porter.model.functions import Function, Style
from porter.model.interpret import Interpreter
from porter.model.program import Program


class Lifetimes:
    """Asks about the accumulators of one program, when all loads and stores are placed. `kept_true` are those that move
    at every wait and MMA, of which the flow says nothing."""

    def __init__(self, builder: FlowBuilder, kept_true: Collection[Accumulator]) -> None:
        self._builder = builder
        self._program: Program = builder.program
        self._kept_true = kept_true
        self._flow = cache(self._followed)
        self._scope = cache(self._understood_scope)
        self._reaching = cache(self._callers_of)

    def may_share(self, kernel: Function, one: Accumulator, other: Accumulator) -> bool:
        """Whether the tiles may lie in the same columns as far as a kernel is concerned."""
        if not (self._outlives(one, other) and self._outlives(other, one)):
            return False
        items = self._flow(kernel)
        if items is None:
            return False
        succession = _Succession(one, other)
        succession.run(items, {_State()})
        return not succession.clashes

    def _followed(self, kernel: Function) -> list[Item] | None:
        """The flow of a kernel and of all that it calls; None if calls nest too deep."""
        return self._builder.whole_flow(kernel)

    # --- scopes

    def _outlives(self, one: Accumulator, other: Accumulator) -> bool:
        """Whether nothing declares the first accumulator while the second is in scope."""
        scope, callers = self._scope(other), self._reaching(one.function)
        if scope is None or self._scope(one) is None or callers is None:
            return False
        function = other.function
        if one.function is function and scope.start <= one.home.end_of_declaration().start_byte < scope.end:
            return False
        return not any(
            id(target) in callers
            for call in function.calls
            if scope.start <= call.node.start_byte < scope.end
            for target in self._program.targets(call)
        )

    def _understood_scope(self, accumulator: Accumulator) -> Span | None:
        """Where the registers are in scope, their declaration included; None if something may keep them, or use them,
        in a way that is not followed."""
        function, declaration = accumulator.function, accumulator.home.end_of_declaration()
        if accumulator in self._kept_true or any(c.type == "storage_class_specifier" for c in declaration.children):
            return None
        block: Node | None = declaration.parent
        while block is not None and block.type != "compound_statement":
            block = block.parent
        if block is None:
            return None
        words = re.compile(rf"\b(?:{'|'.join(map(re.escape, accumulator.home.names))})\b")
        if any(words.search(function.text(n)) for n in find(block, "lambda_expression")):
            return None
        return Span(declaration.start_byte, block.end_byte)

    def _callers_of(self, function: Function) -> set[int] | None:
        """ids of the functions that reach a function by calls; None if it may be called in other ways, or if jumps in
        one of them are not followed."""
        callers = self._program.reaching([function])
        for caller in self._program.functions:
            if id(caller) not in callers:
                continue
            if caller.body.has_error or any(True for _ in find(caller.body, "goto_statement", "switch_statement")):
                return None
            if caller.style is Style.KERNEL:
                continue
            if caller.style not in (Style.DEVICE, Style.METHOD) or caller.name.startswith("operator"):
                return None
            if self._is_named_otherwise(caller):
                return None
        return callers

    def _is_named_otherwise(self, function: Function) -> bool:
        """Whether the sources name a function where they neither declare nor call it."""
        program, name = self._program, function.name
        word = re.compile(rb"\b" + re.escape(as_bytes(name)) + rb"\b")
        named = sum(len(word.findall(f.lexed.code)) for f in program.sources.files.values())
        known = sum(f.name == name for f in (*program.functions, *program.forward))
        return named > known + sum(
            c.name == name and bool(program.targets(c)) for f in program.functions for c in f.calls
        )


@dataclass(frozen=True)
class _State:
    """`holder`: whose the columns are. `in_flight`: the groups committed since its last MMA, its own included; -1 if
    that is over. `unmet`: whether the warps have moved registers since they last met."""

    holder: Accumulator | None = None
    in_flight: int = -1
    unmet: bool = False


class _Succession(Interpreter[_State]):
    """Two accumulators in the same columns: whether one comes while the other's MMAs or moves may be under way."""

    def __init__(self, one: Accumulator, other: Accumulator) -> None:
        super().__init__()
        self._both = (one, other)
        self.clashes = False

    def event(self, event: Event, state: _State) -> _State:
        if event.kind is Kind.COMMIT:
            # no count of pending groups is higher
            return replace(state, in_flight=min(state.in_flight + 1, 16)) if state.in_flight >= 0 else state
        if event.kind is Kind.WAIT and event.pending is not None:
            over = event.pending == 0 or state.in_flight > event.pending
            return replace(state, in_flight=-1) if over else state
        if event.kind is Kind.FENCE:
            return replace(state, unmet=False)
        if event.kind is Kind.MMA and event.accumulator is None:
            self.clashes = True
        if event.accumulator not in self._both:
            return state
        follows = state.holder not in (None, event.accumulator)
        if event.kind is Kind.MMA:
            self.clashes |= follows and (state.in_flight >= 0 or state.unmet)
            return _State(event.accumulator, 0, state.unmet)
        if event.kind is Kind.STORE:
            self.clashes |= follows and state.in_flight >= 0
            return _State(event.accumulator, state.in_flight, True)
        return replace(state, unmet=True) if event.kind is Kind.LOAD else state
