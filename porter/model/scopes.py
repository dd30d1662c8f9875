# SPDX-License-Identifier: Apache-2.0
"""Where a name used in a function is declared: a local variable, a parameter, or something outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.lang.cuda import above
from porter.model.functions import Function, Param, Style, declared_name

PREPROCESSOR_BLOCKS = ("preproc_if", "preproc_ifdef", "preproc_elif", "preproc_elifdef", "preproc_else")
LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_BLOCKS = (
    "compound_statement",
    "for_statement",
    "for_range_loop",
    "if_statement",
    "while_statement",
    "case_statement",
    *PREPROCESSOR_BLOCKS,
)


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable: `declaration` is the whole statement and `declarator` its own part of it (locals only)."""

    function: Function
    name: str
    param: Param | None = None
    declaration: Node | None = field(default=None, repr=False)
    declarator: Node | None = field(default=None, repr=False)
    ambiguous: bool = False
    """Whether branches of a preprocessor conditional declare it differently."""

    @property
    def key(self) -> tuple[int, int, str]:
        """Equal for equal variables."""
        at = self.declarator.start_byte if self.declarator is not None else -1
        return self.function.node.id, at, self.name

    @property
    def is_reference(self) -> bool:
        """Whether it is declared as a reference or pointer to something else."""
        declarator = self.declarator
        if declarator is not None and declarator.type == "init_declarator":
            declarator = declarator.child_by_field_name("declarator")
        return declarator is not None and declarator.type in ("reference_declarator", "pointer_declarator")


def loop_around(node: Node, body: Node) -> Node | None:
    """The innermost loop within a body that a node stands in."""
    return next((n for n in above(node, body) if n.type in LOOPS), None)


def resolve(function: Function, node: Node, name: str) -> Variable | None:
    """The declaration that `name` means at `node`, or None if it is declared outside every function."""
    inner, current = node, node.parent
    while current is not None and inner.id != function.node.id:
        if current.type in _BLOCKS:
            for child in _declaring(function, current).get(name, ()):
                if child.start_byte >= node.start_byte and child.id != inner.id:
                    break
                found = _declares(function, child, name, node.start_byte)
                if found is not None:
                    return found
        inner, current = current, current.parent
    param = function.param(name)
    if param is not None:
        return Variable(function, name, param=param)
    if function.style is Style.LAMBDA and function.parent is not None:
        return resolve(function.parent, function.node, name)
    return None


def _declaring(function: Function, block: Node) -> dict[str, list[Node]]:
    """By name, the children of a block that may declare it, in source order."""
    found = function.blocks.get(block.id)
    if found is None:
        found = function.blocks[block.id] = {}
        for child in block.children:
            for name in dict.fromkeys(_declared(function, child)):
                found.setdefault(name, []).append(child)
    return found


def _declared(function: Function, node: Node) -> Iterator[str]:
    if node.type == "condition_clause":
        node = node.named_children[0] if node.named_children else node
    if node.type in PREPROCESSOR_BLOCKS:
        for child in node.named_children:
            yield from _declared(function, child)
    elif node.type == "declaration":
        for child in node.children_by_field_name("declarator"):
            for name in declared_names(child):
                yield function.text(name)


def _declares(function: Function, node: Node, name: str, before: int) -> Variable | None:
    if node.type == "condition_clause":
        node = node.named_children[0] if node.named_children else node
    if node.type in PREPROCESSOR_BLOCKS:
        found = [f for child in node.named_children if (f := _declares(function, child, name, before)) is not None]
        if len(found) > 1 or (found and found[0].ambiguous):
            return replace(found[0], ambiguous=True)
        return found[0] if found else None
    if node.type != "declaration":
        return None
    for child in node.children_by_field_name("declarator"):
        for declared in declared_names(child):
            if declared.start_byte < before and function.text(declared) == name:
                return Variable(function, name, declaration=node, declarator=child)
    return None


def names_declared(function: Function, declaration: Node) -> set[str]:
    """The names that a declaration declares."""
    declarators = declaration.children_by_field_name("declarator")
    return {function.text(n) for declarator in declarators for n in declared_names(declarator)}


def declared_names(declarator: Node) -> list[Node]:
    """The identifiers that a declarator declares: several of a structured binding."""
    inner: Node | None = declarator
    while inner is not None and inner.type in ("init_declarator", "reference_declarator"):
        named = inner.named_children
        inner = inner.child_by_field_name("declarator") or (named[0] if named else None)
    if inner is not None and inner.type == "structured_binding_declarator":
        return [n for n in inner.named_children if n.type == "identifier"]
    name = declared_name(declarator)
    return [name] if name is not None else []
