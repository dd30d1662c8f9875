# SPDX-License-Identifier: Apache-2.0
"""Whether A tiles of both consumers are as far apart in every launch: a case shows it of its own sizes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.passes.full_rate.launch_values import PARTS, LaunchValues
from porter.passes.full_rate.leading import Key, key_of, named
from porter.passes.full_rate.sameness import Sameness

_MOST = 12


@dataclass(eq=False)
class Strides:
    """Asks about the A descriptors of one kernel."""

    program: Program
    sameness: Sameness
    _seen: set[tuple[int, int]] = field(default_factory=set)

    @cached_property
    def _values(self) -> LaunchValues:
        return LaunchValues(self.program)

    def unsure(self, function: Function, node: Node, depth: int = 0) -> Iterator[tuple[Function, Node]]:
        """Expressions that make an index of the consumer another one by what only a launch tells."""
        if depth > _MOST or (id(function), node.id) in self._seen:
            return
        self._seen.add((id(function), node.id))
        for part in find(node, *PARTS):
            if self._values.mixes(function, part, self.sameness.same, self._known):
                yield function, part
        for call in (c for n in find(node, "call_expression") for c in self.program.calls_by_node.get(n.id, ())):
            for target in self.program.targets(call) if call.caller.file is function.file else ():
                yield from self.unsure(target, target.body, depth + 1)
                yield from ((target, n) for n in self._values.answers(target, self.sameness.same))
        names = self.sameness.names(function)
        for name in find(node, "identifier"):
            key = key_of(function, name)
            if key not in names or self.sameness.known(function, name) is not None:
                continue
            yield from self._written(function, key, depth)
            variable = named(function, name)
            if variable is None or variable.param is None or variable.function.style is Style.KERNEL:
                continue
            for call in self.program.callers(variable.function):
                if variable.param.index < len(call.args):
                    yield from self.unsure(call.caller, call.args[variable.param.index], depth + 1)

    def _written(self, function: Function, key: Key, depth: int) -> Iterator[tuple[Function, Node]]:
        writes = [node for found, node in self.sameness.written_in(function) if found == key]
        for value in writes:
            yield from self.unsure(function, value, depth + 1)
        yield from ((function, n) for n in self._values.chosen(function, key, writes, self.sameness.same))

    def _known(self, function: Function, part: Node) -> bool:
        return self.sameness.by_warp(function, part)[0] is not None
