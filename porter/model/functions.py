# SPDX-License-Identifier: Apache-2.0
"""Functions of a set of CUDA sources (kernels, device functions, methods, lambdas and statement macros), and the
namespaces and classes that declare them. The two know each other, so they stand together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import CudaFile, find, walk
from porter.lang.text import Span, as_text

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
    lambdas: dict[int, Function] = field(default_factory=dict, repr=False)
    """The lambdas that stand in it, but not in each other, by the ids of their nodes."""
    block_size: str = ""
    """Of a kernel that is a class's call operator: the constant of the class that says how many threads a block has."""
    shift: int = 0
    is_object_macro: bool = False
    """A macro without a parameter list, used by its bare name."""
    asm: list[AsmStatement] = field(default_factory=list, repr=False)
    calls: list[Call] = field(default_factory=list, repr=False)
    blocks: dict[int, dict[str, list[Node]]] = field(default_factory=dict, repr=False)
    """What `scopes` found out: by id of a block, by name, the children that declare the name."""
    _named: dict[str, list[Node]] | None = field(default=None, repr=False)

    @property
    def head(self) -> Span:
        """What is shown where the function as a whole is meant: its name, else what stands in front of its body."""
        if self.name_span is not None:
            return self.name_span
        start, end = self.node.start_byte, self.body.start_byte
        return Span(start + self.shift, (end if start < end else self.body.end_byte) + self.shift)

    def span(self, node: Node) -> Span:
        return Span(node.start_byte + self.shift, node.end_byte + self.shift)

    def text(self, node: Node) -> str:
        written = self.file.source[node.start_byte + self.shift : node.end_byte + self.shift]
        return as_text(written)

    def named(self, name: str) -> list[Node]:
        """The identifiers of the body that are this name, in source order."""
        if self._named is None:
            self._named = {}
            for node in find(self.body, "identifier"):
                self._named.setdefault(self.text(node), []).append(node)
        return self._named.get(name, [])

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


def outermost(function: Function) -> Function:
    """The function itself, or that around a lambda."""
    while function.style is Style.LAMBDA and function.parent is not None:
        function = function.parent
    return function


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


# --- Names


@dataclass(frozen=True)
class Component:
    """One step of a qualified name: `Tile<64>` of `a::Tile<64>::run`. `args` is None without a template list."""

    name: str
    args: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Path:
    """A name as it is written: `steps` of `::a::Tile<64>`, from the global scope if `rooted`."""

    steps: tuple[Component, ...]
    rooted: bool = False
    opaque: bool = False
    """Whether it has a part that is no name: `decltype(x)::run`."""


@dataclass(frozen=True)
class TemplateParam:
    """A parameter of a template head. `kind` is `type`, `value` or `template`."""

    name: str
    kind: str
    default: str | None = None
    pack: bool = False
    dependent: bool = False
    """Whether the type of a value is named by another parameter, or the parameter is a constraint in disguise."""


@dataclass(eq=False)
class Scope:
    """A namespace. Blocks of one namespace in several files are one scope."""

    name: str
    parent: Scope | None = field(repr=False)
    namespaces: dict[str, Scope] = field(default_factory=dict, repr=False)
    transparent: list[Scope] = field(default_factory=list, repr=False)
    """Inline and unnamed namespaces, whose names are seen from here."""
    classes: dict[str, list[ClassScope]] = field(default_factory=dict, repr=False)
    functions: dict[str, list[FunctionSymbol]] = field(default_factory=dict, repr=False)
    aliases: dict[str, list[Alias]] = field(default_factory=dict, repr=False)
    namespace_aliases: dict[str, list[Path]] = field(default_factory=dict, repr=False)
    directives: list[Path] = field(default_factory=list, repr=False)
    """Namespaces named by `using namespace`."""
    declared: dict[str, list[Path]] = field(default_factory=dict, repr=False)
    """Names brought here by using-declarations."""
    values: dict[str, set[str]] = field(default_factory=dict, repr=False)
    """Variables and enumerators: they hide what is outside and cannot be called as functions. Each with the expressions
    that its declarations give it as a constant, empty for one that gives none."""
    enumerations: dict[str, Scope] = field(default_factory=dict, repr=False)
    is_enumeration: bool = False

    @property
    def is_class(self) -> bool:
        return False

    @property
    def qualified(self) -> str:
        """`a::b`; the global namespace and unnamed ones add nothing."""
        above = self.parent.qualified if self.parent is not None else ""
        return f"{above}::{self.name}" if above and self.name else above or self.name

    def above(self) -> Iterator[Scope]:
        """The scope and all around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(eq=False)
class ClassScope(Scope):
    """A class, a class template or a specialization of one. Alternatives of the preprocessor are several."""

    file: CudaFile | None = field(default=None, repr=False)
    node: Node | None = field(default=None, repr=False)
    """None for a class that is only declared."""
    params: tuple[TemplateParam, ...] = ()
    special: tuple[str, ...] | None = None
    """Arguments that a specialization is for."""
    bases: tuple[Path, ...] = ()
    closed: frozenset[int] = frozenset()
    """Indices of the bases that are private or protected."""
    converts: bool = False
    """Whether it has conversion functions."""

    @property
    def is_class(self) -> bool:
        return True

    @property
    def qualified(self) -> str:
        above = self.parent.qualified if self.parent is not None else ""
        own = self.name if self.special is None else f"{self.name}<{', '.join(self.special)}>"
        return f"{above}::{own}" if above and own else above or own


@dataclass(eq=False)
class FunctionSymbol:
    """A function, where it is a member of. `special` are the arguments of an explicit specialization."""

    function: Function
    scope: Scope
    params: tuple[TemplateParam, ...] = ()
    special: tuple[str, ...] | None = None
    is_template: bool = False
    defined: bool = True
    variadic: bool = False
    constrained: bool = False
    """Whether something that is not evaluated may take it out of overload resolution."""
    hidden: bool = False
    """A friend: found by its arguments only."""
    is_static: bool = False
    conditional: bool = False
    """Whether it stands in a branch of the preprocessor, so that another scope's function may be the one."""


@dataclass(eq=False)
class Alias:
    """`using Name = type;` or a typedef, with the parameters of an alias template."""

    name: str
    scope: Scope
    file: CudaFile = field(repr=False)
    type_node: Node = field(repr=False)
    declarator: Node | None = field(default=None, repr=False)
    params: tuple[TemplateParam, ...] = ()
    holder: Function | None = None
    """The function it stands in."""
