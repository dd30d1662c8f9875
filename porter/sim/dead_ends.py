# SPDX-License-Identifier: Apache-2.0
"""When threads end, when none can go on, and what a deadlock is told as."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.sim.column_waits import column_deadlock, describe_wait
from porter.sim.machine import Machine
from porter.sim.progress import PARKED
from porter.sim.results import Stop
from porter.sim.sync import complete_barrier, complete_cluster

Array = npt.NDArray[Any]
_TIMEOUT_ROUNDS = 3
_NAMED_WARPS = 4
"""Warps in a row that are named one by one."""


def threads_gone(M: Machine, warps: Array, gone: Array) -> None:
    """Threads have ended: barriers that wait for all remaining threads may now be complete. Those that have arrived at
    their cluster's barrier count there no more, nor are they waited for (PTX ISA 9.7.13.3, as an H200 does)."""
    ctas = sorted(set(M.warp_cta[warps].tolist()))
    B, cluster = M.barriers, M.warp_cta[warps] // M.cluster_size
    arrived = gone & B.cluster_unwaited[warps] & (B.cluster_seen[warps] == B.cluster_phase[cluster][:, None])
    np.subtract.at(B.cluster_arrived, cluster, arrived.sum(axis=1))
    for cta, b in [key for key in M.barriers.named if key[0] in ctas]:
        if M.barriers.named[cta, b].expected is None:
            complete_barrier(M, cta, b)
    for k in {c // M.cluster_size for c in ctas}:
        complete_cluster(M, k)
    for cta in ctas:
        if M.alive[cta] == 0:
            M.tmem.leave(cta)
    ended = set(warps.tolist())
    M.wake(*[key for key in M.parked if key[0] in ("warp", "group") and key[1] in ended])


def stuck(M: Machine) -> bool:
    """No thread can run. Land what threads wait for; else let time limits expire; else: deadlock."""
    if M.engine.land_for_waiters():
        return True
    timed = [key for key in M.parked if key[0] == "mbar"]
    if M.activity != M.stuck_activity:
        M.stuck_activity = M.activity
        M.stuck_rounds = 0
    M.stuck_rounds += 1
    if timed and M.stuck_rounds <= _TIMEOUT_ROUNDS:
        for key in timed:
            for w, lanes in M.parked[key]:
                M.timed_out[w] |= lanes
        M.wake(*timed)
        return True
    raise column_deadlock(M) or Stop(Code.SIM_DEADLOCK, describe(M), *_first_parked(M))


def _first_parked(M: Machine) -> tuple[int, int, int]:
    for _, waiting in _causes_first(M):
        for w, lanes in waiting:
            lane = int(np.argmax(lanes))
            number = int(M.lane_pc[w, lane])
            at = M.program.blocks[number].start if number < len(M.program.blocks) else -1
            return at, w, lane
    return -1, 0, 0


def _causes_first(M: Machine) -> list[tuple[Any, list[tuple[int, Array]]]]:
    """Who waits for what. Those that wait for registers come first: what others wait for is often theirs to do."""
    return sorted(M.parked.items(), key=lambda item: item[0][0] != "registers")


def describe(M: Machine) -> str:
    """Every waiting barrier: what it is, its state and who waits. Of blocks that wait for registers one is told."""
    lines = []
    parked = _causes_first(M)
    short = [key for key, _ in parked if key[0] == "registers"]
    for key, waiting in parked:
        who = _waiters(M, key, waiting)
        if not who or key in short[1:]:
            continue
        (block, place), warps = next(iter(who.items()))
        more = f", and {len(who) - 1} more places" if len(who) > 1 else ""
        text, advice = M.registers.describe(key[1]) if key[0] == "registers" else (_describe_key(M, key), "")
        if key in short and len(short) > 1:
            more += f", and likewise in {len(short) - 1} more blocks"
        lines.append(f"{text}: {_listed(warps)} of {block} at {place}{more}" + (f". {advice}" if advice else ""))
        if len(lines) == 12:
            lines.append(f"and {len(M.parked) - 12} more")
            break
    return "; ".join(lines) or "no thread can go on"


def _waiters(M: Machine, key: Any, waiting: list[tuple[int, Array]]) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Who waits under a key, as (warp of the block, lanes unless all), by block and place in the code."""
    who: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for w, lanes in waiting:
        if not (lanes & (M.lane_state[w] == PARKED)).any():
            continue
        number = int(M.lane_pc[w, int(np.argmax(lanes))])
        place = ""
        if number < len(M.program.blocks):
            ins = M.program.code[M.program.blocks[number].start]
            if key[0] in ("bar", "cluster") and number:
                ins = M.program.code[M.program.blocks[number].start - 1]
            place = f"{ins.loc.file}:{ins.loc.line}" if ins.loc else f"PTX line {ins.line}"
        x, y, z = M.block_position(int(M.warp_cta[w]))
        text = describe_lanes(lanes)
        entry = int(M.warp_rank[w]), "" if text == "all lanes" else text
        who.setdefault((f"block {x},{y},{z}", place), []).append(entry)
    return who


def _listed(warps: list[tuple[int, str]]) -> str:
    """ "warps 4 to 11, warp 12 (lane 0)": those that wait with all their lanes first, many in a row as one."""
    parts = []
    whole = sorted(w for w, lanes in warps if not lanes)
    runs = [(w, i - w) for i, w in enumerate(whole)]
    for _, run in groupby(runs, key=lambda item: item[1]):
        numbers = [w for w, _ in run]
        if len(numbers) <= _NAMED_WARPS:
            parts += [f"warp {w}" for w in numbers]
        else:
            parts.append(f"warps {numbers[0]} to {numbers[-1]}")
    return ", ".join([*parts, *(f"warp {w} ({lanes})" for w, lanes in warps if lanes)])


def _describe_key(M: Machine, key: Any) -> str:
    if key[0] == "mbar":
        history = M.observer.history(key[1], key[2]) if M.observer is not None else None
        return M.mbar.describe(key[1], key[2]) + (f" ({history})" if history else "")
    if key[0] == "bar":
        state = M.barriers.named.get((key[1], key[2]))
        if state is None:
            return f"barrier {key[2]}"
        need = state.expected if state.expected is not None else int(M.alive[key[1]])
        return f"barrier {key[2]}, {state.arrived} of {need} threads arrived"
    if key[0] == "cluster":
        return f"cluster barrier, {int(M.barriers.cluster_arrived[key[1]])} threads arrived"
    if key[0] == "pair":
        return f"the peer block's tcgen05.{key[1]}"
    if key[0] == "tmem":
        return _describe_alloc(M, key[1])
    return {
        "warp": "the other threads of the warp",
        "group": "the other warps of the warpgroup",
    }.get(key[0], f"completion of {key[0]}")


def _describe_alloc(M: Machine, cta: int) -> str:
    if M.tmem.awaits_columns(cta):
        return f"Tensor Memory, {describe_wait(M, cta)}"
    peer = cta ^ 1
    return "the peer block's tcgen05.alloc" + (", but it has ended" if M.alive[peer] == 0 else "")


def describe_lanes(lanes: Array) -> str:
    """Lanes as text: "all lanes", "lane 3", "lanes 0-15"."""
    found = np.flatnonzero(lanes).tolist()
    if len(found) == 32:
        return "all lanes"
    return f"lane {found[0]}" if len(found) == 1 else f"lanes {found[0]}-{found[-1]}"
