# SPDX-License-Identifier: Apache-2.0
"""What an expression does with a register it names: reads it, changes it, or lets its address go where no rule can
follow. Only what is listed here counts as understood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.registers import COMPONENTS


class Use(Enum):
    """`UPDATE` reads and changes. `NOTHING`: the name is mentioned, the registers are not (`sizeof`)."""

    NOTHING = "nothing"
    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reading:
    """What reading an expression needs to know of the program around it."""

    text: Callable[[Node], str]
    takes: Callable[[Node, int, bool], Use]
    """(call, index of an argument, whether it is one register) to what the callee does with it."""
    converted: Callable[[Node, bool], Use | None]
    """(node, whether only a type may stand there) to what making a value of the type that it names does with a
    register; None if it may name no type"""
    values: frozenset[str]
    """Types that keep no reference to what they are made from."""
    operators: frozenset[str] = frozenset()
    """Operators that the sources overload: these may take their operands by reference."""

    def is_value(self, kind: Node | None) -> bool:
        """Whether a variable of this type holds a copy of what it is made from."""
        return kind is not None and (kind.type in _ARITHMETIC or self.text(kind) in self.values)


_STATEMENTS = frozenset(
    (
        "condition_clause",
        "expression_statement",
        "if_statement",
        "while_statement",
        "do_statement",
        "for_statement",
        "switch_statement",
        "throw_statement",
    )
)
_ARITHMETIC = ("primitive_type", "sized_type_specifier")
_DISCARDED = ("expression_statement", "comma_expression", "for_statement")


def use_of(name: Node, rank: int, path: str, reading: Reading) -> Use:
    """What the expression around `name` does with the register array of `rank` dimensions that it names, or with the
    member `path` of the object that it names. Rank -1: unknown, one subscript is taken for an element."""
    node, subscripts = name, 0
    wanted = [p for p in path.split(".") if p]
    while (parent := node.parent) is not None:
        full = not wanted and (subscripts >= rank if rank >= 0 else subscripts > 0)
        kind = parent.type
        if kind == "parenthesized_expression":
            node = parent
        elif kind == "subscript_expression":
            inner = parent.child_by_field_name("argument")
            if inner is None or inner.id != node.id or wanted:
                return Use.UNKNOWN
            node, subscripts = parent, subscripts + 1
        elif kind == "subscript_argument_list":
            return Use.READ if full else Use.UNKNOWN
        elif kind == "pointer_expression":
            # `*d` of a vector is `d[0]`
            if full or wanted or subscripts or rank not in (-1, 1) or not reading.text(parent).startswith("*"):
                return Use.UNKNOWN
            node, subscripts = parent, 1
        elif kind == "field_expression":
            member = parent.child_by_field_name("field")
            label = reading.text(member) if member is not None else ""
            if wanted and label == wanted[0]:
                wanted.pop(0)
            elif not wanted and label in COMPONENTS and "->" not in reading.text(parent):
                subscripts += 1
            else:
                return Use.UNKNOWN
            node = parent
        elif kind in ("sizeof_expression", "alignof_expression", "decltype", "lambda_capture_specifier"):
            return Use.NOTHING
        elif kind == "conditional_expression" and _field(parent, node) != "condition":
            node = parent
        elif kind == "argument_list" and parent.parent is not None:
            return _argument(parent, node, full, reading)
        elif kind == "for_range_loop" and _field(parent, node) == "right":
            return _range(parent, reading)
        else:
            return _element(parent, node, reading) if full else Use.UNKNOWN
    return Use.UNKNOWN


def uses_in(body: Node, name: str, rank: int, path: str, reading: Reading) -> Use:
    """What all mentions of a name in a body do together; one inside a lambda is unknown: nobody knows when it runs."""
    found = Use.NOTHING
    for node in walk(body):
        if node.type not in ("identifier", "type_identifier") or reading.text(node) != name:
            continue
        if node.type == "type_identifier" or _in_lambda(node, body):
            return Use.UNKNOWN
        found = joined(found, use_of(node, rank, path, reading))
    return found


def joined(one: Use, other: Use) -> Use:
    """What two uses do together."""
    if Use.UNKNOWN in (one, other):
        return Use.UNKNOWN
    if one is Use.NOTHING or one is other:
        return other
    return one if other is Use.NOTHING else Use.UPDATE


def _element(parent: Node, node: Node, reading: Reading) -> Use:
    """What is done to one register."""
    kind, field = parent.type, _field(parent, node)
    operator = parent.child_by_field_name("operator")
    sign = reading.text(operator) if operator is not None else ""
    if kind == "assignment_expression":
        if field == "right":
            return Use.READ
        # the value of an assignment refers to what was assigned
        while sign == "=" and (outer := _assigned_on(parent, reading)) is not None:
            parent = outer
        if parent.parent is None or parent.parent.type not in _DISCARDED or sign in reading.operators:
            return Use.UNKNOWN
        return Use.WRITE if sign == "=" else Use.UPDATE
    if kind == "update_expression":
        return Use.UPDATE
    if kind in ("unary_expression", "binary_expression"):
        return Use.UNKNOWN if not sign or sign in reading.operators else Use.READ
    if kind == "cast_expression":
        target = parent.child_by_field_name("type")
        return (reading.converted(target, True) if target is not None else None) or Use.UNKNOWN
    if kind == "conditional_expression" or kind in _STATEMENTS:
        return Use.READ
    if kind == "comma_expression":
        return Use.READ if field == "left" else Use.UNKNOWN
    if kind == "init_declarator" and field == "value":
        return Use.READ if _copies(parent, reading) else Use.UNKNOWN
    if kind == "initializer_list":
        return _in_list(parent, reading)
    if kind == "return_statement":
        return Use.READ if _returns_value(parent, reading) else Use.UNKNOWN
    if kind == "gnu_asm_input_operand":
        return Use.READ
    if kind == "gnu_asm_output_operand":
        constraint = parent.child_by_field_name("constraint")
        return Use.WRITE if constraint is not None and "=" in reading.text(constraint) else Use.UPDATE
    if kind == "lambda_capture_initializer":
        return Use.UNKNOWN if reading.text(parent).lstrip().startswith("&") else Use.READ
    return Use.UNKNOWN


def _assigned_on(assignment: Node, reading: Reading) -> Node | None:
    """The assignment around one, if it gives the value on to a register of the same array: `d[0] = d[1] = 0.f`."""
    outer, left = assignment.parent, assignment.child_by_field_name("left")
    if outer is None or outer.type != "assignment_expression" or _field(outer, assignment) != "right":
        return None
    operator, target = outer.child_by_field_name("operator"), outer.child_by_field_name("left")
    if left is None or target is None or operator is None or reading.text(operator) != "=":
        return None
    same = left.type == target.type == "subscript_expression" and _array(left, reading) == _array(target, reading)
    return outer if same else None


def _array(element: Node, reading: Reading) -> tuple[str, int]:
    """The text of what a chain of subscripts stands behind, and how many they are."""
    count = 0
    while element.type == "subscript_expression" and (inner := element.child_by_field_name("argument")) is not None:
        element, count = inner, count + 1
    return reading.text(element), count


def _argument(arguments: Node, node: Node, full: bool, reading: Reading) -> Use:
    call = arguments.parent
    assert call is not None
    if call.type == "init_declarator":
        return Use.READ if full and _copies(call, reading) else Use.UNKNOWN
    callee = call.child_by_field_name("function")
    if call.type != "call_expression" or callee is None:
        return Use.UNKNOWN
    target = _target_of_cast(callee, reading)
    # `(bf16)(x)` and `bf16(x)` read like calls
    made = reading.converted(target or callee, target is not None)
    if made is not None:
        return made if full else Use.UNKNOWN
    given = [c for c in arguments.named_children if c.type != "comment"]
    return next((reading.takes(call, i, full) for i, a in enumerate(given) if a.id == node.id), Use.UNKNOWN)


def _target_of_cast(callee: Node, reading: Reading) -> Node | None:
    """The type in `static_cast<T>`."""
    name, given = callee.child_by_field_name("name"), callee.child_by_field_name("arguments")
    if callee.type != "template_function" or name is None or given is None or reading.text(name) != "static_cast":
        return None
    return given.named_children[0] if given.named_children else None


def _range(loop: Node, reading: Reading) -> Use:
    """`for (auto& x : d)`: what is done to each `x`."""
    declarator, body = loop.child_by_field_name("declarator"), loop.child_by_field_name("body")
    if declarator is None or body is None:
        return Use.UNKNOWN
    kind = loop.child_by_field_name("type")
    if declarator.type == "identifier":
        return Use.READ if reading.is_value(kind) else Use.UNKNOWN
    names = [n for n in walk(declarator) if n.type == "identifier"]
    if declarator.type != "reference_declarator" or len(names) != 1:
        return Use.UNKNOWN
    rows = any(reading.text(r) == reading.text(names[0]) for n in find(body, "for_range_loop")
               if (r := n.child_by_field_name("right")) is not None)  # fmt: skip
    return uses_in(body, reading.text(names[0]), 1 if rows else 0, "", reading)


def _in_lambda(node: Node, outer: Node) -> bool:
    current = node.parent
    while current is not None and current.id != outer.id:
        if current.type == "lambda_expression":
            return True
        current = current.parent
    return False


def _field(parent: Node, child: Node) -> str | None:
    for index, candidate in enumerate(parent.children):
        if candidate.id == child.id:
            return parent.field_name_for_child(index)
    return None


def _copies(declarator: Node, reading: Reading) -> bool:
    """Whether an initialized variable copies the register that it is made from."""
    inner, declaration = declarator.child_by_field_name("declarator"), declarator.parent
    kind = declaration.child_by_field_name("type") if declaration is not None else None
    if inner is None or kind is None or inner.type != "identifier":
        return False
    return reading.is_value(kind) or kind.type == "placeholder_type_specifier"


def _in_list(items: Node, reading: Reading) -> Use:
    """An element of a braced list: of an array or vector of numbers, or of who knows what."""
    holder: Node | None = items
    while holder is not None and holder.type == "initializer_list":
        holder = holder.parent
    if holder is not None and holder.type == "init_declarator":
        inner, declaration = holder.child_by_field_name("declarator"), holder.parent
        kind = declaration.child_by_field_name("type") if declaration is not None else None
        plain = inner is not None and inner.type in ("identifier", "array_declarator")
        indirect = ("pointer_declarator", "reference_declarator")
        plain = plain and not any(n.type in indirect for n in walk(inner or items))
        return Use.READ if plain and reading.is_value(kind) else Use.UNKNOWN
    if holder is not None and holder.type == "compound_literal_expression":
        return Use.READ if reading.is_value(holder.child_by_field_name("type")) else Use.UNKNOWN
    return Use.UNKNOWN


def _returns_value(statement: Node, reading: Reading) -> bool:
    """Whether the function or lambda around a return statement returns a number by value."""
    current = statement.parent
    while current is not None and current.type not in ("function_definition", "lambda_expression"):
        current = current.parent
    if current is None:
        return False
    declarator = current.child_by_field_name("declarator")
    if current.type == "lambda_expression":
        head = reading.text(declarator) if declarator is not None else ""
        _, arrow, trailing = head.rpartition("->")
        return not arrow or not (set("&*") & set(trailing) or "decltype" in trailing)
    kind = current.child_by_field_name("type")
    if declarator is None or declarator.type != "function_declarator" or "->" in reading.text(declarator):
        return False
    if kind is not None and kind.type == "placeholder_type_specifier":
        return "decltype" not in reading.text(kind)
    return reading.is_value(kind)
