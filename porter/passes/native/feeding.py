# SPDX-License-Identifier: Apache-2.0
"""Which copies fill what MMAs read as A, and as B."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tree_sitter import Node

from porter.model.pipeline.frames import Wording
from porter.model.pipeline.operations import Operation
from porter.model.program import Program
from porter.model.tensor_core import MmaStep


def feeds(program: Program, multiplies: Sequence[Operation], copy: Operation, operand: str) -> bool:
    """Whether MMAs read as A, or as B, what a copy fills. `operand`: `a` or `b`."""
    base = re.match(r"[A-Za-z_][\w.>-]*", copy.to)
    if base is None:
        return False
    word = re.compile(rf"(?<![\w.]){re.escape(base[0])}(?![\w.])")
    wording, words = Wording(program, objects=True), []
    for one in multiplies:
        _, node = next(descriptors(program, one, operand), ("", None))
        words.append(wording.words(one.sites[-1].frame, node) if node is not None else "")
    return bool(words) and all(word.search(w) for w in words)


def multiple_of(evaluate: Callable[[int], int | None]) -> int | None:
    """Of what something is a multiple that is known by a number; None where it is something else, or 0."""
    zero, one, two, five = map(evaluate, (0, 1, 2, 5))
    return one if one and (zero, two, five) == (0, 2 * one, 5 * one) else None


def descriptors(program: Program, operation: Operation, operand: str) -> Iterator[tuple[str, Node | None]]:
    """An operand of each MMA of an operation, `a` or `b`: its text, and the expression of the asm statement."""
    site = operation.sites[-1]
    for found in program.steps_in(site.frame.function):
        nodes = {" ".join(o.expr.split()): o.expr_node for o in reversed(found.statement.operands)}
        for step in found.steps if found.statement.node.id == site.node.id else ():
            if isinstance(step, MmaStep):
                text = getattr(step, operand)
                yield text, nodes.get(text)
