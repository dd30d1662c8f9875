# SPDX-License-Identifier: Apache-2.0
"""Which warpgroups of a CTA run MMAs, read off the branches over warp and warpgroup indices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.constants import Constants
from porter.model.functions import Function, declared_name
from porter.model.program import Program
from porter.model.scopes import LOOPS, PREPROCESSOR_BLOCKS
from porter.model.threads import ends_thread
from porter.ptx.arch import WARP, Limits
from porter.ptx.wgmma import THREADS as WARPGROUP

MOST_THREADS = Limits.threads_per_block

_GROUP_CALL = re.compile(r"(?:\w+::)*\w*warp_?group_?(?:idx|index|id)\w*\s*\(\s*\)", re.IGNORECASE)
_WARP_CALL = re.compile(r"(?:\w+::)*\w*warp_?(?:idx|index|id)\w*\s*\(\s*\)", re.IGNORECASE)
_SHUFFLE = re.compile(r"__shfl_sync\s*\(\s*[\w~]+\s*,(.*),\s*0\s*(?:,\s*\w+\s*)?\)", re.DOTALL)
_CALL = re.compile(r"(?:\w+::)*(\w+)\s*\((.*)\)", re.DOTALL)
_CAST = re.compile(
    r"(?:static_cast\s*<[^<>]*>|\(\s*(?:const\s+)?(?:unsigned(?:\s+int)?|u?int(?:32_t)?)\s*\)|(?:u?int(?:32_t)?|unsigned)(?=\s*\())\s*"
)
_DIVISION = re.compile(r"(.+?)\s*(/|>>)\s*([\w:]+)", re.DOTALL)

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


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
    branches = _Branches(program, function, constants, warps)
    chosen = branches.running(statements, runs_mma)
    first, end = _warpgroups(chosen) or (0, max(1, warps * WARP // WARPGROUP))
    bounded = total is not None or end * WARPGROUP < MOST_THREADS
    if bounded:
        return WarpgroupRoles(first, str(end - first), end - first)
    if threads is not None and re.fullmatch(r"[\w:\s*+/()<>,?=!&|%-]+", threads):
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

    program: Program
    function: Function
    constants: Constants
    warps: int
    _steps: dict[str, int] = field(init=False)
    """By name of an index: how many threads share a value of it."""
    _conditions: dict[str, Node] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._steps = {}
        for declaration in find(self.function.body, "init_declarator"):
            value, name = declaration.child_by_field_name("value"), declared_name(declaration)
            if value is None or name is None:
                continue
            step = self._step(self.function.text(value))
            if step is not None:
                self._steps[self.function.text(name)] = step
            else:
                self._conditions[self.function.text(name)] = value

    def running(
        self, statements: Sequence[Node], runs_mma: Callable[[Node], bool], alive: frozenset[int] | None = None
    ) -> frozenset[int]:
        """The warps, of those `alive` at the first statement, that reach one with MMAs."""
        alive = frozenset(range(self.warps)) if alive is None else alive
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

    def _taken(self, condition: Node | None) -> frozenset[int] | None:
        """The warps for which a condition holds, or None if that is not known for every warp."""
        if condition is None:
            return None
        values = [self._holds(condition, w, 0) for w in range(self.warps)]
        return None if None in values else frozenset(w for w, value in enumerate(values) if value)

    def _holds(self, node: Node, warp: int, depth: int) -> bool | None:
        if depth > 16:
            return None
        named = [c for c in node.named_children if c.type != "comment"]
        if node.type in ("condition_clause", "parenthesized_expression") and len(named) == 1:
            return self._holds(named[0], warp, depth + 1)
        if node.type == "unary_expression" and self.function.text(node).lstrip().startswith("!") and named:
            inner = self._holds(named[0], warp, depth + 1)
            return None if inner is None else not inner
        if node.type == "binary_expression":
            return self._binary(node, warp, depth)
        text = self.function.text(node)
        if node.type == "identifier" and text in self._conditions:
            return self._holds(self._conditions[text], warp, depth + 1)
        value = self._index(text, warp)
        return None if value is None else value != 0

    def _binary(self, node: Node, warp: int, depth: int) -> bool | None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator")
        if left is None or right is None or operator is None:
            return None
        sign = self.function.text(operator)
        if sign in ("&&", "||"):
            sides = [self._holds(side, warp, depth + 1) for side in (left, right)]
            decisive = sign == "||"
            if decisive in sides:
                return decisive
            return None if None in sides else not decisive
        if sign not in _COMPARE:
            return None
        constant = self.constants.evaluate(self.function.text(right))
        variable = left
        if constant is None:
            constant, variable, sign = self.constants.evaluate(self.function.text(left)), right, _MIRRORED[sign]
        if constant is None:
            return None
        step = self._step(self.function.text(variable))
        if step is None:
            return None
        ends = {_COMPARE[sign](thread // step, constant) for thread in (warp * WARP, warp * WARP + WARP - 1)}
        return ends.pop() if len(ends) == 1 and (step >= WARP or sign not in ("==", "!=")) else None

    def _index(self, text: str, warp: int) -> int | None:
        step = self._step(text)
        return warp * WARP // step if step is not None and step >= WARP else None

    def _step(self, text: str) -> int | None:
        """How many threads share a value of an index expression: 1 for `threadIdx.x`, 32 for a warp's index."""
        text = _stripped(text)
        if text in self._steps:
            return self._steps[text]
        if re.fullmatch(r"threadIdx\s*\.\s*x", text):
            return 1
        if _GROUP_CALL.fullmatch(text):
            return WARPGROUP
        if _WARP_CALL.fullmatch(text):
            return WARP
        if shuffled := _SHUFFLE.fullmatch(text):
            return self._step(shuffled.group(1))
        if division := _DIVISION.fullmatch(text):
            step, by = self._step(division.group(1)), self._divisor(division.group(3))
            if step is None or by is None:
                return None
            return step * by if division.group(2) == "/" else step << by
        call = _CALL.fullmatch(text)
        if call is not None and self._is_broadcast(call.group(1)):
            return self._step(call.group(2))
        return None

    def _divisor(self, text: str) -> int | None:
        known = self.constants.evaluate(text)
        if known is not None:
            return known
        if text == "warpSize":
            return WARP
        # constants of headers that are not at hand
        if re.search(r"warp_?group", text, re.IGNORECASE):
            return WARPGROUP
        return WARP if re.search(r"warp_?size|kwarp|threads_?per_?warp", text, re.IGNORECASE) else None

    def _is_broadcast(self, name: str) -> bool:
        """Whether a function only makes a value the same in all lanes of a warp."""
        known = [f for f in self.program.functions if f.name == name]
        if not known:
            return re.search(r"uniform|broadcast|readfirstlane", name, re.IGNORECASE) is not None
        return all(len(f.params) == 1 and "shfl" in f.text(f.body) for f in known)


def _stripped(text: str) -> str:
    """The expression without casts and parentheses around it."""
    while True:
        before = text
        text = text.strip()
        text = _CAST.sub("", text, count=1) if _CAST.match(text) else text
        if text.startswith("(") and _closing(text) == len(text) - 1:
            text = text[1:-1]
        if text == before:
            return text


def _closing(text: str) -> int:
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return i
    return -1


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
