# SPDX-License-Identifier: Apache-2.0
"""Which of the statements that change a local variable a thread has passed when it comes to a place, where the text
alone says so."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.cuda import above, inside
from porter.model.functions import Function, Style
from porter.model.scopes import LOOPS

_WITHIN = ("expression_statement", "compound_statement", "else_clause", "if_statement")
"""What a statement may stand in so that who comes there runs it once."""


def reaching(function: Function, changes: list[Node], place: Node) -> list[Node] | None:
    """Those of the changes, statements of `function`, that each thread at `place` has passed, once and in this order;
    it has passed none of the others since it came to the function. None where that is not known."""
    if function.style is Style.MACRO or any(True for _ in function.own_nodes("goto_statement", "labeled_statement")):
        return None
    if not inside(function.body, place):
        return None
    found = []
    for change in sorted(changes, key=lambda n: n.start_byte):
        passed = _passed(function, change, place)
        if passed is None:
            return None
        if passed:
            found.append(change)
    return found


def _passed(function: Function, change: Node, place: Node) -> bool | None:
    """Whether who comes to a place has passed a change: all of them, none, or nobody knows."""
    before = change.end_byte <= place.start_byte
    inner = change
    for around in above(change, function.body):
        holds = inside(around, place)
        if around.type in LOOPS or around.type not in _WITHIN:
            # a loop that has begun may have come to it in an earlier turn, one that comes later has not
            return False if not before and not holds else None
        if around.type == "if_statement":
            if holds and not inside(inner, place):
                # the condition, or the other arm
                return False
            if not holds:
                return None if before else False
        inner = around
    return before
