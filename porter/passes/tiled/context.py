# SPDX-License-Identifier: Apache-2.0
"""What the passes over tiled MMAs share."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.model.functions import Function, Style, outermost
from porter.model.roles import WarpgroupRoles
from porter.model.tiled.accumulators import Handle, Tiled
from porter.model.tiled.activity import Activity
from porter.model.tiled.batches import Batches
from porter.model.tiled.flight import Flight
from porter.passes.context import PortContext

NAMESPACE = "porter"


@dataclass(eq=False)
class Frame:
    """A function in which accumulators are declared, or in functions that it calls. `fragments` are those of the
    function and its lambdas, in order."""

    function: Function
    fragments: list[Handle] = field(default_factory=list)
    columns_name: str = ""
    """Of the function that says how many columns its accumulators take, those of what it calls among them."""
    operands_name: str = ""
    """Of the one that says the same of A operands from registers; empty if there are none."""
    first: dict[int, str] = field(default_factory=dict)
    """First column of a fragment, by id of the handle: an expression where the fragment is declared."""
    taken: dict[str, str] = field(default_factory=dict)
    """Template parameters of these functions behind the number of warpgroups: declarations by name."""
    widths: dict[str, str] = field(default_factory=dict)
    """Columns of each accumulator by its name, as they are computed."""
    names: set[str] = field(default_factory=set)
    """Names that the port gives to something in it."""


@dataclass(eq=False)
class TiledKernel(Frame):
    """A kernel with such accumulators. Tensor Memory is set up in front of `setup`, a statement of its body."""

    setup: Node = field(repr=False, kw_only=True)
    threads: str = "unknown"
    warpgroups: str = ""
    first_warpgroup: int = 0
    roles: WarpgroupRoles | None = None
    columns: str = ""
    ring: int = 1
    """Batches that may be in flight without one waiting for another."""


@dataclass(eq=False)
class TiledContext:
    """One port in the making: `port` collects the edits, `tiled` the refusals."""

    port: PortContext
    tiled: Tiled
    activity: Activity
    batches: Batches
    flight: Flight
    kernels: list[TiledKernel] = field(default_factory=list)
    frames: dict[int, Frame] = field(default_factory=dict)
    """Kernels and other functions with accumulators, by id of the function."""
    handed: set[int] = field(default_factory=set)
    """ids of the functions that get the state of the warpgroup as a parameter."""
    reached: set[int] = field(default_factory=set)
    """ids of the functions that kernels come to."""
    loads: list[tuple[Function, Node, Handle]] = field(default_factory=list)
    """Statements in front of which an accumulator is loaded."""
    members: dict[tuple[str, int], str] = field(default_factory=dict)
    """Types of members that structs get, by file and place."""
    _names: dict[str, str] = field(default_factory=dict)

    def local(self, kernel: Frame, wanted: str) -> str:
        """A name for something in a kernel, which others may have for something of theirs."""
        if wanted not in self._names:
            self._names[wanted] = self.port.names.fresh(wanted)
        base, number = self._names[wanted], 1
        while (name := f"{base}{number if number > 1 else ''}") in kernel.names:
            number += 1
        kernel.names.add(name)
        return name

    def kernel_around(self, function: Function) -> TiledKernel | None:
        """The kernel that a function is, or that it is a lambda of."""
        current: Function | None = function
        while current is not None:
            found = next((k for k in self.kernels if k.function is current), None)
            if found is not None:
                return found
            current = current.parent if current.style is Style.LAMBDA else None
        return None

    def sees_warpgroup(self, function: Function, node: Node) -> bool:
        """Whether the state of the warpgroup is in scope at a place."""
        kernel = self.kernel_around(function)
        current = function
        while current is not outermost(function) and id(current) not in self.handed:
            if not current.captures_all or current.parent is None:
                return False
            current = current.parent
        if id(current) in self.handed:
            return True
        return kernel is not None and node.start_byte >= kernel.setup.start_byte
