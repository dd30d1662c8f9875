# SPDX-License-Identifier: Apache-2.0
"""Which threads of a block come to a place: what conditions around it, and exits in front of it, say of a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.model.functions import Function, Style
from porter.model.pipeline.frames import Frame, first_value
from porter.model.pipeline.operations import Site
from porter.model.program import Program
from porter.model.scopes import LOOPS, PREPROCESSOR_BLOCKS, resolve
from porter.model.thread_values import ThreadValues, Values
from porter.model.threads import Threads
from porter.ptx.arch import WARP

_BLOCKS = ("compound_statement", "else_clause", *PREPROCESSOR_BLOCKS)


@dataclass(frozen=True)
class Runners:
    """`threads` that come to a place, by their index in the block, None if that is not known; then `unknown` is the
    condition that nobody could answer."""

    threads: frozenset[int] | None
    unknown: str = ""

    @property
    def count(self) -> int | None:
        return None if self.threads is None else len(self.threads)

    @property
    def warps(self) -> frozenset[int] | None:
        return None if self.threads is None else frozenset(t // WARP for t in self.threads)


class Who:
    """Asks about blocks of `threads` threads of one program. `template`: what parameters of the kernel's template stand
    for."""

    def __init__(self, program: Program, threads: int, template: Mapping[str, int] | None = None) -> None:
        self.program, self.threads = program, threads
        self._template: dict[str, Values | None] = {n: (v,) * threads for n, v in (template or {}).items() if v >= 0}
        self._values, self._differ = ThreadValues(program, threads), Threads(program)

    def runs(self, sites: Sequence[Site]) -> Runners:
        """The threads that come to the last of some sites by way of the others."""
        alive = frozenset(range(self.threads))
        for site in sites:
            # whom the outer conditions keep out, the inner ones are not asked of
            for condition, holds in reversed(list(_conditions(site))):
                truth = self.truth(site.frame, condition)
                if truth is None or any(truth[t] is None for t in alive):
                    if not self.differs(site.frame.function, condition):
                        continue  # All threads answer it alike: it says when, not who.
                    return Runners(None, " ".join(site.frame.function.text(condition).split()))
                alive &= frozenset(t for t, value in enumerate(truth) if bool(value) is holds)
        return Runners(alive)

    def differs(self, function: Function, node: Node) -> bool:
        """Whether threads may answer a condition differently."""
        return self._differ.differ(function, node)

    def truth(self, frame: Frame, node: Node) -> Values | None:
        while node.type in ("parenthesized_expression", "condition_clause") and len(node.named_children) == 1:
            node = node.named_children[0]
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator")
        if node.type == "binary_expression" and left and right and operator and operator.type in ("&&", "and"):
            return self._both(frame, left, right)
        if self._elects(frame.function, node):
            return tuple(int(t % WARP == 0) for t in range(self.threads))
        return self._values.of(frame.function, node, self._given(frame))

    def values(self, frame: Frame, node: Node) -> Values | None:
        """What an expression is in each thread."""
        return self._values.of(frame.function, node, self._given(frame))

    def _both(self, frame: Frame, left: Node, right: Node) -> Values | None:
        """Two conditions; one that all threads answer alike says nothing of who."""
        found: list[Values] = []
        for node in (left, right):
            truth = self.truth(frame, node)
            if truth is not None and (None not in truth or self.differs(frame.function, node)):
                found.append(truth)
            elif self.differs(frame.function, node):
                found.append((None,) * self.threads)
        return tuple(_all(values) for values in zip(*found, strict=True)) if found else None

    def _given(self, frame: Frame) -> dict[str, Values | None]:
        if frame.outer is None:
            return self._template
        if frame.function.style is Style.MACRO:
            return {}
        outer = self._given(frame.outer)
        return {name: self._values.of(frame.outer.function, node, outer) for name, node in frame.bound.items()}

    def _elects(self, function: Function, node: Node) -> bool:
        """Whether an expression is true in one lane of a warp, by `elect.sync`."""
        if node.type == "identifier":
            variable = resolve(function, node, function.text(node))
            value = first_value(variable) if variable is not None else None
            return value is not None and value.type == "call_expression" and self._elects(function, value)
        calls = self.program.calls_by_node.get(node.id, ())
        return any("elect.sync" in s.template for c in calls for t in self.program.targets(c) for s in t.asm)


def _all(answers: Iterable[int | None]) -> int | None:
    """Whether all of them are true; one that is false settles it."""
    known = set(answers)
    return 0 if 0 in known else None if None in known else 1


def _conditions(site: Site) -> Iterator[tuple[Node, bool]]:
    """Conditions that hold, or do not, where a function comes to a node, the outermost last."""
    body, node = site.frame.function.body, site.node
    while node.id != body.id and node.parent is not None:
        above = node.parent
        if above.type == "if_statement":
            condition, taken = above.child_by_field_name("condition"), above.child_by_field_name("consequence")
            other = above.child_by_field_name("alternative")
            if condition is not None and taken is not None and node.id == taken.id:
                yield condition, True
            elif condition is not None and other is not None and node.id == other.id:
                yield condition, False
        elif above.type in LOOPS and above.type != "do_statement":
            condition = above.child_by_field_name("condition")
            if condition is not None and node.id != condition.id:
                yield condition, True
        if above.type in _BLOCKS:
            yield from ((c, False) for c in _exits(above, node))
        node = above


def _exits(block: Node, before: Node) -> Iterator[Node]:
    """Conditions of statements in a block, ahead of one, that whoever takes them leaves the function by."""
    for child in block.named_children:
        if child.start_byte >= before.start_byte:
            return
        if child.type != "if_statement" or child.child_by_field_name("alternative") is not None:
            continue
        condition, taken = child.child_by_field_name("condition"), child.child_by_field_name("consequence")
        if condition is not None and taken is not None and _leaves(taken):
            yield condition


def _leaves(arm: Node) -> bool:
    if arm.type == "compound_statement":
        inner = [c for c in arm.named_children if c.type != "comment"]
        return bool(inner) and _leaves(inner[-1])
    return arm.type == "return_statement"
