# SPDX-License-Identifier: Apache-2.0
"""What the parameters of a kernel's template stand for, where its sources name one instantiation alone."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.model.functions import Function
from porter.model.program import Program


def only_instantiation(program: Program, kernel: Function) -> dict[str, int]:
    """The numbers that parameters of the template have wherever the functions of the sources name it with arguments;
    empty if they do not, and without those that are no number or are others elsewhere."""
    found: dict[str, set[int | None]] = {}
    seen = 0
    for function in program.functions:
        for node in function.own_nodes("template_function"):
            named, arguments = node.child_by_field_name("name"), node.child_by_field_name("arguments")
            if named is None or arguments is None or function.text(named) != kernel.name:
                continue
            seen += 1
            given = [n for n in arguments.named_children if n.type != "comment"]
            for index, name in enumerate(kernel.template_params):
                number = _number(program, function, given[index]) if index < len(given) else None
                found.setdefault(name, set()).add(number)
    if seen != _written(program, kernel) or any(kernel.name in program.macros.words(m) for m in program.macros.by_name):
        # a macro, or what stands outside of functions, may name another one
        return {}
    known = {name: numbers.pop() for name, numbers in found.items() if len(numbers) == 1}
    return {name: number for name, number in known.items() if number is not None}


def _written(program: Program, kernel: Function) -> int:
    """How often the name stands with arguments of a template in the text."""
    name = re.compile(rb"\b" + re.escape(kernel.name.encode()) + rb"\s*<(?!<)")
    return sum(len(name.findall(f.lexed.plain)) for f in program.sources.files.values())


def _number(program: Program, function: Function, argument: Node) -> int | None:
    return program.constants_in(function).evaluate(function.text(argument))
