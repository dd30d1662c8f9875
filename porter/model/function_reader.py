# SPDX-License-Identifier: Apache-2.0
"""Functions read from the tree of a file, with their parameters, asm statements and calls."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.asm import (
    asm_in_macro,
    asm_statements,
    macro_definitions,
    outside_directives,
    read_as_code,
    string_macros,
)
from porter.lang.cuda import CudaFile, enclosing, find, function_specifiers
from porter.lang.text import Span
from porter.model.functions import Call, Function, Param, Style, declared_name
from porter.model.names.paths import template_params


def functions_of(file: CudaFile, macros: dict[str, str] | None = None) -> list[Function]:
    """All functions of one file with their asm statements and calls attached to the innermost one."""
    found: dict[int, Function] = {}
    ordered: list[Function] = []
    for node in read_as_code(file, find(file.root, "function_definition", "lambda_expression")):
        function = _lambda(file, node) if node.type == "lambda_expression" else _definition(file, node)
        if function is None:
            continue
        found[node.id] = function
        ordered.append(function)
    for function in ordered:
        if function.style is Style.LAMBDA:
            outer = enclosing(function.node, "function_definition", "lambda_expression")
            function.parent = found.get(outer.id) if outer is not None else None
            if function.parent is not None:
                function.parent.lambdas[function.node.id] = function
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
        nodes = function.own_nodes("identifier", "type_identifier")
        for node in outside_directives(function.file, nodes) if function.style is not Style.MACRO else nodes:
            text = function.text(node)
            if text in names:
                at = function.span(node)
                function.calls.append(Call(function, node, text, at, (), (), Span(at.end, at.end)))


def _definition(file: CudaFile, node: Node) -> Function | None:
    body = node.child_by_field_name("body")
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type not in ("function_declarator", "operator_cast"):
        declarator = declarator.child_by_field_name("declarator") or next(
            (c for c in declarator.named_children if c.type.endswith("declarator") or c.type == "operator_cast"), None
        )
    if body is None or declarator is None or body.type != "compound_statement":
        return None
    converts = declarator.type == "operator_cast"
    name_node = declarator if converts else declarator.child_by_field_name("declarator")
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


def _inside(parentheses: Node, shift: int = 0) -> Span:
    """What stands between parentheses, the second of which may be missing."""
    start = parentheses.start_byte + 1
    return Span(start + shift, max(start, parentheses.end_byte - 1) + shift)


def _read_params(function: Function, node: Node | None) -> None:
    if node is None:
        return
    function.params_span = _inside(node)
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
    return tuple(p.name for p in template_params(parent, file.text))


def _last_name(node: Node) -> Node | None:
    """The rightmost plain name of `a::b<c>`, `x.template f<n>`, `f<n>`, `x.operator()`."""
    while True:
        if node.type == "dependent_name" and node.named_children:
            node = node.named_children[-1]
        inner = node.child_by_field_name("name") or node.child_by_field_name("field")
        if inner is None:
            return node if node.type.endswith("identifier") or node.type == "operator_name" else None
        node = inner


def _without_parentheses(node: Node) -> Node:
    while node.type == "parenthesized_expression" and node.named_children:
        node = node.named_children[0]
    return node


def called_name(callee: Node) -> Node | None:
    """The name in a callee: of the class, where a temporary is called (`Mma<64>{}(d)`)."""
    callee = _without_parentheses(callee)
    inner: Node | None = callee
    if callee.type == "compound_literal_expression":
        inner = callee.child_by_field_name("type")
    elif callee.type == "call_expression":
        inner = callee.child_by_field_name("function")
    return _last_name(inner) if inner is not None else None


def _calls(function: Function) -> Iterator[Call]:
    nodes = function.own_nodes("call_expression")
    for node in read_as_code(function.file, nodes) if function.style is not Style.MACRO else nodes:
        callee = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if callee is None or arguments is None or arguments.type != "argument_list":
            continue
        name_node = called_name(callee)
        if name_node is None:
            if (called := _without_parentheses(callee)).type == "lambda_expression":
                start = called.start_byte
                yield _call(function, node, arguments, "", Span(start, start), ())
            continue
        template_args: tuple[str, ...] = ()
        owner = name_node.parent
        while owner is not None and owner != node:
            named = owner.child_by_field_name("name")
            if named is not None and named.start_byte == name_node.start_byte:
                for inner in (c for c in owner.children if c.type == "template_argument_list"):
                    template_args = tuple(function.text(c) for c in inner.named_children if c.type != "comment")
            owner = owner.parent
        yield _call(function, node, arguments, function.text(name_node), function.span(name_node), template_args)


def _call(
    function: Function, node: Node, arguments: Node, name: str, span: Span, template_args: tuple[str, ...]
) -> Call:
    args = tuple(c for c in arguments.named_children if c.type != "comment")
    return Call(function, node, name, span, template_args, args, _inside(arguments, function.shift))


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
