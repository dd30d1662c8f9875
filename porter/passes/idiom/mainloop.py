# SPDX-License-Identifier: Apache-2.0
"""The loop that multiplies: one warp waits for operands, issues the MMAs of the tile, and lets the tensor core give
stages back; all others wait for sums. In a loop that does nothing else that warp runs all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.empty_calls import is_register_fence_call
from porter.model.facts import Commit, Doubt, Fence, Layout, Mbarrier, Pipeline, Zero
from porter.model.functions import Call, Function, Style
from porter.model.scopes import LOOPS, resolve
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.text import cpp
from porter.passes.native.sites import Left

RULE = "PTR764"
_HARMLESS = ("computing_function", "computing_method", "calling_function")
_LEAVES = ("return_statement", "goto_statement", "break_statement", "continue_statement")
_FULL = {"fetch", "look", "await"}
_GOES = {"pin", "fence", "commit"}
_QUIET = {"step", "write"}
"""What changes nothing but variables of the thread."""
_SUMS = {"mma", "scale", "pin", *_QUIET}


@dataclass(eq=False)
class Mainloop:
    """Where the MMAs of a kernel are issued: the statement `mma` in the list `block` of a function."""

    site: Site
    function: Function = field(init=False)
    mma: Node = field(init=False, repr=False)
    block: Node = field(init=False, repr=False)
    loop: Node | None = field(default=None, init=False, repr=False)
    call: Node | None = field(default=None, init=False, repr=False)
    """The statement of the kernel that calls the function, if that is another one."""

    def __post_init__(self) -> None:
        site = self.site
        tiled = site.tiled
        self._multiplies = {(id(m.call.caller.file), m.call.node.id): m for m in site.multiplies}
        self._batches = {(id(s.call.caller.file), s.call.node.id): s.fact for s in tiled.synchronizations}
        owners = {id(self._owner(m.call.caller)): self._owner(m.call.caller) for m in site.multiplies}
        if len(owners) != 1:
            raise site.left(site.handle.declaration, "MMAs in one function")
        self.function = next(iter(owners.values()))
        tops = [self._top(m.call.node) for m in site.multiplies]
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

    def _top(self, node: Node) -> Node:
        """The largest statement around a multiply that does nothing but multiply."""
        best, current = None, node
        while current.parent is not None and current.id != self.function.body.id:
            if not set(self.events(current)) <= _SUMS:
                break
            if current.parent.type == "compound_statement" and current.is_named:
                best = current
            current = current.parent
        if best is None:
            raise self._left(node, "braces around the statement with MMAs")
        return best

    # --- what statements do

    def events(self, node: Node) -> Iterator[str]:
        """What a part of the function does besides computing."""
        for inner in walk(node):
            if inner.type == "call_expression":
                yield from self._call(inner)
            elif inner.type == "assignment_expression":
                yield self._assigned(inner)
            elif inner.type == "update_expression":
                yield "step"
            elif inner.type in _LEAVES:
                yield "leave"
            elif inner.type in ("gnu_asm_expression", "new_expression", "delete_expression"):
                yield "other"

    def _assigned(self, node: Node) -> str:
        left = node.child_by_field_name("left")
        if left is None:
            return "other"
        named = left.child_by_field_name("field") if left.type == "field_expression" else None
        if named is not None and self.site.program.vocabulary.spellings.are("scale_of_d", self.function.text(named)):
            return "scale"
        return (
            "write" if left.type == "identifier" and resolve(self.function, left, self.function.text(left)) else "other"
        )

    def _call(self, node: Node) -> Iterator[str]:
        key = (id(self.function.file), node.id)
        if key in self._multiplies:
            yield "mma"
            return
        if key in self._batches:
            fact = self._batches[key]
            yield (
                "fence"
                if isinstance(fact, Fence)
                else "commit"
                if isinstance(fact, Commit)
                else ("wait" if fact.pending == "0" else "lag")
            )
            return
        call = self.site.tiled.tensors.call(self.function, node)
        if call is None:
            yield from () if self._is_element(node) else ("other",)
            return
        yield from self._known(call)

    def _known(self, call: Call) -> Iterator[str]:
        program = self.site.program
        fact = program.facts.of_call(call)
        if is_register_fence_call(program, call):
            yield "pin"
        elif isinstance(fact, Zero):
            handle = self.site.tiled.handle_of(self.function, call.args[0]) if call.args else None
            yield "zero" if handle is not None else "other"
        elif (operation := self.operation(call)) is not None:
            op = operation[0]
            yield {"wait": "await"}.get(op, op)
        elif isinstance(fact, Layout) or self._is_element(call.node) or self._is_harmless(call):
            return
        else:
            yield "other"

    def operation(self, call: Call) -> tuple[str, str] | None:
        """What a call does with an mbarrier or with the stages of a pipeline, and with which; None if nothing."""
        program = self.site.program
        fact = program.facts.of_call(call)
        if isinstance(fact, Mbarrier):
            return fact.op, fact.bar
        if isinstance(fact, Pipeline):
            return fact.op, fact.of
        if isinstance(fact, Doubt) and fact.kind is Pipeline:
            # the class of a template's parameter
            callee = call.node.child_by_field_name("function")
            held = callee.child_by_field_name("argument") if callee is not None else None
            for caller, node in self.site.tiled.handed_in(call.caller, held) if held is not None else ():
                meant = program.facts.of_object(call, caller, node)
                if held is not None and isinstance(meant, Pipeline):
                    return meant.op, call.caller.text(held)
        return None

    def _is_element(self, node: Node) -> bool:
        """Whether a variable is called: elements or a part of a tensor."""
        callee = node.child_by_field_name("function")
        if callee is not None and callee.type == "template_function":
            # the grammar reads `k < size<2>(x)` as a call
            callee = callee.child_by_field_name("name")
        if callee is None or callee.type != "identifier":
            return callee is not None and callee.type == "primitive_type"
        variable = resolve(self.function, callee, self.function.text(callee))
        value = variable.declarator.child_by_field_name("value") if variable and variable.declarator else None
        return variable is not None and (value is None or value.type != "lambda_expression")

    def _is_harmless(self, call: Call) -> bool:
        spellings = self.site.program.vocabulary.spellings
        return any(spellings.are(kind, call.name) for kind in _HARMLESS)

    def kind(self, node: Node) -> str:
        """What a statement of the list is for."""
        found = set(self.events(node))
        if "mma" in found:
            return "mma" if found <= _SUMS else "other"
        if found <= _QUIET:
            return "pure"
        waits = found & {"lag", "wait"}
        if node.type == "if_statement" and "lag" in waits and found <= {"lag", "release", "arrive", *_QUIET}:
            return "lag"
        for kind, names in (("wait", {"wait"}), ("full", _FULL), ("release", {"release", "arrive"}), ("zero", {"zero"}),
                            ("scale", {"scale"})):  # fmt: skip
            if found <= {*names, *_QUIET} or (kind == "full" and found <= names):
                guarded = node.type == "if_statement" and kind == "release"
                return kind if node.type in ("expression_statement", "declaration") or guarded else "other"
        if found <= _GOES and node.type == "expression_statement":
            return "goes"
        return "lag!" if "lag" in found else "other"

    def items(self, block: Node) -> list[tuple[Node, str]]:
        return [(n, self.kind(n)) for n in block.named_children if n.type != "comment"]

    def calls_in(self, node: Node) -> Iterator[Call]:
        for inner in find(node, "call_expression"):
            call = self.site.tiled.tensors.call(self.function, inner)
            if call is not None:
                yield call

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
        return all(set(self.events(n)) <= _QUIET for n in head)

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


def names_after(function: Function, node: Node, end: int) -> bool:
    """Whether what a declaration declares is named behind a byte of the block that it stands in."""
    names = {function.text(n) for d in node.children_by_field_name("declarator") for n in find(d, "identifier")}
    block = node.parent
    return block is not None and any(
        n.start_byte >= end and function.text(n) in names for n in find(block, "identifier") if inside(block, n)
    )
