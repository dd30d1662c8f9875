# SPDX-License-Identifier: Apache-2.0
"""Functions of a set of CUDA sources: kernels, device functions, methods, lambdas and statement macros."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tree_sitter import Node

from porter.lang.asm import AsmStatement, asm_in_macro, asm_statements, macro_definitions, string_macros
from porter.lang.cuda import CudaFile, enclosing, find, function_specifiers, walk
from porter.lang.text import Span

if TYPE_CHECKING:
    from porter.model.names.symbols import ClassScope


ARRAY_DECLARATORS = ("array_declarator", "abstract_array_declarator")


class Style(Enum):
    KERNEL = "kernel"
    DEVICE = "device function"
    METHOD = "method"
    LAMBDA = "lambda"
    MACRO = "macro"
    HOST = "host function"


@dataclass(eq=False)
class Param:
    """A parameter; `span` covers its whole declaration, or its name in a macro's list."""

    index: int
    name: str
    span: Span
    node: Node | None = field(repr=False)

    @property
    def array_extents(self) -> list[Node]:
        """The declared extents of `T d[A][B]` or `T (&d)[A][B]`, outermost first; empty for others."""
        return array_extents(self.node) if self.node is not None else []

    @property
    def extents(self) -> list[Node | None]:
        """The extents of the array that is passed, outermost first: `T d[A][B]` and `T (&d)[A][B]` have two. None
        stands for the first where the declaration leaves it out, as `T d[][B]` and `T (*d)[B]` do. Empty if the
        declaration does not tell, as for `T* d` or a class."""
        if self.node is None or not any(n.type in ARRAY_DECLARATORS for n in walk(self.node)):
            return []
        open_array = any(
            n.type in ARRAY_DECLARATORS and n.child_by_field_name("size") is None for n in _outside_values(self.node)
        )
        pointer = any(
            n.type.endswith("pointer_declarator")
            and n.parent is not None
            and n.parent.type.endswith("parenthesized_declarator")
            for n in walk(self.node)
        )
        return [*([None] if open_array or pointer else []), *self.array_extents]

    @property
    def rank(self) -> int:
        """Dimensions of the array that is passed, 0 if the declaration does not tell."""
        return len(self.extents)


@dataclass(eq=False)
class Call:
    """A call of a function or a use of a statement macro. `args` are expression nodes, in order."""

    caller: Function
    node: Node = field(repr=False)
    name: str
    name_span: Span
    template_args: tuple[str, ...]
    args: tuple[Node, ...] = field(repr=False)
    args_span: Span
    """Inside the parentheses."""


@dataclass(eq=False)
class Function:
    """One function. Node offsets plus `shift` are file offsets (non-zero only in macro bodies)."""

    file: CudaFile = field(repr=False)
    style: Style
    name: str
    name_span: Span | None
    node: Node = field(repr=False)
    body: Node = field(repr=False)
    params: list[Param] = field(default_factory=list)
    params_span: Span | None = None
    """Inside the parentheses of the parameter list; None for a lambda without one."""
    template_params: tuple[str, ...] = ()
    owner: str = ""
    """Class or struct of a method, with the namespaces around it."""
    owner_class: ClassScope | None = field(default=None, repr=False)
    """The same as a declaration; None for a class without a name, and for everything but methods."""
    variadic: bool = False
    """Whether it takes more arguments than `params`: `...`."""
    parent: Function | None = None
    """The function a lambda stands in."""
    shift: int = 0
    is_object_macro: bool = False
    """A macro without a parameter list, used by its bare name."""
    asm: list[AsmStatement] = field(default_factory=list, repr=False)
    calls: list[Call] = field(default_factory=list, repr=False)
    blocks: dict[int, dict[str, list[Node]]] = field(default_factory=dict, repr=False)
    """What `scopes` found out: by id of a block, by name, the children that declare the name."""

    def span(self, node: Node) -> Span:
        return Span(node.start_byte + self.shift, node.end_byte + self.shift)

    def text(self, node: Node) -> str:
        return self.file.text(self.span(node))

    def param(self, name: str) -> Param | None:
        return next((p for p in self.params if p.name == name), None)

    def own_nodes(self, *types: str) -> Iterator[Node]:
        """Nodes of the body outside nested lambdas, in source order."""
        return _outside_lambdas(self.body, types) if types else _all_outside_lambdas(self.body)

    @property
    def captures_all(self) -> bool:
        """Whether it is a lambda that sees every variable around it by reference: `[&]`, `[&, x]`."""
        captures = self.node.child_by_field_name("captures") if self.style is Style.LAMBDA else None
        return captures is not None and re.match(r"\[\s*&\s*[\],]", self.text(captures)) is not None

    @property
    def class_name(self) -> str:
        """The class of a method, as it is written where it is declared."""
        return self.owner_class.name if self.owner_class is not None else self.owner

    @property
    def qualified_name(self) -> str:
        return f"{self.owner}::{self.name}" if self.owner else self.name


def _outside_lambdas(body: Node, types: tuple[str, ...]) -> Iterator[Node]:
    end = 0
    for node in find(body, *types, "lambda_expression"):
        if node.start_byte < end:
            continue
        if node.type == "lambda_expression":
            end = node.end_byte
        if node.type in types:
            yield node


def _all_outside_lambdas(body: Node) -> Iterator[Node]:
    stack = [body]
    while stack:
        node = stack.pop()
        yield node
        if node.type == "lambda_expression":
            continue
        stack.extend(reversed(node.children))


def _outside_values(declaration: Node) -> Iterator[Node]:
    """Nodes of a parameter but for its default value."""
    value = declaration.child_by_field_name("default_value")
    return (n for n in walk(declaration) if value is None or n.start_byte < value.start_byte)


def array_extents(declaration: Node) -> list[Node]:
    """Extents of the array declarator below a declaration or parameter, outermost first."""
    extents: list[Node] = []
    for node in walk(declaration):
        if node.type in ARRAY_DECLARATORS:
            size = node.child_by_field_name("size")
            if size is not None:
                extents.append(size)
        elif node.type in ("initializer_list", "lambda_expression", "parameter_list"):
            break
    # `d[A][B]` nests as array(array(d, A), B): walking from the root meets B first.
    return extents[::-1]


def declared_name(declarator: Node) -> Node | None:
    """The identifier that a declarator declares."""
    for node in walk(declarator):
        if node.type in ("identifier", "field_identifier"):
            return node
        if node.type == "parameter_list":
            return None
    return None


def functions_of(file: CudaFile, macros: dict[str, str] | None = None) -> list[Function]:
    """All functions of one file with their asm statements and calls attached to the innermost one."""
    found: dict[int, Function] = {}
    ordered: list[Function] = []
    for node in find(file.root, "function_definition", "lambda_expression"):
        function = _lambda(file, node) if node.type == "lambda_expression" else _definition(file, node)
        if function is None:
            continue
        found[node.id] = function
        ordered.append(function)
    for function in ordered:
        if function.style is Style.LAMBDA:
            outer = enclosing(function.node, "function_definition", "lambda_expression")
            function.parent = found.get(outer.id) if outer is not None else None
    for statement in asm_statements(file, macros):
        home = enclosing(statement.node, "function_definition", "lambda_expression")
        if home is not None and home.id in found:
            found[home.id].asm.append(statement)
    for function in ordered:
        function.calls = list(_calls(function))
    ordered.extend(_macros(file, {**(macros or {}), **string_macros(macro_definitions(file))}))
    return ordered


def uses_of_object_macros(functions: list[Function]) -> None:
    """Add a call wherever a function names an object-like macro whose body is asm (`WGMMA_FENCE;`)."""
    names = {f.name for f in functions if f.is_object_macro}
    if not names:
        return
    for function in functions:
        if function.is_object_macro:
            continue
        for node in function.own_nodes("identifier", "type_identifier"):
            text = function.text(node)
            if text in names:
                at = function.span(node)
                function.calls.append(Call(function, node, text, at, (), (), Span(at.end, at.end)))


def _definition(file: CudaFile, node: Node) -> Function | None:
    body = node.child_by_field_name("body")
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or next(
            (c for c in declarator.named_children if c.type.endswith("declarator")), None
        )
    if body is None or declarator is None or body.type != "compound_statement":
        return None
    name_node = declarator.child_by_field_name("declarator")
    if name_node is None:
        return None
    if name_node.type in ("qualified_identifier", "template_function"):
        name_node = _last_name(name_node) or name_node
    name = file.text(name_node)
    specifiers = function_specifiers(file, node)
    owner = enclosing(node, "struct_specifier", "class_specifier", "union_specifier")
    owner_name = owner.child_by_field_name("name") if owner is not None else None
    if "__global__" in specifiers:
        style = Style.KERNEL
    elif owner is not None:
        style = Style.METHOD
    elif "__device__" in specifiers:
        style = Style.DEVICE
    else:
        style = Style.HOST
    function = Function(
        file,
        style,
        name,
        Span(name_node.start_byte, name_node.end_byte),
        node,
        body,
        owner=file.text(owner_name) if owner_name is not None else "",
        template_params=_template_params(file, node),
    )
    _read_params(function, declarator.child_by_field_name("parameters"))
    return function


def declarations_of(file: CudaFile) -> list[Function]:
    """Functions declared without a body, outside functions: forward declarations and primary templates."""
    found = []
    for node in find(file.root, "declaration", "field_declaration"):
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type in ("pointer_declarator", "reference_declarator"):
            declarator = declarator.child_by_field_name("declarator") or next(iter(declarator.named_children), None)
        if declarator is None or declarator.type != "function_declarator":
            continue
        if enclosing(node, "function_definition", "lambda_expression") is not None:
            continue
        name = declarator.child_by_field_name("declarator")
        name = _last_name(name) if name is not None else None
        if name is None:
            continue
        owner = enclosing(node, "struct_specifier", "class_specifier", "union_specifier")
        owner_name = owner.child_by_field_name("name") if owner is not None else None
        function = Function(
            file,
            Style.METHOD if owner is not None else Style.DEVICE,
            file.text(name),
            Span(name.start_byte, name.end_byte),
            node,
            node,
            owner=file.text(owner_name) if owner_name is not None else "",
            template_params=_template_params(file, node),
        )
        _read_params(function, declarator.child_by_field_name("parameters"))
        found.append(function)
    return found


def _lambda(file: CudaFile, node: Node) -> Function | None:
    body = node.child_by_field_name("body")
    if body is None:
        return None
    name, name_span = "", None
    holder = node.parent
    if holder is not None and holder.type == "init_declarator":
        name_node = declared_name(holder)
        if name_node is not None:
            name, name_span = file.text(name_node), Span(name_node.start_byte, name_node.end_byte)
    function = Function(file, Style.LAMBDA, name, name_span, node, body)
    declarator = node.child_by_field_name("declarator")
    _read_params(function, declarator.child_by_field_name("parameters") if declarator is not None else None)
    return function


def _read_params(function: Function, node: Node | None) -> None:
    if node is None:
        return
    function.params_span = Span(node.start_byte + 1, node.end_byte - 1)
    function.variadic = any(c.type in ("...", "variadic_parameter") for c in node.children)
    declared = [c for c in node.named_children if c.type.endswith("parameter_declaration")]
    for index, child in enumerate(declared):
        declarator = child.child_by_field_name("declarator")
        name_node = declared_name(declarator) if declarator is not None else None
        name = function.file.text(name_node) if name_node is not None else ""
        function.params.append(Param(index, name, Span(child.start_byte, child.end_byte), child))


def _template_params(file: CudaFile, node: Node) -> tuple[str, ...]:
    parent = node.parent
    if parent is None or parent.type != "template_declaration":
        return ()
    parameters = parent.child_by_field_name("parameters")
    names = []
    for child in parameters.named_children if parameters is not None else ():
        declarator = child.child_by_field_name("declarator") or child.child_by_field_name("name")
        name = declared_name(declarator) if declarator is not None else None
        if name is None:
            name = next((c for c in reversed(child.named_children) if c.type.endswith("identifier")), None)
        names.append(file.text(name) if name is not None else "")
    return tuple(names)


def _last_name(node: Node) -> Node | None:
    """The rightmost plain name of `a::b<c>`, `x.template f<n>`, `f<n>`."""
    while True:
        if node.type == "dependent_name" and node.named_children:
            node = node.named_children[-1]
        inner = node.child_by_field_name("name") or node.child_by_field_name("field")
        if inner is None:
            return node if node.type.endswith("identifier") else None
        node = inner


def _called_name(callee: Node) -> Node | None:
    """The name in a callee: of the class, where a temporary is called (`Mma<64>{}(d)`)."""
    while callee.type == "parenthesized_expression" and callee.named_children:
        callee = callee.named_children[0]
    inner: Node | None = callee
    if callee.type == "compound_literal_expression":
        inner = callee.child_by_field_name("type")
    elif callee.type == "call_expression":
        inner = callee.child_by_field_name("function")
    return _last_name(inner) if inner is not None else None


def _calls(function: Function) -> Iterator[Call]:
    for node in function.own_nodes("call_expression"):
        callee = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if callee is None or arguments is None or arguments.type != "argument_list":
            continue
        name_node = _called_name(callee)
        if name_node is None:
            continue
        template_args: tuple[str, ...] = ()
        for inner in walk(callee):
            if inner.type in ("template_argument_list",) and inner.parent is not None:
                owner = inner.parent.child_by_field_name("name")
                if owner is not None and owner.start_byte == name_node.start_byte:
                    template_args = tuple(function.text(c) for c in inner.named_children if c.type != "comment")
        yield Call(
            function,
            node,
            function.text(name_node),
            function.span(name_node),
            template_args,
            tuple(c for c in arguments.named_children if c.type != "comment"),
            Span(arguments.start_byte + 1 + function.shift, arguments.end_byte - 1 + function.shift),
        )


def _macros(file: CudaFile, known: dict[str, str]) -> Iterator[Function]:
    """Function-like macros whose body holds asm, each as a function over its parameters' text."""
    for macro in macro_definitions(file):
        statements = asm_in_macro(file, macro, known)
        if not statements:
            continue
        body = statements[0].node
        while body.parent is not None and body.type != "function_definition":
            body = body.parent
        inner = body.child_by_field_name("body") or body
        function = Function(
            file, Style.MACRO, macro.name, None, inner, inner, shift=statements[0].shift, asm=list(statements)
        )
        at = macro.body_span
        function.is_object_macro = macro.params is None
        function.params = [Param(i, name, at, None) for i, name in enumerate(macro.params or ())]
        function.calls = list(_calls(function))
        yield function
