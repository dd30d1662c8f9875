# SPDX-License-Identifier: Apache-2.0
"""Where the count of a setmaxnreg is written: in its text, or as what a template is named with."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.functions import Call, Function, Style
from porter.model.pipeline.operations import Operation
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.passes.native.sites import Place, path_of
from porter.ptx.ast import Imm

_IN_TEXT = re.compile(r"setmaxnreg\s*\.\s*(?:inc|dec)\s*\.\s*sync\s*\.\s*aligned\s*\.\s*u32\s+(\d+)")
_NAMES = ("identifier", "type_identifier")


def written_count(program: Program, operation: Operation) -> tuple[Place, Span, int]:
    """Its place, and how many registers a thread has behind it.

    Raises:
        Left: it is no number there.
    """
    site = operation.sites[-1]
    frame, place = site.frame, Place(site.frame.function, site.node)
    left = path_of(operation)[0].left("the count of a setmaxnreg as a number in the kernel")
    found = site.only("setmaxnreg")
    operand = found.operands[0] if found is not None else None
    if isinstance(operand, Imm):
        text = place.function.text(place.node)
        matches = list(_IN_TEXT.finditer(text))
        if len(matches) != 1 or place.function.style is Style.MACRO:
            raise left
        start = place.span.start + len(text[: matches[0].start(1)].encode())
        return place, Span(start, start + len(matches[0][1])), int(matches[0][1])
    node = site.expression(operand)
    while node is not None and frame.call is not None and frame.outer is not None:
        given = _argument(frame.function, frame.call, frame.function.text(node))
        if given is None:
            break
        frame, node = frame.outer, given
    function = frame.function
    if node is not None and node.type in _NAMES:
        node = _constant(function, node) or (node if frame is not site.frame else None)
    value = program.constants_in(function).evaluate(function.text(node)) if node is not None else None
    if node is None or value is None or function.style is Style.MACRO:
        raise left
    return Place(function, node), function.span(node), value


def _argument(function: Function, call: Call, name: str) -> Node | None:
    """What a call hands for a parameter of a function's template."""
    if name not in function.template_params:
        return None
    called = call.node.child_by_field_name("function")
    lists = [n for n in walk(called) if n.type == "template_argument_list"] if called is not None else []
    given = [n for n in lists[-1].named_children if n.type != "comment"] if lists else []
    at = function.template_params.index(name)
    node = given[at] if at < len(given) else None
    while node is not None and node.type == "type_descriptor" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


def _constant(function: Function, node: Node) -> Node | None:
    """The value that a constant of the function is declared with, if it is used here alone."""
    name = function.text(node)
    variable = resolve(function, node, name)
    if variable is None or variable.declaration is None or variable.declarator is None:
        return None
    end = variable.declarator.end_byte
    uses = [n for n in walk(function.body) if n.type in _NAMES and function.text(n) == name and n.start_byte > end
            and (meant := resolve(function, n, name)) is not None and meant.key == variable.key]  # fmt: skip
    is_constant = re.search(r"\bconst(expr)?\b", function.text(variable.declaration))
    return variable.declarator.child_by_field_name("value") if is_constant and len(uses) == 1 else None
