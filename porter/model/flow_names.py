# SPDX-License-Identifier: Apache-2.0
"""What a flow is built with: the program, and which accumulators names in a frame stand for."""

from __future__ import annotations

from tree_sitter import Node

from porter.model.accumulators import Accumulator, AccumulatorMap
from porter.model.constants import Constants
from porter.model.frames import Frame
from porter.model.functions import Call, Function, Style
from porter.model.inlining import Inliner
from porter.model.macro_uses import MacroUses
from porter.model.objects import object_root
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.model.tensor_core import MmaStep
from porter.model.threads import Threads


class FlowNames:
    """Names of accumulators, and what of them a flow came by."""

    def __init__(self, program: Program, accumulators: AccumulatorMap) -> None:
        self.program = program
        self.accumulators = accumulators
        self.threads = Threads(program)
        self.inliner = Inliner(program)
        self._visited: set[tuple[str, int]] = set()
        self._changed: set[tuple[str, int]] = set()
        self._uses = program.uses_tensor_core()
        self._macros = MacroUses(program, accumulators.accumulators)
        self._calls: dict[int, dict[int, Call]] = {}
        self._names = {n for a in accumulators.accumulators for n in a.home.names}

    def unseen_macros(self, accumulator: Accumulator) -> list[tuple[str, int]]:
        """(name, byte offset) of macros that name the accumulator where no use was seen. Call after `flow`."""
        return self._macros.unseen(accumulator)

    def has_visited(self, function: Function, offset: int, *, change: bool) -> bool:
        """Whether a flow came by what stands at a byte offset of the function's file and names an accumulator or a
        macro, and with `change` knows that registers are changed there. Call after `flow`."""
        place = (function.file.path, offset)
        if self._macros.has_read(function, offset):
            return not change or self._macros.has_changed(function, offset)
        return place in (self._changed if change else self._visited)

    def call_at(self, function: Function, node: Node) -> Call | None:
        """The call that a node of a function is."""
        calls = self._calls.get(id(function))
        if calls is None:
            # the first call of a node, as in `function.calls`
            calls = self._calls[id(function)] = {c.node.id: c for c in reversed(function.calls)}
        return calls.get(node.id)

    def _object(self, frame: Frame, node: Node | None) -> Accumulator | None:
        """The accumulator of class type that an expression reaches into by its methods."""
        root = object_root(node)
        accumulator = self._accumulator(frame, root) if root is not None else None
        return accumulator if accumulator is not None and accumulator.home.class_type else None

    def _accumulator(self, frame: Frame, node: Node) -> Accumulator | None:
        found = self._named(frame, node)
        if found is not None:
            self._visited.add(place(frame, node))
        return found

    def _named(self, frame: Frame, node: Node) -> Accumulator | None:
        name = frame.function.text(node)
        if name in frame.bound:
            return frame.bound[name]
        if name not in self._names and all(name != outer[2] for outer in frame.outer):
            return None
        variable = resolve(frame.function, node, name)
        if variable is None:
            return None
        return self.accumulators.held_by(variable) or frame.outer.get(variable.key)

    def _step_accumulator(self, frame: Frame, step: MmaStep) -> Accumulator | None:
        if step.d.name in frame.bound:
            return frame.bound[step.d.name]
        function, root = frame.function, step.d.root
        if function.style is Style.MACRO:
            if frame.call is None:
                return None
            function, root = frame.call.caller, frame.call.node
        return self.accumulators.held_by(resolve(function, root, step.d.name))

    def _constants(self, frame: Frame) -> Constants:
        return frame.constants(self.program.constants_in(frame.function))


def place(frame: Frame, node: Node) -> tuple[str, int]:
    """Path and byte offset of a node."""
    return frame.function.file.path, node.start_byte + frame.function.shift
