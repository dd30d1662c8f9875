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


@runtime
def offset_as_generic(M: Machine, at: int, idx: Any, n: int, mask: Any, address: Any) -> Array:
    """The same of a tcgen05.commit, where at practice level a shared address will do as well (ruling
    `shared-offset`)."""
    a = np.asarray(address)
    offsets = lane_mask(n, mask) & np.broadcast_to(a >> np.uint64(32) == 0, (n, 32))
    if M.options.level == "strict" or not offsets.any():
        return generic_shared(M, at, idx, n, mask, address)
    if M.observer is not None:
        M.observer.tolerates("A1", at, M.warps(idx)[offsets.any(axis=1)])
    return np.where(offsets, a, generic_shared(M, at, idx, n, lane_mask(n, mask) & ~offsets, a)).astype(np.uint32)


def shared_address(cg: Context, name: str, generic: str = "generic_shared") -> str:
    """A shared address, the operand of that name; without a .shared qualifier it is generic, and `generic` makes a
    shared one of it."""
    op = cg.ins[name]
    named = isinstance(op, ast.Mem) and isinstance(op.base, ast.Sym)
    return cg.addr(op, "u32") if named or cg.ins.space(name) else cg.let(cg.call(generic, cg.addr(op, "u64")))
