# SPDX-License-Identifier: Apache-2.0
"""Which MMAs are of a batch: those that the warpgroup comes to behind the call that opens it, up to the next that opens
or closes one; in the same function, its lambdas, and functions that it calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.model.facts import Fence, Wait
from porter.model.functions import Call, Function, Style
from porter.model.tiled.accumulators import HandedIn, Multiply, Synchronization, Tiled, outwards


@dataclass(frozen=True, eq=False)
class Issue:
    """A multiply as the function sees it that opens its batch, with what it hands to the function that multiplies:
    expressions of `holder`. `at` is where they are issued."""

    multiply: Multiply
    holder: Function
    mma: tuple[Function, Node] = field(repr=False)
    a: Node = field(repr=False)
    d: Node = field(repr=False)
    at: Node = field(repr=False)

    @property
    def is_direct(self) -> bool:
        """Whether the function that opens the batch, or a lambda where it stands, multiplies."""
        return self.at is self.multiply.call.node


class Batches:
    """Asks about one program."""

    def __init__(self, tiled: Tiled) -> None:
        self.tiled = tiled
        self._known: dict[int, list[Issue]] = {}
        self._opening = tiled.program.reaching(
            [s.call.caller for s in tiled.synchronizations if isinstance(s.fact, Fence)]
        )

    def issues(self, opened: Synchronization) -> list[Issue]:
        """The multiplies of a batch, in order."""
        function, start = opened.call.caller, opened.call.node.start_byte
        end = self._end(opened)
        return [i for i in self._issues(function) if start < i.at.start_byte < end]

    def has_call(self, opened: Synchronization, call: Call) -> bool:
        """Whether a call stands between a batch's opening and its end."""
        start = opened.call.node.start_byte
        return start < call.node.start_byte < self._end(opened) and _within(call.caller, opened.call.caller)

    def opens(self, function: Function) -> bool:
        """Whether a function opens a batch, itself or through others."""
        return id(function) in self._opening

    def operands(self, issue: Issue) -> list[HandedIn]:
        """The first operand of a multiply, as far out as it is handed in."""
        return self.tiled.handed_out(issue.holder, issue.a, issue.mma)

    def _end(self, opened: Synchronization) -> int:
        function, start = opened.call.caller, opened.call.node.start_byte
        ends = [
            s.call.node.start_byte
            for s in self.tiled.synchronizations
            if s.call.caller is function and s.call.node.start_byte > start and not isinstance(s.fact, Wait)
        ]
        return min(ends, default=function.body.end_byte)

    def _issues(self, function: Function) -> list[Issue]:
        """What a function issues without opening the batch itself, and what stands in it behind an opening call."""
        known = self._known.get(id(function))
        if known is None:
            self._known[id(function)] = []
            known = sorted(self._found(function), key=lambda i: i.at.start_byte)
            self._known[id(function)] = known
        return known

    def _found(self, function: Function) -> Iterator[Issue]:
        for multiply in self.tiled.multiplies:
            caller = multiply.call.caller
            if _within(caller, function) and not self._is_called(caller, function):
                yield Issue(multiply, caller, (caller, multiply.mma), multiply.a, multiply.d, multiply.call.node)
        for inner in self.tiled.program.functions:
            if not _within(inner, function) or self._is_called(inner, function):
                continue
            for call in inner.calls:
                for target in self.tiled.program.targets(call):
                    if id(target) in self.tiled.active and id(target) not in self._opening:
                        yield from (self._handed(i, target, call) for i in self._issues(target))

    def _is_called(self, inner: Function, outer: Function) -> bool:
        """Whether a lambda in a function is run where it is called, and not where it stands."""
        current: Function | None = inner
        while current is not None and current is not outer:
            if current.style is Style.LAMBDA and self.tiled.program.callers(current):
                return True
            current = current.parent
        return False

    def _handed(self, issue: Issue, target: Function, call: Call) -> Issue:
        """What a function issues, as one sees it that calls it."""
        if not _within(issue.holder, target) or self._is_called(issue.holder, target):
            return replace(issue, at=call.node)
        a, d = (self._argument(issue.holder, target, n, call) for n in (issue.a, issue.d))
        mma = outwards(issue.mma, target, call)
        holder = call.caller if a is not issue.a or d is not issue.d else issue.holder
        if holder is call.caller and (a is issue.a or d is issue.d):
            # one of them is the function's own
            return replace(issue, at=call.node)
        return Issue(issue.multiply, holder, mma, a, d, call.node)

    def _argument(self, holder: Function, target: Function, node: Node, call: Call) -> Node:
        variable = self.tiled.viewed(holder, node)
        param = variable.param if variable is not None and variable.function is target else None
        return call.args[param.index] if param is not None and param.index < len(call.args) else node


def _within(inner: Function, outer: Function) -> bool:
    current: Function | None = inner
    while current is not None and current is not outer:
        current = current.parent
    return current is outer
