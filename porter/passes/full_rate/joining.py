# SPDX-License-Identifier: Apache-2.0
"""What two consumer warpgroups have to have in common so that one M=128 MMA does the work of both.

They come to the same MMAs, commits and waits in the same order, and each MMA differs in its A operand and its
accumulator only. What is not known to be so is named.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.block_size import launch_sizes
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel, contains_tensor_core
from porter.model.program import Program
from porter.model.scopes import LOOPS
from porter.model.threads import TO_A_LOOP, Threads, ends_thread, target_of
from porter.passes.full_rate.missing import Missing
from porter.passes.full_rate.sameness import SHORT, Sameness
from porter.ptx.wgmma import THREADS as WARPGROUP

_LEFT_BY: dict[str, tuple[str, ...]] = {
    "return_statement": ("lambda_expression",),
    "break_statement": (*LOOPS, "switch_statement"),
    "continue_statement": LOOPS,
    "goto_statement": (),
}
"""What a statement leaves."""
_LEAVING = frozenset({"return", "break", "continue", "goto", "exit"})
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(eq=False)
class Consumers:
    """The two warpgroups of a kernel that run MMAs."""

    program: Program
    threads: Threads
    kernel: Kernel
    _seen: set[int] = field(default_factory=set)

    @cached_property
    def sameness(self) -> Sameness:
        return Sameness(self.program, self.threads, self.kernel.roles.first)

    @cached_property
    def _uses(self) -> set[int]:
        return self.program.uses_tensor_core()

    def missing(self) -> Iterator[Missing]:
        """The facts that are not known of the MMAs that the kernel comes to."""
        function, threads = self.kernel.function, (self.kernel.roles.first + 2) * WARPGROUP
        for size in sorted(launch_sizes(self.program, function)):
            if size < threads:
                at = function.name_span or function.span(function.body)
                yield Missing(
                    function, at, f"a launch gives its blocks {size} threads, and both consumers take {threads}"
                )
        yield from self._in_function(self.kernel.function)

    def _in_function(self, function: Function) -> Iterator[Missing]:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        if function.style is Style.MACRO:
            yield Missing(function, function.span(function.body), "MMAs stand in a macro")
            return
        yield from self._operands(function)
        yield from self._walk(function, function.body)
        for call in function.calls:
            for target in self.program.targets(call):
                if id(target) in self._uses | self._setting:
                    yield from self._in_function(target)
        for inner in self.program.functions:
            if inner.parent is function and id(inner) in self._uses:
                yield from self._in_function(inner)

    # --- the same statements

    def _walk(self, function: Function, node: Node) -> Iterator[Missing]:
        """Branches below a node at which the consumers may part."""
        if node.type == "lambda_expression":
            return
        if node.type == "if_statement":
            yield from self._branch(function, node)
            return
        parts = node.type in ("switch_statement", "conditional_expression") or node.type in LOOPS
        condition = node.child_by_field_name("condition") or node.child_by_field_name("right") if parts else None
        if node.type == "binary_expression" and function.text(node.children[1]) in SHORT:
            parts, condition = True, node.child_by_field_name("left")
        if node.type == "call_expression" and macro_leaves(self.program, function.text(node)):
            parts, condition = True, node
        if condition is not None and self._decides(function, node) and not self.sameness.same(function, condition):
            text = " ".join(function.text(condition).split())
            yield Missing(function, function.span(condition), f"the consumers may part at `{text}`")
            return
        for child in node.named_children:
            yield from self._walk(function, child)

    def _branch(self, function: Function, node: Node) -> Iterator[Missing]:
        condition = node.child_by_field_name("condition")
        arms = [node.child_by_field_name(n) for n in ("consequence", "alternative")]
        taken = self.sameness.truth(function, condition) if condition is not None else None
        if taken is not None:
            arms = [arms[0] if taken else arms[1]]
        elif condition is not None and not self.sameness.same(function, condition):
            if any(a is not None and (self._matters(function, a) or self._leaves(function, a)) for a in arms):
                text = " ".join(function.text(condition).split())
                yield Missing(function, function.span(condition), f"the consumers may part at `{text}`")
            return
        for arm in arms:
            if arm is not None:
                yield from self._walk(function, arm)

    def _decides(self, function: Function, node: Node) -> bool:
        """Whether a statement tells which MMAs a thread comes to, in it or behind it."""
        return self._matters(function, node) or self._leaves(function, node)

    def _leaves(self, function: Function, arm: Node) -> bool:
        """Whether who takes a way out of the arm may miss MMAs that others come to."""
        ways = [n for n in find(arm, *_LEFT_BY) if not ends_inside(n, arm)]
        left = [target_of(n, function) if n.type in TO_A_LOOP else None for n in ways]
        # who leaves a loop, or a turn of it, goes on behind it
        if any(loop is not None and self._matters(function, loop) for loop in left):
            return True
        return self._comes_before(function, arm) and (None in left or self._ends(function, arm))

    def _ends(self, function: Function, arm: Node) -> bool:
        """Whether a macro, an instruction or a callee in the arm may end the thread or leave what is around it."""
        if any(macro_leaves(self.program, function.text(n)) for n in find(arm, "identifier")):
            return True
        nodes = [s.node for s in function.asm if ends_thread(s)]
        nodes += [c.node for c in function.calls if any(id(t) in self._ending for t in self.program.targets(c))]
        return any(arm.start_byte <= n.start_byte and n.end_byte <= arm.end_byte for n in nodes)

    @cached_property
    def _ending(self) -> set[int]:
        """ids of the functions that may end a thread."""
        return self.program.reaching([f for f in self.program.functions if any(map(ends_thread, f.asm))])

    def _comes_before(self, function: Function, node: Node) -> bool:
        """Whether MMAs stand behind a statement, or in a loop around it."""
        while node.id != function.body.id and node.parent is not None:
            following = node.next_named_sibling
            while following is not None:
                if self._matters(function, following):
                    return True
                following = following.next_named_sibling
            node = node.parent
            if node.type in LOOPS and self._matters(function, node):
                return True
        return False

    def _matters(self, function: Function, node: Node) -> bool:
        """Whether all warps of a warpgroup come to something in a statement together: MMAs, or setmaxnreg."""
        return contains_tensor_core(self.program, function, node, self._uses) or self._sets_registers(function, node)

    @cached_property
    def _setting(self) -> set[int]:
        """ids of the functions that come to a setmaxnreg (PTX ISA 9.7.19.5)."""
        seeds = [f for f in self.program.functions if any("setmaxnreg" in s.template for s in f.asm)]
        return self.program.reaching(seeds)

    def _sets_registers(self, function: Function, node: Node) -> bool:
        own = [s.node for s in function.asm if "setmaxnreg" in s.template]
        own += [c.node for c in function.calls if any(id(t) in self._setting for t in self.program.targets(c))]
        return any(node.start_byte <= n.start_byte and n.end_byte <= node.end_byte for n in own)

    # --- the same operands

    @abstractmethod
    def _operands(self, function: Function) -> Iterator[Missing]:
        """What MMAs of a function may take that is another one in the other consumer."""


def macro_leaves(program: Program, text: str) -> bool:
    """Whether an expression begins with a macro that may leave what it stands in."""
    name = _NAME.match(text)
    if name is None or name[0] not in program.macros.by_name:
        return False
    return not _LEAVING.isdisjoint(program.macros.words(name[0]))


def ends_inside(leaving: Node, arm: Node) -> bool:
    """Whether what a statement leaves stands in the arm."""
    wanted = _LEFT_BY[leaving.type]
    node = leaving.parent
    while node is not None and arm.start_byte <= node.start_byte and node.end_byte <= arm.end_byte:
        if node.type in wanted:
            return True
        node = node.parent
    return False
