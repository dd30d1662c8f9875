# SPDX-License-Identifier: Apache-2.0
"""Parts of one register tensor, each of which MMAs add to: the columns of one MMA after those of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.facts import Facts
from porter.passes.idiom_dsl.names import KNOWN
from porter.passes.idiom_dsl.shapes import operand_of, targets_of
from porter.passes.idiom_dsl.text import Left, Statement, Text, argument, assigned, found_in, method


@dataclass(frozen=True)
class View:
    """`make_tensor(of.iterator + index * size(LAYOUT), LAYOUT)`, where `layout` makes LAYOUT of all modes of `of` but
    the last; `where` is the first argument."""

    of: str
    index: str
    where: cst.BaseExpression
    layout: Statement


def views_of(
    text: Text, facts: Facts, gemms: Sequence[cst.Call], numbers: AbstractSet[tuple[int, int]]
) -> tuple[View, ...]:
    """The views that have the `numbers` of what MMAs add to, by case; empty if there are none.

    Raises:
        Left: they are other parts, or something else than MMAs has them, too.
    """
    seen = [s for s in facts.of("view") if (s.case, s.result["number"]) in numbers]
    calls = tuple(dict.fromkeys(s.call for s in seen))
    if not calls or {(s.case, s.result["number"]) for s in seen} != numbers:
        return ()
    views = tuple(_view(text, call) for call in calls)
    if len({view.of for view in views}) > 1:
        raise Left("parts of several accumulators", calls[1])
    names = {_name_of(text, call) for call in calls}
    _require_mmas_alone(text, gemms, calls, names)
    return views


def _name_of(text: Text, call: cst.Call) -> str:
    bound = assigned(text.statement(call))
    if bound is None or bound[1] is not call:
        raise Left("a part of an accumulator without a name of its own", call)
    return bound[0]


def _view(text: Text, call: cst.Call) -> View:
    where, layout = argument(call, 0, "iterator"), argument(call, 1, "layout")
    whole = m.BinaryOperation(
        m.Attribute(m.Name(), m.Name("iterator")), m.Add(), m.BinaryOperation(operator=m.Multiply())
    )
    if where is None or layout is None or not m.matches(where.value, whole) or not m.matches(layout.value, m.Name()):
        raise Left("a part of an accumulator that does not begin behind whole parts", call)
    both = cst.ensure_type(where.value, cst.BinaryOperation)
    of = text.code(cst.ensure_type(both.left, cst.Attribute).value)
    made = _layout(text, call, text.code(layout.value), of)
    product = cst.ensure_type(both.right, cst.BinaryOperation)
    for size, index in ((product.left, product.right), (product.right, product.left)):
        if text.only_argument(size, KNOWN["size"]) == text.code(layout.value):
            return View(of, text.code(index), where.value, made)
    raise Left("a part of an accumulator that does not begin behind whole parts", call)


def _layout(text: Text, call: cst.Call, name: str, of: str) -> Statement:
    """The statement that makes a layout of all modes of an accumulator but the last."""
    function = text.function(call)
    said = [s for s in found_in(function, cst.SimpleStatementLine) if (assigned(s) or ("",))[0] == name]
    bound = assigned(said[0]) if len(said) == 1 else None
    ones = bound[1] if bound is not None else None
    if isinstance(ones, cst.Call) and text.is_a(ones.func, KNOWN["append_ones"]) and len(ones.args) == 2:
        rank, inner = argument(ones, 1, "up_to_rank"), ones.args[0].value
        if rank is not None and text.code(rank.value) == "3" and isinstance(inner, cst.Call):
            given = ["".join(text.code(a.value).split()) for a in inner.args]
            if text.is_a(inner.func, KNOWN["select"]) and given == [f"{of}.layout", "[0,1]"]:
                return said[0]
    raise Left("a part of an accumulator whose layout is not that of its first modes", call)


def _require_mmas_alone(text: Text, gemms: Sequence[cst.Call], calls: Sequence[cst.Call], names: set[str]) -> None:
    """Raises Left: a view goes by a name that has other uses than as what an MMA adds to, and as a part of a list that
    loops around MMAs go over."""
    function = text.function(gemms[0])
    own = {id(operand_of(g, i, k)) for g in gemms for i, k in ((1, "d"), (4, "c"))}
    own |= {id(t.target) for t in found_in(function, cst.AssignTarget) if any(
        text.statement(t) is text.statement(c) for c in calls)}  # fmt: skip
    lists = set[str]()
    for call in found_in(function, cst.Call):
        first = call.args[0].value if len(call.args) == 1 else None
        if (owner := method(call, "append")) and isinstance(first, cst.Tuple):
            inside = [e.value for e in first.elements if isinstance(e.value, cst.Name) and e.value.value in names]
            lists |= {owner} if inside else set()
            own |= set(map(id, inside))
    loops = [f for f in found_in(function, cst.For) if text.code(f.iter) in lists]
    own |= {id(n) for f in loops for n in found_in(f.target, cst.Name)}
    known = names | {n for g in gemms for n in [text.code(operand_of(g, 1, "d"))]}
    if not known <= names | {n for f in loops for n in targets_of(f.target)}:
        raise Left("a part of an accumulator that goes by another name at its MMAs", gemms[0])
    for node in found_in(function, cst.Name):
        if node.value in known and id(node) not in own:
            raise Left(f"a part of an accumulator that is used apart from MMAs, by `{node.value}`", node)
    for node in _other_uses(text, function, lists):
        raise Left(f"a list of parts of an accumulator that is used apart from MMAs, by `{node.value}`", node)


def _other_uses(text: Text, function: cst.FunctionDef, lists: AbstractSet[str]) -> Iterator[cst.Name]:
    """Of lists, neither where they begin empty, nor where something is put in, nor where a loop goes over them."""
    for node in found_in(function, cst.Name):
        parent = text.parent(node)
        put_in = isinstance(parent, cst.Attribute) and parent.attr.value == "append"
        gone_over = isinstance(parent, cst.For) and parent.iter is node
        bound = assigned(text.statement(node))
        empty = bound is not None and bound[0] == node.value and m.matches(bound[1], m.List([]))
        if node.value in lists and not (put_in or gone_over or empty):
            yield node
