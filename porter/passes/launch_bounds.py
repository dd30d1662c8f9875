# SPDX-License-Identifier: Apache-2.0
"""Kernels that move registers between warpgroups say how many CTAs share an SM, or ptxas ignores the moves."""

from __future__ import annotations

from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.kernels import Kernel
from porter.passes.context import PortContext

RULE = "PTR142"


def state_minimum_blocks(context: PortContext) -> None:
    """Complete `__launch_bounds__(threads)` where `setmaxnreg` is used."""
    if not any("setmaxnreg" in s.template for f in context.program.functions for s in f.asm):
        return
    for kernel in context.kernels:
        at = _end_of_only_bound(kernel)
        if at is not None:
            context.edit(RULE, kernel.function, Span(at, at), ", 1")


def _end_of_only_bound(kernel: Kernel) -> int | None:
    function = kernel.function
    for node in walk(function.node):
        if node.start_byte >= function.body.start_byte:
            return None
        if node.type == "launch_bounds" and len(node.named_children) == 1:
            return node.named_children[0].end_byte
    return None
