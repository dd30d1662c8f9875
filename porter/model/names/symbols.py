# SPDX-License-Identifier: Apache-2.0
"""What names of a source set are declared, and in which namespace or class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import CudaFile
from porter.model.functions import Function


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
    values: set[str] = field(default_factory=set, repr=False)
    """Variables and enumerators: they hide what is outside and cannot be called as functions."""

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
