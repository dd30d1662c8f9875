# SPDX-License-Identifier: Apache-2.0
"""What the indices of an array say of its shape: `(b * M + r) * K + k` is an element of one of (?, M, K)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

from tree_sitter import Node

from porter.scan.draft import classes as cls

Monomial = tuple[tuple[str, ...], tuple[str, ...]]
"""A product: sizes, sorted, and what else is multiplied."""


@dataclass(frozen=True)
class Levels:
    """`inner`: the extents but the outermost, from the last dimension on; `outer`: what counts the outermost one."""

    inner: tuple[str, ...]
    outer: frozenset[str]


def sizes_in(indices: Iterable[str], sizes: Collection[str]) -> set[str]:
    """The sizes that coordinates are multiplied with."""
    return {name for text in indices for names, _ in _monomials(cls.expression(text), sizes) for name in names}


def levels(indices: Iterable[str], sizes: Collection[str]) -> Levels | None:
    """The dimensions of a dense array, row by row. None where the products of sizes are none of such an array."""
    found: dict[tuple[str, ...], set[str]] = {}
    for text in indices:
        for names, others in _monomials(cls.expression(text), sizes):
            found.setdefault(names, set()).update(others)
    order = sorted(found, key=len)
    if len(order) < 2 or order[0] != ():
        return None
    inner: list[str] = []
    for shorter, longer in pairwise(order):
        more = list(longer)
        for name in shorter:
            if name not in more:
                return None
            more.remove(name)
        if len(more) != 1:
            return None
        inner += more
    return Levels(tuple(inner), frozenset(found[order[-1]]))


def _monomials(node: Node | None, sizes: Collection[str]) -> list[Monomial]:
    """The sum that an expression is when its products are multiplied out."""
    if node is None:
        return []
    if node.type in ("parenthesized_expression", "argument_list") and node.named_child_count == 1:
        return _monomials(node.named_children[0], sizes)
    if node.type == "cast_expression":
        return _monomials(node.child_by_field_name("value"), sizes)
    if node.type == "call_expression" and cls.text_of(node).startswith("static_cast"):
        return _monomials(node.child_by_field_name("arguments"), sizes)
    operator = node.child_by_field_name("operator") if node.type == "binary_expression" else None
    sign = cls.text_of(operator) if operator is not None else ""
    if sign in ("+", "-", "*"):
        left = _monomials(node.child_by_field_name("left"), sizes)
        right = _monomials(node.child_by_field_name("right"), sizes)
        if sign != "*":
            return left + right
        return [(tuple(sorted(a + c)), b + d) for a, b in left for c, d in right]
    text = cls.text_of(node)
    return [((text,), ())] if text in sizes else [((), (text,))]
