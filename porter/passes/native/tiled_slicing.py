# SPDX-License-Identifier: Apache-2.0
"""What a warp of its own needs of the consumers' statements to come to their MMAs, where these are calls of a library:
tensors, parts of them and tiled MMAs are made again. What tells threads apart has the value of the first thread that
multiplied: the parts of operands in shared memory that its MMAs take are those of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.facts import Commit, Fence, Layout, RegisterFence, TiledMma, Wait
from porter.model.functions import Call, Function, declared_name
from porter.model.scopes import Variable, resolve
from porter.passes.full_rate.library import LibraryCalls
from porter.passes.native.mainloop import inside
from porter.passes.native.slicing import Slice, is_declared

_OF_BATCHES = (Commit, Fence, Layout, RegisterFence, TiledMma, Wait)


@dataclass(eq=False)
class TiledSlice(Slice):
    """`moved`: statements behind the range that give stages back, which the warp does in their place."""

    moved: Sequence[Node] = ()
    pipelines: frozenset[str] = frozenset()
    """Objects that each thread has for itself, and that tell it apart by its role alone."""
    mmas: frozenset[str] = frozenset()
    """Tiled MMAs."""
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
        self._single()

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

    def _single(self) -> None:
        """That no statement asks for which thread runs it, but for the part of an operand that its MMAs take."""
        for node in [*self._roots, *(s for level in self.levels for s in level.statements)]:
            if self._is_constant(node):
                continue
            if not self._named_alone(node):
                raise self._left(node, f"`{self._text(node)}` as it is in the thread that issues")
            for function in {id(f): f for f in self._reached(node)}.values():
                if self._varies(function):
                    raise self._left(node, f"what `{function.name}` gives in the thread that issues")

    def _reached(self, node: Node) -> Iterator[Function]:
        program = self.kernel.program
        work = [t for n in find(node, "call_expression") for c in program.calls_by_node.get(n.id, ())
                for t in program.targets(c)]  # fmt: skip
        seen: set[int] = set()
        while work:
            function = work.pop()
            if id(function) not in seen:
                seen.add(id(function))
                yield function
                work += [t for c in function.calls for t in program.targets(c)]

    def _varies(self, function: Function) -> bool:
        """Whether a function asks for which thread runs it."""
        names = find(function.body, "identifier", "field_expression", "qualified_identifier", "call_expression")
        return any(map(self.threads.asm_differs, function.asm)) or any(self._tells(n, function) for n in names)

    def _named_alone(self, node: Node) -> bool:
        told = list(self._told(node))
        again = [*self._roots, *(s for level in self.levels for s in level.statements)]
        for name in find(node, "identifier", "field_expression", "qualified_identifier", "call_expression"):
            if any(inside(t, name) for t in told):
                continue
            if self._tells(name):
                return False
            text = self.function.text(name)
            if name.type != "identifier" or text not in self.apart or is_declared(name):
                continue
            variable = resolve(self.function, name, text)
            declared = variable.declaration if variable is not None else None
            made = declared is not None and any(inside(n, declared) for n in again)
            known = text in self.constants or text in self.pipelines or made
            if variable is None or not (known or variable.key in self._sums):
                return False
        return True

    def _tells(self, node: Node, function: Function | None = None) -> bool:
        """Whether a name, or what a call gives whatever it is handed, tells threads apart; in the kernel if not in
        another function."""
        function = function or self.function
        if node.type != "call_expression":
            return self.threads.tells(function, node)
        calls = self.kernel.program.calls_by_node.get(node.id, ())
        mine = [c for c in calls if c.caller.file is function.file]
        return any(self.threads.call_differs(c) and not self._is_known(c) and not self._issues(c) for c in mine)

    def _issues(self, call: Call) -> bool:
        """Whether a call is one of those that are looked at by themselves: what is done with stages, and MMAs."""
        operations = self.kernel.walk.operations
        sites = {s.node.id for o in operations for s in o.sites if s.frame.function.file is call.caller.file}
        return call.node.id in sites or isinstance(self.kernel.program.facts.of_call(call), _OF_BATCHES)

    @cached_property
    def apart(self) -> set[str]:
        """Variables of the kernel that are made of what tells threads apart."""
        found: set[str] = set()
        while True:
            before = len(found)
            for node in find(self.function.body, "init_declarator", "assignment_expression"):
                target = node.child_by_field_name("declarator") or node.child_by_field_name("left")
                value = node.child_by_field_name("value") or node.child_by_field_name("right")
                name = declared_name(target) if target is not None else None
                if name is None or value is None or self.function.text(name) in found:
                    continue
                nodes = [value, *find(value, "identifier", "field_expression", "qualified_identifier",
                                      "call_expression")]  # fmt: skip
                if any(self._tells(n) or (n.type == "identifier" and self.function.text(n) in found) for n in nodes):
                    found.add(self.function.text(name))
            if len(found) == before:
                return found

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
