# SPDX-License-Identifier: Apache-2.0
"""What a warp of its own needs of the consumers' statements to come to their MMAs, where these are calls of a library:
tensors, parts of them and tiled MMAs are made again. What tells threads apart has the value of the first thread that
multiplied: the parts of operands in shared memory that its MMAs take are those of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Call, Function
from porter.model.scopes import Variable
from porter.passes.full_rate.library import LibraryCalls
from porter.passes.native.slicing import Slice


@dataclass(eq=False)
class TiledSlice(Slice):
    """`moved`: statements behind the range that give stages back, which the warp does in their place."""

    moved: Sequence[Node] = ()
    told: dict[int, int] = field(default_factory=dict)
    """Values of arguments that tell threads apart, by id of the node."""

    def __post_init__(self) -> None:
        self.library = LibraryCalls(self.kernel.program)
        super().__post_init__()

    def _close(self) -> None:
        self._roots += self.moved
        super()._close()
        self.levels[-1].statements += self.moved
        self.levels[-1].statements.sort(key=lambda n: n.start_byte)

    def _beside(self, index: int) -> Iterator[Node]:
        mine = {n.id for n in self.moved}
        yield from (n for n in super()._beside(index) if n.id not in mine)

    def _is_known(self, call: Call) -> bool:
        return super()._is_known(call) or self.library.computes(call.caller, call.node)

    def gives(self, function: Function, name: Node, variable: Variable) -> bool:
        held = name.parent
        call = held.parent if held is not None and held.type == "field_expression" else None
        if held is not None and call is not None and call.type == "call_expression":
            argument, called = held.child_by_field_name("argument"), call.child_by_field_name("function")
            of_object = argument is not None and argument.id == name.id
            if of_object and called is not None and called.id == held.id and self._keeps(function, call):
                return False
        return super().gives(function, name, variable)

    def _keeps(self, function: Function, call: Node) -> bool:
        """Whether a method leaves its object as it is."""
        if self.library.keeps(function, call, False):
            return True
        program = self.kernel.program
        calls = [c for c in program.calls_by_node.get(call.id, ()) if c.caller.file is function.file]
        targets = [t for c in calls for t in program.targets(c)]
        return bool(targets) and all(_is_constant_method(t) for t in targets)

    def _told(self, node: Node) -> Iterator[Node]:
        """Arguments of slices of a tiled MMA, with their value in the thread that issued."""
        spellings = self.kernel.program.vocabulary.spellings
        for call in find(node, "call_expression"):
            called, given = call.child_by_field_name("function"), call.child_by_field_name("arguments")
            method = called.child_by_field_name("field") if called is not None else None
            listed = given.named_children if given is not None else []
            if method is None or len(listed) != 1 or not spellings.are("slicing_method", self.function.text(method)):
                continue
            values = self.kernel.who.values(self.frame, listed[0])
            value = values[self.issuer] if values is not None and self.issuer < len(values) else None
            if value is not None:
                self.told[listed[0].id] = int(value)
                yield listed[0]

    def numbers(self, node: Node) -> dict[Node, int]:
        """Arguments in a statement that are numbers in the warp of its own."""
        return {n: self.told[n.id] for n in self._told(node)}


def _is_constant_method(function: Function) -> bool:
    """Whether a method is declared `const`."""
    declarator = function.node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    return declarator is not None and any(
        c.type == "type_qualifier" and function.text(c) == "const" for c in declarator.children
    )
