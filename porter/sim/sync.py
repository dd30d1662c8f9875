# SPDX-License-Identifier: Apache-2.0
"""Waiting for each other: gathering a warp, named and cluster barriers; what to do when all wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.arch import WARP
from porter.ptx.barriers import is_barrier, is_count
from porter.sim.barriers import NamedBarrier
from porter.sim.codegen import runtime
from porter.sim.machine import Machine
from porter.sim.progress import GONE, RUN
from porter.sim.results import Stop

Array = npt.NDArray[Any]
_LANES = np.arange(32, dtype=np.uint32)
_BITS = (np.uint32(1) << _LANES).astype(np.uint32)


def lane_bits(lanes: Array) -> Array:
    """[n, 32] bool to [n] u32."""
    return np.packbits(lanes, axis=1, bitorder="little").view(np.uint32)[:, 0]


@runtime
def gather_warp(M: Machine, at: int, idx: Any, n: int, mask: Array, members: Any) -> Any:
    """Let threads go on whose named fellow threads are all here too; the others stay."""
    warps = M.warps(idx)
    state = M.lane_state[warps]
    live = state != GONE
    parked_here = np.zeros((n, 32), bool)
    for row, w in enumerate(warps.tolist()):
        for _, lanes in M.parked.get(("warp", w, at), ()):
            parked_here[row] |= lanes
    present = mask | parked_here
    need = lane_bits(live)[:, None]
    if members is not None:
        need = need & np.broadcast_to(np.asarray(members, np.uint32), (n, 32))
    missing = need & ~lane_bits(present)[:, None]
    ok = present & (missing == 0)
    for row in np.flatnonzero((ok & parked_here).any(axis=1)).tolist():
        w = int(warps[row])
        kept = [(x, lanes & ~ok[row]) for x, lanes in M.parked.pop(("warp", w, at), [])]
        kept = [(x, lanes) for x, lanes in kept if lanes.any()]
        if kept:
            M.parked["warp", w, at] = kept
        M.lane_state[w][ok[row]] = RUN
    waiting = mask & ~ok
    if waiting.any():
        M.park(idx, n, waiting, [("warp", int(w), at) for w in warps])
    rows = ok.any(axis=1)
    if not rows.any():
        return None
    M._settle(warps)
    if rows.all():
        return idx, n, ok
    return warps[rows], int(rows.sum()), ok[rows]


@runtime
def require_all_threads(M: Machine, at: int, idx: Any, n: int, mask: Array, opcode: str) -> None:
    """No thread of the warps has ended."""
    warps = M.warps(idx)
    ended = M.exists[warps] & (M.lane_state[warps] == GONE)
    short = np.flatnonzero(ended.any(axis=1))
    if short.size:
        what = f"{opcode} by a warp of which threads have ended"
        raise Stop(Code.SIM_COLLECTIVE, what, at, int(warps[short[0]]))


# Named barriers ---------------------------------------------------------------------------------------


def _groups(M: Machine, at: int, idx: Any, n: int, lanes: Array, number: Any) -> list[tuple[int, int, Array]]:
    """Participants by (block, barrier): a list of (block, barrier, [n, 32] lanes)."""
    warps = M.warps(idx)
    ctas = M.warp_cta[warps]
    numbers = np.asarray(number)
    found = []
    if numbers.size == 1:
        b = int(numbers.reshape(-1)[0])
        _check_number(M, at, idx, n, lanes, b)
        for c in np.unique(ctas[lanes.any(axis=1)]).tolist():
            found.append((c, b, lanes & (ctas == c)[:, None]))
        return found
    numbers = np.broadcast_to(numbers, (n, 32))
    for b in np.unique(numbers[lanes]).tolist():
        _check_number(M, at, idx, n, lanes, b)
        these = lanes & (numbers == b)
        for c in np.unique(ctas[these.any(axis=1)]).tolist():
            found.append((c, b, these & (ctas == c)[:, None]))
    return found


def _turns(
    M: Machine, at: int, idx: Any, n: int, lanes: Array, number: Any, expected: int | None
) -> Iterator[tuple[int, int, Array]]:
    """`_groups`, of which each fits into the barrier as it is then: where more threads come than it still waits
    for, those beyond are there for its next phase."""
    warps = M.warps(idx)
    for cta, b, these in _groups(M, at, idx, n, lanes, number):
        if expected is None or _threads(M, warps, these, True) + _arrived(M, cta, b) <= expected:
            yield cta, b, these
            continue
        turn, total = np.zeros_like(these), _arrived(M, cta, b)
        for row in np.flatnonzero(these.any(axis=1)).tolist():
            turn[row] = these[row]
            total += _threads(M, warps[row : row + 1], these[row : row + 1], True)
            if total >= expected:
                yield cta, b, turn
                turn, total = np.zeros_like(these), 0
        if total:
            yield cta, b, turn


def _arrived(M: Machine, cta: int, b: int) -> int:
    state = M.barriers.named.get((cta, b))
    return 0 if state is None else state.arrived


def _check_number(M: Machine, at: int, idx: Any, n: int, lanes: Array, b: int) -> None:
    if not is_barrier(b):
        raise Stop(Code.SIM_BARRIER, f"barrier {b}: numbers go from 0 to 15", at, *M.first_lane(idx, n, lanes))


def _expected(M: Machine, at: int, idx: Any, n: int, lanes: Array, count: Any) -> int | None:
    if count is None:
        return None
    values = np.unique(np.broadcast_to(np.asarray(count), (n, 32))[lanes])
    if values.size != 1:
        raise Stop(Code.SIM_BARRIER, f"thread counts differ: {values.tolist()}", at, *M.first_lane(idx, n, lanes))
    expected = int(values[0])
    if not is_count(expected):
        where = M.first_lane(idx, n, lanes)
        raise Stop(Code.SIM_BARRIER, f"thread count {expected} is not a positive multiple of 32", at, *where)
    return expected


def _parts(M: Machine, key: Any, at: int, warps: Array, lanes: Array, mask: Any) -> None:
    """Tell of the threads that come to a barrier where they may not be all of their warps."""
    if mask is not None and M.observer is not None:
        M.observer.joins_in_parts(key, at, warps, lanes)


def _threads(M: Machine, warps: Array, lanes: Array, counted: bool) -> int:
    """Threads that arrive; for a barrier with a count the block's last warp counts as full."""
    total = int(lanes.sum())
    if counted and M.threads % WARP:
        full = (lanes == M.exists[warps]).all(axis=1) & lanes.any(axis=1)
        total += int((32 - M.exists[warps][full].sum(axis=1)).sum())
    return total


def _arrive(M: Machine, at: int, cta: int, b: int, threads: int, expected: int | None) -> NamedBarrier:
    state = M.barriers.named.setdefault((cta, b), NamedBarrier())
    if state.arrived == 0:
        state.expected = expected
    elif state.expected != expected:
        raise Stop(
            Code.SIM_BARRIER,
            f"barrier {b} is waiting for {state.expected or 'all'} threads, and now for {expected or 'all'}",
            at,
            cta * M.warps_per_cta,
        )
    state.arrived += threads
    state.at = at
    M.activity += 1
    return state


def complete_barrier(M: Machine, cta: int, b: int) -> bool:
    """Release a barrier's threads if all have arrived."""
    state = M.barriers.named[cta, b]
    need = state.expected if state.expected is not None else int(M.alive[cta])
    if state.arrived < need or state.arrived == 0:
        return False
    del M.barriers.named[cta, b]
    for w, lanes in state.tokens:
        M.barriers.tokens[w, lanes] = state.total
        M.barriers.has_token[w] |= lanes
    M.activity += 1
    if M.observer is not None:
        M.observer.completes(("bar", cta, b))
    M.wake(("bar", cta, b))
    return True


@runtime
def barrier_sync(
    M: Machine, at: int, idx: Any, n: int, active: Any, mask: Any, number: Any, count: Any, following: int
) -> int | None:
    """Arrive at a named barrier and wait. `active` threads are here, those of `mask` take part."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if not lanes.any():
        return following
    warps = M.warps(idx)
    expected = _expected(M, at, idx, n, lanes, count)
    gone = False
    for cta, b, these in _turns(M, at, idx, n, lanes, number, expected):
        threads = _threads(M, warps, these, expected is not None)
        need = expected if expected is not None else int(M.alive[cta])
        if M.observer is not None:
            _parts(M, ("bar", cta, b), at, warps, these, mask)
            M.observer.joins(("bar", cta, b), at, warps[these.any(axis=1)], True)
        if threads == need and (cta, b) not in M.barriers.named:
            if M.observer is not None:
                M.observer.completes(("bar", cta, b))
            continue
        if not gone:
            M.goto(idx, n, active, following)
            gone = True
        _arrive(M, at, cta, b, threads, expected)
        rows = these.any(axis=1)
        M.park(warps[rows], int(rows.sum()), these[rows], ("bar", cta, b))
        complete_barrier(M, cta, b)
    M.activity += 1
    return None if gone else following


@runtime
def barrier_arrive(M: Machine, at: int, idx: Any, n: int, mask: Any, number: Any, count: Any) -> None:
    """Arrive at a named barrier without waiting."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if not lanes.any():
        return
    warps = M.warps(idx)
    expected = _expected(M, at, idx, n, lanes, count)
    for cta, b, these in _turns(M, at, idx, n, lanes, number, expected):
        if M.observer is not None:
            _parts(M, ("bar", cta, b), at, warps, these, mask)
            M.observer.joins(("bar", cta, b), at, warps[these.any(axis=1)], False)
        _arrive(M, at, cta, b, _threads(M, warps, these, expected is not None), expected)
        complete_barrier(M, cta, b)


@runtime
def barrier_reduce(
    M: Machine, at: int, idx: Any, n: int, mask: Any, number: Any, count: Any, predicate: Any, how: str
) -> Any:
    """bar.red: threads with a token have been through the barrier and take its result; others arrive."""
    warps = M.warps(idx)
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    ready = lanes & M.barriers.has_token[warps]
    fresh = lanes & ~ready
    if fresh.any():
        p = np.broadcast_to(predicate, (n, 32))
        expected = _expected(M, at, idx, n, fresh, count)
        for cta, b, these in _turns(M, at, idx, n, fresh, number, expected):
            if M.observer is not None:
                _parts(M, ("bar", cta, b), at, warps, these, mask)
                M.observer.joins(("bar", cta, b), at, warps[these.any(axis=1)], True)
            state = _arrive(M, at, cta, b, _threads(M, warps, these, expected is not None), expected)
            votes = int((p & these).sum())
            if how == "and":
                first = state.total if state.how else 1
                state.total = int(bool(first) and votes == int(these.sum()))
            elif how == "or":
                state.total = int(bool(state.total) or votes > 0)
            else:
                state.total += votes
            state.how = how
            for row in np.flatnonzero(these.any(axis=1)).tolist():
                state.tokens.append((int(warps[row]), these[row].copy()))
            rows = these.any(axis=1)
            M.park(warps[rows], int(rows.sum()), these[rows], ("bar", cta, b))
            complete_barrier(M, cta, b)
    rows = ready.any(axis=1)
    # Threads that were parked and released above run again at this block and are served then.
    if not rows.any():
        return None
    if mask is None and ready[rows].all():
        new_mask = None
    elif mask is None:
        M._spread(warps)
        M._settle(warps)
        return None
    else:
        new_mask = ready[rows]
    chosen = warps[rows]
    values = M.barriers.tokens[chosen]
    M.barriers.has_token[chosen] &= ~ready[rows]
    result = values.astype(np.uint32) if how == "popc" else values != 0
    return chosen, chosen.size, new_mask, result


# Cluster barriers -------------------------------------------------------------------------------------


@runtime
def cluster_arrive(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    warps = M.warps(idx)
    cluster = M.warp_cta[warps] // M.cluster_size
    phase = M.barriers.cluster_phase[cluster]
    # Also where the phase is complete by now: only its wait tells the thread so.
    again = lanes & M.barriers.cluster_unwaited[warps]
    if again.any():
        where = M.first_lane(idx, n, again)
        raise Stop(Code.SIM_BARRIER, "a second barrier.cluster.arrive without a wait between", at, *where)
    M.barriers.cluster_unwaited[warps] |= lanes
    M.barriers.cluster_seen[warps] = np.where(lanes, phase[:, None], M.barriers.cluster_seen[warps])
    np.add.at(M.barriers.cluster_arrived, cluster, lanes.sum(axis=1))
    if M.observer is not None:
        for k in np.unique(cluster).tolist():
            these = lanes.any(axis=1) & (cluster == k)
            _parts(M, ("cluster", k), at, warps[these], lanes[these], mask)
            M.observer.joins(("cluster", k), at, warps[these], False)
    M.activity += 1
    for k in np.unique(cluster).tolist():
        complete_cluster(M, k)


def complete_cluster(M: Machine, k: int) -> None:
    alive = int(M.alive[k * M.cluster_size : (k + 1) * M.cluster_size].sum())
    if M.barriers.cluster_arrived[k] and M.barriers.cluster_arrived[k] >= alive:
        M.barriers.cluster_arrived[k] = 0
        M.barriers.cluster_phase[k] += 1
        M.activity += 1
        if M.observer is not None:
            M.observer.completes(("cluster", k))
        M.wake(("cluster", k))


@runtime
def cluster_wait(M: Machine, at: int, idx: Any, n: int, active: Any, mask: Any, following: int) -> int | None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    warps = M.warps(idx)
    cluster = M.warp_cta[warps] // M.cluster_size
    early = lanes & ~M.barriers.cluster_unwaited[warps]
    if early.any():
        what = "a barrier.cluster.wait without an arrive before it"
        raise Stop(Code.SIM_BARRIER, what, at, *M.first_lane(idx, n, early))
    M.barriers.cluster_unwaited[warps] &= ~lanes
    waiting = lanes & (M.barriers.cluster_seen[warps] >= M.barriers.cluster_phase[cluster][:, None])
    if M.observer is not None:
        M.observer.cluster_waits(warps[lanes.any(axis=1)], waiting[lanes.any(axis=1)])
    if not waiting.any():
        return following
    M.goto(idx, n, active, following)
    rows = waiting.any(axis=1)
    M.park(warps[rows], int(rows.sum()), waiting[rows], [("cluster", int(k)) for k in cluster[rows]])
    return None
