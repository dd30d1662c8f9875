# SPDX-License-Identifier: Apache-2.0
"""Which copies fill what MMAs read as A, and as B."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tree_sitter import Node

from porter.model.pipeline.frames import Wording, first_value
from porter.model.pipeline.operations import Operation
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.model.tensor_core import MmaStep

_BASE = re.compile(r"[A-Za-z_][\w.]*")


def feeds(program: Program, multiplies: Sequence[Operation], copy: Operation, operand: str) -> bool:
    """Whether all MMAs read as A, or as B, what a copy fills. `operand`: `a` or `b`."""
    return bool(multiplies) and all(any(fills(copy, text) for text in read(program, o, operand)) for o in multiplies)


def fills(copy: Operation, text: str) -> bool:
    """Whether an operand names what a copy fills a part of."""
    base = _BASE.match(_flat(copy.to))
    return base is not None and re.search(rf"(?<![\w.]){re.escape(base[0])}(?![\w.])", text) is not None


def read(program: Program, operation: Operation, operand: str) -> list[str]:
    """An operand of each MMA of an operation in the kernel's words, without indices; empty where they do not say it."""
    frame, wording = operation.sites[-1].frame, Wording(program, objects=True)
    nodes = [node for _, node in _descriptors(program, operation, operand)]
    words = (wording.words(frame, node) if node is not None else "" for node in nodes)
    return [_flat(_with_beginnings(wording, operation, text)) for text in words]


def _with_beginnings(wording: Wording, operation: Operation, text: str) -> str:
    """An operand with what variables in it begin with that go on from there, such as a descriptor."""
    found = [text]
    for name in dict.fromkeys(re.findall(r"(?<![\w.>])[A-Za-z_]\w*", text)):
        for site in operation.sites:
            function = site.frame.function
            variable = resolve(function, site.node, name)
            value = first_value(variable) if variable is not None and variable.param is None else None
            if value is not None and wording.changes(function, name):
                found.append(wording.words(site.frame, value))
    return " ".join(found)


def _flat(text: str) -> str:
    """An expression without what is in brackets, and what elements are members of as if it were one."""
    before = ""
    while before != text:
        before, text = text, re.sub(r"\[[^\[\]]*\]", "", text).replace("->", ".")
        text = re.sub(r"(?<![\w>])\(([\w.]+)\)(?=\.)", r"\1", text)
    return text


def multiple_of(evaluate: Callable[[int], int | None]) -> int | None:
    """Of what something is a multiple that is known by a number; None where it is something else, or 0."""
    zero, one, two, five = map(evaluate, (0, 1, 2, 5))
    return one if one and (zero, two, five) == (0, 2 * one, 5 * one) else None


def _descriptors(program: Program, operation: Operation, operand: str) -> Iterator[tuple[str, Node | None]]:
    """An operand of each MMA of an operation, `a` or `b`: its text, and the expression of the asm statement."""
    site = operation.sites[-1]
    for found in program.steps_in(site.frame.function):
        nodes = {" ".join(o.expr.split()): o.expr_node for o in reversed(found.statement.operands)}
        for step in found.steps if found.statement.node.id == site.node.id else ():
            if isinstance(step, MmaStep):
                text = getattr(step, operand)
                yield text, nodes.get(text)
