# SPDX-License-Identifier: Apache-2.0
"""Operands that are shared addresses, or generic ones of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.sim.codegen import Context, runtime
from porter.sim.machine import Machine
from porter.sim.results import Stop
from porter.sim.threads import lane_mask

Array = npt.NDArray[Any]


@runtime
def generic_shared(M: Machine, at: int, idx: Any, n: int, mask: Any, address: Any) -> Array:
    """Generic addresses of shared memory to shared addresses."""
    a = np.asarray(address)
    window = a >> np.uint64(32)
    if (window[... if window.ndim < 2 else slice(None)] == np.uint64(1 << 16)).all():
        return a.astype(np.uint32)
    bad = lane_mask(n, mask) & np.broadcast_to(window != np.uint64(1 << 16), (n, 32))
    if bad.any():
        value = int(np.broadcast_to(a, (n, 32))[bad][0])
        where = M.first_lane(idx, n, mask, bad)
        raise Stop(Code.SIM_OUT_OF_BOUNDS, f"generic address {value:#x} is not in shared memory", at, *where)
    return a.astype(np.uint32)


def shared_address(cg: Context, op: ast.Operand, ins: ast.Instruction) -> str:
    """A shared address operand; without a .shared qualifier the address is generic."""
    if isinstance(op, ast.Mem) and isinstance(op.base, ast.Sym):
        return cg.addr(op, "u32")
    if any(part.startswith("shared") for part in ins.parts):
        return cg.addr(op, "u32")
    return cg.let(cg.call("generic_shared", cg.addr(op, "u64")))
