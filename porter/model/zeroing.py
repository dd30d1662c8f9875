# SPDX-License-Identifier: Apache-2.0
"""How an accumulator is set to zero: memset, an initializer, element loops, assignments to scalars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.accumulators import Accumulator
from porter.model.constants import Constants
from porter.model.counted import counted_from_zero
from porter.model.functions import Call, Function, declared_name
from porter.model.program import Program
from porter.model.pure import is_toolkit
from porter.model.registers import is_zero, take_apart


@dataclass(eq=False)
class Zeroing:
    """A statement that makes accumulators zero and does nothing else.

    `tile` holds the subscripts of the tile that is zeroed, empty for the whole accumulator. A zero
    initializer is part of the declaration: then `node` is the declaration.
    """

    node: Node = field(repr=False)
    function: Function = field(repr=False)
    """Where the statement stands: the declaring function, or a method of the class that holds the registers."""
    accumulators: list[Accumulator]
    tile: tuple[str, ...] = ()
    is_declaration: bool = False


_Places = list[tuple[Node, Call | None, frozenset[str]]]


class ZeroingFinder:
    """Statements of one program that zero accumulators; each function is gone through once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._places: dict[int, _Places] = {}

    def of(self, accumulator: Accumulator) -> list[Zeroing]:
        """Those that zero it, of the functions (and their lambdas) that may name its registers."""
        return [z for f in accumulator.home.namers(self.program) for z in self._in(accumulator, f)]

    def _in(self, accumulator: Accumulator, function: Function) -> list[Zeroing]:
        if id(function) not in self._places:
            self._places[id(function)] = list(_places(function))
        found: list[Zeroing] = []
        declaration = accumulator.variable.declaration
        if declaration is not None and accumulator.home.is_cleared_where_declared():
            found.append(Zeroing(declaration, function, [accumulator], is_declaration=True))
        constants = self.program.constants_in(function)
        for node, call, cleared in self._places[id(function)]:
            zeroing: Zeroing | None
            if call is not None:
                zeroing = _memset(self.program, function, accumulator, node, call)
            elif node.type == "for_statement":
                zeroing = _loop(function, accumulator, node, constants)
            elif node.type == "for_range_loop":
                zeroing = _range_loop(function, accumulator, node)
            else:
                zeroing = Zeroing(node, function, [accumulator]) if accumulator.home.are_all(set(cleared)) else None
            if zeroing is not None:
                found.append(zeroing)
        return found


def _places(function: Function) -> Iterator[tuple[Node, Call | None, frozenset[str]]]:
    """The loops, calls of `memset` and assignments of zero of a function; with each its call, and what it clears by
    name."""
    calls = {c.node.id: c for c in reversed(function.calls) if c.name == "memset"}
    loops = ("for_statement", "for_range_loop")
    for node in find(function.body, "expression_statement", *loops):
        if node.type in loops:
            if node.parent is None or node.parent.type not in loops:
                yield node, None, frozenset()
        elif node.named_children:
            inner = node.named_children[0]
            cleared = _scalar_chain(function, inner)
            if inner.id in calls or cleared:
                yield node, calls.get(inner.id), cleared


def _memset(program: Program, function: Function, accumulator: Accumulator, node: Node, call: Call) -> Zeroing | None:
    meant = program.names.resolve(call)
    if meant.symbols or meant.targets or not is_toolkit(program, call):
        return None
    args = call.args
    if len(args) != 3 or not is_zero(function.text(args[1])):
        return None
    element = take_apart(function, args[0])
    if element is None or not accumulator.home.is_named_by(function, element):
        return None
    size = re.sub(r"\s", "", function.text(args[2]))
    target = re.sub(r"[\s&]", "", function.text(args[0]))
    if size not in (f"sizeof({target})", f"sizeof{target}"):
        return None
    return (
        Zeroing(node, function, [accumulator], element.subscripts)
        if len(element.subscripts) <= accumulator.home.depth
        else None
    )


def _scalar_chain(function: Function, current: Node) -> frozenset[str]:
    """What `d0 = d1 = d2 = 0.f` clears."""
    names: list[str] = []
    while current.type == "assignment_expression":
        left, right = current.child_by_field_name("left"), current.child_by_field_name("right")
        if left is None or right is None:
            return frozenset()
        names.append(function.text(left))
        current = right
    return frozenset(names) if names and is_zero(function.text(current)) else frozenset()


def _loop(function: Function, accumulator: Accumulator, node: Node, constants: Constants) -> Zeroing | None:
    """Nested loops over all elements whose body is `d[i][j] = 0`."""
    bounds, current = loops_to(function, node)
    if current.type != "expression_statement" or not current.named_children:
        return None
    assignment = current.named_children[0]
    if assignment.type != "assignment_expression":
        return None
    left, right = assignment.child_by_field_name("left"), assignment.child_by_field_name("right")
    operator = assignment.child_by_field_name("operator")
    if left is None or right is None or operator is None or function.text(operator) != "=":
        return None
    element = take_apart(function, left)
    if element is None or not is_zero(function.text(right)):
        return None
    if not accumulator.home.is_named_by(function, element):
        return None
    extents = accumulator.home.extents
    if len(element.subscripts) != len(extents):
        return None
    # a loop over something else may run no turn, and `d[i][i]` is not all of d
    if sorted(s for s in element.subscripts if s in bounds) != sorted(bounds):
        return None
    tile: list[str] = []
    for axis, (subscript, extent) in enumerate(zip(element.subscripts, extents, strict=True)):
        bound = bounds.get(subscript)
        if bound is None:
            if axis >= accumulator.home.depth or axis != len(tile):
                return None
            tile.append(subscript)
        elif not same_number(constants, bound, extent):
            return None
    return Zeroing(node, function, [accumulator], tuple(tile))


def _range_loop(function: Function, accumulator: Accumulator, node: Node) -> Zeroing | None:
    """`for (auto& row : d) for (float& x : row) x = 0.f;`"""
    over = node.child_by_field_name("right")
    element = take_apart(function, over) if over is not None else None
    if element is None or not accumulator.home.is_named_by(function, element):
        return None
    levels = 0
    current: Node = node
    name = ""
    while current.type == "for_range_loop":
        declarator, right = current.child_by_field_name("declarator"), current.child_by_field_name("right")
        if declarator is None or right is None or declarator.type != "reference_declarator":
            return None
        if levels and function.text(right) != name:
            return None
        declared = declared_name(declarator)
        if declared is None:
            return None
        name, levels = function.text(declared), levels + 1
        body = _only_statement(current.child_by_field_name("body"))
        if body is None:
            return None
        current = body
    assignment = (
        current.named_children[0] if current.type == "expression_statement" and current.named_children else None
    )
    if assignment is None or assignment.type != "assignment_expression":
        return None
    left, right = assignment.child_by_field_name("left"), assignment.child_by_field_name("right")
    if left is None or right is None or function.text(left) != name or not is_zero(function.text(right)):
        return None
    whole = len(element.subscripts) + levels == len(accumulator.home.extents)
    return (
        Zeroing(node, function, [accumulator], element.subscripts)
        if whole and len(element.subscripts) <= accumulator.home.depth
        else None
    )


def _only_statement(node: Node | None) -> Node | None:
    while node is not None and node.type == "compound_statement":
        inner = [c for c in node.named_children if c.type not in ("comment", "preproc_call")]
        node = inner[0] if len(inner) == 1 else None
    return node


def loops_to(function: Function, node: Node) -> tuple[dict[str, str], Node]:
    """Bounds of the loops around one statement that count from 0 on, by their variables, and the statement: what is no
    such loop, and no block of one statement."""
    bounds: dict[str, str] = {}
    while True:
        loop, body = counted_from_zero(function, node), node.child_by_field_name("body")
        inner = [c for c in node.named_children if c.type not in ("comment", "preproc_call")]
        if loop is not None and body is not None:
            bounds[loop.name], node = function.text(loop.end), body
        elif node.type == "compound_statement" and len(inner) == 1:
            node = inner[0]
        else:
            return bounds, node


def same_number(constants: Constants, left: str, right: str) -> bool:
    """Whether two expressions are the same text, or the same number."""
    if re.sub(r"\s", "", left) == re.sub(r"\s", "", right):
        return True
    a, b = constants.evaluate(left), constants.evaluate(right)
    return a is not None and a == b
