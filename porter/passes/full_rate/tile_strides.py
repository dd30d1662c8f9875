# SPDX-License-Identifier: Apache-2.0
"""Whether the A tiles of one warpgroup are as far apart in every launch: a case shows it of its own sizes alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import Function, Style, declared_name
from porter.model.program import Program
from porter.passes.full_rate.launch_values import PARTS, LaunchValues

_SETS = ("init_declarator", "assignment_expression")
_MOST = 8


@dataclass(eq=False)
class TileStrides:
    """Asks about what a turn of a loop over tiles computes; `own` are the names of what differs between the tiles."""

    program: Program
    _seen: set[tuple[int, frozenset[str]]] = field(default_factory=set)
    _own: dict[int, set[str]] = field(default_factory=dict)
    """By id of the function, the names that differ in it."""

    @cached_property
    def _values(self) -> LaunchValues:
        return LaunchValues(self.program)

    def unsure(self, function: Function, node: Node, own: set[str], depth: int = 0) -> Iterator[tuple[Function, Node]]:
        """Expressions that make an index of the tile another one by what only a launch tells."""
        self._own[id(function)] = own
        for part in find(node, *PARTS):
            if self._values.mixes(function, part, self._same, _unknown):
                yield function, part
        for call in (c for n in find(node, "call_expression") for c in self.program.calls_by_node.get(n.id, ())):
            for target in self.program.targets(call) if call.caller.file is function.file else ():
                handed = {
                    p.name for p, a in zip(target.params, call.args, strict=False) if not self._same(function, a)
                } | (own if target.style is Style.LAMBDA else set())
                yield from self._in(target, handed, depth)

    def _in(self, function: Function, own: set[str], depth: int) -> Iterator[tuple[Function, Node]]:
        """The same of all that a function computes from what it is handed."""
        key = (id(function), frozenset(own))
        if not own or depth > _MOST or key in self._seen:
            return
        self._seen.add(key)
        own = set(own)
        for _ in range(2):
            for node in find(function.body, *_SETS):
                target = declared_name(node) if node.type == "init_declarator" else node.child_by_field_name("left")
                words = set(re.findall(r"[A-Za-z_]\w*", function.text(node)))
                if target is not None and target.type == "identifier" and words & own:
                    own.add(function.text(target))
        yield from self.unsure(function, function.body, own, depth + 1)
        yield from ((function, n) for n in self._values.answers(function, self._same))

    def _same(self, function: Function, node: Node) -> bool:
        own = self._own.get(id(function), set())
        return not any(n.type == "identifier" and function.text(n) in own for n in walk(node))


def _unknown(function: Function, node: Node) -> bool:
    return False
