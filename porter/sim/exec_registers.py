# SPDX-License-Identifier: Apache-2.0
"""setmaxnreg (PTX ISA 9.7.19.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.ptx.table import Decoded
from porter.sim.codegen import Context, emits, runtime
from porter.sim.machine import Machine
from porter.sim.registers import Move
from porter.sim.threads import active_warps


@runtime
def registers_dec(M: Machine, at: int, idx: Any, n: int, mask: Any, count: int) -> None:
    for _, warp in active_warps(M, idx, n, mask):
        M.registers.move(warp, Move("dec", count, at))


@runtime
def registers_inc(M: Machine, at: int, idx: Any, n: int, mask: Any, guard: Any, count: int) -> Any:
    """Take registers, or stay until the block's pool has them. `guard` are the threads that execute it, None: all."""
    warps = M.warps(idx)
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    executing = lanes if guard is None else lanes & guard
    passed = np.array(
        [
            not executing[row].any() or M.registers.move(warp, Move("inc", count, at))
            for row, warp in enumerate(warps.tolist())
        ]
    )
    if passed.all():
        return idx, n, mask
    waiting = lanes & M.exists[warps] & ~passed[:, None]
    M.park(idx, n, waiting, [("registers", int(cta)) for cta in M.warp_cta[warps]])
    if not passed.any():
        return None
    return warps[passed], int(passed.sum()), None if mask is None else lanes[passed]


@emits("setmaxnreg")
def _setmaxnreg(cg: Context, ins: Decoded) -> None:
    count = str(cg.integer(ins["count"]))
    if ins.modifiers["action"] == "dec":
        cg.line(cg.call("registers_dec", count))
        return
    guard, cg.guard = cg.guard, None
    cg.narrow(f"registers_inc(M, {cg.at}, idx, n, mask, {guard}, {count})")
