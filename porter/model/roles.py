# SPDX-License-Identifier: Apache-2.0
"""Which warpgroups of a CTA run MMAs, read off the branches over warp and warpgroup indices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.model.constants import Constants
from porter.model.functions import Function
from porter.model.program import Program
from porter.model.scopes import LOOPS, PREPROCESSOR_BLOCKS
from porter.model.thread_values import ThreadValues
from porter.model.threads import ends_thread
from porter.ptx.arch import WARP, Limits
from porter.ptx.wgmma import THREADS as WARPGROUP

MOST_THREADS = Limits.threads_per_block


@dataclass(frozen=True)
class WarpgroupRoles:
    """Warpgroups `first` .. `first + count` - 1 of a CTA run MMAs; `count` is a C++ constant expression.

    `value` is its number if known. `exact` is false if `count` is only an upper bound.
    """

    first: int
    count: str
    value: int | None
    exact: bool = True


def warpgroup_roles(
    program: Program,
    function: Function,
    statements: Sequence[Node],
    runs_mma: Callable[[Node], bool],
    threads: str | None,
    constants: Constants,
) -> WarpgroupRoles:
    """The roles of a kernel whose top-level statements are `statements`. `threads` is the text of its block size."""
    total = constants.evaluate(threads) if threads is not None else None
    warps = -(-min(total, MOST_THREADS) // WARP) if total is not None else MOST_THREADS // WARP
    branches = _Branches(function, ThreadValues(program, warps * WARP))
    chosen = branches.running(statements, runs_mma)
    first, end = _warpgroups(chosen) or (0, max(1, warps * WARP // WARPGROUP))
    bounded = total is not None or end * WARPGROUP < MOST_THREADS
    if bounded:
        return WarpgroupRoles(first, str(end - first), end - first)
    below = branches.running_below(statements, runs_mma)
    if below:
        return WarpgroupRoles(0, below, None)
    if threads is not None and re.fullmatch(r"[\w:\s*+/(){}<>,?=!&|%-]+", threads):
        name = re.fullmatch(r"[\w:]+", re.sub(r"<[^<>]*>", "", threads))
        bound = threads if name else f"({threads})"
        text = f"({bound} + {WARPGROUP - 1}) / {WARPGROUP} - {first}" if first else f"{bound} / {WARPGROUP}"
        return WarpgroupRoles(first, text, None)
    return WarpgroupRoles(first, str(end - first), end - first, exact=False)


def _warpgroups(warps: frozenset[int]) -> tuple[int, int] | None:
    """First and last + 1 of the warpgroups that the warps make up, or None if they make up none."""
    each = WARPGROUP // WARP
    whole = {w // each for w in warps if all(w // each * each + i in warps for i in range(each))}
    if not whole or len(whole) != max(whole) - min(whole) + 1:
        return None
    return min(whole), max(whole) + 1


@dataclass
class _Branches:
    """Conditions over the warp's index. A value is known for a warp if all its threads agree on it."""

    function: Function
    values: ThreadValues

    def running(
        self, statements: Sequence[Node], runs_mma: Callable[[Node], bool], alive: frozenset[int] | None = None
    ) -> frozenset[int]:
        """The warps, of those `alive` at the first statement, that reach one with MMAs."""
        alive = frozenset(range(self.values.threads // WARP)) if alive is None else alive
        found: frozenset[int] = frozenset()
        for node in statements:
            if node.type == "if_statement":
                before = alive
                taken = self._taken(node.child_by_field_name("condition"))
                then, other = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
                for arm, inside in ((then, taken), (other, None if taken is None else before - taken)):
                    if arm is None:
                        continue
                    found |= self.running([arm], runs_mma, before if inside is None else before & inside)
                    if inside is not None and _leaves(self.function, arm):
                        alive -= inside
            elif runs_mma(node):
                inner = node.child_by_field_name("body") if node.type in LOOPS else node
                if inner is not None and inner.type in ("compound_statement", "else_clause"):
                    found |= self.running(inner.named_children, runs_mma, alive)
                else:
                    found |= alive
        return found

    def running_below(self, statements: Sequence[Node], runs_mma: Callable[[Node], bool]) -> str:
        """How many warpgroups run MMAs, if all that run them are in one branch that the first ones take, as a constant
        compares with their index; else nothing."""
        active = [s for s in statements if runs_mma(s)]
        if len(active) != 1 or active[0].type != "if_statement":
            return ""
        node, taken = active[0], True
        while True:
            arms = {True: node.child_by_field_name("consequence"), False: node.child_by_field_name("alternative")}
            runs = {side for side, arm in arms.items() if arm is not None and runs_mma(arm)}
            if len(runs) != 1:
                return ""
            taken = runs.pop()
            other = arms[False]
            inner = other.named_children[-1] if other is not None and not taken else None
            bound = self._bound(node.child_by_field_name("condition"), taken)
            if bound or inner is None or inner.type != "if_statement":
                return bound
            node = inner

    def _bound(self, condition: Node | None, taken: bool) -> str:
        """The number of warpgroups for which a condition holds, or does not, if those are the first ones."""
        while condition is not None and condition.type in ("condition_clause", "parenthesized_expression"):
            condition = condition.named_children[-1] if len(condition.named_children) == 1 else None
        if condition is None or condition.type != "binary_expression":
            return ""
        left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
        wanted = "<" if taken else ">="
        if left is None or right is None or self.function.text(condition.children[1]) != wanted:
            return ""
        parameters = set(self.function.template_params)
        if not all(w in parameters for w in re.findall(r"[A-Za-z_]\w*", self.function.text(right))):
            return ""
        text = f"({self.function.text(right)})"
        if self.function.text(left) == "threadIdx.x":
            return f"{text} / {WARPGROUP}"
        values = self.values.by_warp(self.function, left)
        if values == list(range(len(values))):
            return f"{text} / {WARPGROUP // WARP}"
        return text if values == [i // (WARPGROUP // WARP) for i in range(len(values))] else ""

    def _taken(self, condition: Node | None) -> frozenset[int] | None:
        """The warps for which a condition holds, or None if that is not known for every warp."""
        if condition is None:
            return None
        values = self.values.by_warp(self.function, condition)
        return None if None in values else frozenset(w for w, value in enumerate(values) if value)


def _leaves(function: Function, arm: Node) -> bool:
    """Whether whoever takes the arm does not come back from it."""
    ends = arm.type == "expression_statement" and any(
        ends_thread(s) and arm.start_byte <= s.node.start_byte < arm.end_byte for s in function.asm
    )
    if arm.type == "return_statement" or ends:
        return True
    if arm.type not in ("compound_statement", "else_clause", *PREPROCESSOR_BLOCKS):
        return False
    inner = [c for c in arm.named_children if c.type != "comment"]
    return bool(inner) and _leaves(function, inner[-1])
