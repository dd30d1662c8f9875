# SPDX-License-Identifier: Apache-2.0
"""Groups of asynchronous operations: a warp's of cp.async and wgmma, a thread's of bulk copies (PTX ISA 9.7.9.25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from porter.sim.codegen import runtime
from porter.sim.effects import Effect
from porter.sim.machine import Machine
from porter.sim.operation import Groups, Operation
from porter.sim.threads import Issuer


def bulk_out(by: Issuer, read: Callable[[], None], land: Callable[[], None], effect: Effect | None) -> None:
    """Issue a bulk copy to global memory: part of the thread's next group."""
    M = by.machine
    op = Operation(by.at, by.warp, land, read=read, effect=effect)
    state = M.bulk.setdefault(by.warp, {}).setdefault(by.lane, Groups())
    # Copies of one thread keep their order, so that a later reduction finds an earlier store's result.
    M.engine.issue(op)
    state.open.append(op)


@runtime
def bulk_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, w in enumerate(M.warps(idx).tolist()):
        for lane, state in M.bulk.get(w, {}).items():
            if lanes[row, lane]:
                M.engine.commit(w, state)


@runtime
def bulk_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int, read: bool) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    due = [
        (w, state.due(left, keep=read))
        for row, w in enumerate(M.warps(idx).tolist())
        for lane, state in M.bulk.get(w, {}).items()
        if lanes[row, lane]
    ]
    M.engine.wait(at, idx, n, mask, due, read)
