# SPDX-License-Identifier: Apache-2.0
"""The part of a kernel with tiled MMAs of a library that multiplies without reading what it multiplied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.model.facts import Commit, Layout, RegisterFence, TiledMma, Wait
from porter.model.functions import Call, Function, Style
from porter.model.pipeline.frames import Frame, Wording, first_value
from porter.model.pipeline.operations import Operation, Walk, operations_of
from porter.model.pipeline.who import Who
from porter.model.program import Program
from porter.model.scopes import LOOPS, resolve
from porter.model.thread_values import Values
from porter.model.tiled.accumulators import Handle, Synchronization
from porter.model.tiled.operands import may_leave_registers
from porter.passes.full_rate.library import LibraryCalls, compared_with
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Left, Path, Place
from porter.passes.tiled.context import TiledContext

_ASKS = (Layout, RegisterFence, TiledMma)


@dataclass(eq=False)
class TiledPipelined(Pipelined):
    """As for MMAs that the sources issue themselves: accumulators are tensors, batches are opened, closed and waited
    for by calls of the library, and mbarriers may be its objects, too."""

    tiled: TiledContext = field(kw_only=True)

    # --- What is done

    def _walk(self) -> Walk:
        return operations_of(self.program, self.kernel.function, libraries=True)

    def _who(self, threads: int) -> Who:
        return _WhoOfLibrary(self.program, threads)

    def _from_registers(self) -> bool:
        for multiply in self.tiled.tiled.multiplies:
            caller = multiply.call.caller
            if self._is_reached(caller) and may_leave_registers(self.tiled.tiled, multiply):
                span = caller.span(multiply.call.node)
                raise Left(caller, span, "A in shared memory: threads make operands that come from registers")
        return False

    def _is_reached(self, function: Function) -> bool:
        return function is self.kernel.function or any(
            s.frame.function is function for o in self.multiplies for s in o.sites
        )

    # --- Where

    def _function(self) -> Function:
        kernel = self.kernel.function
        if self.tiled.tiled.atoms:
            raise Left(kernel, kernel.span(kernel.body), "MMAs of a tiled MMA: some are issued by their atoms")
        found = [h for h in self.tiled.tiled.fragments if self._is_reached(h.function)]
        functions = {id(h.function): h.function for h in found}
        if len(functions) != 1:
            raise Left(kernel, kernel.span(kernel.body), "that all accumulators are variables of one function")
        self.handles = found
        self._accumulators = []
        return next(iter(functions.values()))

    def variables(self) -> None:
        """Let accumulators be the variables that the kernel names them by: of these a slice asks the same."""
        self._accumulators = list(self.handles)  # type: ignore[arg-type]

    @property
    def handle(self) -> Handle:
        """An accumulator that is in sight wherever the range is."""
        return min(self.handles, key=lambda h: h.declaration.start_byte)

    @cached_property
    def reads(self) -> list[Node]:
        return [n for f, node, _ in self.tiled.loads for n in self._as_seen(f, node, 0)]

    @property
    def writes(self) -> list[Node]:
        """What threads write to sums between MMAs, PTX tells."""
        return []

    def _as_seen(self, function: Function, node: Node, depth: int) -> Iterator[Node]:
        """A node as the function of the range comes to it."""
        if function is self.function:
            yield node
        elif depth < _DEEPEST:
            calls = self.program.callers(function) if function.style is not Style.KERNEL else []
            for call in calls:
                yield from self._as_seen(call.caller, call.node, depth + 1)
            if function.style is Style.LAMBDA and function.parent is not None and not calls:
                yield from self._as_seen(function.parent, function.node, depth + 1)

    # --- Batches

    @cached_property
    def batches(self) -> list[tuple[Path, Synchronization]]:
        """Calls of the range that open, close or wait for a batch."""
        by_node = {(id(s.call.caller), s.call.node.id): s for s in self.tiled.tiled.synchronizations}
        return list(self._below(self.function, True, (), by_node))

    def _below(
        self, function: Function, of_range: bool, above: Path, by_node: dict[tuple[int, int], Synchronization]
    ) -> Iterator[tuple[Path, Synchronization]]:
        span = self.spans[0]
        for call in sorted(self._calls(function), key=lambda c: c.node.start_byte):
            if of_range and not span.contains(function.span(call.node)):
                continue
            path = (*above, Place(call.caller, call.node))
            found = by_node.get((id(call.caller), call.node.id))
            if found is not None:
                yield path, found
                continue
            for target in self.program.targets(call):
                if id(target) in self.tiled.tiled.active and not any(p.function is target for p in above):
                    yield from self._below(target, False, path, by_node)

    def _calls(self, function: Function) -> Iterator[Call]:
        """Calls of a function, and of lambdas that are run where they stand."""
        yield from function.calls
        for inner in self.program.functions:
            if inner.parent is function and inner.style is Style.LAMBDA and not self.program.callers(inner):
                yield from self._calls(inner)

    def closing(self) -> Iterator[Place]:
        """Commits and waits of the range."""
        for path, one in self.batches:
            if isinstance(one.fact, (Commit, Wait)):
                yield path[-1]

    def waits_in_loop(self) -> bool:
        return any(self._in_loop(place) for path, one in self.batches if isinstance(one.fact, Wait) for place in path)

    def _in_loop(self, place: Place) -> bool:
        node = place.node.parent
        while node is not None and node.id != place.function.body.id:
            if place.function is self.function and not self._of_range(node):
                return False
            if node.type in LOOPS:
                return True
            node = node.parent
        return False

    def _of_range(self, node: Node) -> bool:
        return self.spans[0].contains(self.function.span(node))


class _WhoOfLibrary(Who):
    """As for the sources' own conditions; of extents that a library tells all threads know the same."""

    def __init__(self, program: Program, threads: int) -> None:
        super().__init__(program, threads)
        self._library, self._wording = LibraryCalls(program), Wording(program)

    def truth(self, frame: Frame, node: Node) -> Values | None:
        while node.type in ("parenthesized_expression", "condition_clause") and len(node.named_children) == 1:
            node = node.named_children[0]
        function = frame.function
        variable = resolve(function, node, function.text(node)) if node.type == "identifier" else None
        value = first_value(variable) if variable is not None and variable.function is function else None
        known = super().truth(frame, node)
        if known is not None and None not in known:
            return known
        if value is not None and not self._wording.changes(function, function.text(node)):
            return self.truth(frame, value)
        return known

    def _elects(self, function: Function, node: Node) -> bool:
        called = node.type == "call_expression" and self._library.elects(function, node)
        return called or super()._elects(function, node)

    def differs(self, function: Function, node: Node) -> bool:
        if not super().differs(function, node):
            return False
        if node.type in ("parenthesized_expression", "condition_clause") and len(node.named_children) == 1:
            return self.differs(function, node.named_children[0])
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if node.type == "binary_expression" and left is not None and right is not None:
            return self.differs(function, left) or self.differs(function, right)
        if node.type == "call_expression" and self._library.asks_for_shape(function, node):
            # the grammar may read `i < size<0>(x)` as the call of `i<size<0>`
            compared = compared_with(function, node)
            return compared is not None and self.differs(function, compared)
        return True


_DEEPEST = 8


def barriers_of(operation: Operation) -> str:
    """The pipeline that an operation is one of, empty of one of an mbarrier of its own."""
    name, _, member = operation.barrier.rpartition(".")
    return name if member in ("empty[]", "full[]") else ""
