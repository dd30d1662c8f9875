# SPDX-License-Identifier: Apache-2.0
"""Groups of asynchronous copies: a warp's of cp.async, a thread's of bulk copies (PTX ISA 9.7.9.25)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from porter.sim.codegen import runtime
from porter.sim.engine import Operation
from porter.sim.machine import Machine
from porter.sim.threads import Issuer


class CopyState:
    """Copies not yet in a group, and the groups, oldest first."""

    def __init__(self) -> None:
        self.open: list[Operation] = []
        self.groups: deque[list[Operation]] = deque()

    def all(self) -> list[Operation]:
        return [op for g in self.groups for op in g] + self.open

    def commit(self) -> None:
        """What is open becomes a group."""
        self.groups.append(self.open)
        self.open = []


def bulk_out(by: Issuer, read: Callable[[], None] | None, land: Callable[[], None]) -> None:
    """Issue a bulk copy to global memory: part of the thread's next group."""
    M = by.machine
    op = Operation(by.at, by.warp, land, read=read)
    state = M.bulk.setdefault(by.warp, {}).setdefault(by.lane, CopyState())
    # Copies of one thread keep their order, so that a later reduction finds an earlier store's result.
    M.engine.issue(op)
    state.open.append(op)


@runtime
def bulk_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, w in enumerate(M.warps(idx).tolist()):
        for lane, state in M.bulk.get(w, {}).items():
            if lanes[row, lane]:
                state.commit()


@runtime
def bulk_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int, read: bool) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, w in enumerate(M.warps(idx).tolist()):
        for lane, state in M.bulk.get(w, {}).items():
            if not lanes[row, lane]:
                continue
            if read:
                for group in list(state.groups)[: max(len(state.groups) - left, 0)]:
                    for op in group:
                        M.engine.read_sources(op)
                continue
            while len(state.groups) > left:
                M.engine.land_all(state.groups.popleft())
