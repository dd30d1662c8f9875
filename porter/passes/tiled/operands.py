# SPDX-License-Identifier: Apache-2.0
"""Columns of A operands from registers: what each multiply is handed, as far out as its type has a name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.facts import Choice, Descriptors, Fence
from porter.model.functions import Function, outermost
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import HandedIn, Multiply, Synchronization
from porter.model.tiled.activity import is_constant_branch
from porter.model.tiled.operands import in_shared_memory, may_be_in_registers
from porter.model.tiled.tensors import initializer
from porter.passes.tiled.context import Frame, TiledContext
from porter.passes.tiled.spelling import Place, Unnamed, spelled
from porter.passes.tiled.text import cpp

COUNT = "count"


@dataclass(frozen=True)
class Term:
    """Columns that something takes where constant conditions hold, as C++ expressions."""

    columns: str
    conditions: tuple[str, ...] = ()
    batch: tuple[int, ...] = ()
    """Equal for operands that MMAs of one batch have, each of which has columns of its own; empty for one alone."""
    name: str = ""
    """Of an operand beside others in its batch."""


def counted_by(warpgroups: str, conditions: tuple[str, ...]) -> str:
    """The number of warpgroups for a term. Under conditions it depends on a parameter of the lambda that counts, so
    that the compiler does not look at what is not taken."""
    return cpp("number_of", call=COUNT) if conditions else warpgroups


def operand_terms(context: TiledContext, frame: Frame, place: Place, warpgroups: str) -> list[Term]:
    """The A operands in a function that may come from registers. Where the type of one has no name, the C++ compiler
    is asked that its MMA has A in shared memory. Raises Unnamed."""
    found: list[Term] = []
    for multiply, one, batch in _operands(context):
        if outermost(one.function) is not frame.function or in_shared_memory(context.tiled, multiply):
            continue
        around = conditions_around(one.function, one.place, place)
        name = one.function.text(_whole(one.function, one.node))
        for choice, conditions in _choices(context, one, place):
            if not _has_descriptors(context, choice):
                term = _term(context, choice, (*around, *conditions), place, warpgroups)
                found.append(replace(term, batch=batch, name=name))
    found = list(dict.fromkeys(t for t in found if t.columns))
    beside = {t.batch for t in found if len({o.name for o in found if o.batch == t.batch}) > 1}
    return list(dict.fromkeys(t if t.batch in beside else replace(t, batch=(), name="") for t in found))


def _operands(context: TiledContext) -> Iterator[tuple[Multiply, HandedIn, tuple[int, ...]]]:
    """Every first operand with what is equal for those of a batch that the same function counts: where the batch opens,
    and the call that leads there from another function."""
    known: set[int] = set()
    for opened in context.tiled.synchronizations:
        for issue in context.batches.issues(opened) if isinstance(opened.fact, Fence) else ():
            known.add(id(issue.multiply))
            for one in context.batches.operands(issue):
                yield issue.multiply, one, (opened.call.node.id, _leading(opened, one))
    for multiply in context.tiled.multiplies:
        for one in context.tiled.operands(multiply) if id(multiply) not in known else ():
            yield multiply, one, ()


def _leading(opened: Synchronization, one: HandedIn) -> int:
    return one.place.id if outermost(one.function) is not outermost(opened.call.caller) else 0


def are_counted_together(context: TiledContext, opened: Synchronization) -> bool:
    """Whether the operands of a batch that may be in registers are declared in the same functions, for the same
    calls."""
    found: set[frozenset[tuple[int, int]]] = set()
    for issue in context.batches.issues(opened):
        if not in_shared_memory(context.tiled, issue.multiply):
            operands = context.batches.operands(issue)
            found.add(frozenset((id(outermost(o.function)), _leading(opened, o)) for o in operands))
    return len(found) <= 1


def _term(context: TiledContext, one: HandedIn, conditions: tuple[str, ...], place: Place, warpgroups: str) -> Term:
    count = counted_by(warpgroups, conditions)
    try:
        operand = spelled(one.function, _whole(one.function, one.node), place)
    except Unnamed:
        if not may_be_in_registers(context.tiled):
            return Term("")
        mma = spelled(*one.mma, place)
        return Term(cpp("no_operand_columns", warpgroups=count, mma=mma), conditions)
    return Term(cpp("operand_columns", warpgroups=count, operand=operand), conditions)


def _negated(condition: str) -> str:
    """The opposite of a condition; both can stand beside `&&`."""
    if re.fullmatch(r"!\w+", condition):
        return condition[1:]
    return f"!{condition}" if re.fullmatch(r"\w+", condition) else f"!({condition})"


def _choices(context: TiledContext, one: HandedIn, place: Place) -> Iterator[tuple[HandedIn, tuple[str, ...]]]:
    """An operand, or both of a choice by a constant, each with the condition."""
    call = context.tiled.tensors.call(one.function, one.node)
    answer = context.tiled.program.facts.answer(call) if call is not None else None
    if call is None or answer is None or not isinstance(answer.fact, Choice) or answer.recognizer is None:
        yield one, ()
        return
    spans = [answer.captures[answer.recognizer.place_of(name)][1] for name in ("first", "second")]
    at = answer.captures[answer.recognizer.place_of("condition")][1]
    asked = next((n for n in walk(one.node) if one.function.span(n) == at), None)
    condition = spelled(one.function, asked, place) if asked is not None else answer.fact.condition
    conditions = (condition, _negated(condition))
    for span, condition in zip(spans, conditions, strict=True):
        node = next((a for a in call.args if one.function.span(a) == span), None)
        yield (one, ()) if node is None else (replace(one, node=node), (condition,))


def _has_descriptors(context: TiledContext, one: HandedIn) -> bool:
    """Whether an operand is made as a tensor of descriptors."""
    node = _whole(one.function, one.node)
    variable = resolve(one.function, node, one.function.text(node)) if node.type == "identifier" else None
    value = initializer(variable) if variable is not None else node
    callee = value.child_by_field_name("function") if value is not None else None
    arguments = value.child_by_field_name("arguments") if value is not None else None
    method = callee.child_by_field_name("field") if callee is not None and callee.type == "field_expression" else None
    if method is None or arguments is None:
        return False
    function = variable.function if variable is not None else one.function
    fact = context.tiled.program.facts.of_member(function.text(method), function.text(arguments))
    return isinstance(fact, Descriptors)


def _whole(function: Function, node: Node) -> Node:
    """The tensor whose k blocks an operand is."""
    if node.type == "call_expression":
        callee = node.child_by_field_name("function")
        if callee is not None and callee.type == "identifier" and resolve(function, callee, function.text(callee)):
            return callee
    return node


def conditions_around(function: Function, node: Node, place: Place) -> tuple[str, ...]:
    """Constant conditions under which a function comes to a node, as far as they have a name at the place."""
    found: list[str] = []
    inner, current = node, node.parent
    while current is not None and inner.id != outermost(function).body.id:
        condition = current.child_by_field_name("condition") if current.type == "if_statement" else None
        value = condition.child_by_field_name("value") if condition is not None else None
        if condition is not None and value is not None and is_constant_branch(current):
            alternative = current.child_by_field_name("alternative")
            try:
                text = spelled(function, value, place)
            except Unnamed:
                text = ""
            if text and inner.id != condition.id:
                is_other = alternative is not None and inner.id == alternative.id
                found.append(_negated(text) if is_other else text if re.fullmatch(r"!?\w+", text) else f"({text})")
        inner, current = current, current.parent
    return tuple(reversed(found))
