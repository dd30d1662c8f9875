# SPDX-License-Identifier: Apache-2.0
"""What expressions of host code come to, beside numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tree_sitter import Node

from porter.scan.draft.numbers import Num

ENCODED = ("type", "rank", "base", "dims", "strides", "box", "steps", "interleave", "swizzle", "l2", "oob")
"""Arguments of cuTensorMapEncodeTiled behind the map (CUDA driver API, Tensor Map Object Management)."""
MADE = "made"
"""What of a map says which calls it was encoded by."""


@dataclass(frozen=True, eq=False)
class CallSite:
    """A call in the text of a function, `owner`."""

    owner: Any
    node: Node


@dataclass(eq=False)
class Pointer:
    """Device memory: `element` is the type that the code gives it, `const` whether it may not be written through."""

    name: str
    element: str
    const: bool = False
    nbytes: Num | None = None
    zeroed: bool = False
    extents: tuple[Num, ...] = ()
    """Of a tensor of PyTorch, its sizes."""
    asked: dict[int, Num] = field(default_factory=dict)
    """Sizes of such a tensor that the code asks for, by the dimension."""

    @property
    def shape(self) -> tuple[Num, ...]:
        """Its extents as far as they are known: all, or several from the first one on."""
        known = tuple(self.asked[at] for at in range(len(self.asked)) if at in self.asked)
        return self.extents or (known if 1 < len(known) == len(self.asked) else ())


@dataclass(eq=False)
class Offset:
    """A pointer into memory, some elements from its start."""

    base: Pointer
    elements: Num


@dataclass(eq=False)
class MapValue:
    """A CUtensorMap; `fields` are what it was encoded with, empty before that, and by which calls (`MADE`), the
    outermost first."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Record:
    """An object of a class: members by name, in the order of their declaration, with their types."""

    kind: str
    items: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Word:
    """An enumerator or another name that only its text says something of."""

    text: str


@dataclass(frozen=True)
class KernelName:
    """A kernel, with the texts of its template arguments."""

    name: str
    template: tuple[str, ...] = ()


@dataclass(eq=False)
class Lambda:
    node: Node
    scope: Scope


@dataclass(eq=False)
class Scope:
    """Variables and names of types, those of the block around it last."""

    above: Scope | None = None
    names: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    function: Any = None

    def levels(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.above

    def holder(self, name: str) -> Scope | None:
        return next((s for s in self.levels() if name in s.names), None)

    def type_of(self, name: str) -> str | None:
        return next((s.types[name] for s in self.levels() if name in s.types), None)

    @property
    def owner(self) -> Any:
        """The function whose text this is."""
        return next((s.function for s in self.levels() if s.function is not None), None)


@dataclass
class LaunchFacts:
    """A launch as the host code writes it. A value that is not understood is None."""

    kernel: KernelName
    grid: tuple[Num, ...] | None
    block: tuple[Num, ...] | None
    cluster: tuple[Num, ...] | None
    dynamic_smem: Num | None
    arguments: list[Any]
    cooperative: bool = False
    conditions: list[Num] = field(default_factory=list)
    """What holds of the sizes where this launch is come to."""
    parameters: list[tuple[str, Any]] = field(default_factory=list)
    """What the outermost function is handed."""
