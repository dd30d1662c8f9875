# SPDX-License-Identifier: Apache-2.0
"""Which names of kernels lead to what registers of accumulators hold, or to the parts that a thread has of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import Function
from porter.model.scopes import declared_names
from porter.passes.tiled.context import TiledContext

_CALLEES = ("field_expression", "call_expression", "subscript_expression", "pointer_expression")


def derived_names(
    context: TiledContext, functions: Sequence[Function], touched: Iterable[tuple[Function, Node]]
) -> frozenset[str]:
    """Names of variables, by their text alone: one too many only has more uses of a thread's index named."""
    spellings = context.tiled.program.vocabulary.spellings
    issued = {(id(m.call.caller.file), m.call.node.id) for m in context.tiled.multiplies}
    found = {f.text(n) for f, n in touched} | {h.name for h in context.tiled.handles.values()}

    def leads(function: Function, node: Node) -> bool:
        return any(
            (text := function.text(n)) in found
            or (n.type == "field_identifier" and spellings.are("rows_by_object", text))
            or (n.type == "identifier" and spellings.are("rows_by_argument", text))
            for n in walk(node)
            if n.type in ("identifier", "field_identifier")
        )

    before = -1
    while before != len(found):
        before = len(found)
        for function in functions:
            for names, values in _written(function, issued):
                if any(leads(function, v) for v in values):
                    found |= names
    return frozenset(found)


def _written(function: Function, issued: set[tuple[int, int]]) -> Iterator[tuple[set[str], list[Node]]]:
    """What is written by what: declarations, assignments, and calls that stand alone, which may write any argument."""
    for declarator in find(function.body, "init_declarator"):
        value = declarator.child_by_field_name("value")
        if value is not None:
            yield {function.text(n) for n in declared_names(declarator)}, [value]
    for assigned in find(function.body, "assignment_expression"):
        left, right = assigned.child_by_field_name("left"), assigned.child_by_field_name("right")
        base = base_of(left) if left is not None else None
        if base is not None and right is not None:
            yield {function.text(base)}, [right]
    for statement in find(function.body, "expression_statement"):
        call = statement.named_children[0] if statement.named_children else None
        if call is None or call.type != "call_expression" or (id(function.file), call.id) in issued:
            continue
        arguments = call.child_by_field_name("arguments")
        given = arguments.named_children if arguments is not None else []
        bases = [b for a in given if (b := base_of(a)) is not None]
        yield {function.text(b) for b in bases}, given


def base_of(node: Node) -> Node | None:
    """The name at the beginning of what is written."""
    while node.type in _CALLEES:
        inner = node.child_by_field_name("argument") or node.child_by_field_name("function")
        if inner is None:
            return None
        node = inner
    return node if node.type == "identifier" else None
