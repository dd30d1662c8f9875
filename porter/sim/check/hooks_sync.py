# SPDX-License-Identifier: Apache-2.0
"""Synchronization as the checker sees it: fences, barriers, mbarriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx import ast
from porter.ptx.memory_order import Scope, fence_scope, fenced_spaces
from porter.sim import exec_mbarrier, sync
from porter.sim.check import registers
from porter.sim.check.clocks import ASYNC, ORDER
from porter.sim.check.judge import Verdict
from porter.sim.codegen import Context
from porter.sim.machine import Machine
from porter.sim.progress import GONE
from porter.sim.threads import active_warps

Array = npt.NDArray[Any]


# Fences -----------------------------------------------------------------------------------------------


def fence_event(M: Machine, at: int, idx: Any, n: int, mask: Any, what: str, of: Any = None) -> None:
    """`of`: the state spaces of a proxy fence, the scope of a memory fence."""
    check: Any = M.check
    for _, warp in active_warps(M, idx, n, mask):
        if what == "proxy":
            check.clocks.proxy_fence(warp, *of)
        elif what == "before":
            check.clocks.before_thread_sync(warp)
        elif what == "after":
            if check.clocks.after_thread_sync(warp):
                check.waits.add(at)
        elif what == "wait_ld":
            check.completed_by(warp, check.loads.pop(warp, []), at)
        elif what == "memory":
            check.lanes.sync(warp)
            check.clocks.acquire_held(warp)
            check.global_memory.users.fence(warp, Scope(of))
            check.clocks.fence(warp)
        elif what == "warp":
            check.lanes.sync(warp)
        elif what == "mbarrier_init":
            event = check.clocks.fence_inits(warp)
            for init in check.mbarriers.inits.values():
                # The fence concerns the thread's own initializations.
                if init.warp == warp:
                    init.done.append(event)
                    init.notes.setdefault("fences", []).append(event)


def tensor_map_fence(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any) -> None:
    """The acquire of the map at an address, or the release (no address)."""
    check: Any = M.check
    if addr is None:
        for _, warp in active_warps(M, idx, n, mask):
            check.global_memory.release_tensor_maps(warp)
        return
    a = np.broadcast_to(np.asarray(addr), (n, 32))
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, warp in active_warps(M, idx, n, mask):
        for address in np.unique(a[row][lanes[row]]).tolist():
            check.global_memory.fence_tensor_map(warp, address)


def emit_events(cg: Context, ins: ast.Instruction) -> None:
    """Calls for instructions that do nothing in a functional run."""
    p = ins.parts
    what: str | None = None
    of: Any = None
    if p[0] == "fence" and p[1] == "proxy" and p[2].startswith("tensormap"):
        address = cg.addr(ins.operands[0], "u64") if "acquire" in p else "None"
        cg.line(cg.call("tensor_map_fence", address))
    elif p[0] == "fence" and p[1] == "proxy":
        what, of = ("proxy", fenced_spaces(ins)) if p[2].startswith("async") else (None, None)
    elif p[0] == "fence" and p[1] == "mbarrier_init":
        what = "mbarrier_init"
    elif (scope := fence_scope(ins)) is not None:
        what, of = "memory", int(scope)
    elif p[0] in ("bar", "barrier") and p[1] == "warp":
        what = "warp"
    elif p[0] == "tcgen05":
        what = {"fence::before_thread_sync": "before", "fence::after_thread_sync": "after",
                "wait::ld": "wait_ld"}.get(p[1])  # fmt: skip
    if what is not None:
        cg.line(cg.call("fence_event", repr(what), repr(of)))


# Barriers ---------------------------------------------------------------------------------------------


def _join_barrier(M: Machine, at: int, idx: Any, n: int, lanes: Array, number: Any, wait: bool) -> list[Any]:
    check: Any = M.check
    warps = M.warps(idx)
    keys = []
    for cta, b, these in sync._groups(M, at, idx, n, lanes, number):
        message, waiting = check.barriers.get((cta, b), (None, set()))
        for row in np.flatnonzero(these.any(axis=1)).tolist():
            warp = int(warps[row])
            message = check.clocks.merge(message, check.clocks.release(warp))
            if wait:
                waiting.add(warp)
                check.lanes.sync(warp)
        check.barriers[cta, b] = message, waiting
        keys.append((cta, b))
    return keys


def barrier_sync(
    M: Machine, at: int, idx: Any, n: int, active: Any, mask: Any, number: Any, count: Any, following: int
) -> int | None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    keys = _join_barrier(M, at, idx, n, lanes, number, True) if lanes.any() else []
    check: Any = M.check
    joined = {key: check.barriers[key] for key in keys}
    result = sync.barrier_sync(M, at, idx, n, active, mask, number, count, following)
    for key in keys:
        if key not in M.barriers:
            check.barrier_done(*key)
        elif key not in check.barriers:
            # More came than the barrier was waiting for: these now wait in its next phase.
            message, waiting = joined[key]
            left = {warp for warp, _ in M.parked.get(("bar", *key), ())}
            check.barriers[key] = message, waiting & left
    return result


def barrier_arrive(M: Machine, at: int, idx: Any, n: int, mask: Any, number: Any, count: Any) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if lanes.any():
        _join_barrier(M, at, idx, n, lanes, number, False)
    sync.barrier_arrive(M, at, idx, n, mask, number, count)


def barrier_reduce(
    M: Machine, at: int, idx: Any, n: int, mask: Any, number: Any, count: Any, predicate: Any, how: str
) -> Any:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    fresh = lanes & ~M.has_token[M.warps(idx)]
    if fresh.any():
        _join_barrier(M, at, idx, n, fresh, number, True)
    return sync.barrier_reduce(M, at, idx, n, mask, number, count, predicate, how)


def cluster_arrive(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    check: Any = M.check
    for _, warp in active_warps(M, idx, n, mask):
        k = int(M.warp_cta[warp]) // M.cluster_size
        relaxed = "relaxed" in M.program.code[at].parts
        message = check.clocks.release_relaxed(warp) if relaxed else check.clocks.release(warp)
        for init in check.mbarriers.inits.values():
            if init.warp == warp:
                init.notes.setdefault("arrived", int(M.cluster_phase[k]))
        check.cluster_messages[k] = check.clocks.merge(check.cluster_messages.get(k), message)
    sync.cluster_arrive(M, at, idx, n, mask)


def cluster_wait(M: Machine, at: int, idx: Any, n: int, here: Any, mask: Any, following: int) -> int | None:
    check: Any = M.check
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, warp in active_warps(M, idx, n, mask):
        k = int(M.warp_cta[warp]) // M.cluster_size
        if (lanes[row] & (M.cluster_seen[warp] >= M.cluster_phase[k])).any():
            check.cluster_waiting.setdefault(k, set()).add(warp)
        elif k in check.cluster_phases:
            check.clocks.receive(warp, check.cluster_phases[k])
        check.lanes.sync(warp)
    return sync.cluster_wait(M, at, idx, n, here, mask, following)


# mbarriers --------------------------------------------------------------------------------------------


def _places(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any) -> list[tuple[int, list[tuple[int, int]]]]:
    """(warp, [(slot, block)]) of the mbarriers that warps name; invalid ones raise Stop."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if not lanes.any():
        return []
    slot, cta = M.mbar.locate(at, idx, n, lanes, addr)
    rows = np.nonzero(lanes)[0]
    warps = M.warps(idx)
    found: dict[int, dict[tuple[int, int], None]] = {}
    for row, s, c in zip(rows.tolist(), slot.tolist(), cta.tolist(), strict=True):
        found.setdefault(int(warps[row]), {})[s, c] = None
    return [(warp, list(places)) for warp, places in found.items()]


def check_init(M: Machine, at: int, warp: int, slot: int, cta: int, asynchronous: bool) -> None:
    """An mbarrier is used: its initialization must be known, and fenced if another proxy or block uses it."""
    check: Any = M.check
    init = check.mbarriers.inits.get((slot, cta))
    if init is None:
        return
    remote = int(M.warp_cta[warp]) != cta
    check.mbarriers.used((slot, cta), check.generic("use of the mbarrier", at, warp, True, 1, 8))
    edge, strict = None, False
    if not check.clocks.knows(warp, ORDER, init.done):
        edge = "synchronization after the initialization", "bar.sync, or barrier.cluster across blocks"
        arrived = init.notes.get("arrived")
        if arrived is not None and int(M.cluster_phase[int(M.warp_cta[warp]) // M.cluster_size]) > arrived:
            # A relaxed cluster barrier is between, which orders nothing by itself: CUTLASS's kernels for pairs of
            # blocks initialize a barrier behind their last fence.
            edge = "a fence between the initialization and the relaxed barrier", "fence.mbarrier_init.release.cluster"
            strict = True
    elif (asynchronous or remote) and not (
        check.clocks.knows(warp, ASYNC, init.done) or check.clocks.knows(warp, ORDER, init.notes.get("fences", ()))
    ):
        edge = "a fence after the initialization", "fence.mbarrier_init.release.cluster"
        # NVIDIA's tutorials have only the barrier.
        strict = True
    if edge is not None:
        use = check.generic("use of the mbarrier", at, warp, True, 1, 8)
        check.report(Verdict("H21", *edge, strict=strict), init, use, f"mbarrier {M.mbar.offsets[slot]:#x}", cta)


def mbar_init(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: Any) -> None:
    check: Any = M.check
    valid = {(slot, cta) for slot, cta in np.argwhere(M.mbar.valid).tolist()}
    exec_mbarrier.mbar_init(M, at, idx, n, mask, addr, count)
    for warp, places in _places(M, at, idx, n, mask, addr):
        for place in places:
            init = check.generic("mbarrier.init", at, warp, True, 1, 8)
            check.mbarriers.initialized(place, init, place in valid)
            check.mbarriers.inits[place] = init
            check.mbar_messages.pop(place, None)


def mbar_inval(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any) -> None:
    check: Any = M.check
    for warp, places in _places(M, at, idx, n, mask, addr):
        for slot, cta in places:
            check_init(M, at, warp, slot, cta, False)
            check.mbarriers.invalidated((slot, cta), check.generic("mbarrier.inval", at, warp, True, 1, 8))
    exec_mbarrier.mbar_inval(M, at, idx, n, mask, addr)


def mbar_expect(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, nbytes: Any, sign: int) -> None:
    for warp, places in _places(M, at, idx, n, mask, addr):
        for slot, cta in places:
            check_init(M, at, warp, slot, cta, False)
    exec_mbarrier.mbar_expect(M, at, idx, n, mask, addr, nbytes, sign)


def mbar_arrive(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: Any, expect: Any, drop: bool
) -> Array:
    check: Any = M.check
    relaxed = "relaxed" in M.program.code[at].parts
    messages: dict[tuple[int, int], list[Any]] = {}
    for warp, places in _places(M, at, idx, n, mask, addr):
        for cta in {cta for _, cta in places if cta != int(M.warp_cta[warp])}:
            check.remote_arrival(at, warp, cta)
        check.lanes.arrived.add(warp)
        some = _partial(M, idx, n, mask, warp)
        message = check.clocks.release_relaxed(warp) if relaxed else check.clocks.release(warp, some)
        for place in places:
            check_init(M, at, warp, *place, False)
            check.mbarriers.arrived(place, at, warp)
            messages.setdefault(place, []).append((warp, message))
    late = _late(M, at, idx, n, mask, addr, count) if messages else {}
    for (place, warp), split in late.items():
        if split:
            arrival = check.generic("arrival", at, warp, True, 1, 8)
            where = f"mbarrier {M.mbar.offsets[place[0]]:#x}"
            check.report(_MISCOUNTED, check.mbarriers.inits.get(place), arrival, where, place[1])
    for place, arrivals in messages.items():
        for warp, message in arrivals:
            if (place, warp) not in late:
                check.arrive(*place, message.copy())
    result = exec_mbarrier.mbar_arrive(M, at, idx, n, mask, addr, count, expect, drop)
    for place, warp in late:
        check.arrive(*place, dict(messages[place])[warp].copy())
    return result


def _partial(M: Machine, idx: Any, n: int, mask: Any, warp: int) -> int | None:
    """The lanes of a warp that execute an instruction, a bit each; None if all do that are left."""
    if mask is None:
        return None
    row = int(np.flatnonzero(M.warps(idx) == warp)[0])
    lanes = np.broadcast_to(mask, (n, 32))[row]
    left = M.exists[warp] if M.converged[warp] else M.lane_state[warp] != GONE
    if (lanes | ~left).all():
        return None
    return int(np.packbits(lanes, bitorder="little").view(np.uint32)[0])


def _late(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: Any
) -> dict[tuple[tuple[int, int], int], bool]:
    """(mbarrier, warp) where not all of the warp's arrivals fall into the phase that is current now: what the warp
    has done is known only from the next one on. The value says whether some do."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    slots, ctas = M.mbar.locate(at, idx, n, lanes, addr)
    warps = np.broadcast_to(M.warps(idx)[:, None], (n, 32))[lanes]
    counts = np.broadcast_to(np.asarray(count), (n, 32))[lanes]
    if int(M.mbar.pending[slots, ctas].min()) >= int(counts.sum()):
        return {}
    totals: dict[tuple[tuple[int, int], int], int] = {}
    for slot, cta, warp, k in zip(slots.tolist(), ctas.tolist(), warps.tolist(), counts.tolist(), strict=True):
        key = (slot, cta), warp
        totals[key] = totals.get(key, 0) + k
    left: dict[tuple[int, int], int] = {}
    found = {}
    for (place, warp), k in totals.items():
        before = left.get(place, int(M.mbar.pending[place]))
        left[place] = before - k
        if left[place] < 0:
            found[place, warp] = before > 0
    return found


_MISCOUNTED = Verdict("H24", "an arrival count that is the number of threads that arrive", "mbarrier.init", strict=True)


def mbar_wait(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, want: Any, parity: bool, guard: Any = None
) -> Any:
    check: Any = M.check
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if guard is not None:
        lanes = lanes & np.broadcast_to(guard, (n, 32))
    result = exec_mbarrier.mbar_wait(M, at, idx, n, mask, addr, want, parity, guard)
    if result is None or not lanes.any():
        return result
    chosen, count, new_mask, complete = result
    row_of = {int(w): row for row, w in enumerate(M.warps(idx).tolist())}
    passed = np.broadcast_to(complete, (count, 32))
    if new_mask is not None:
        passed = passed & np.broadcast_to(new_mask, (count, 32))
    seen = np.zeros((n, 32), bool)
    for i, w in enumerate(M.warps(chosen).tolist()):
        seen[row_of[int(w)]] = passed[i]
    relaxed = "relaxed" in M.program.code[at].parts
    for warp, places in _places(M, at, idx, n, seen & lanes, addr):
        for slot, cta in places:
            check_init(M, at, warp, slot, cta, False)
            if M.mbar.phase[slot, cta]:
                check.waits.add(at)
            check.mbarriers.waited((slot, cta), at, warp)
            check.waited(warp, slot, cta, relaxed)
        check.lanes.waited(warp)
    return result


HOOKS: dict[str, Any] = {
    f.__name__: f
    for f in (barrier_sync, barrier_arrive, barrier_reduce, cluster_arrive, cluster_wait, mbar_init, mbar_inval,
              mbar_expect, mbar_arrive, mbar_wait)
}  # fmt: skip
EVENTS: dict[str, Any] = {"fence_event": fence_event, "tensor_map_fence": tensor_map_fence, **registers.EVENTS}
