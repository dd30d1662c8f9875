# SPDX-License-Identifier: Apache-2.0
"""Blocks that wait in tcgen05.alloc for columns that never come: others of their SM hold them and wait for these
blocks in turn, or they hold them themselves."""

from __future__ import annotations

from porter.diagnostics import Code
from porter.ptx.tmem import COLUMNS
from porter.sim.machine import Machine
from porter.sim.progress import IDLE, PARKED
from porter.sim.results import Stop

_NAMED = 4
"""Blocks that are named one by one."""


def column_deadlock(M: Machine) -> Stop | None:
    """What to tell of a run in which nothing changes any more: the first block that waits for columns, if the others
    may be waiting for it. Those that look at memory may be; those that stand at barriers are not, but for the blocks of
    a cluster with one of the two."""
    waiting = _waiting(M)
    if not waiting:
        return None
    looking = M.warp_cta[M.key < IDLE].tolist()
    concerned = {int(M.cta_first[cta]) for cta in (*waiting, *looking)}
    stopped = M.warp_cta[(M.lane_state == PARKED).any(axis=1) & ~M.converged]
    if not concerned.issuperset(M.cta_first[stopped].tolist()):
        return None
    warp, *_ = M.tmem.requests[waiting[0]]
    at = M.program.blocks[int(M.lane_pc[warp].min())].start
    return Stop(Code.SIM_TMEM_WAIT, describe_wait(M, waiting[0]), at, warp)


def _waiting(M: Machine) -> list[int]:
    """The blocks that wait for columns, not for their peer."""
    return sorted(key[1] for key in M.parked if key[0] == "tmem" and M.tmem.awaits_columns(key[1]))


def describe_wait(M: Machine, cta: int) -> str:
    """Who waits for how many columns, and who holds them."""
    T = M.tmem
    _, columns, _ = T.requests[cta]
    text = f"{_block(M, cta)} waits for {columns} columns"
    barred = next((found for c in T.asking(cta) if (found := T.barred(c)) is not None), None)
    if barred is not None:
        return f"{text}: {_block(M, barred)} of its SM has not given up the right to allocate"
    held = {other: n for c in T.asking(cta) for other in T.sharers[c] if (n := T.held(other))}
    own = held.pop(cta, 0)
    parts = [f"holds {own} itself"] if own else []
    if held:
        named = ", ".join(f"{_block(M, other)} {n}" for other, n in list(held.items())[:_NAMED])
        more = f" and {len(held) - _NAMED} more blocks others" if len(held) > _NAMED else ""
        gone = [other for other in held if M.alive[other] == 0]
        ended = f", and {_block(M, gone[0])} has ended without freeing them" if gone else ""
        parts.append(f"{'and ' if own else ''}other blocks of its SM hold {sum(held.values())} ({named}{more}){ended}")
    return f"{text} of {COLUMNS}, and {' '.join(parts)}"


def _block(M: Machine, cta: int) -> str:
    return "block " + ",".join(map(str, M.block_position(cta)))
