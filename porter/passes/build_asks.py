# SPDX-License-Identifier: Apache-2.0
"""Python that asks for the device's compute capability, held against the port: lines where Blackwell does not come to
what Hopper comes to, and those that admit more chips than the port runs on."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from porter.model.spellings import Spellings
from porter.passes.build_capabilities import asking_module, forms_of
from porter.passes.python_flow import NOTHING, Capabilities, Form, Given, literal
from porter.ptx.arch import AROUND_HOPPER, CHIPS, HOPPER, PortTarget

_COMPARE: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


def handed_out(sources: Iterable[bytes], spellings: Spellings) -> Given:
    """Functions of modules that give a capability, for modules that import them: by name."""
    trees = [tree for source in sources if (tree := asking_module(source, spellings)) is not None]
    found: dict[str, Form | None] = {}
    for tree in trees:
        found |= Capabilities(tree, spellings).handed_out
    return found


def lines_for_hopper(
    source: bytes, edited: Collection[int], spellings: Spellings, target: PortTarget, given: Given = NOTHING
) -> set[int]:
    """Lines that ask for Hopper, or in a way that is not understood, without those that are `edited`; none where the
    source does not parse."""
    tree = asking_module(source, spellings, given)
    if tree is None:
        return set()
    kinds = _Kinds(tree, spellings, target, given)
    found = set(_lines(tree, kinds)) - set(edited)
    # a branch for Blackwell is told of with the one for Hopper
    return found - _for_blackwell(tree, kinds) or found


def admitting(
    ported: bytes, left: Collection[int], spellings: Spellings, target: PortTarget
) -> Iterator[tuple[int, str, frozenset[int]]]:
    """Conditions of a ported module that hold for other chips as for the port's, on lines that are not `left`: the
    line, the condition, the chips."""
    tree = asking_module(ported, spellings)
    kinds = _Kinds(tree, spellings, target) if tree is not None else None
    for condition in _conditions(kinds.tree) if kinds is not None else ():
        assert kinds is not None
        own = _truth(condition, kinds, kinds.port)
        if own is None or condition.lineno in left:
            continue
        others = frozenset(c for c in CHIPS if c != kinds.port and _truth(condition, kinds, c) == own)
        if others and any(_truth(condition, kinds, c) != own for c in AROUND_HOPPER):
            yield condition.lineno, ast.unparse(condition), others


class _Kinds(Capabilities):
    """The same, and what each form is on a chip."""

    def __init__(self, tree: ast.Module, spellings: Spellings, target: PortTarget, given: Given = NOTHING) -> None:
        super().__init__(tree, spellings, given)
        self.spellings, self.port = spellings, target.sm
        self._on: dict[int, Mapping[object, Form]] = {}

    @property
    def ported(self) -> Mapping[object, Form]:
        return self.on(self.port)

    def on(self, chip: int) -> Mapping[object, Form]:
        return self._on.setdefault(chip, forms_of(chip))


def _for_blackwell(tree: ast.Module, kinds: _Kinds) -> set[int]:
    """Lines that compare a capability with Blackwell's."""
    compares = [n for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Eq)]
    return {n.lineno for n in compares if kinds.ported.get(kinds.of(n.left) or "") == literal(n.comparators[0])}


def _conditions(tree: ast.Module) -> Iterator[ast.expr]:
    """The outermost of conditions."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.BoolOp, ast.Compare, ast.UnaryOp)) and id(node) not in inner:
            # ast.walk comes to what is around first
            inner |= {id(n) for n in ast.walk(node)}
            yield node


def _lines(tree: ast.Module, kinds: _Kinds) -> Iterator[int]:
    for condition in _conditions(tree):
        if _truth(condition, kinds, HOPPER) != _truth(condition, kinds, kinds.port):
            yield condition.lineno
    for node in kinds.ends:
        yield from _decided(node, kinds)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _asks(node, kinds):
            yield node.lineno


def _asks(node: ast.Call, kinds: _Kinds) -> bool:
    """Whether a function is asked for Hopper's capability or more."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = [literal(a) for a in (*node.args, *(k.value for k in node.keywords))]
    return kinds.spellings.are("python_asking", name) and any(v in kinds.ported and v != "" for v in given)


def _decided(node: ast.AST, kinds: _Kinds) -> Iterator[int]:
    """Where a capability decides something, and it is not known that both chips come to the same."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if all(kinds.is_asked(side) for side in sides) or _truth(node, kinds, HOPPER) is not None:
            return
        if len(sides) == 2 and not any(kinds.of(s) is not None for s in sides) and _is_of_no_chip(sides, kinds):
            return
        listed = [kinds.looped(side) for side in sides]
        values = next((_elements(one) for one in listed if one is not None), None)
        if values is not None and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            if any(v in kinds.ported and kinds.ported[v] not in values for v in values):
                yield node.lineno
            return
        yield node.lineno
    elif isinstance(node, ast.Match):
        wanted = kinds.of(node.subject)
        if wanted is None or any(_matched(p) == "" for c in node.cases for p in _patterns(c)):
            yield node.subject.lineno
        yield from _cases(node, wanted, kinds) if wanted is not None else ()
    elif (looked_up := _looked_up(node)) is not None:
        table, wanted = kinds.constant(looked_up[0]), kinds.of(looked_up[1])
        keys = [k for k in table.keys if k is not None] if isinstance(table, ast.Dict) else None
        if keys is None or wanted is None:
            yield looked_up[1].lineno
        elif _alone(wanted, keys, kinds):
            yield next(k.lineno for k in keys if literal(k) == wanted)
    elif isinstance(node, (ast.expr, ast.stmt)):
        yield node.lineno


def _looked_up(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """A table and what is looked up in it: `t[x]`, `t.get(x, y)`."""
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    return None


def _is_of_no_chip(sides: list[ast.expr], kinds: _Kinds) -> bool:
    """Whether a text that has a capability in it is compared with one that names no chip."""
    texts = [s.value for s in sides if isinstance(s, ast.Constant) and isinstance(s.value, str)]
    return bool(texts) and not any(kinds.spellings.are("chip_text", t) for t in texts)


def _elements(node: ast.expr) -> list[Form] | None:
    if not isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return None
    values = [literal(e) for e in node.elts]
    return None if "" in values else values


def _patterns(case: ast.match_case) -> list[ast.pattern]:
    found = case.pattern.patterns if isinstance(case.pattern, ast.MatchOr) else [case.pattern]
    return [p for p in found if not (isinstance(p, ast.MatchAs) and p.pattern is None)]


def _cases(node: ast.Match, wanted: object, kinds: _Kinds) -> Iterator[int]:
    for case in node.cases:
        values = [_matched(p) for p in _patterns(case)]
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


def _truth(node: ast.expr, kinds: _Kinds, chip: int) -> bool | None:
    """A condition for a chip, as it stands; None if something else decides."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _truth(node.operand, kinds, chip)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        values = [_truth(v, kinds, chip) for v in node.values]
        decided = isinstance(node.op, ast.Or)
        if decided in values:
            return decided
        return None if None in values else not decided
    if not isinstance(node, ast.Compare):
        return None
    sides = [node.left, *node.comparators]
    if all(kinds.of(side) is None for side in sides):
        return None
    found = [_value(side, kinds, chip) for side in sides]
    if None in found:
        return None
    try:
        return all(_COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, found, found[1:], strict=False))
    except (KeyError, TypeError):
        return None


def _value(node: ast.expr, kinds: _Kinds, chip: int) -> object:
    wanted = kinds.of(node)
    if wanted is not None:
        return kinds.on(chip)[wanted]
    node = kinds.constant(node)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and not node.keywords:
        bounds = [literal(a) for a in node.args]
        numbers = [b for b in bounds if isinstance(b, int) and abs(b) < 10_000]
        return range(*numbers) if len(numbers) == len(bounds) and 0 < len(numbers) < 3 else None
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("frozenset", "set", "tuple", "list"):
        node = node.args[0] if len(node.args) == 1 else node
    if isinstance(node, ast.Dict):
        node = ast.Tuple([k for k in node.keys if k is not None], ast.Load())
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        return None
