# SPDX-License-Identifier: Apache-2.0
"""Launches of a kernel whose CTAs are pairs: their grids have a whole number of these."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.block_size import launches_in
from porter.model.functions import Function
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.passes.native.sites import Changes, Left, Place

_INTEGERS = frozenset({"int", "unsigned", "unsigned int", "uint32_t", "int32_t", "size_t", "long", "int64_t",
                       "uint64_t", "uint", "auto"})  # fmt: skip


def in_pairs(program: Program, kernel: Function, changes: Changes) -> None:
    """Make the first dimension of each grid even.

    Raises:
        Left: a launch is not understood.
    """
    for caller, at, text in even_grid(program, kernel, 0):
        changes.replace(caller, caller.span(at), text)


def even_grid(program: Program, kernel: Function, axis: int) -> Iterator[tuple[Function, Node, str]]:
    """A dimension of each grid, with an even number in its place.

    Raises:
        Left: a launch is not understood, or there is none.
    """
    for caller, at, text in half_grid(program, kernel, axis):
        yield caller, at, f"{text} * 2"


def half_grid(program: Program, kernel: Function, axis: int) -> Iterator[tuple[Function, Node, str]]:
    """The same with half the number, rounded up."""
    places = list(_grids(program, kernel))
    if not places:
        raise Left(kernel, kernel.span(kernel.body), "a launch by host code in these files")
    for caller, node in places:
        at = _dimension(caller, node, axis)
        text = caller.text(at)
        if at.type in ("binary_expression", "conditional_expression"):
            text = f"({text})"
        yield caller, at, f"({text} + 1) / 2"


def _grids(program: Program, kernel: Function) -> Iterator[tuple[Function, Node]]:
    for caller, node in launches_in(program, kernel):
        if node.type != "kernel_call_syntax":
            raise Place(caller, node).left("a launch in brackets: a cluster is the kernel's own here")
        yield from ((caller, part) for part in [c for c in node.named_children if c.type != "comment"][:1])


def _dimension(caller: Function, node: Node, index: int) -> Node:
    """The expression of a dimension of a grid. Raises Left: it is not found."""
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    if node.type == "call_expression":
        called, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        given = [n for n in (arguments.named_children if arguments is not None else ()) if n.type != "comment"]
        if called is not None and caller.text(called) == "dim3" and len(given) > index:
            return _number(caller, given[index])
    if node.type == "identifier":
        variable = resolve(caller, node, caller.text(node))
        declared = variable.declaration if variable is not None else None
        kind = declared.child_by_field_name("type") if declared is not None else None
        if variable is not None and declared is not None and kind is not None and caller.text(kind) == "dim3":
            lists = [n for n in find(declared, "argument_list", "initializer_list") if n.named_children]
            changed = [n for n in find(caller.body, "field_expression", "assignment_expression")
                       if caller.text(n).startswith((f"{variable.name}.", f"{variable.name} ="))]  # fmt: skip
            alone = len(declared.children_by_field_name("declarator")) == 1
            given = [n for n in (lists[0].named_children if lists else ()) if n.type != "comment"]
            if len(given) > index and not changed and alone:
                return _number(caller, given[index])
    if index:
        raise Place(caller, node).left("the second dimension of the grid, as a number")
    return _number(caller, node)


def _number(caller: Function, node: Node) -> Node:
    if node.type == "number_literal" or node.type in ("binary_expression", "conditional_expression"):
        return node
    if node.type == "identifier":
        variable = resolve(caller, node, caller.text(node))
        param = variable.param.node if variable is not None and variable.param is not None else None
        declared = (variable.declaration or param) if variable is not None else None
        kind = declared.child_by_field_name("type") if declared is not None else None
        if kind is not None and caller.text(kind) in _INTEGERS:
            return node
    if node.type == "call_expression":
        called = node.child_by_field_name("function")
        if called is not None and caller.text(called) in ("min", "std::min", "max", "std::max"):
            return node
    raise Place(caller, node).left("the dimensions of the grid, as numbers")
