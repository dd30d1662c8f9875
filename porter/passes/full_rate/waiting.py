# SPDX-License-Identifier: Apache-2.0
"""Where consumers wait for each other by mbarriers, or by flags in memory. Consumers that meet for each batch of MMAs
cannot take turns: the one that goes first waits for the other, which waits for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Call, Function, Style
from porter.model.kernels import Kernel
from porter.model.program import Program
from porter.model.scopes import LOOPS, resolve
from porter.model.threads import Threads
from porter.passes.full_rate.leading import is_callee
from porter.passes.full_rate.missing import Missing
from porter.passes.full_rate.renaming import reached
from porter.passes.full_rate.sameness import Sameness

_MBARRIER = re.compile(r"\bmbarrier\.(try_wait|test_wait|arrive)([\w.:]*)\s+(?:[^\[;]*,\s*)?\[\s*%(\d+)")
_METHODS = {
    True: re.compile(r"wait|wait_parity|arrive_and_wait|acquire|try_(?:wait|acquire)\w*"),
    False: re.compile(r"arrive|arrive_and_\w+|release|notify_(?:one|all)|store|exchange|fetch_\w+"),
}
"""Methods of `cuda::barrier`, semaphores and atomics that wait, and that others wait for."""
_FUNCTIONS = {
    True: re.compile(r"(?:__)?mbarrier_(?:test|try)_wait\w*"),
    False: re.compile(r"(?:__)?mbarrier_arrive(?!_expect_tx)\w*"),
}
_POLLS = re.compile(r"\bld\.(?:volatile|relaxed|acquire)|\batom\.|\bred\.")
_POLLING_CALL = re.compile(
    r"atomic\w+|__ldcv|__ldcg|__nv_atomic_\w+|load|exchange|fetch_\w+|compare_exchange_\w+|test|test_and_set"
)
_AGAIN = re.compile(r"\bbra\b")
_FLAGS = re.compile(r"store|exchange|fetch_\w+")
_MOST = 8


@dataclass(frozen=True)
class Use:
    """A use of an mbarrier: the text and place of the array or variable that holds it, and whether consumers may use
    different ones."""

    function: Function
    node: Node
    waits: bool
    home: tuple[int, str]
    own: bool
    place: tuple[Function, Node]
    """The statement, or the call that comes to it, where the mbarrier is named."""


@dataclass(eq=False)
class Waiting:
    """Asks about the consumers of one kernel."""

    program: Program
    threads: Threads
    sameness: Sameness
    kernel: Kernel

    @cached_property
    def _mine(self) -> list[Function]:
        ids = reached(self.program, [self.kernel.function])
        return [f for f in self.program.functions if id(f) in ids and f.style is not Style.MACRO]

    def missing(self) -> Iterator[Missing]:
        yield from self._by_mbarriers()
        for function in self._mine:
            for loop in find(function.body, *LOOPS):
                if not self.sameness.comes_to(function, loop):
                    continue
                condition = next((c for c in _ends(loop) if self.threads.differ(function, c)), None)
                if condition is not None and self._polls(function, loop):
                    text = " ".join(function.text(condition).split())
                    yield Missing(function, function.span(condition), f"consumers may wait for each other at `{text}`")
            for statement in function.asm:
                if _POLLS.search(statement.template) and _AGAIN.search(statement.template):
                    nodes = [o.expr_node for o in statement.operands if o.expr_node is not None and not o.is_output]
                    if any(not self.sameness.same(function, n) for n in nodes):
                        yield Missing(function, statement.span, "consumers may wait for each other in this instruction")

    # --- mbarriers

    def _by_mbarriers(self) -> Iterator[Missing]:
        uses = list(self.uses())
        arrived = {(u.home, u.own) for u in uses if not u.waits}
        for use in uses:
            if use.waits and any(home == use.home and (own or use.own) for home, own in arrived):
                what = f"the consumers may wait for each other by mbarriers in `{use.home[1]}`"
                yield Missing(use.function, use.function.span(use.node), what)

    def uses(self) -> Iterator[Use]:
        """What consumers do with mbarriers."""
        for function in self._mine:
            yield from self._uses(function)

    def _uses(self, function: Function) -> Iterator[Use]:
        for statement in function.asm:
            for match in _MBARRIER.finditer(statement.template):
                waits, operands = match[1] != "arrive", statement.operands
                if "expect_tx" in match[2] or int(match[3]) >= len(operands):
                    # what comes with it are bytes that TMA brings
                    continue
                node = operands[int(match[3])].expr_node
                if node is not None and self.sameness.comes_to(function, statement.node):
                    yield from self._traced(function, node, waits, (function, statement.node), 0)
        for call in function.calls:
            if not self.program.targets(call) and self.sameness.comes_to(function, call.node):
                yield from self._by_library(function, call)

    def _by_library(self, function: Function, call: Call) -> Iterator[Use]:
        """What a call of a library waits for, or arrives at."""
        holder = _object(call.node)
        node, names = (holder, _METHODS) if holder is not None else (next(iter(call.args), None), _FUNCTIONS)
        for waits, name in names.items():
            if node is not None and name.fullmatch(call.name):
                # who waits for a flag goes by the value that another one gives it
                own = _FLAGS.fullmatch(call.name) and any(not self.sameness.same(function, a) for a in call.args)
                for use in self._traced(function, node, waits, (function, call.node), 0):
                    yield replace(use, own=use.own or bool(own))

    def _traced(
        self, function: Function, node: Node, waits: bool, place: tuple[Function, Node], depth: int
    ) -> Iterator[Use]:
        """Follow an address to where the mbarrier is named."""
        name = next((n for n in find(node, "identifier") if not is_callee(n)), None)
        if name is None or depth > _MOST:
            return
        variable, whole = resolve(function, name, function.text(name)), name
        while whole.parent is not None and whole.parent.type == "field_expression" and whole.parent.parent != place[1]:
            whole = whole.parent
        own = not self.sameness.same(function, node)
        value = _value(variable.declarator) if variable is not None else None
        if variable is not None and variable.param is not None and variable.function.style is not Style.KERNEL:
            # what the parameter itself is, its callers say
            rest = [n for n in find(node, "identifier", "field_expression") if n.id != name.id and not is_callee(n)]
            own, index = any(not self.sameness.same(function, n) for n in rest), variable.param.index
            given = [(c, c.args[index]) for c in self.program.callers(variable.function) if index < len(c.args)]
        elif variable is None and function.style is Style.METHOD:
            # a member: of the object whose method is called
            own, given = False, [(c, o) for c in self.program.callers(function) if (o := _object(c.node)) is not None]
        elif variable is not None and whole is name and value is not None and any(find(value, "identifier")):
            for use in self._traced(variable.function, value, waits, place, depth + 1):
                yield replace(use, own=use.own or own)
            return
        else:
            at = variable.key[1] if variable is not None else 0
            yield Use(function, node, waits, (at, "".join(function.text(whole).split())), own, place)
            return
        for call, handed in given:
            if self.sameness.comes_to(call.caller, call.node):
                for use in self._traced(call.caller, handed, waits, (call.caller, call.node), depth + 1):
                    yield replace(use, own=use.own or own)

    # --- flags

    def _polls(self, function: Function, loop: Node) -> bool:
        """Whether a loop asks again for what other threads change."""
        inside = [s for s in function.asm if _in(s.node, loop)]
        calls = [c for c in function.calls if _in(c.node, loop)]
        if any(_POLLS.search(s.template) for s in inside) or any(_POLLING_CALL.fullmatch(c.name) for c in calls):
            return True
        if any(id(t) in self._polling for c in calls for t in self.program.targets(c)):
            return True
        declared = [v.declaration for n in find(loop, "identifier")
                    if (v := resolve(function, n, function.text(n))) is not None]  # fmt: skip
        params = [p.node for p in function.params]
        texts = [function.text(n) for n in (*declared, *params, loop) if n is not None]
        return any(re.search(r"\bvolatile\b", re.sub(r"\basm\s+volatile", "", t)) for t in texts)

    @cached_property
    def _polling(self) -> set[int]:
        """ids of the functions that come to a read that others' writes change."""
        seeds = [f for f in self.program.functions if any(_POLLS.search(s.template) for s in f.asm)
                 or any(_POLLING_CALL.fullmatch(c.name) for c in f.calls)]  # fmt: skip
        return self.program.reaching(seeds)


def _ends(loop: Node) -> Iterator[Node]:
    """The conditions by which a loop ends: its own, and those of ways out of it."""
    condition = loop.child_by_field_name("condition")
    if condition is not None:
        yield condition
    for branch in find(loop, "if_statement"):
        condition = branch.child_by_field_name("condition")
        if condition is not None and any(find(branch, "break_statement", "return_statement", "goto_statement")):
            yield condition


def _in(node: Node, outer: Node) -> bool:
    return outer.start_byte <= node.start_byte and node.end_byte <= outer.end_byte


def _object(call: Node) -> Node | None:
    """What a method is called of."""
    callee = call.child_by_field_name("function")
    return callee.child_by_field_name("argument") if callee is not None else None


def _value(declarator: Node | None) -> Node | None:
    return declarator.child_by_field_name("value") if declarator is not None else None
