# SPDX-License-Identifier: Apache-2.0
"""The loop that multiplies: one warp waits for operands, issues the MMAs of the tile, and lets the tensor core give
stages back; all others wait for sums. In a loop that does nothing else that warp runs all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function, Style
from porter.model.scopes import LOOPS
from porter.passes.idiom.events import QUIET, Events
from porter.passes.idiom.site import inside
from porter.passes.idiom.text import cpp
from porter.passes.native.sites import Left

RULE = "PTR764"


@dataclass(eq=False)
class Mainloop(Events):
    """Where the MMAs of a kernel are issued: the statement `mma` in the list `block` of a function."""

    mma: Node = field(init=False, repr=False)
    block: Node = field(init=False, repr=False)
    loop: Node | None = field(default=None, init=False, repr=False)
    call: Node | None = field(default=None, init=False, repr=False)
    """The statement of the kernel that calls the function, if that is another one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        site = self.site
        owners = {id(self._owner(m.call.caller)): self._owner(m.call.caller) for m in site.multiplies}
        if len(owners) != 1:
            raise site.left(site.handle.declaration, "MMAs in one function")
        self.function = next(iter(owners.values()))
        tops = [self.multiplying(m.call.node) for m in site.multiplies]
        self.mma = max(tops, key=lambda n: n.start_byte)
        assert self.mma.parent is not None
        self.block = self.mma.parent
        if any(t.parent != self.block for t in tops):
            raise self._left(self.mma, "MMAs in one list of statements")
        above = self.block.parent
        if above is not None and above.type in LOOPS and self.block.id != self.function.body.id:
            self.loop = above
        if self.function is not site.kernel:
            self.call = self._called()

    def _owner(self, function: Function) -> Function:
        """The function that a lambda, which is an argument of a call, stands in."""
        while function.style is Style.LAMBDA and function.parent is not None:
            above = function.node.parent
            if above is None or above.type != "argument_list":
                raise Left(function, function.head, "MMAs in no lambda that has a name")
            function = function.parent
        return function

    def _left(self, node: Node, what: str) -> Left:
        return self.site.left(node, what, self.function)

    def _called(self) -> Node:
        calls = [c for c in self.site.program.callers(self.function) if c.caller is self.site.kernel]
        statement = calls[0].node.parent if len(calls) == 1 else None
        if statement is None or statement.type != "expression_statement":
            raise self._left(self.function.body, f"one call of `{self.function.name}`, a statement of the kernel")
        return statement

    # --- stages that are given back

    def releases(self) -> list[tuple[Node, str, bool]]:
        """Statements that give stages back in the list, with the text that does it here, and whether by a pipeline."""
        found = []
        for node, kind in self.items(self.block):
            if kind not in ("release", "lag"):
                continue
            for call in self.calls_in(node):
                operation = self.operation(call)
                if operation is None or operation[0] not in ("release", "arrive"):
                    continue
                if operation[0] == "release":
                    state = self._state() if kind == "lag" else self.function.text(call.args[0])
                    found.append((node, f"{operation[1]}.consumer_release({state});", True))
                elif kind == "lag" or not operation[1].lstrip().startswith("&"):
                    raise self._left(node, "the stage that is given back, by the address of its mbarrier")
                else:
                    found.append((node, cpp("release", barrier=operation[1]), False))
        return found

    def _state(self) -> str:
        for node, kind in self.items(self.block):
            for call in self.calls_in(node) if kind == "full" else ():
                operation = self.operation(call)
                if operation is not None and operation[0] == "fetch":
                    return self.function.text(call.args[0])
        raise self._left(self.mma, "the stage that is waited for in front of MMAs")

    def empty_barriers(self) -> set[str]:
        """Names of the mbarriers that commits arrive at."""
        found = set()
        for node, kind in self.items(self.block):
            for call in self.calls_in(node) if kind == "release" else ():
                operation = self.operation(call)
                if operation is not None and operation[0] == "arrive":
                    found.add(re.split(r"\[", operation[1].strip("& "))[0].strip())
        return found

    # --- where the loop stands

    @property
    def is_pure(self) -> bool:
        """Whether the loop, or all of the function, does nothing but multiply."""
        if self.loop is None or any(kind in ("other", "lag!") for _, kind in self.items(self.block)):
            return False
        head = [n for n in self.loop.named_children if n.id != self.block.id]
        return all(set(self.events(n)) <= QUIET for n in head)

    @property
    def uses_sums(self) -> bool:
        """Whether registers of sums are used in the loop, behind the MMAs."""
        if self.loop is None or self.function is not self.site.kernel:
            return False
        return any(
            self.kind(n) == "other" and self._names_sums(n)
            for n in self.block.named_children
            if n.start_byte >= self.mma.end_byte
        )

    def changing_sums(self) -> Node | None:
        """A name of sums in a loop around the MMAs by which registers may change what these add to: in front of them,
        or behind those that go on with the same sums, for anything but the value of an element."""
        kernel, declared = self.site.kernel, self.site.handle.declaration
        at, own = (self.call, [self.call]) if self.call else (self.mma, [m.d for m in self.site.multiplies])
        for node in find(kernel.body, "identifier"):
            loop = next((n for n in _loops_around(at) if inside(n, node)), None)
            if loop is None or inside(declared, node) or self.site.tiled.handle_of(kernel, node) is None:
                continue
            if any(inside(n, node) for n in own) or self.site.tiled.only_asked(kernel, node):
                continue
            goes_on = not inside(loop, declared) and not any(
                in_callee or inside(loop, n) for n, in_callee in self._told
            )
            if node.start_byte < at.start_byte or (goes_on and not _is_value(node)):
                return node
        return None

    @cached_property
    def _told(self) -> list[tuple[Node, bool]]:
        """Statements in front of MMAs that say that these clear, and whether what the kernel calls says it."""
        found = []
        for function, at in ((self.function, self.mma), (self.site.kernel, self.call or self.mma)):
            events = Events(self.site)
            events.function = function
            for node in find(function.body, "expression_statement"):
                text = function.text(node).rstrip("; ")
                kind = events.kind(node) if node.start_byte < at.start_byte else ""
                is_told = kind == "zero" or (kind == "scale" and "?" not in text and text.endswith("Zero"))
                if is_told and node.parent is not None and inside(node.parent, at):
                    found.append((node, function is not self.site.kernel))
        return found

    def _names_sums(self, node: Node) -> bool:
        return any(self.site.tiled.handle_of(self.function, n) is not None for n in find(node, "identifier"))

    @property
    def last(self) -> Node:
        """The statement of the kernel behind which sums are complete."""
        return self.call or self.loop or self.mma

    @property
    def turns(self) -> bool:
        """Whether a kernel comes to the same wait more than once."""
        outer: Node | None = self.last.parent
        while outer is not None and outer.id != self.site.kernel.body.id:
            if outer.type in LOOPS:
                return True
            outer = outer.parent
        return False

    def outermost_loop(self) -> Node | None:
        """The outermost loop around the multiplying one, below the accumulator's declaration."""
        declared, found = self.site.handle.declaration.parent, None
        node: Node | None = self.last if self.call is not None else self.block
        while node is not None and (declared is None or node.id != declared.id):
            if node.type in LOOPS:
                found = node
            node = node.parent
        return found


def _loops_around(node: Node) -> Iterator[Node]:
    """Innermost ones first."""
    current = node.parent
    while current is not None and current.type != "function_definition":
        if current.type in LOOPS:
            yield current
        current = current.parent


def _is_value(name: Node) -> bool:
    """Whether a tensor is named for the value of an element, which goes to no function."""
    inner, current = name, name.parent
    if current is None or current.type != "call_expression" or current.child_by_field_name("function") != name:
        return False
    while current is not None and not current.type.endswith(("_statement", "declaration")):
        if current.type in ("argument_list", "update_expression", "pointer_expression"):
            return False
        if current.type == "assignment_expression" and current.child_by_field_name("left") == inner:
            return False
        inner, current = current, current.parent
    return True


def names_after(function: Function, node: Node, end: int) -> bool:
    """Whether what a declaration declares is named behind a byte of the block that it stands in."""
    names = {function.text(n) for d in node.children_by_field_name("declarator") for n in find(d, "identifier")}
    block = node.parent
    return block is not None and any(
        n.start_byte >= end and function.text(n) in names for n in find(block, "identifier") if inside(block, n)
    )
