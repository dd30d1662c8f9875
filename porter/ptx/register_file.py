# SPDX-License-Identifier: Apache-2.0
"""Registers of a block: how many its threads start with, and what `setmaxnreg` may ask for.

Sources: PTX ISA 9.0 §9.7.19.5 (setmaxnreg) and §11.4 (performance directives). How many registers a kernel with
setmaxnreg starts with is what ptxas 13.0 answers for sm_90a and sm_100a (`ptxas -v`), tried for blocks of 128 to 1024
threads. Chips allocate registers to whole warps, eight a thread at a time (CUDA occupancy calculator, capability 9.0
and 10.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from porter.ptx import ast
from porter.ptx.launch_bounds import threads_at_most
from porter.ptx.wgmma import THREADS as WARPGROUP

GRANULARITY = 8
"""Registers per thread that are allocated together."""
LEAST, MOST = 24, 256
"""The counts that setmaxnreg takes, multiples of `GRANULARITY`."""


def legal_count(count: int) -> bool:
    """Whether setmaxnreg takes this count."""
    return LEAST <= count <= MOST and count % GRANULARITY == 0


def allocated(count: int) -> int:
    """The registers per thread that a warp holds whose threads may use `count`."""
    return -(-count // GRANULARITY) * GRANULARITY


def entry_registers(
    directives: Mapping[str, tuple[int, ...]], body: Iterable[ast.Instruction], per_sm: int, per_thread: int
) -> int | None:
    """Registers per thread that a kernel with these instructions is launched with, if setmaxnreg moves them; None if
    it has no effect: no instruction of it, or nothing says how many registers the threads start with (C7508).

    `.maxnreg` says it, and the threads of a block with the least number of blocks on an SM do, counted in whole
    warpgroups. No more are given than the largest `setmaxnreg.inc` asks for.
    """
    moves = [ins for ins in body if ins.parts[0] == "setmaxnreg"]
    limits = []
    if directives.get("maxnreg"):
        limits.append(directives["maxnreg"][0])
    threads, blocks = threads_at_most(directives), directives.get("minnctapersm")
    if threads and blocks and blocks[0]:
        groups = -(-threads // WARPGROUP)
        share = per_sm // (blocks[0] * groups * WARPGROUP) // GRANULARITY * GRANULARITY
        # More blocks than fit are no promise that could be kept.
        if share >= LEAST:
            limits.append(share)
    if not moves or not limits:
        return None
    counts = [ins.operands[0] for ins in moves if ins.parts[1] == "inc"]
    asked = [int(count.value) for count in counts if isinstance(count, ast.Imm)]
    return min(*limits, per_thread, *([max(asked)] if asked else []))
