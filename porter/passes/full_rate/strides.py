# SPDX-License-Identifier: Apache-2.0
"""Whether A tiles of both consumers are as far apart in every launch: a case shows it of its own sizes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.passes.full_rate.leading import Key, is_callee, key_of, named
from porter.passes.full_rate.sameness import Sameness
from porter.ptx.smem_desc import START_MASK

_SCALES = ("*", "/", "<<", ">>")
_CHOOSES = ("%", "^", "&")
_MOST = 12


@dataclass(eq=False)
class Strides:
    """Asks about the A descriptors of one kernel."""

    program: Program
    sameness: Sameness
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def unsure(self, function: Function, node: Node, depth: int = 0) -> Iterator[tuple[Function, Node]]:
        """Expressions that make an index of the consumer another one by what only a launch tells."""
        if depth > _MOST or (id(function), node.id) in self._seen:
            return
        self._seen.add((id(function), node.id))
        for part in find(node, "binary_expression", "conditional_expression"):
            if self._mixes(function, part):
                yield function, part
        for call in (c for n in find(node, "call_expression") for c in self.program.calls_by_node.get(n.id, ())):
            for target in self.program.targets(call) if call.caller.file is function.file else ():
                yield from self.unsure(target, target.body, depth + 1)
        names = self.sameness.names(function)
        for name in find(node, "identifier"):
            key = key_of(function, name)
            if key not in names or self.sameness.known(function, name) is not None:
                continue
            for value in self._values(function, key):
                yield from self.unsure(function, value, depth + 1)
            variable = named(function, name)
            if variable is None or variable.param is None or variable.function.style is Style.KERNEL:
                continue
            for call in self.program.callers(variable.function):
                if variable.param.index < len(call.args):
                    yield from self.unsure(call.caller, call.args[variable.param.index], depth + 1)

    def _values(self, function: Function, key: Key) -> list[Node]:
        return [node for found, node in self.sameness.written_in(function) if found == key]

    def _mixes(self, function: Function, part: Node) -> bool:
        if part.type == "conditional_expression":
            condition = part.child_by_field_name("condition")
            arms = [part.child_by_field_name(n) for n in ("consequence", "alternative")]
            own = any(a is not None and not self.sameness.same(function, a) for a in arms)
            return own and condition is not None and self._varies(function, condition)
        left, right = part.child_by_field_name("left"), part.child_by_field_name("right")
        sign = function.text(part.children[1])
        if left is None or right is None or sign not in (*_SCALES, *_CHOOSES):
            return False
        if (
            all(self.sameness.same(function, n) for n in (left, right))
            or self.sameness.by_warp(function, part)[0] is not None
        ):
            return False
        if sign in _SCALES:
            other = right if self.sameness.same(function, right) else left
            return self.sameness.same(function, other) and self._varies(function, other)
        mask = self.sameness.known(function, right)
        # a mask of no fewer bits than a descriptor's address leaves the address as it is
        return not (sign == "&" and (mask or 0) >= START_MASK) and self._varies(function, part)

    def _varies(self, function: Function, node: Node, depth: int = 0) -> bool:
        """Whether a part of an expression that both consumers have alike is no constant."""
        for name in walk(node):
            if name.type != "identifier" or is_callee(name) or not self.sameness.same(function, name):
                continue
            text = function.text(name)
            if self.program.value(function, text) is not None or self.sameness.known(function, name) is not None:
                continue
            variable = named(function, name)
            if variable is None or text in function.template_params:
                continue
            declarator, declaration = variable.declarator, variable.declaration
            value = declarator.child_by_field_name("value") if declarator is not None else None
            constant = declaration is not None and "const" in variable.function.text(declaration).split("=")[0]
            # of constants and parameters of the template, which an instantiation has
            if not constant or value is None or depth > _MOST or self._varies(variable.function, value, depth + 1):
                return True
        return False
