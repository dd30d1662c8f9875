# SPDX-License-Identifier: Apache-2.0
"""Types of expressions at another place: variables that are not declared there are written as what they are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.lang.text import Span, as_bytes, as_text
from porter.model.functions import Call, ClassScope, Function, Style, outermost
from porter.model.program import Program
from porter.model.scopes import Variable, resolve
from porter.model.tiled.tensors import initializer
from porter.passes.tiled.text import cpp
from porter.passes.widths import Spot, macro_holds

_LONGEST = 2000
"""Characters of a type that a reader is asked to read. Public kernels have up to some 1500."""
_NEAR = 80
"""Bytes in front of a name that are looked at."""
_TYPENAME = re.compile(rb"\btypename\s+\Z")
_QUALIFIED = re.compile(rb"::\s*(?:template\s+)?\Z")


class Unnamed(Exception):
    """An expression that cannot be written at another place. The text says why, `at` which it is."""

    def __init__(self, why: str, at: tuple[Function, Node] | None = None) -> None:
        super().__init__(why)
        self.at = at


@dataclass(eq=False)
class Place:
    """Where expressions are written anew: in front of `at`, a statement of a function, or beside the function in the
    scope that declares it. There, types stand for its parameters: `taken` are those, and parameters of its template,
    that are asked for, with their declarations by name."""

    program: Program = field(repr=False)
    function: Function
    at: Node | None = field(default=None, repr=False)
    taken: dict[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    """Names that macros in the function may declare, which stand nowhere in the sources."""

    def inside(self, function: Function) -> bool:
        """Whether it is in a function, or in the one around a lambda."""
        return self.at is not None and self.function is outermost(function)


def template_parameters(function: Function) -> dict[str, str]:
    """Declarations of the parameters of a function's template, without defaults, by name and in order."""
    around = function.node.parent
    found = parameters_of(function, around) if around is not None else {}
    # the template around a method that is defined outside of its class may be the class's
    return {name: text for name, text in found.items() if name in function.template_params}


def parameters_of(function: Function, around: Node) -> dict[str, str]:
    """The same of a template that a function stands in."""
    head = around.child_by_field_name("parameters")
    if around.type != "template_declaration" or head is None:
        return {}
    found: dict[str, str] = {}
    for node in head.named_children:
        text = function.file.source[node.start_byte : node.end_byte].decode("utf-8", "replace")
        text = text.split("=", 1)[0].strip()
        name = re.search(r"(\w+)\s*\Z", text)
        if node.type != "comment" and name is not None:
            found[name[1]] = text
    return found


def spelled(function: Function, node: Node, at: Place) -> str:
    """The text of an expression, for its type, with names that are declared at a place.

    Raises:
        Unnamed: it depends on something that has no name there.
    """
    try:
        text = _spelled(function, node, at, 0)
        if len(text) > _LONGEST:
            raise Unnamed(f"the type of `{function.text(node)}` is too long to be written there")
    except Unnamed as reason:
        reason.at = reason.at or (function, node)
        raise
    return text


def written(function: Function, node: Node) -> Span:
    """The span of a type or an expression, with the `typename` in front of it that the tree does not have."""
    span = function.span(node)
    before = _TYPENAME.search(function.file.source, max(0, span.start - _NEAR), span.start)
    return Span(before.start(), span.end) if before is not None else span


def _spelled(function: Function, node: Node, at: Place, depth: int) -> str:
    if depth > 8 or any(n.type == "lambda_expression" for n in walk(node)):
        raise Unnamed(f"`{function.text(node)}` is too deep")
    whole = written(function, node)
    raw = as_bytes(function.file.text(whole))
    start = node.start_byte - (function.span(node).start - whole.start)
    pieces: list[bytes] = []
    end = 0
    for name in _names(function, node):
        text = function.text(name)
        if text in at.program.macros.by_name:
            _require_macro(function, name, at)
        if name.type == "identifier":
            new = _value(function, name, text, at, depth) if _is_replaceable(function, name, node, at) else text
        else:
            new = _type(function, name, text, at, depth)
        if new != text:
            pieces += [raw[end : name.start_byte - start], as_bytes(new)]
            end = name.end_byte - start
    return " ".join(as_text(b"".join(pieces) + raw[end:]).split())


def _require_macro(function: Function, name: Node, at: Place) -> None:
    """Raises Unnamed if a macro is not the same at a place, or its text names what is not declared there."""
    macros, text = at.program.macros, function.text(name)
    if not macro_holds(at.program, text, Spot(at.function, at.at or at.function.node)):
        raise Unnamed(f"macro `{text}` is defined, or becomes another one, further down")
    for word in macros.words(text):
        variable = resolve(function, name, word)
        if variable is not None and not _is_seen(variable, at):
            raise Unnamed(f"`{word}` in macro `{text}` is declared further down")


def _names(function: Function, node: Node) -> Iterator[Node]:
    """Names that are looked up where they stand: those behind `::` are not."""
    for name in walk(node):
        if name.type in ("identifier", "type_identifier", "namespace_identifier"):
            start = function.span(name).start
            if not _QUALIFIED.search(function.file.source, max(0, start - _NEAR), start):
                yield name


def _is_replaceable(function: Function, name: Node, node: Node, at: Place) -> bool:
    """Whether an expression of its type may stand for a variable: not for a constant among the arguments of a template,
    nor for what `decltype` asks the declared type of. Raises Unnamed if the variable has no name at `at` either."""
    inner, current = name, name.parent
    while current is not None and inner.id != node.id:
        is_declared_type = current.type == "decltype" and inner.id == name.id
        if (current.type == "template_argument_list" and not _is_constant(function, name)) or is_declared_type:
            _require_seen(function, name, at)
            return False
        if current.type in ("decltype", "sizeof_expression"):
            return True
        inner, current = current, current.parent
    return True


def _is_constant(function: Function, name: Node) -> bool:
    """Whether a name is that of a constant of the function with its value."""
    variable = resolve(function, name, function.text(name))
    declaration = variable.declaration if variable is not None else None
    if variable is None or declaration is None or initializer(variable) is None:
        return False
    return any(variable.function.text(n) == "constexpr" for n in declaration.children)


def _require_seen(function: Function, name: Node, at: Place) -> None:
    variable = resolve(function, name, function.text(name))
    if variable is not None and not _is_seen(variable, at):
        raise Unnamed(f"`{function.text(name)}` is declared further down")


def _value(function: Function, name: Node, text: str, at: Place, depth: int) -> str:
    variable = resolve(function, name, text)
    if variable is None:
        return _outside(function, text, at, depth)
    if _is_seen(variable, at):
        return text
    value, declaration = initializer(variable), variable.declaration
    if variable.param is not None or declaration is None:
        if at.at is not None or variable.function is not at.function:
            raise Unnamed(f"`{text}` is a parameter of `{variable.function.name}`")
        at.taken[text] = f"class {text}_type"
        return cpp("any_object", type=f"{text}_type")
    kind = declaration.child_by_field_name("type")
    if kind is None and value is None:
        raise Unnamed(f"`{text}` has no type that could be written there")
    if value is not None and kind is not None and _is_constant(function, name):
        shown = _spelled(variable.function, value, at, depth + 1)
        if kind.type == "placeholder_type_specifier":
            return f"({shown})"
        return f"static_cast<{_spelled(variable.function, kind, at, depth + 1)}>({shown})"
    # the name of a class template may be in place of a type: its arguments follow from the value
    deduced = kind is None or kind.type in ("placeholder_type_specifier", "type_identifier")
    if kind is not None and (value is None or not deduced or _alias(variable.function, kind) is not None):
        return cpp("any_object", type=_spelled(variable.function, kind, at, depth + 1))
    assert value is not None
    shown = _spelled(variable.function, value, at, depth + 1)
    if value.type in ("initializer_list", "argument_list"):
        if kind is None or kind.type != "type_identifier":
            raise Unnamed(f"the type of `{text}` follows from a list")
        shown = _spelled(variable.function, kind, at, depth + 1) + shown
    return f"({shown})"


def _is_seen(variable: Variable, at: Place) -> bool:
    """Whether a variable is declared in front of a statement, in a block around it."""
    meant = resolve(at.function, at.at, variable.name) if at.at is not None else None
    if meant is not None and meant.key != variable.key:
        return False
    if variable.declaration is None:
        return variable.param is not None and at.inside(variable.function)
    block = variable.declaration.parent
    current = at.at
    while current is not None and at.at is not None:
        if block is not None and current.id == block.id:
            return variable.declaration.start_byte < at.at.start_byte
        current = current.parent
    return False


def _params(scope: ClassScope) -> set[str]:
    return {p.name for p in scope.params}


def _alias(function: Function, name: Node) -> tuple[Function, Node, Node] | None:
    """The innermost alias of a type that a function, or one around a lambda, declares under a name: the function, the
    declaration, and what it means."""
    text, found = function.text(name), None
    current: Function | None = function
    while current is not None and found is None:
        for declaration in (*current.own_nodes("alias_declaration"), *current.own_nodes("type_definition")):
            field, block = "name" if declaration.type == "alias_declaration" else "declarator", declaration.parent
            declared, meant = declaration.child_by_field_name(field), declaration.child_by_field_name("type")
            if declared is None or meant is None or block is None or current.text(declared) != text:
                continue
            # its name means something else in the declaration itself
            if declaration.end_byte <= name.start_byte < block.end_byte and (
                found is None or found[1].start_byte < declaration.start_byte
            ):
                found = current, declaration, meant
        current = current.parent if current.style is Style.LAMBDA else None
    return found


def _type(function: Function, name: Node, text: str, at: Place, depth: int) -> str:
    """The name of a type, or what it stands for if a function declares it and it is not seen at `at`. Raises Unnamed if
    only the function or class around it has it."""
    if _is_constant(function, name):
        # the grammar takes a constant among template arguments for a type
        return _value(function, name, text, at, depth)
    _require_seen(function, name, at)
    alias = _alias(function, name)
    if alias is not None:
        holder, declaration, meant = alias
        block = declaration.parent
        in_body = block is not None and block.id == holder.body.id
        if in_body and at.at is not None and at.inside(holder) and declaration.start_byte < at.at.start_byte:
            return text
        shown = _spelled(holder, meant, at, depth + 1)
        return shown.removeprefix("typename ") if name.type == "namespace_identifier" else shown
    return _outside(function, text, at, depth)


def _outside(function: Function, text: str, at: Place, depth: int) -> str:
    """A name that no variable and no alias of a function has. Raises Unnamed if only the function or class around it
    has it."""
    if at.inside(function):
        return text
    if text in at.hidden:
        raise Unnamed(f"`{text}` is declared by a macro")
    outer = outermost(function)
    if text in outer.template_params and outer is at.function:
        declared = template_parameters(outer).get(text)
        if declared is None:
            raise Unnamed(f"template parameter `{text}` of `{outer.name}` has no declaration that could be repeated")
        at.taken[text] = declared
        return text
    scope = outer.owner_class
    own = scope is not None and (text in scope.aliases or text in scope.classes or text in _params(scope))
    if (own and scope is not at.function.owner_class) or text in (*outer.template_params, *function.template_params):
        handed = _handed_in(outer, text, at, depth) if function is outer and not own else None
        if handed is not None:
            return handed
        raise Unnamed(f"type `{text}` is one of `{outer.name}` alone")
    return text


def _handed_in(function: Function, text: str, at: Place, depth: int) -> str | None:
    """What those who come to a function from a place give for a parameter of its template; None if they do not say it,
    or not all the same. Raises Unnamed."""
    names = list(template_parameters(function))
    if text not in names:
        return None
    index, found = names.index(text), set[str]()
    for call in at.program.callers(function):
        if id(at.function) in at.program.reaching([call.caller]):
            given = [n for n in arguments_given(call) if n.type != "comment"]
            if index >= len(given):
                return None
            found.add(_spelled(call.caller, given[index], at, depth + 1))
    return found.pop() if len(found) == 1 else None


def arguments_given(call: Call) -> list[Node]:
    """Template arguments that a call has."""
    callee = call.node.child_by_field_name("function")
    while callee is not None and callee.type != "template_argument_list":
        arguments = callee.child_by_field_name("arguments") if callee.type.startswith("template") else None
        if arguments is not None:
            return arguments.named_children
        inner = callee.child_by_field_name("name") or callee.child_by_field_name("field")
        if inner is None and callee.type == "dependent_name" and callee.named_children:
            inner = callee.named_children[-1]
        callee = inner
    return []
