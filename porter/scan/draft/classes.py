# SPDX-License-Identifier: Apache-2.0
"""Classes of CUDA sources as host code uses them: their constants, the types they name, their sizes in bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from tree_sitter import Node

from porter.lang.cuda import CudaFile, find, parse_tree
from porter.model.constant_expressions import SIZES
from porter.model.constants import default_of
from porter.model.functions import array_extents, declared_name

POINTER = 8
CLASSES = ("struct_specifier", "class_specifier", "union_specifier")
"""Node types."""
BYTES = {
    **SIZES, "byte": 1, "cuuint32_t": 4, "cuuint64_t": 8, "uintptr_t": 8, "barrier": 8, "bf16": 2, "half_t": 2,
    "float16_t": 2, "bfloat16_t": 2, "float_e4m3_t": 1, "float_e5m2_t": 1,
}  # fmt: skip
"""Sizes in bytes of types that host code names."""
_WORDS = re.compile(
    r"\b(?:const|volatile|typename|struct|class|static|constexpr|inline|extern|__restrict__|__shared__|signed)\b"
)


@dataclass(frozen=True)
class Template:
    """A class with a body: `params` are the names of its template parameters with the texts of their defaults."""

    name: str
    node: Node = field(repr=False)
    params: tuple[tuple[str, str | None], ...] = ()

    @property
    def namespace(self) -> str:
        return namespace_of(self.node)


def namespace_of(node: Node) -> str:
    """The namespaces that something stands in, with `::` between them."""
    found, outer = list[str](), node.parent
    while outer is not None:
        name = outer.child_by_field_name("name") if outer.type == "namespace_definition" else None
        found += [text_of(name)] if name is not None else []
        outer = outer.parent
    return "::".join(reversed(found))


def plain_type(text: str) -> str:
    """A type without qualifiers, attributes, references and the namespace in front."""
    text = re.sub(r"__?align(?:as|__)?\s*\([^()]*\)|alignas\s*\([^()]*\)", " ", text)
    text = " ".join(_WORDS.sub(" ", text).replace("&", " ").split())
    text = re.sub(r"^unsigned (long long|long|int|short|char)$", r"\1", text)
    return {"long long": "long", "unsigned long long": "long"}.get(text, text).strip()


def split_arguments(text: str) -> list[str]:
    """What stands between the commas of a list, those inside of brackets aside."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "(<[{") - (sign in ")>]}")
        if sign == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def template_id(text: str) -> tuple[str, list[str]]:
    """Name and arguments of a type such as `a::Tile<64, T>`."""
    match = re.match(r"([\w:\s]+?)\s*<(.*)>\s*$", text, re.DOTALL)
    return (match.group(1).strip(), split_arguments(match.group(2))) if match else (text.strip(), [])


def template_params(node: Node) -> tuple[tuple[str, str | None], ...]:
    """Names and defaults of a template head."""
    found = []
    head = node.child_by_field_name("parameters")
    for param in head.named_children if head is not None else ():
        name = param.child_by_field_name("name") or param.child_by_field_name("declarator")
        default = param.child_by_field_name("default_type") or param.child_by_field_name("default_value")
        if name is None:
            names = [c for c in param.named_children if c.type in ("type_identifier", "identifier")]
            name = names[-1] if names else None
        if name is not None:
            found.append((text_of(name), text_of(default) if default is not None else None))
    return tuple(found)


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


@lru_cache(maxsize=1024)
def expression(text: str) -> Node | None:
    """The tree of an expression that stands alone."""
    root = parse_tree(f"auto x = ({text});".encode()).root_node
    for node in find(root, "init_declarator"):
        return node.child_by_field_name("value")
    return None


class Classes:
    """Classes with a body and names of types, by their own names."""

    def __init__(self, files: Iterable[CudaFile]) -> None:
        self.templates: dict[str, Template] = {}
        self.aliases: dict[str, str] = {}
        self.alias_spaces: dict[str, str] = {}
        """The namespaces that they stand in."""
        self.enumerations: dict[str, str] = {}
        """Scoped enumerations by name, with the namespaces that they stand in."""
        for file in files:
            for node in find(file.root, "enum_specifier"):
                name = node.child_by_field_name("name")
                if name is not None and re.match(r"enum\s+(?:class|struct)\b", text_of(node)):
                    self.enumerations.setdefault(text_of(name), namespace_of(node))
            for node in find(file.root, *CLASSES):
                self._add(node)
            for node in find(file.root, "alias_declaration"):
                name, kind = node.child_by_field_name("name"), node.child_by_field_name("type")
                if name is not None and kind is not None and node.parent is not None:
                    outside = node.parent.type in ("translation_unit", "declaration_list")
                    if outside and text_of(name) not in self.aliases:
                        self.aliases[text_of(name)] = text_of(kind)
                        self.alias_spaces[text_of(name)] = namespace_of(node)
            for node in find(file.root, "type_definition"):
                kind, declarator = node.child_by_field_name("type"), node.child_by_field_name("declarator")
                if kind is not None and declarator is not None and declarator.type == "type_identifier":
                    if kind.type.endswith("_specifier") and kind.child_by_field_name("body") is not None:
                        self.templates.setdefault(text_of(declarator), Template(text_of(declarator), kind))
                    else:
                        self.aliases.setdefault(text_of(declarator), text_of(kind))

    def _add(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None or name.type != "type_identifier":
            return
        head = node.parent
        params = template_params(head) if head is not None and head.type == "template_declaration" else ()
        self.templates.setdefault(text_of(name), Template(text_of(name), node, params))

    def find(self, name: str) -> Template | None:
        return self.templates.get(name.split("::")[-1].strip())


def members(template: Template) -> list[Node]:
    body = template.node.child_by_field_name("body")
    return list(body.named_children) if body is not None else []


def constant_of(template: Template, wanted: str) -> Node | None:
    """The expression of a static constant or enumerator of a class."""
    for node in members(template):
        if node.type in ("field_declaration", "declaration"):
            for child in node.children_by_field_name("declarator"):
                name = declared_name(child)
                if name is not None and text_of(name) == wanted:
                    return child.child_by_field_name("value") or default_of(node, child)
        for item in find(node, "enumerator"):
            name, value = item.child_by_field_name("name"), item.child_by_field_name("value")
            if name is not None and text_of(name) == wanted:
                return value
    return None


def alias_of(template: Template, wanted: str) -> str | None:
    """What a type that a class names is."""
    for node in members(template):
        name, kind = node.child_by_field_name("name"), node.child_by_field_name("type")
        if node.type == "alias_declaration" and name is not None and kind is not None and text_of(name) == wanted:
            return text_of(kind)
    return None


def inner_class(template: Template, wanted: str) -> Template | None:
    """A class that stands in another one."""
    for node in members(template):
        for inner in (node, *node.named_children):
            name = inner.child_by_field_name("name")
            is_class = inner.type in CLASSES and inner.child_by_field_name("body") is not None
            if is_class and name is not None and text_of(name) == wanted:
                return Template(wanted, inner)
    return None


def split_scope(text: str) -> tuple[str, str]:
    """`a::B<c::d>::E` as `a::B<c::d>` and `E`."""
    depth = 0
    for at in range(len(text) - 1, 0, -1):
        depth += (text[at] == ">") - (text[at] == "<")
        if depth == 0 and text[at - 1 : at + 1] == "::":
            return text[: at - 1].strip(), text[at + 1 :].strip()
    return "", text.strip()


def has_nameless(template: Template) -> bool:
    """Whether a class has a union or struct without a name among its members."""
    return any(
        node.type in ("field_declaration", "union_specifier", "struct_specifier")
        and re.match(r"(?:union|struct)\b[^;{]*\{", text_of(node)) is not None
        and not node.children_by_field_name("declarator")
        and (node.child_by_field_name("type") or node).child_by_field_name("name") is None
        for node in members(template)
    )


def fields(template: Template) -> list[tuple[str, str, list[Node], bool, str]]:
    """Data members in order: name, type, extents, whether it is a pointer, the whole declaration."""
    found = []
    for node in members(template):
        kind = node.child_by_field_name("type")
        whole = text_of(node)
        if node.type != "field_declaration" or kind is None or whole.startswith(("static", "friend", "typedef")):
            continue
        if re.match(r"(?:\w+\s+)*static\b", whole):
            continue
        for declarator in node.children_by_field_name("declarator"):
            if any(n.type == "function_declarator" for n in find(declarator, "function_declarator")):
                continue
            name = declared_name(declarator)
            pointer = any(True for _ in find(declarator, "pointer_declarator"))
            if name is not None:
                found.append((text_of(name), text_of(kind), array_extents(declarator), pointer, whole))
    return found


def constructors(template: Template) -> list[Node]:
    """Constructors with a body or a list of members that they set; those that copy, and templates, among them."""
    found = []
    for node in members(template):
        inner = node.named_children[-1] if node.type == "template_declaration" and node.named_children else node
        declarator = inner.child_by_field_name("declarator")
        name = declarator.child_by_field_name("declarator") if declarator is not None else None
        is_one = inner.type in ("function_definition", "declaration") and inner.child_by_field_name("type") is None
        is_default = any(c.type == "default_method_clause" for c in inner.named_children)
        if is_one and name is not None and text_of(name) == template.name and not is_default:
            found.append(inner)
    return found


def takes(function: Node, arguments: int) -> bool:
    """Whether a function can be called with so many arguments."""
    declarator = next(find(function, "function_declarator"), None)
    params = declarator.child_by_field_name("parameters") if declarator is not None else None
    kinds = [c.type for c in params.named_children] if params is not None else []
    needed = kinds.count("parameter_declaration")
    return needed <= arguments <= needed + kinds.count("optional_parameter_declaration")


def initializers(function: Node) -> list[tuple[str, Node]]:
    """What a constructor sets its members to: name and list."""
    found = []
    for node in find(function, "field_initializer"):
        if len(node.named_children) == 2:
            found.append((text_of(node.named_children[0]), node.named_children[1]))
    return found
