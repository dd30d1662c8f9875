# SPDX-License-Identifier: Apache-2.0
"""Which variable an expression means or changes, and which variables pointers, references and objects lead to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import ARRAY_DECLARATORS, Function
from porter.model.kernels import SHARED
from porter.model.program import Program
from porter.model.scopes import Variable
from porter.model.scopes import resolve as resolve_in

_AROUND = ("parenthesized_expression", "subscript_expression", "field_expression")
_LISTS = ("initializer_list", "argument_list")
OF_CLASS = ("type_identifier", "template_type", "qualified_identifier")

Key = tuple[int, int, str]
"""A variable, or a name that is none in sight of its function."""


def innermost(function: Function, node: Node) -> Function:
    """The lambda in whose body a node of a function stands, the function itself if there is none."""
    if not function.lambdas:
        return function
    above, current = [], node.parent
    while current is not None and current.id != function.node.id:
        if current.type == "lambda_expression":
            above.append(current)
        current = current.parent
    for outer in reversed(above):
        inner = function.lambdas.get(outer.id)
        if inner is None or not inner.body.start_byte <= node.start_byte < inner.body.end_byte:
            break
        function = inner
    return function


def resolve(function: Function, node: Node, name: str) -> Variable | None:
    """The declaration that a name means at a node of a function, which may stand in a lambda of it."""
    return resolve_in(innermost(function, node), node, name)


def is_own_array(function: Function, node: Node) -> bool:
    """Whether a name is that of an array which each thread has for itself."""
    variable = named(function, node) if node.type == "identifier" else None
    return variable is not None and is_local(variable) and holds(variable)


def named(function: Function, node: Node) -> Variable | None:
    return resolve(function, node, function.text(node))


def first(function: Function, node: Node) -> Variable | None:
    """The thread's own variable that an expression begins with."""
    name = next(find(node, "identifier"), None)
    variable = named(function, name) if name is not None else None
    return variable if variable is not None and is_local(variable) else None


def cast(function: Function, target: Node) -> Iterator[Variable]:
    """The thread's own variables that are written through a cast, or through what a function or method returns."""
    parts = [e for e in find(target, "pointer_expression") if function.text(e).startswith("&")]
    for call in find(target, "call_expression"):
        parts += call.children_by_field_name("arguments")
        callee = call.child_by_field_name("function")
        holder = callee.child_by_field_name("argument") if callee is not None else None
        parts += [holder] if holder is not None else []
    for part in parts:
        variable = first(function, part)
        if variable is not None:
            yield variable


def own_declarator(variable: Variable) -> Node | None:
    """What names a variable that is not shared by threads, None of one that is, or whose declaration is not known."""
    declaration, declarator = variable.declaration, variable.declarator
    if declaration is None or declarator is None or SHARED in variable.function.text(declaration):
        return None
    return declarator.child_by_field_name("declarator") if declarator.type == "init_declarator" else declarator


def is_local(variable: Variable) -> bool:
    """Whether a variable is each thread's own object, not one that threads share or what leads to one."""
    own = own_declarator(variable)
    return own is not None and own.type not in ("pointer_declarator", "reference_declarator")


def is_callee(name: Node) -> bool:
    """Whether a name is that of what a call calls."""
    above = name.parent
    while above is not None and above.type in ("qualified_identifier", "template_function"):
        name, above = above, above.parent
    callee = above.child_by_field_name("function") if above is not None and above.type == "call_expression" else None
    return callee is not None and callee.id == name.id


def roots(function: Function, node: Node) -> Iterator[Node]:
    """The names of what an expression may be a part of, or the same as: both arms of a choice, what a function that
    returns a reference is handed, the object of a method."""
    if node.type in ("identifier", "type_identifier"):
        yield node
    elif node.type == "conditional_expression":
        for arm in ("consequence", "alternative"):
            inner = node.child_by_field_name(arm)
            yield from roots(function, inner) if inner is not None else ()
    elif node.type == "call_expression":
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if callee is not None and callee.type == "field_expression":
            yield from roots(function, callee)
        for argument in arguments.named_children if arguments is not None else ():
            yield from roots(function, argument)
    elif node.type == "comma_expression":
        yield from roots(function, node.named_children[-1])
    elif node.type in _LISTS or (node.type == "parenthesized_expression"):
        for inner in node.named_children:
            yield from roots(function, inner)
    elif node.type == "assignment_expression":
        left = node.child_by_field_name("left")
        yield from roots(function, left) if left is not None else ()
    else:
        inner = node.child_by_field_name("argument") or node.child_by_field_name("value")
        yield from roots(function, inner) if inner is not None else ()


class Aliases:
    """The variables of a thread's own that those of one function lead to, by their names: pointers, references,
    elements of a range, captures with a name of their own, and objects with references for members."""

    def __init__(self, program: Program, function: Function) -> None:
        self.program = program
        self._direct: dict[Key, dict[Key, Variable]] = {}
        for node in find(
            function.body,
            "init_declarator",
            "assignment_expression",
            "for_range_loop",
            "lambda_capture_initializer",
            "reference_declarator",
        ):
            self._read(function, node)

    def of(self, variable: Key) -> list[Key]:
        """The thread's own objects that a variable may lead to, through others as well."""
        found: dict[Key, Variable] = {}
        work = [variable]
        while work:
            for key, one in self._direct.get(work.pop(), {}).items():
                if key not in found and key != variable:
                    found[key] = one
                    work.append(key)
        return [key for key, one in found.items() if is_local(one)]

    def _read(self, function: Function, node: Node) -> None:
        if node.type == "reference_declarator":
            # `int& q(n);` reads as the declaration of a function
            inner = next((c for c in node.named_children if c.type == "function_declarator"), None)
            parameters = inner.child_by_field_name("parameters") if inner is not None else None
            name = inner.child_by_field_name("declarator") if inner is not None else None
            if parameters is not None and name is not None:
                led = [n for p in parameters.named_children for n in find(p, "type_identifier")]
                self._leads((function.node.id, node.start_byte, function.text(name)), function, led)
            return
        target = node.child_by_field_name("declarator") or node.child_by_field_name("left")
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        if target is None or value is None:
            return
        led = [n for e in find(value, "pointer_expression") if function.text(e).startswith("&")
               if (n := next(find(e, "identifier"), None)) is not None]  # fmt: skip
        bound = target.type == "reference_declarator" or node.type == "lambda_capture_initializer"
        if bound or is_own_array(function, value) or self._refers(function, node, value):
            led += list(roots(function, value))
        else:
            # a copy of a pointer leads where it leads
            led += [n for n in _terms(value) if (v := named(function, n)) is not None and v.is_reference]
        parts = list(find(target, "identifier")) if _binds(target) else [target]
        for part in parts:
            key = variable_of(function, part)
            if key is None:
                continue
            if node.type in ("init_declarator", "for_range_loop"):
                at = innermost(function, node)
                self._leads((at.node.id, node.start_byte, key[2]), function, led)
            if node.type != "init_declarator":
                self._leads(key, function, led)
            if _binds(target) or node.type == "for_range_loop":
                self._leads((0, 0, key[2]), function, led)

    def _leads(self, key: Key, function: Function, led: list[Node]) -> None:
        for node in led:
            variable = named(function, node)
            if variable is not None and variable.key != key:
                self._direct.setdefault(key, {})[variable.key] = variable

    def _refers(self, function: Function, node: Node, value: Node) -> bool:
        """Whether what is made of a list is an object whose class has references or pointers for members."""
        if value.type == "compound_literal_expression":
            kind = value.child_by_field_name("type")
        else:
            above = node.parent
            kind = above.child_by_field_name("type") if above is not None and value.type in _LISTS else None
        if kind is None or kind.type not in OF_CLASS:
            return False
        return function.text(kind).split("<")[0].rsplit("::", 1)[-1].strip() in self._referring

    @cached_property
    def _referring(self) -> set[str]:
        """Names of classes of the sources with a member that leads to something else."""
        found = set()
        for file in self.program.sources.files.values():
            for node in find(file.root, "struct_specifier", "class_specifier"):
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                members = find(body, "field_declaration") if body is not None else ()
                if name is not None and any(next(find(m, "reference_declarator"), None) is not None or
                                            next(find(m, "pointer_declarator"), None) is not None
                                            for m in members):  # fmt: skip
                    found.add(file.source[name.start_byte : name.end_byte].decode("utf-8", "replace"))
        return found


def _terms(value: Node) -> Iterator[Node]:
    """The names that are terms of a sum."""
    if value.type == "identifier":
        yield value
    elif value.type in ("binary_expression", "parenthesized_expression"):
        for inner in value.named_children:
            yield from _terms(inner)


def _binds(target: Node) -> bool:
    return next(find(target, "structured_binding_declarator"), None) is not None


def parts(target: Node) -> Iterator[Node]:
    """What an assignment or declaration may set: the arms of `(a ? b : c)`, the names of `[a, b]`."""
    inner = target
    while inner.type == "parenthesized_expression" and inner.named_children:
        inner = inner.named_children[0]
    if inner.type == "conditional_expression":
        for name in ("consequence", "alternative"):
            arm = inner.child_by_field_name(name)
            if arm is not None:
                yield from parts(arm)
    elif inner.type == "comma_expression":
        yield inner.named_children[-1]
    elif next(find(inner, "structured_binding_declarator"), None) is not None:
        yield from find(inner, "identifier")
    else:
        yield target


def root(function: Function, target: Node) -> Key:
    """The name at the beginning of what is set."""
    name = next(find(target, "identifier"), None)
    return key_of(function, name) if name is not None else (0, 0, "")


def key_of(function: Function, node: Node, name: str = "") -> Key:
    """The variable that a name means."""
    name = name or function.text(node)
    variable = resolve(function, node, name)
    return variable.key if variable is not None else (0, 0, name)


def variable_of(function: Function, target: Node) -> Key | None:
    """The variable that an assignment or declaration changes itself; none where it is what a pointer leads to."""
    while target.type in (*_AROUND, "reference_declarator", "pointer_declarator", *ARRAY_DECLARATORS):
        through = target.type == "subscript_expression" or (
            target.type == "field_expression" and "->" in function.text(target)
        )
        inner = target.child_by_field_name("argument") or target.child_by_field_name("declarator")
        inner = inner or next((c for c in target.named_children if c.type != "comment"), None)
        if inner is None:
            return None
        if through and inner.type == "identifier" and not holds(resolve(function, inner, function.text(inner))):
            return None
        target = inner
    return key_of(function, target) if target.type == "identifier" else None


def holds(variable: Variable | None) -> bool:
    """Whether a variable is an array of the thread's own or an object, not a pointer."""
    node = variable.declarator if variable is not None else None
    if variable is None or node is None or any(n.type in ARRAY_DECLARATORS for n in walk(node)):
        return True
    kind = variable.declaration.child_by_field_name("type") if variable.declaration is not None else None
    pointer = any(n.type in ("pointer_declarator", "reference_declarator") for n in walk(node))
    return kind is not None and kind.type in OF_CLASS and not pointer
