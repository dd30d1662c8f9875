# SPDX-License-Identifier: Apache-2.0
"""Member masks of collective instructions: who executes one has to be in its mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.member_masks import EVERYONE, member_mask
from porter.ptx.table import Decoded
from porter.sim.codegen import Context, runtime
from porter.sim.machine import Machine
from porter.sim.results import Stop
from porter.sim.threads import lane_mask

_LANES = np.arange(32, dtype=np.uint32)


@runtime
def require_members(M: Machine, at: int, idx: Any, n: int, mask: Any, members: Any, opcode: str) -> None:
    """Each thread that executes an instruction is in its own mask."""
    inside = np.broadcast_to(np.asarray(members, np.uint32), (n, 32)) >> _LANES & np.uint32(1)
    outside = lane_mask(n, mask) & (inside == 0)
    if outside.any():
        what = f"{opcode} by a thread that is not in its member mask"
        raise Stop(Code.SIM_COLLECTIVE, what, at, *M.first_lane(idx, n, outside))


def check_members(cg: Context, ins: Decoded) -> None:
    """Generate the check where a mask may leave somebody out."""
    members = member_mask(ins)
    if members is None or (isinstance(members, ast.Imm) and int(members.value) & EVERYONE == EVERYONE):
        return
    cg.line(cg.call("require_members", cg.src(members, "u32"), repr(".".join(ins.parts[:2]))))
