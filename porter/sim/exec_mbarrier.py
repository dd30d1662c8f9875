# SPDX-License-Identifier: Apache-2.0
"""mbarrier instructions of threads (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT
from porter.ptx.table import Decoded
from porter.sim.codegen import Context, emits, runtime
from porter.sim.machine import Machine
from porter.sim.mbarrier import MAX_COUNT
from porter.sim.observer import Named
from porter.sim.results import Stop
from porter.sim.shared_address import shared_address
from porter.sim.threads import lane_mask

Array = npt.NDArray[Any]


def per_warp(values: Any, n: int) -> Array | None:
    """Values [n, 1] that the threads of each warp agree on, or None if they do not."""
    v = np.asarray(values)
    if v.ndim < 2 or v.shape[1] == 1:
        return np.broadcast_to(v, (n, 1))
    first = np.broadcast_to(v[:, :1], (n, 1))
    return first if (v == v[:, :1]).all() else None


@runtime
def mbar_init(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: Any) -> None:
    lanes = lane_mask(n, mask)
    if not lanes.any():
        return
    warps = M.warps(idx)
    a = np.broadcast_to(np.asarray(addr), (n, 32))[lanes]
    counts = np.broadcast_to(np.asarray(count), (n, 32))[lanes].astype(np.int64)
    ctas = np.broadcast_to(M.warp_cta[warps][:, None], (n, 32))[lanes]
    B = M.mbar
    valid = set() if M.observer is None else {(slot, cta) for slot, cta in np.argwhere(B.valid).tolist()}
    for address, k, cta in zip(a.tolist(), counts.tolist(), ctas.tolist(), strict=True):
        offset, rank = address & OFFSET_MASK, address >> RANK_SHIFT
        if offset % 8 or offset + 8 > M.smem_size or (rank and rank != int(M.cta_rank[cta])):
            B._bad(at, idx, n, lanes, address, "not an 8-byte aligned address of the block's shared memory")
        if not 1 <= k <= MAX_COUNT:
            B._bad(at, idx, n, lanes, address, f"count {k} is not from 1 to {MAX_COUNT}")
        slot = int(B.slot_of[offset >> 3])
        if slot < 0:
            slot = B._new_slot(offset)
        B.valid[slot, cta] = True
        B.count[slot, cta] = B.pending[slot, cta] = k
        B.tx[slot, cta] = B.phase[slot, cta] = 0
    M.activity += 1
    if M.observer is not None:
        M.observer.initialized(at, Named(warps, lanes, *B.locate(at, idx, n, lanes, addr), M.n_cta), valid)


@runtime
def mbar_inval(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any) -> None:
    lanes = lane_mask(n, mask)
    if lanes.any():
        slot, cta = M.mbar.locate(at, idx, n, lanes, addr)
        if M.observer is not None:
            M.observer.invalidates(at, Named(M.warps(idx), lanes, slot, cta, M.n_cta))
        M.mbar.valid[slot, cta] = False


def _check_tx(M: Machine, at: int, idx: Any, n: int, mask: Any, slot: Array, cta: Array) -> None:
    """The transaction count has a range of its own (PTX ISA 9.7.13.15.5)."""
    if (np.abs(M.mbar.tx[slot, cta]) > MAX_COUNT).any():
        where = M.first_lane(idx, n, mask)
        raise Stop(Code.SIM_MBARRIER, f"transaction count beyond {MAX_COUNT} bytes", at, *where)


@runtime
def mbar_expect(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, nbytes: Any, sign: int) -> None:
    """expect_tx (sign 1) and complete_tx (sign -1) as instructions."""
    lanes = lane_mask(n, mask)
    if not lanes.any():
        return
    B = M.mbar
    slot, cta = B.locate(at, idx, n, lanes, addr)
    if M.observer is not None:
        M.observer.expects(at, Named(M.warps(idx), lanes, slot, cta, M.n_cta))
    amount = np.broadcast_to(np.asarray(nbytes), (n, 32))[lanes].astype(np.int64)
    np.add.at(B.tx, (slot, cta), sign * amount)
    _check_tx(M, at, idx, n, mask, slot, cta)
    M.activity += 1
    B._check(slot, cta)


@runtime
def mbar_arrive(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: Any, expect: Any, drop: bool, last: bool
) -> Array:
    """Arrive; returns the phase state before, [n, 32] u64. `last`: the arrival may complete the phase."""
    lanes = lane_mask(n, mask)
    state = np.zeros((n, 32), np.uint64)
    if not lanes.any():
        return state
    B = M.mbar
    together = mask is None and expect is None and not drop
    one_addr, one_count = (per_warp(x, n) if together else None for x in (addr, count))
    if one_addr is None or one_count is None:
        together = False
    else:
        slot, cta = B.locate(at, idx, n, np.ones((n, 1), bool), one_addr)
        counts = 32 * one_count[:, 0].astype(np.int64)
        together = B.have_room(slot, cta, counts)
    if not together:
        slot, cta = B.locate(at, idx, n, lanes, addr)
        counts = np.broadcast_to(np.asarray(count), (n, 32))[lanes].astype(np.int64)
    if M.observer is not None:
        named = Named(M.warps(idx), lanes[:, :1] if together else lanes, slot, cta, M.n_cta)
        M.observer.arrives(at, named, np.broadcast_to(np.asarray(count), (n, 32)))
    phase = B.phase[slot, cta]
    before = (phase | B.pending[slot, cta] << 40).astype(np.uint64)
    if together:
        state[...] = before[:, None]
    else:
        state[lanes] = before
    if expect is not None:
        amount = np.broadcast_to(np.asarray(expect), (n, 32))[lanes].astype(np.int64)
        np.add.at(B.tx, (slot, cta), amount)
        _check_tx(M, at, idx, n, mask, slot, cta)
    if drop:
        np.subtract.at(B.count, (slot, cta), counts)
    B.arrivals(slot, cta, counts, at)
    if not last:
        _refuse(M, at, slot, cta, B.phase[slot, cta] != phase, "an arrival with .noComplete completes its phase")
    if M.observer is not None:
        M.observer.arrived()
    return state


def _refuse(M: Machine, at: int, slot: Array, cta: Array, bad: Array, why: str) -> None:
    """Raises Stop if something is wrong with one of some mbarriers."""
    if bad.any():
        s, c = int(slot[bad][0]), int(cta[bad][0])
        raise Stop(Code.SIM_MBARRIER, f"{M.mbar.describe(s, c)}: {why}", at, c * M.warps_per_cta)


@runtime
def mbar_wait(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, want: Any, parity: bool, guard: Any, unheeded: bool
) -> Any:
    """Threads whose phase is complete (or whose time is up) go on, with the result; the others stay.

    Threads whose guard is false do not wait; their result is false. `unheeded`: an observer may have it false.
    """
    lanes = lane_mask(n, mask)
    B = M.mbar
    warps = M.warps(idx)
    idle = np.zeros((n, 32), bool)
    if guard is not None:
        idle = lanes & ~np.broadcast_to(guard, (n, 32))
        lanes = lanes & ~idle
        if not lanes.any():
            return idx, n, mask, np.bool_(False)
    one_addr, one_want = (per_warp(x, n) for x in (addr, want))
    together = mask is None and guard is None and one_addr is not None and one_want is not None
    if together:
        assert one_want is not None
        slot, cta = B.locate(at, idx, n, np.ones((n, 1), bool), one_addr)
        w = one_want[:, 0]
    else:
        slot, cta = B.locate(at, idx, n, lanes, addr)
        w = np.broadcast_to(np.asarray(want), (n, 32))[lanes]
    phase = B.phase[slot, cta]
    done = _is_over(M, at, slot, cta, w, parity)
    named = None if M.observer is None else Named(warps, lanes[:, :1] if together else lanes, slot, cta, M.n_cta)
    if done.all() and guard is None and not (unheeded and named is not None):
        M.timed_out[warps] &= ~lanes
        if named is not None and M.observer is not None:
            M.observer.passed(at, named)
        return idx, n, mask, np.bool_(True)
    if together:
        slot, cta, done, phase, w = (np.repeat(x, 32) for x in (slot, cta, done, phase, w))
    complete = np.zeros((n, 32), bool)
    complete[lanes] = done
    expired = lanes & M.timed_out[warps]
    if unheeded and named is not None:
        early = _early(M, at, named, complete)
        complete, expired = complete & ~early, expired | early
    passing = complete | expired | idle
    M.timed_out[warps] &= ~lanes
    waiting = lanes & ~passing
    if waiting.any():
        key = np.full((n, 32), -1, np.int64)
        key[lanes] = slot * M.n_cta + cta
        _park(M, warps, waiting, key)
    # The converged version goes on with whole warps only; what is left runs in the general one.
    rows = passing.any(axis=1) if mask is not None else passing.all(axis=1)
    if not rows.any():
        return None
    if named is not None and M.observer is not None:
        M.observer.passed(at, named.among(complete & np.asarray(rows)[:, None]))
    chosen = warps[rows]
    return chosen, chosen.size, None if mask is None else passing[rows], complete[rows]


def _is_over(M: Machine, at: int, slot: Array, cta: Array, want: Array, parity: bool) -> Array:
    """Whether the phases of these parities, or of states, are complete. Raises Stop for a state that is neither of the
    current phase nor of the one before it, of which alone an mbarrier knows (PTX ISA 9.7.13.15.16)."""
    phase = M.mbar.phase[slot, cta]
    if parity:
        return np.asarray((phase & 1) != (want.astype(np.int64) & 1))
    of = (want & np.uint64((1 << 40) - 1)).astype(np.int64)
    _refuse(M, at, slot, cta, phase > of + 1, "a state of a phase before the last complete one is tested")
    return np.asarray(phase > of)


def _early(M: Machine, at: int, named: Named, complete: Array) -> Array:
    """The threads whose test is to come too early, [n, 32]."""
    assert M.observer is not None
    early = M.observer.tests(at, named, complete)
    if early is None:
        return np.zeros_like(complete)
    M.activity += 1
    return np.asarray(early)


def _park(M: Machine, warps: Array, waiting: Array, key: Array) -> None:
    n_cta = M.n_cta
    rows = np.flatnonzero(waiting.any(axis=1))
    k = key[rows]
    lanes = waiting[rows]
    first = k[np.arange(rows.size), np.argmax(lanes, axis=1)]
    uniform = ((k == first[:, None]) | ~lanes).all(axis=1)
    u = rows[uniform]
    if u.size:
        keys = [("mbar", *divmod(x, n_cta)) for x in first[uniform].tolist()]
        M.park(warps[u], u.size, waiting[u], keys)
    for row in rows[~uniform].tolist():
        for x in np.unique(key[row][waiting[row]]).tolist():
            these = waiting[row] & (key[row] == x)
            M.park(warps[row : row + 1], 1, these[None, :], [("mbar", *divmod(x, n_cta))])


@emits("mbarrier.init", "mbarrier.inval")
def _object(cg: Context, ins: Decoded) -> None:
    count = [cg.get("count")] if "count" in ins else []
    cg.line(cg.call("mbar_init" if count else "mbar_inval", shared_address(cg, "mbar"), *count))


@emits("mbarrier.expect_tx", "mbarrier.complete_tx")
def _expect(cg: Context, ins: Decoded) -> None:
    sign = "1" if ins.modifiers["op"] == "expect_tx" else "-1"
    cg.line(cg.call("mbar_expect", shared_address(cg, "mbar"), cg.get("tx"), sign))


@emits("mbarrier.arrive", "mbarrier.arrive_drop")
def _arrive(cg: Context, ins: Decoded) -> None:
    address = shared_address(cg, "mbar")
    count = cg.get("count") if "count" in ins else cg.const("u32", 1)
    expect = cg.get("tx") if "tx" in ins else "None"
    drop, last = "arrive_drop" in ins.modifiers, "noComplete" not in ins.parts
    call = cg.call("mbar_arrive", address, count, expect, str(drop), str(last))
    if ins.registers("state"):
        cg.put("state", call)
    else:
        cg.line(call)


@emits("mbarrier.try_wait", "mbarrier.test_wait")
def _wait(cg: Context, ins: Decoded) -> None:
    parity = "parity" in ins
    want = cg.get("parity" if parity else "state")
    address = shared_address(cg, "mbar")
    here = "None" if cg.converged else "mask"
    unheeded = cg.machine.late and cg.machine.observer is not None and cg.program.ways.is_unheeded(cg.at)
    wait = f"mbar_wait(M, {cg.at}, idx, n, {here}, {address}, {want}, {parity}, {cg.guard}, {unheeded})"
    cg.narrow(wait, ", result")
    if ins.guard is not None:
        guard = cg.src(ins.guard.operand, "p")
        cg.guard = cg.let(f"~{guard}") if ins.guard.negated else guard
    cg.put("done", "result")


@emits("mbarrier.pending_count")
def _pending_count(cg: Context, ins: Decoded) -> None:
    cg.put("count", f"({cg.get('state')} >> {cg.const('u64', 40)}).astype(t_u32)")
