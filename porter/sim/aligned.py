# SPDX-License-Identifier: Apache-2.0
"""Guards of `.aligned` instructions: all threads of a warp execute one, or none does (PTX ISA 9.7, `.aligned`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.diagnostics import Code
from porter.ptx.table import Decoded
from porter.sim.codegen import Context, runtime
from porter.sim.machine import Machine
from porter.sim.progress import GONE
from porter.sim.results import Stop


@runtime
def require_one_mind(M: Machine, at: int, idx: Any, n: int, mask: Any, guard: Any, opcode: str) -> None:
    """The threads of each warp that are here have one guard."""
    guard = np.broadcast_to(guard, (n, 32))
    warps = M.warps(idx)
    here = M.exists[warps] & (M.lane_state[warps] != GONE)
    if mask is not None:
        here = here & mask
    split = (here & guard).any(axis=1) & (here & ~guard).any(axis=1)
    if split.any():
        row = int(np.argmax(split))
        lane = int(np.argmax((here & guard)[row]))
        what = f"{opcode} with a guard that differs among the threads of a warp"
        raise Stop(Code.SIM_COLLECTIVE, what, at, int(warps[row]), lane)


def check_guard(cg: Context, ins: Decoded) -> None:
    """Generate the check where an instruction needs one; barriers of blocks and clusters have rules of their own."""
    if cg.guard is not None and "aligned" in ins.parts and ins.parts[0] not in ("bar", "barrier"):
        here, opcode = "None" if cg.converged else "mask", ".".join(ins.parts[:2])
        cg.line(f"require_one_mind(M, {cg.at}, idx, n, {here}, {cg.guard}, {opcode!r})")
