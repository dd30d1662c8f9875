# SPDX-License-Identifier: Apache-2.0
"""What the port decided for a kernel with tiled MMAs."""

from __future__ import annotations

from tree_sitter import Node

from porter.model.functions import Function
from porter.model.tiled.accumulators import Handle
from porter.passes.full_rate.asked import asked_of_runs
from porter.passes.plan import AccumulatorPlan, KernelPlan
from porter.passes.tiled.context import Frame, TiledContext, TiledKernel
from porter.passes.tiled.frames import frames_of


def kernel_plan(context: TiledContext, kernel: TiledKernel) -> KernelPlan:
    """The plan of one kernel after its passes have run."""
    function = kernel.function
    return KernelPlan(
        kernel=function.qualified_name if function.block_size else function.name,
        path=function.file.path,
        line=_line(function, function.body),
        threads=kernel.threads,
        warpgroups=kernel.warpgroups,
        first_warpgroup=kernel.first_warpgroup,
        columns=kernel.columns,
        in_flight=kernel.ring,
        barrier=0,
        notes=("its tiled MMAs stay as they are: they say who has which element",),
        accumulators=tuple(_accumulator(context, f, h) for f in frames_of(context, kernel) for h in f.fragments),
        mma_rows=context.port.helpers.mma_rows,
        joined=context.port.helpers.joined,
        gate=asked_of_runs(context.port.helpers, function, ()),
    )


def _accumulator(context: TiledContext, frame: Frame, handle: Handle) -> AccumulatorPlan:
    loads = [_line(f, n) for f, n, h in context.loads if h is handle]
    return AccumulatorPlan(
        name=handle.name,
        function=handle.function.name or frame.function.name,
        element="as its MMA has it",
        columns=frame.widths.get(handle.name, ""),
        tiles="MMA_M x MMA_N",
        cleared=(),
        loaded=tuple(sorted(loads)),
        stored=(),
    )


def _line(function: Function, node: Node) -> int:
    return function.file.lines.line_column(node.start_byte + function.shift)[0]
