# SPDX-License-Identifier: Apache-2.0
"""An entry with one launch of it: parameters as bytes, the layout of shared memory, tensor maps in global memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from math import prod

from porter.facts.code import Code
from porter.facts.flow import Flow, declared_in
from porter.ptx import ast
from porter.ptx.initial import initial_bytes
from porter.ptx.layout import DYNAMIC_ALIGNMENT, Layout, Variable, lay_out, named_in
from porter.ptx.shared_window import SYSTEM_SHARED

PARAMETERS = 1 << 61
"""Where parameters lie among the numbers that addresses are; above any address of memory."""
LOCAL = 1 << 59
"""Where variables of local memory lie among them."""
GLOBAL = 1 << 40
"""Addresses from here on are of global memory."""
VARIABLES = 1 << 58
"""Where variables of global and constant memory lie, each in a room of its own; above any allocation."""
VARIABLE_ROOM = 1 << 34
_PARAMETER_ALIGNMENT = 128

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Geometry:
    """`grid` in blocks, `first`: the block whose cluster is executed. `handed_out`: further blocks that
    clusterlaunchcontrol.try_cancel hands to a block before it fails."""

    block: Triple
    grid: Triple = (1, 1, 1)
    cluster: Triple = (1, 1, 1)
    dynamic_smem: int = 0
    first: Triple = (0, 0, 0)
    handed_out: int = 0

    @property
    def threads(self) -> int:
        return prod(self.block)

    @property
    def ranks(self) -> int:
        return prod(self.cluster)

    def first_of(self, number: int) -> Triple:
        """The first block of a cluster by its number in the grid; behind the last one comes the first one."""
        (x, y, z), (of_x, of_y, of_z) = self.cluster, (g // c for g, c in zip(self.grid, self.cluster, strict=True))
        number %= of_x * of_y * of_z
        return number % of_x * x, number // of_x % of_y * y, number // (of_x * of_y) * z

    def coordinates(self, rank: int) -> Triple:
        x, y, _ = self.cluster
        return self.first[0] + rank % x, self.first[1] + rank // x % y, self.first[2] + rank // x // y


@dataclass(frozen=True)
class Area:
    """An allocation of global memory whose bytes at the launch `contents` gives."""

    start: int
    size: int
    contents: Callable[[], bytes]


@dataclass(frozen=True)
class Symbols:
    """What is a symbol in place of a number, and data to an execution: by name of the parameter and offset four bytes
    of parameters, each with the name of what it is, and `axes` of the grid with the indices of blocks."""

    parameters: Mapping[tuple[str, int], str]
    axes: str


@dataclass
class Launched:
    """`parameters`: the bytes of each, tensor maps in Porter's form. `maps`: those in global memory, by address.
    `allocated`: the first byte of each allocation of global memory and the first one behind it, if they are known.
    `moved`: bytes that dynamic shared memory lies higher than where it would begin. `symbols`: what is no number.
    `as_begun`: the variables of the module that hold what they begin with; without it all of them. `scratch`: the parts
    of what is allocated that nobody reads behind the launch."""

    flow: Flow
    geometry: Geometry
    parameters: Mapping[str, bytes]
    maps: Mapping[int, bytes] = field(default_factory=dict)
    areas: Sequence[Area] = ()
    allocated: Sequence[tuple[int, int]] = ()
    moved: int = 0
    symbols: Symbols | None = None
    as_begun: Collection[str] | None = None
    scratch: Sequence[tuple[int, int]] = ()

    @cached_property
    def tables(self) -> list[Area]:
        """The variables of the module that begin with numbers, and hold them."""
        return [
            Area(self.variable_addresses[v.name], v.size, cache(partial(_begun, v)))
            for v in self.module_variables
            if v.initial and not any(isinstance(item, str) for item in v.initial)
            and (self.as_begun is None or v.name in self.as_begun)
        ]  # fmt: skip

    @cached_property
    def parameter_addresses(self) -> dict[str, int]:
        """Each at a place of its own."""
        found, at = {}, PARAMETERS
        for param in self.flow.code.entry.params:
            found[param.name] = at
            size = len(self.parameters.get(param.name, b""))
            at += -(-max(size, 1) // _PARAMETER_ALIGNMENT) * _PARAMETER_ALIGNMENT
        return found

    def parameter(self, address: int, size: int) -> int | None:
        """What a load of a parameter reads; None if it is outside of all."""
        for name, start in self.parameter_addresses.items():
            data = self.parameters.get(name, b"")
            if address - start >= 0 and address - start + size <= len(data):
                if self.symbols is not None and any(self.symbol(at) for at in range(address & -4, address + size, 4)):
                    return None
                return int.from_bytes(data[address - start : address - start + size], "little")
        return None

    def symbol(self, address: int) -> str:
        """The name of what stands in four bytes of parameters, if it is a symbol."""
        if self.symbols is None:
            return ""
        places = ((address - start, name) for name, start in self.parameter_addresses.items() if start <= address)
        offset, name = min(places, default=(0, ""))
        return self.symbols.parameters.get((name, offset), "")

    @cached_property
    def registers(self) -> int | None:
        """Those of each thread at the start; None where setmaxnreg moves none."""
        return self.flow.registers_at_start

    @cached_property
    def _shared(self) -> Layout:
        return lay_out(self._sized("shared"), self.moved)

    @cached_property
    def shared_variables(self) -> list[tuple[ast.VarDecl, int]]:
        """The variables of shared memory and where they lie."""
        return [(v, SYSTEM_SHARED + self._shared.offsets[v.name]) for v in self._variables("shared")]

    @cached_property
    def shared_end(self) -> int:
        """Where a block's shared memory ends."""
        return SYSTEM_SHARED + self._shared.behind + self.geometry.dynamic_smem

    @cached_property
    def dynamic_alignment(self) -> int:
        """What dynamic shared memory is declared to be aligned to; 0 where there is none."""
        return max((max(v.align, DYNAMIC_ALIGNMENT) for v in self._variables("shared") if v.extern), default=0)

    @cached_property
    def _local(self) -> Layout:
        return lay_out(self._sized("local"))

    @cached_property
    def local_addresses(self) -> dict[str, int]:
        """Where the variables of local memory lie, by name."""
        return {name: LOCAL + at for name, at in self._local.offsets.items()}

    @cached_property
    def accessible(self) -> list[tuple[int, int]]:
        """The first byte and the first one behind of what there is of other memory than shared memory; all of global
        memory where nobody knows what is allocated. Shared memory may stand there by a generic address."""
        variables = ((self.variable_addresses[v.name], v.size) for v in self.module_variables)
        known = (
            *self.allocated,
            *((at, at + len(data)) for at, data in self.maps.items()),
            *((at, at + size) for at, size in variables),
        )
        of_global = known if self.allocated else ((GLOBAL, LOCAL),)
        return [*of_global, (LOCAL, LOCAL + self._local.size), (0, GLOBAL), (PARAMETERS, 1 << 64)]

    @cached_property
    def module_variables(self) -> list[ast.VarDecl]:
        """Those of global and constant memory; each lies `VARIABLE_ROOM` behind the one before it."""
        return [v for v in self._declared if v.space in ("global", "const")]

    @cached_property
    def variable_addresses(self) -> dict[str, int]:
        return {v.name: VARIABLES + VARIABLE_ROOM * number for number, v in enumerate(self.module_variables)}

    @cached_property
    def shared_offsets(self) -> dict[str, int]:
        """Where the variables of shared memory lie, by name."""
        return {variable.name: at for variable, at in self.shared_variables}

    def _sized(self, space: str) -> list[Variable]:
        of_module = {v.name for v in self.flow.code.module.variables}
        return [Variable(v.name, v.size, v.align, v.name in of_module, v.extern) for v in self._variables(space)]

    def _variables(self, space: str) -> list[ast.VarDecl]:
        """Those of the module that the kernel names, and its own."""
        return [v for v in self._declared if v.space == space and v.name in self.flow.symbols]

    @property
    def _declared(self) -> list[ast.VarDecl]:
        return self.flow.declared


def _begun(variable: ast.VarDecl) -> bytes:
    return initial_bytes(variable, {}).ljust(variable.size, b"\0")


def static_shared(code: Code) -> tuple[int, int]:
    """Bytes of shared variables of a fixed size: of those of the module that a kernel names, and of its own."""
    used = named_in(code.code)
    of_module = sum(v.size for v in code.module.variables if v.space == "shared" and not v.extern and v.name in used)
    return of_module, sum(v.size for v in declared_in(code.entry.body or ()) if v.space == "shared")
