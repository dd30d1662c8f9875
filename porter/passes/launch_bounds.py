# SPDX-License-Identifier: Apache-2.0
"""Kernels say how many CTAs share an SM: where they move registers between warpgroups, or ptxas ignores the moves, and
where Tensor Memory has room for two CTAs at most, or ptxas spills to make room for a third."""

from __future__ import annotations

from collections.abc import Sequence

from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.kernels import Kernel
from porter.passes.context import PortContext
from porter.passes.plan import KernelPlan
from porter.ptx.arch import Limits
from porter.ptx.register_file import allocated
from porter.ptx.tmem import COLUMNS

RULE = "PTR142"

_MOST_THREADS = Limits.registers_per_sm // (2 * allocated(Limits.registers_per_thread))
"""Two CTAs of so many threads fit on an SM with as many registers as a thread may have, so that to ask for one of them
takes none away."""


def state_minimum_blocks(context: PortContext, plans: Sequence[KernelPlan]) -> None:
    """Complete `__launch_bounds__(threads)`; `plans` are those of the context's kernels, in their order."""
    moves = any("setmaxnreg" in s.template for f in context.program.functions for s in f.asm)
    for kernel, plan in zip(context.kernels, plans, strict=True):
        at = _end_of_only_bound(kernel)
        if at is not None and (moves or _third_has_no_columns(context, kernel, plan)):
            context.edit(RULE, kernel.function, Span(at, at), ", 1")


def _third_has_no_columns(context: PortContext, kernel: Kernel, plan: KernelPlan) -> bool:
    """Whether Tensor Memory has no room for a third CTA, and registers are enough for two: allocations are powers of
    two."""
    evaluate = context.program.constants_in(kernel.function).evaluate
    threads, columns = evaluate(kernel.threads or ""), evaluate(plan.columns)
    return threads is not None and columns is not None and threads <= _MOST_THREADS and columns > COLUMNS // 4


def _end_of_only_bound(kernel: Kernel) -> int | None:
    function = kernel.function
    for node in walk(function.node):
        if node.start_byte >= function.body.start_byte:
            return None
        if node.type == "launch_bounds" and len(node.named_children) == 1:
            return node.named_children[0].end_byte
    return None
