# SPDX-License-Identifier: Apache-2.0
"""Loops that count up: `for (int i = first; i < end; i += step)`."""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function

_SIGNS = ("<", "<=", "!=")


@dataclass(frozen=True)
class Counted:
    """`name` is the variable of a loop, `first` what it begins with, `sign` and `end` are what it is compared with,
    `step` is the text of how much it grows."""

    name: str
    first: Node
    sign: str
    end: Node
    step: str


def counted(function: Function, loop: Node) -> Counted | None:
    """A loop that counts up by one variable; None of another one."""
    begin, condition, update = (loop.child_by_field_name(n) for n in ("initializer", "condition", "update"))
    if loop.type != "for_statement" or begin is None or condition is None or update is None:
        return None
    given = [begin] if begin.type == "assignment_expression" else list(find(begin, "init_declarator"))
    if len(given) != 1 or condition.type != "binary_expression":
        return None
    held = given[0].child_by_field_name("declarator") or given[0].child_by_field_name("left")
    first = given[0].child_by_field_name("value") or given[0].child_by_field_name("right")
    left, end = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    if held is None or held.type != "identifier" or first is None or left is None or end is None:
        return None
    name, sign, text = function.text(held), function.text(condition.children[1]), "".join(function.text(update).split())
    by = "1" if text in (f"++{name}", f"{name}++") else text.removeprefix(f"{name}+=")
    if function.text(left) != name or sign not in _SIGNS or by == text:
        return None
    return Counted(name, first, sign, end, by)


def counted_from_zero(function: Function, loop: Node) -> Counted | None:
    """The same of a loop that counts from 0 on, one by one, up to its end and without it."""
    found = counted(function, loop)
    zero = found is not None and function.text(found.first).rstrip("uU") == "0"
    return found if found is not None and zero and found.sign != "<=" and found.step == "1" else None


def turns_inside(function: Function, loop: Node, name: str) -> bool:
    """Whether the body of a loop gives its variable another value."""
    body = loop.child_by_field_name("body")
    return body is None or any(
        (target := n.child_by_field_name("left") or n.child_by_field_name("argument")) is not None
        and function.text(target) == name
        for n in find(body, "assignment_expression", "update_expression")
    )
