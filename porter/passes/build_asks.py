# SPDX-License-Identifier: Apache-2.0
"""Python that asks for the device's compute capability, held against the port: lines where Blackwell does not come to
what Hopper comes to, and those that admit more chips than the port runs on."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import libcst as cst

from porter.lang.python import PythonFile, called, element_values, spelled, value_of, walk
from porter.model.spellings import Spellings
from porter.passes.build_capabilities import asking_module, forms_of
from porter.passes.python_flow import NOTHING, Capabilities, Form, Given, given_by_place, literal
from porter.ptx.arch import AROUND_HOPPER, CHIPS, HOPPER, PortTarget

_COMPARE: dict[type[cst.CSTNode], Callable[..., bool]] = {
    cst.Equal: operator.eq, cst.NotEqual: operator.ne, cst.LessThan: operator.lt, cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge, cst.In: lambda a, b: a in b,
    cst.NotIn: lambda a, b: a not in b,
}  # fmt: skip


def handed_out(sources: Iterable[bytes], spellings: Spellings) -> Given:
    """Functions of modules that give a capability, for modules that import them: by name."""
    files = [file for source in sources if (file := asking_module(source, spellings)) is not None]
    found: dict[str, Form | None] = {}
    for file in files:
        found |= Capabilities(file, spellings).handed_out
    return found


def lines_for_hopper(
    source: bytes, edited: Collection[int], spellings: Spellings, target: PortTarget, given: Given = NOTHING
) -> set[int]:
    """Lines that ask for Hopper, or in a way that is not understood, without those that are `edited`; none where the
    source does not parse."""
    file = asking_module(source, spellings, given)
    if file is None:
        return set()
    kinds = _Kinds(file, spellings, target, given)
    found = {file.line(node) for node in _deciding(kinds)} - set(edited)
    # a branch for Blackwell is told of with the one for Hopper
    return found - _for_blackwell(kinds) or found


def admitting(
    ported: bytes, left: Collection[int], spellings: Spellings, target: PortTarget
) -> Iterator[tuple[int, str, frozenset[int]]]:
    """Conditions of a ported module that hold for other chips as for the port's, on lines that are not `left`: the
    line, the condition, the chips."""
    file = asking_module(ported, spellings)
    kinds = _Kinds(file, spellings, target) if file is not None else None
    for condition in _conditions(kinds) if kinds is not None else ():
        assert kinds is not None
        own = _truth(condition, kinds, kinds.port)
        if own is None or kinds.file.line(condition) in left:
            continue
        others = frozenset(c for c in CHIPS if c != kinds.port and _truth(condition, kinds, c) == own)
        if others and any(_truth(condition, kinds, c) != own for c in AROUND_HOPPER):
            yield kinds.file.line(condition), spelled(condition), others


class _Kinds(Capabilities):
    """The same, and what each form is on a chip."""

    def __init__(self, file: PythonFile, spellings: Spellings, target: PortTarget, given: Given = NOTHING) -> None:
        super().__init__(file, spellings, given)
        self.spellings, self.port = spellings, target.sm
        self._on: dict[int, Mapping[object, Form]] = {}

    @property
    def ported(self) -> Mapping[object, Form]:
        return self.on(self.port)

    def on(self, chip: int) -> Mapping[object, Form]:
        return self._on.setdefault(chip, forms_of(chip))


def _for_blackwell(kinds: _Kinds) -> set[int]:
    """Lines that compare a capability with Blackwell's."""
    found = (n for n in kinds.nodes if isinstance(n, cst.Comparison))
    first = [(n, n.comparisons[0]) for n in found if isinstance(n.comparisons[0].operator, cst.Equal)]
    return {kinds.file.line(n) for n, c in first if kinds.ported.get(kinds.of(n.left) or "") == literal(c.comparator)}


def _conditions(kinds: _Kinds) -> Iterator[cst.BaseExpression]:
    """The outermost of conditions."""
    inner: set[cst.CSTNode] = set()
    for node in kinds.nodes:
        if isinstance(node, (cst.BooleanOperation, cst.Comparison, cst.UnaryOperation)) and node not in inner:
            # what is around comes first
            inner |= set(walk(node))
            yield node


def _deciding(kinds: _Kinds) -> Iterator[cst.CSTNode]:
    """What has to be looked at, by where it begins."""
    for condition in _conditions(kinds):
        if _truth(condition, kinds, HOPPER) != _truth(condition, kinds, kinds.port):
            yield condition
    for node in kinds.ends:
        yield from _decided(node, kinds)
    yield from (n for n in kinds.nodes if isinstance(n, cst.Call) and _asks(n, kinds))


def _asks(node: cst.Call, kinds: _Kinds) -> bool:
    """Whether a function is asked for Hopper's capability or more."""
    given = [literal(a.value) for a in node.args]
    return kinds.spellings.are("python_asking", called(node)) and any(v in kinds.ported and v != "" for v in given)


def _decided(node: cst.CSTNode, kinds: _Kinds) -> Iterator[cst.CSTNode]:
    """Where a capability decides something, and it is not known that both chips come to the same."""
    if isinstance(node, cst.Comparison):
        sides = _sides(node)
        if all(kinds.is_asked(side) for side in sides) or _truth(node, kinds, HOPPER) is not None:
            return
        if len(sides) == 2 and not any(kinds.of(s) is not None for s in sides) and _is_of_no_chip(sides, kinds):
            return
        listed = [kinds.looped(side) for side in sides]
        values = next((_elements(one) for one in listed if one is not None), None)
        if values is not None and isinstance(node.comparisons[0].operator, (cst.Equal, cst.NotEqual)):
            if any(v in kinds.ported and kinds.ported[v] not in values for v in values):
                yield node
            return
        yield node
    elif isinstance(node, cst.Match):
        wanted = kinds.of(node.subject)
        if wanted is None or any(_matched(p) == "" for c in node.cases for p in _patterns(c)):
            yield node.subject
        yield from _cases(node, wanted, kinds) if wanted is not None else ()
    elif (looked_up := _looked_up(node)) is not None:
        table, wanted = kinds.constant(looked_up[0]), kinds.of(looked_up[1])
        keys = (
            [e.key for e in table.elements if isinstance(e, cst.DictElement)] if isinstance(table, cst.Dict) else None
        )
        if keys is None or wanted is None:
            yield looked_up[1]
        elif _alone(wanted, keys, kinds):
            yield next(k for k in keys if literal(k) == wanted)
    elif isinstance(node, (cst.BaseExpression, cst.BaseSmallStatement, cst.BaseCompoundStatement)):
        yield node


def _sides(node: cst.Comparison) -> list[cst.BaseExpression]:
    return [node.left, *(c.comparator for c in node.comparisons)]


def _looked_up(node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """A table and what is looked up in it: `t[x]`, `t.get(x, y)`."""
    match node:
        case cst.Subscript(value=table, slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
            return table, key
        case cst.Call(func=cst.Attribute(value=table, attr=cst.Name(value="get"))) if given_by_place(node):
            return table, given_by_place(node)[0]
    return None


def _is_of_no_chip(sides: list[cst.BaseExpression], kinds: _Kinds) -> bool:
    """Whether a text that has a capability in it is compared with one that names no chip."""
    texts = [v for s in sides if isinstance(s, cst.BaseString) and isinstance(v := value_of(s), str)]
    return bool(texts) and not any(kinds.spellings.are("chip_text", t) for t in texts)


def _elements(node: cst.BaseExpression) -> list[Form] | None:
    values = element_values(node)
    forms: list[Form] = [literal(e) for e in values] if values is not None else [""]
    return None if "" in forms else forms


def _patterns(case: cst.MatchCase) -> list[cst.MatchPattern]:
    found = [p.pattern for p in case.pattern.patterns] if isinstance(case.pattern, cst.MatchOr) else [case.pattern]
    return [p for p in found if not (isinstance(p, cst.MatchAs) and p.pattern is None)]


def _cases(node: cst.Match, wanted: object, kinds: _Kinds) -> Iterator[cst.CSTNode]:
    for case in node.cases:
        values = [_matched(p) for p in _patterns(case)]
        if wanted in values and kinds.ported[wanted] not in values:
            yield case.pattern


def _matched(pattern: cst.CSTNode) -> object:
    if isinstance(pattern, cst.MatchValue):
        return literal(pattern.value)
    if isinstance(pattern, (cst.MatchList, cst.MatchTuple)):
        return tuple(_matched(getattr(p, "value", p)) for p in pattern.patterns)
    return ""


def _alone(wanted: object, keys: list[cst.BaseExpression], kinds: _Kinds) -> bool:
    values = [literal(k) for k in keys]
    return wanted in values and kinds.ported[wanted] not in values


def _truth(node: cst.BaseExpression, kinds: _Kinds, chip: int) -> bool | None:
    """A condition for a chip, as it stands; None if something else decides."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        inner = _truth(node.expression, kinds, chip)
        return None if inner is None else not inner
    if isinstance(node, cst.BooleanOperation):
        values = [_truth(v, kinds, chip) for v in (node.left, node.right)]
        decided = isinstance(node.operator, cst.Or)
        if decided in values:
            return decided
        return None if None in values else not decided
    if not isinstance(node, cst.Comparison):
        return None
    sides = _sides(node)
    if all(kinds.of(side) is None for side in sides):
        return None
    found = [_value(side, kinds, chip) for side in sides]
    if None in found:
        return None
    signs = [type(c.operator) for c in node.comparisons]
    try:
        return all(_COMPARE[sign](a, b) for sign, a, b in zip(signs, found, found[1:], strict=False))
    except (KeyError, TypeError):
        return None


def _value(node: cst.BaseExpression, kinds: _Kinds, chip: int) -> object:
    wanted = kinds.of(node)
    if wanted is not None:
        return kinds.on(chip)[wanted]
    node = kinds.constant(node)
    if isinstance(node, cst.Call):
        name, args = called(node) if isinstance(node.func, cst.Name) else "", given_by_place(node)
        if name == "range" and len(args) == len(node.args):
            bounds = [literal(a) for a in args]
            numbers = [b for b in bounds if isinstance(b, int) and abs(b) < 10_000]
            return range(*numbers) if len(numbers) == len(bounds) and 0 < len(numbers) < 3 else None
        if name in ("frozenset", "set", "tuple", "list") and len(args) == 1:
            node = args[0]
    if isinstance(node, cst.Dict):
        keys = [value_of(e.key) for e in node.elements if isinstance(e, cst.DictElement)]
        return tuple(keys) if None not in keys else None
    return value_of(node)
