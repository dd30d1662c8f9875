# SPDX-License-Identifier: Apache-2.0
"""Qualified names and template heads read off the tree."""

from __future__ import annotations

from collections.abc import Callable

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.functions import Component, Path, TemplateParam, declared_name

_PLAIN = (
    "identifier",
    "type_identifier",
    "namespace_identifier",
    "field_identifier",
    "operator_name",
    "primitive_type",
)
_TEMPLATED = ("template_type", "template_function", "template_method")
_WRAPPERS = ("dependent_name", "dependent_type", "nested_namespace_specifier")

Text = Callable[[Node], str]


def path_of(node: Node, text: Text) -> Path:
    """`a::Tile<64>::run` as written. What is no name makes the path opaque."""
    steps: list[Component] = []
    rooted = node.type == "qualified_identifier" and node.child_by_field_name("scope") is None
    opaque = not _collect(node, text, steps)
    return Path(tuple(steps), rooted, opaque)


def _collect(node: Node, text: Text, steps: list[Component]) -> bool:
    if node.type in _PLAIN:
        steps.append(Component("".join(text(node).split())))
        return True
    if node.type in _TEMPLATED:
        name, arguments = node.child_by_field_name("name"), node.child_by_field_name("arguments")
        steps.append(Component(text(name) if name is not None else "", template_args(arguments, text)))
        return name is not None
    if node.type == "qualified_identifier":
        scope, name = node.child_by_field_name("scope"), node.child_by_field_name("name")
        known = _collect(scope, text, steps) if scope is not None else True
        return name is not None and _collect(name, text, steps) and known
    if node.type in _WRAPPERS:
        inner = [c for c in node.named_children if c.type != "comment"]
        collected = [_collect(c, text, steps) for c in inner]
        return bool(inner) and all(collected)
    return False


def using_paths(node: Node, text: Text) -> list[Path]:
    """The names that a using-declaration brings in: `using a::f, a::g;` has two."""
    named = [c for c in node.named_children if c.type != "comment"]
    written = text(node).strip().removeprefix("using").rstrip("; \n\t")
    parts = [p.strip().removeprefix("typename").strip() for p in written.split(",")]
    if len(parts) < 2 or "<" in written:
        return [path_of(named[0], text)] if named else []
    found = []
    for part in parts:
        steps = [s.strip() for s in part.split("::")]
        rooted = not steps[0]
        if all(s.isidentifier() for s in steps[rooted:]):
            found.append(Path(tuple(Component(s) for s in steps[rooted:]), rooted))
    return found


def template_args(node: Node | None, text: Text) -> tuple[str, ...]:
    """Texts of the arguments of a template list."""
    if node is None:
        return ()
    return tuple(" ".join(text(c).split()) for c in node.named_children if c.type != "comment")


def template_heads(node: Node) -> list[Node]:
    """The template declarations around a declaration, innermost first: two for a member template that is defined
    outside of its class template."""
    heads = []
    parent = node.parent
    while parent is not None and parent.type == "template_declaration":
        heads.append(parent)
        parent = parent.parent
    return heads


def is_whole(coordinate: str) -> bool:
    """Whether an argument is CuTe's coordinate of all elements of a mode, however it is qualified."""
    return coordinate.rpartition("::")[2].strip() == "_"


def template_params(head: Node, text: Text) -> tuple[TemplateParam, ...]:
    """The parameters of one template head."""
    listed = head.child_by_field_name("parameters")
    children = listed.named_children if listed is not None else []
    return tuple(_template_param(c, text) for c in children if c.type != "comment")


def _template_param(node: Node, text: Text) -> TemplateParam:
    pack = node.type.startswith("variadic") or any(c.type == "variadic_declarator" for c in walk(node))
    if node.type == "template_template_parameter_declaration":
        inner = node.named_children[-1]
        names = [n for n in walk(inner) if n.type == "type_identifier"]
        return TemplateParam(text(names[-1]) if names else "", "template", None, pack)
    if "type_parameter" in node.type:
        name = node.child_by_field_name("name")
        default = node.child_by_field_name("default_type")
        if name is None:
            name = next((c for c in node.named_children if c.type == "type_identifier"), None)
        shown = text(default) if default is not None else None
        guards = shown is not None and "enable_if" in shown
        return TemplateParam(text(name) if name is not None else "", "type", shown, pack, guards)
    declarator, default = node.child_by_field_name("declarator"), node.child_by_field_name("default_value")
    name = declared_name(declarator) if declarator is not None else None
    kind = node.child_by_field_name("type")
    value_type = text(kind) if kind is not None else ""
    shown = text(default) if default is not None else None
    # `std::enable_if_t<…, int> = 0` is no parameter that anyone names
    dependent = "enable_if" in value_type
    return TemplateParam(text(name) if name is not None else "", "value", shown, pack, dependent)
