# SPDX-License-Identifier: Apache-2.0
"""Python that asks for the device's compute capability, held against the port: lines where Blackwell does not come to
what Hopper comes to."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Iterator

from porter.model.spellings import Spellings
from porter.passes.build_capabilities import Capabilities, asking_module, literal, ported_forms
from porter.ptx.arch import PortTarget

_COMPARE: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class _Kinds(Capabilities):
    """The same, and what each is on the port's chip."""

    def __init__(self, tree: ast.Module, spellings: Spellings, target: PortTarget) -> None:
        super().__init__(tree, spellings)
        self.ported = ported_forms(target)


def lines_for_hopper(source: bytes, edited: Collection[int], spellings: Spellings, target: PortTarget) -> set[int]:
    """Lines that ask for Hopper, without those that are `edited`; none where the source does not parse."""
    tree = asking_module(source, spellings)
    if tree is None:
        return set()
    kinds = _Kinds(tree, spellings, target)
    found = set(_lines(tree, kinds)) - set(edited)
    # a branch for Blackwell is told of with the one for Hopper
    return found - _for_blackwell(tree, kinds) or found


def _for_blackwell(tree: ast.Module, kinds: _Kinds) -> set[int]:
    """Lines that compare a capability with Blackwell's."""
    compares = [n for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Eq)]
    return {n.lineno for n in compares if kinds.ported.get(kinds.of(n.left) or "") == literal(n.comparators[0])}


def _lines(tree: ast.Module, kinds: _Kinds) -> Iterator[int]:
    inner: set[int] = set()
    tables = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Dict)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.BoolOp, ast.Compare, ast.UnaryOp)) and id(node) not in inner:
            # ast.walk comes to what is around first
            inner |= {id(n) for n in ast.walk(node)}
            if _truth(node, kinds, False) != _truth(node, kinds, True):
                yield node.lineno
        elif isinstance(node, ast.Match) and kinds.of(node.subject) is not None:
            yield from _cases(node, kinds.of(node.subject), kinds)
        elif isinstance(node, ast.Subscript) and (wanted := kinds.of(node.slice)) is not None:
            table = tables.get(node.value.id) if isinstance(node.value, ast.Name) else node.value
            if isinstance(table, ast.Dict) and _alone(wanted, [k for k in table.keys if k is not None], kinds):
                yield next(k.lineno for k in table.keys if k is not None and literal(k) == wanted)


def _cases(node: ast.Match, wanted: object, kinds: _Kinds) -> Iterator[int]:
    for case in node.cases:
        patterns = case.pattern.patterns if isinstance(case.pattern, ast.MatchOr) else [case.pattern]
        values = [_matched(p) for p in patterns]
        if wanted in values and kinds.ported[wanted] not in values:
            yield case.pattern.lineno


def _matched(pattern: ast.pattern) -> object:
    if isinstance(pattern, ast.MatchValue):
        return literal(pattern.value)
    if isinstance(pattern, ast.MatchSequence):
        return tuple(_matched(p) for p in pattern.patterns)
    return ""


def _alone(wanted: object, keys: list[ast.expr], kinds: _Kinds) -> bool:
    values = [literal(k) for k in keys]
    return wanted in values and kinds.ported[wanted] not in values


def _truth(node: ast.expr, kinds: _Kinds, port: bool) -> bool | None:
    """A condition for one of the chips, as it stands; None if something else decides."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _truth(node.operand, kinds, port)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        values = [_truth(v, kinds, port) for v in node.values]
        decided = isinstance(node.op, ast.Or)
        if decided in values:
            return decided
        return None if None in values else not decided
    if not isinstance(node, ast.Compare):
        return None
    sides = [node.left, *node.comparators]
    if all(kinds.of(side) is None for side in sides):
        return None
    found = [_value(side, kinds, port) for side in sides]
    if None in found:
        return None
    try:
        return all(_COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, found, found[1:], strict=False))
    except (KeyError, TypeError):
        return None


def _value(node: ast.expr, kinds: _Kinds, port: bool) -> object:
    wanted = kinds.of(node)
    if wanted is not None:
        return kinds.ported[wanted] if port else wanted
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and not node.keywords:
        bounds = [literal(a) for a in node.args]
        numbers = [b for b in bounds if isinstance(b, int) and abs(b) < 10_000]
        return range(*numbers) if len(numbers) == len(bounds) and 0 < len(numbers) < 3 else None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        return None
