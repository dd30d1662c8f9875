# SPDX-License-Identifier: Apache-2.0
"""What the port decided for a kernel, and why: roles, Tensor Memory, batches, and where accumulators move."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.model.accumulators import Accumulator
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.ptx.swizzle import PERIOD
from porter.ptx.wgmma import M


@dataclass(frozen=True)
class AccumulatorPlan:
    """One accumulator: `cleared`, `loaded` and `stored` are 1-based lines of the original. `columns` is a C++
    expression where it depends on the type of a library's MMA."""

    name: str
    function: str
    element: str
    columns: int | str
    tiles: str
    cleared: tuple[int, ...]
    loaded: tuple[int, ...]
    stored: tuple[int, ...]

    @property
    def residency(self) -> str:
        """The decision in a sentence."""
        if self.stored:
            return "goes to registers and back: threads change it between MMAs"
        if not self.loaded:
            return "stays in Tensor Memory: nothing reads it"
        if len(self.loaded) == 1:
            return "stays in Tensor Memory until one load"
        return f"is loaded at {len(self.loaded)} places"


@dataclass(frozen=True)
class KernelPlan:
    """One kernel. `columns` is per warpgroup, a C++ expression where it depends on template arguments; `barrier` the
    highest named barrier that the port uses, 0 if it uses none."""

    kernel: str
    path: str
    line: int
    threads: str
    warpgroups: str
    first_warpgroup: int
    columns: str
    in_flight: int
    barrier: int
    notes: tuple[str, ...]
    accumulators: tuple[AccumulatorPlan, ...] = field(default=())
    mma_rows: int = M
    """Rows of an MMA: 128 where one does the work of two tiles."""
    mode: str = ""
    """How results are partitioned in a port in SM100's own words; empty for others."""
    permuted: bool = False
    """Whether rows of A change places in shared memory for that, by other tensor maps."""
    joined: bool = False
    """Whether the two tiles are those of two warpgroups."""
    native: tuple[str, ...] = ()
    """Steps of the native style that the port has."""
    stages: int = 0
    """Stages of the ring where one of these steps changed their number, else 0."""
    registers: int = 0
    """Registers that warps which give some back keep, where one of these steps changed it, else 0."""
    alike: bool = False
    """Whether the compiler says the same of the types of all instantiations of such a port."""
    halved: int | None = None
    """The dimension of the grid that has half the blocks, where one of these steps made tiles twice as wide."""
    pair_axis: int = 0
    """The dimension of the grid that the two blocks of a pair lie in, where one of these steps made pairs."""
    promotion: str | None = None
    """Where sums of FP8 are promoted, what is missing for adding in the accumulator alone, empty if nothing is."""
    scales: str | None = None
    """Where such sums are scaled, what is missing for scales of the tensor core, empty if nothing is."""
    gate: tuple[str, ...] = ()
    """What the text does not tell of M=128 MMAs and of steps: a run of the port has to show it."""

    @property
    def has_full_rate(self) -> bool:
        """Whether one MMA does the work of two tiles."""
        return self.mma_rows > M

    @property
    def steps(self) -> tuple[str, ...]:
        """Steps of all styles that the port has."""
        rows = ("m128",) if self.has_full_rate else ("own words",) if self.mode else ()
        return (*rows, *self.native)

    def of_compat(self) -> KernelPlan:
        """The plan of the same kernel without any of them."""
        return replace(self, mma_rows=M, mode="", permuted=False, joined=False, alike=False, native=(), gate=())


def kernel_plan(
    context: PortContext,
    kernel: Kernel,
    columns: str,
    owned: list[Accumulator],
    moves: Moves,
) -> KernelPlan:
    """The plan of one kernel after its passes have run."""
    function = kernel.function
    batches, roles = context.batches, kernel.roles
    notes = []
    if not batches.bounded:
        notes.append("some path commits without waiting: a commit first waits for room among the completion barriers")
    if not batches.fenced:
        notes.append("some batch starts without a wgmma.fence: the warps of a warpgroup meet after each wait instead")
    if kernel.has_dynamic_shared:
        notes.append(
            f"static shared memory is padded to {PERIOD} bytes, so that dynamic shared memory keeps its alignment"
        )
    if not roles.exact:
        notes.append("the block size is not known: room for as many warpgroups as fit is set aside")
    return KernelPlan(
        function.name,
        function.file.path,
        _line(function, function.body),
        kernel.threads or "unknown",
        roles.count,
        roles.first,
        columns,
        batches.ring,
        context.helpers.first_barrier,
        tuple(notes),
        tuple(_accumulator(context, a, moves) for a in owned),
        context.helpers.mma_rows,
    )


def _accumulator(context: PortContext, accumulator: Accumulator, moves: Moves) -> AccumulatorPlan:
    function = accumulator.function
    cleared = [_line(z.function, z.node) for z in context.flow.zeroing.values() if accumulator in z.accumulators]
    return AccumulatorPlan(
        accumulator.home.title,
        function.name,
        accumulator.d_type.value,
        accumulator.size.columns,
        " x ".join(accumulator.home.tile_extents) or "1",
        tuple(sorted(cleared)),
        tuple(_line(function, n) for n in moves.loads[accumulator]),
        tuple(_line(function, n) for n in moves.stores[accumulator]),
    )


def _line(function: Function, node: Node) -> int:
    return function.file.lines.line_column(node.start_byte + function.shift)[0]
