# SPDX-License-Identifier: Apache-2.0
"""Variables of a thread's own that statements write to without naming them on the left of an assignment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function, Style
from porter.model.names.resolver import CALL_OPERATOR
from porter.model.program import Program
from porter.passes.full_rate.leading import (
    OF_CLASS,
    Aliases,
    Key,
    first,
    is_local,
    key_of,
    named,
    root,
    roots,
)

_CHANGED = re.compile(
    r"(?<![\w.>])([A-Za-z_]\w*)(?:\s*\[[^\]]*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
_OPERATOR = re.compile(r"operator\s*([^\s\w(]+)")

Written = tuple[Key, Node]
"""A variable, and the node that tells whether what is written may be a thread's own."""


class Writing:
    """Asks about the functions of one program. `keeps` tells of a call of a library that it keeps nothing that it is
    handed; None where no library is known."""

    def __init__(self, program: Program, keeps: Callable[[Function, Node], bool] | None) -> None:
        self.program, self.keeps = program, keeps
        found = {m[1] for f in program.functions if (m := _OPERATOR.match(f.name))}
        self._operators = found - {"()", "[]", "==", "!=", "<", ">", "<=", ">="}

    def written(self, function: Function, aliases: Aliases) -> Iterator[Written]:
        """What else a function's statements write to."""
        yield from self._by_objects(function, aliases)
        yield from self._by_constructors(function)
        yield from self._by_macros(function)
        for node in find(function.body, "new_expression"):
            placement = node.child_by_field_name("placement")
            variable = first(function, placement) if placement is not None else None
            if variable is not None:
                yield variable.key, node
        for node in find(function.body, "lambda_capture_initializer"):
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is not None and right is not None:
                yield (0, 0, function.text(left)), right

    def _by_objects(self, function: Function, aliases: Aliases) -> Iterator[Written]:
        """Objects whose method, call operator or other operator is handed something."""
        for node in find(function.body, "call_expression"):
            callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            if callee is None or arguments is None or (self.keeps is not None and self.keeps(function, node)):
                continue
            if callee.type == "field_expression":
                for name in roots(function, callee):
                    variable = named(function, name)
                    if variable is not None and is_local(variable):
                        yield variable.key, arguments
                    yield from ((led, arguments) for led in aliases.of(key_of(function, name)))
            elif callee.type == "identifier" and self._is_object(function, callee):
                yield key_of(function, callee), arguments
        for node in find(function.body, "binary_expression") if self._operators else ():
            left = node.child_by_field_name("left")
            if left is not None and function.text(node.children[1]) in self._operators:
                variable = first(function, left)
                if variable is not None:
                    yield variable.key, node
                yield from ((led, node) for led in aliases.of(root(function, left)))

    def _is_object(self, function: Function, name: Node) -> bool:
        """Whether what is called is a variable of the thread's own, other than a lambda. Of a library's objects, its
        calls are known."""
        variable = named(function, name)
        if variable is None or not is_local(variable) or variable.declarator is None:
            return False
        value = variable.declarator.child_by_field_name("value")
        if value is not None and value.type == "lambda_expression":
            return False
        kind = variable.declaration.child_by_field_name("type") if variable.declaration is not None else None
        return self.keeps is None or (kind is not None and _last_name(function, kind) in self._called)

    @cached_property
    def _called(self) -> set[str]:
        """Classes of the sources with a call operator."""
        return {f.class_name.rsplit("::", 1)[-1] for f in self.program.functions if f.name == CALL_OPERATOR}

    def _by_constructors(self, function: Function) -> Iterator[Written]:
        """What constructors are handed by reference or by its address, to write to it."""
        for node in find(function.body, "declaration", "compound_literal_expression"):
            kind = node.child_by_field_name("type")
            if kind is None or kind.type not in OF_CLASS:
                continue
            name = _last_name(function, kind)
            makers = [f for f in self.program.functions if f.style is Style.METHOD and f.name == name]
            for handed in _lists(node) if makers else ():
                for index, argument in enumerate(c for c in handed.named_children if c.type != "comment"):
                    if any(_may_write(f, index) for f in makers):
                        names = [argument] if handed.type != "parameter_list" else find(argument, "type_identifier")
                        for identifier in (r for n in names for r in roots(function, n)):
                            variable = named(function, identifier)
                            if variable is not None and is_local(variable):
                                yield variable.key, node

    def _by_macros(self, function: Function) -> Iterator[Written]:
        """What the text of a macro changes by its name."""
        macros = self.program.macros
        for node in find(function.body, "identifier", "type_identifier") if macros.by_name else ():
            name = function.text(node)
            if name not in macros.by_name:
                continue
            params = {p for m in macros.by_name[name] for p in m.params or ()}
            above = node.parent
            whole = above if above is not None and above.type == "call_expression" else node
            for match in _CHANGED.finditer(macros.text(name)):
                changed = match[1] or match[2]
                if changed not in params:
                    yield key_of(function, node, changed), whole


def _lists(node: Node) -> Iterator[Node]:
    """What a declaration, or an object without a name, hands to constructors."""
    if node.type == "compound_literal_expression":
        value = node.child_by_field_name("value")
        yield from [value] if value is not None else []
        return
    for declarator in node.children_by_field_name("declarator"):
        value = declarator.child_by_field_name("value") or declarator.child_by_field_name("parameters")
        if value is not None and value.type in ("argument_list", "initializer_list", "parameter_list"):
            yield value


def _may_write(maker: Function, index: int) -> bool:
    """Whether a constructor may write to, or through, what it is handed."""
    node = maker.params[index].node if index < len(maker.params) else None
    text = maker.text(node) if node is not None else ""
    return any(sign in text for sign in "&*[") and re.search(r"\bconst\b[^*&]*[*&]", text) is None


def _last_name(function: Function, kind: Node) -> str:
    return function.text(kind).split("<")[0].rsplit("::", 1)[-1].strip()
