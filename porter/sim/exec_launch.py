# SPDX-License-Identifier: Apache-2.0
"""clusterlaunchcontrol: a cluster takes over the work of one that has not started yet (PTX ISA 9.7.13.17 and 18).

The response is opaque to kernels. Here its words are x, y and z of the cancelled cluster's first block, and
whether one was cancelled; where none was, they are those of no block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.alignment import RESPONSE_BYTES
from porter.ptx.table import Decoded, items
from porter.sim.codegen import Context, emits, runtime
from porter.sim.kinds import Unsupported
from porter.sim.machine import Machine
from porter.sim.operation import Operation
from porter.sim.results import Stop
from porter.sim.shared_address import shared_address
from porter.sim.threads import Issuer, Signal, active_lanes, issuers, per_lane

_NOBODY = 0xFFFFFFFF


def response_places(by: Issuer, address: int, mbar: int, everyone: bool) -> tuple[list[int], int, list[Signal]]:
    """The blocks whose shared memory the response goes to, its offset there, and each one's mbarrier."""
    M = by.machine
    _, offset = by.place(address, RESPONSE_BYTES)
    if offset % RESPONSE_BYTES:
        what = f"shared address {address:#x} of a response is not a multiple of {RESPONSE_BYTES}"
        raise Stop(Code.SIM_MISALIGNED, what, by.at, by.warp, by.lane)
    first = int(M.cta_first[by.cta])
    targets = list(range(first, first + M.cluster_size)) if everyone else [by.cta]
    return targets, offset, by.signals(targets, mbar)


@runtime
def try_cancel(M: Machine, at: int, idx: Any, n: int, mask: Any, address: Any, mbar: Any, everyone: bool) -> None:
    a, b = per_lane(address, n), per_lane(mbar, n)
    for by, i in issuers(M, at, idx, n, mask):
        if by.cta in M.refused:
            what = "a request by a block that has seen one fail"
            raise Stop(Code.SIM_LAUNCH_CONTROL, what, by.at, by.warp, by.lane)
        targets, offset, signals = response_places(by, int(a[i]), int(b[i]), everyone)
        effect = None
        if M.observer is not None:
            effect = M.observer.issues(by.copy_in(targets, signals, offset, RESPONSE_BYTES))

        def land(targets: list[int] = targets, offset: int = offset, signals: list[Signal] = signals) -> None:
            cancelled = M.pending.take(M.cluster_size)
            place = (*M.grid.position_of(cancelled.start), 1) if cancelled else (_NOBODY, _NOBODY, _NOBODY, 0)
            for target, (slot, owner) in zip(targets, signals, strict=True):
                M.smem[target, offset : offset + RESPONSE_BYTES] = np.array(place, "<u4").view(np.uint8)
                M.mbar.complete_tx(slot, owner, RESPONSE_BYTES)

        M.engine.issue(Operation(at, by.warp, land, keys=[("mbar", *place) for place in signals], effect=effect))


@emits("clusterlaunchcontrol.try_cancel")
def _try_cancel(cg: Context, ins: Decoded) -> None:
    everyone = "multicast_cluster_all" in ins.modifiers
    cg.line(cg.call("try_cancel", shared_address(cg, "response"), shared_address(cg, "mbar"), str(everyone)))


@runtime
def note_answers(M: Machine, at: int, idx: Any, n: int, mask: Any, cancelled: Any) -> None:
    """A block sees whether its request succeeded."""
    answers = per_lane(cancelled, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        if not answers[row, lane]:
            M.refused.add(int(M.warp_cta[warp]))


@emits("clusterlaunchcontrol.query_cancel")
def _query_cancel(cg: Context, ins: Decoded) -> None:
    response = ins["response"]
    if not isinstance(response, ast.Vec) or len(response.items) != 2:
        raise Unsupported("a response that is no 128-bit register")
    low, high = (cg.src(half, "u64") for half in response.items)
    shift = cg.const("u64", 32)
    words = [f"({low}).astype(t_u32)", f"({low} >> {shift}).astype(t_u32)", f"({high}).astype(t_u32)"]
    if "is_canceled" in ins.modifiers:
        cancelled = cg.let(f"({high} >> {shift}) != {cg.const('u64', 0)}")
        cg.line(cg.call("note_answers", cancelled))
        cg.put("p", cancelled)
    elif "which" in ins.modifiers:
        cg.put("d", words["xyz".index(ins.modifiers["which"][-1])])
    else:
        # The fourth is unspecified.
        for to, word in zip(items(ins["d"]), [*(cg.let(w) for w in words), cg.const("u32", 0)], strict=True):
            cg.set(to, "u32", word)
