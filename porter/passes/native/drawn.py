# SPDX-License-Identifier: Apache-2.0
"""Addresses of one thread in a launch that is made up: what the text does not explain is a number drawn for its name.
Two columns of a row are a few bytes apart then, and two rows are not. What is read off it is a guess, for PTX to judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from tree_sitter import Node

from porter.lang.cuda import arguments, find
from porter.lang.expansion import TooLong
from porter.model.constant_expressions import evaluate, size_of
from porter.model.functions import Function
from porter.model.pipeline.elements import returned
from porter.model.pipeline.frames import Wording, first_value
from porter.model.program import Program
from porter.model.scopes import Variable, resolve
from porter.model.thread_values import is_const

_MEMBER = re.compile(r"\s*(?:\.|->)\s*(?=[A-Za-z_])")
_DRAWN_BYTES = 5
_DEEPEST = 24
T = TypeVar("T")


@dataclass
class Drawn:
    """Asks about one program. `turns`: the values of loops' variables, by `Variable.key`."""

    program: Program
    turns: Mapping[tuple[int, int, str], int]

    def __post_init__(self) -> None:
        self._wording = Wording(self.program)
        self._depth = 0

    def place(self, function: Function, node: Node) -> tuple[int, int] | None:
        """Where `*p` or `p[i]` is, and how many bytes it has."""
        argument, indices = node.child_by_field_name("argument"), node.child_by_field_name("indices")
        if node.type == "parenthesized_expression":
            return self.place(function, node.named_children[0])
        if argument is not None and node.type == "pointer_expression" and node.children[0].type == "*":
            return self._address(function, argument)
        if argument is not None and indices is not None:
            return self._moved(function, argument, indices.named_children[0])
        return None

    def _moved(self, function: Function, pointer: Node, index: Node, times: int = 1) -> tuple[int, int] | None:
        base, by = self._address(function, pointer), self._integer(function, index)
        return (base[0] + times * base[1] * by, base[1]) if base is not None and by is not None else None

    def _address(self, function: Function, node: Node) -> tuple[int, int] | None:
        """Where a pointer points to, and how many bytes are there."""
        found = self.program.names.type_of(function, node)
        pointed = found.pointed() if found.is_pointer else found
        size = size_of(pointed.name.split()) if pointed.is_plain else None
        if node.type == "identifier":
            variable = resolve(function, node, function.text(node))
            if variable is None or variable.ambiguous or not size:
                return None
            if variable.param is not None:
                return self._draw(variable.name), size
            base = self._followed(variable, self._address)
            return (base[0], size) if base is not None else None
        if node.type == "pointer_expression" and node.children[0].type == "&":
            return self.place(function, node.named_children[0])
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if node.type == "binary_expression" and left is not None and right is not None:
            if node.children[1].type == "-":
                return self._moved(function, left, right, -1)
            return self._moved(function, left, right) or self._moved(function, right, left)
        inner = self._cast(node)
        base = self._address(function, inner) if inner is not None else None
        return (base[0], size or base[1]) if base is not None else None

    @staticmethod
    def _cast(node: Node) -> Node | None:
        """What parentheses or a cast are around."""
        if node.type == "parenthesized_expression":
            return node.named_children[0]
        if node.type == "cast_expression":
            return node.child_by_field_name("value")
        is_cast = node.type == "call_expression" and b"_cast" in (node.children[0].text or b"")
        return next(iter(arguments(node)), None) if is_cast else None

    def _followed(self, variable: Variable, ask: Callable[[Function, Node], T | None]) -> T | None:
        """What is asked of what a variable begins with, if nothing changes it."""
        function, value = variable.function, first_value(variable) if variable.param is None else None
        changes = not is_const(variable) and self._wording.changes(function, variable.name)
        return self._deeper(lambda: ask(function, value)) if value is not None and not changes else None

    def _deeper(self, ask: Callable[[], T | None]) -> T | None:
        if self._depth > _DEEPEST:
            return None
        self._depth += 1
        try:
            return ask()
        finally:
            self._depth -= 1

    def _integer(self, function: Function, node: Node) -> int | None:
        """What an integer is; None where it is read from memory."""
        memory = any(True for _ in find(node, "subscript_expression", "pointer_expression"))
        return None if memory else self._evaluated(function, node, {})

    def _evaluated(self, function: Function, node: Node, given: Mapping[str, int]) -> int | None:
        def named(name: str) -> int | None:
            return given[name] if name in given else self._named(function, node, name)

        def called(name: str, handed: list[int | None]) -> int | None:
            """What a function gives that only returns an expression."""
            found = [f for f in self.program.functions if f.name == name and len(f.params) == len(handed)]
            value = returned(found[0]) if len(found) == 1 else None
            if value is None:
                return None
            known = {p.name: v for p, v in zip(found[0].params, handed, strict=True) if v is not None}
            return self._deeper(lambda: self._evaluated(found[0], value, known))

        try:
            texts = self.program.macros.expand(function.text(node))
        except TooLong:
            return None
        return evaluate(_MEMBER.sub("__", texts[0]), named, called) if len(texts) == 1 else None

    def _named(self, function: Function, node: Node, name: str) -> int | None:
        variable = resolve(function, node, name)
        if variable is None:
            known = self.program.constants_in(function).evaluate(name)
            return known if known is not None else self._draw(name)
        if variable.key in self.turns:
            return self.turns[variable.key]
        found = self._followed(variable, self._integer)
        return found if found is not None else self._draw(f"{name}@{variable.key[1]}")

    @staticmethod
    def _draw(name: str) -> int:
        return int.from_bytes(blake2b(name.encode(), digest_size=_DRAWN_BYTES).digest(), "big")
