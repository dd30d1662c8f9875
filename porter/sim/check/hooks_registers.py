# SPDX-License-Identifier: Apache-2.0
"""setmaxnreg as the checker sees it: all warps of a warpgroup execute the same one (PTX ISA 9.7.19.5)."""

from __future__ import annotations

from typing import Any

from porter.sim import exec_registers
from porter.sim.check.judge import Verdict
from porter.sim.check.shadow import Access
from porter.sim.machine import Machine
from porter.sim.registers import Move
from porter.sim.threads import active_warps

_SAME = Verdict("R1", "the same setmaxnreg in all warps of the warpgroup", "", strict=True)


def registers_dec(M: Machine, at: int, idx: Any, n: int, mask: Any, count: int) -> None:
    exec_registers.registers_dec(M, at, idx, n, mask, count)
    for _, warp in active_warps(M, idx, n, mask):
        _compare(M, warp)


def registers_inc(M: Machine, at: int, idx: Any, n: int, mask: Any, guard: Any, count: int) -> Any:
    moves = M.registers.moves
    before = {warp: len(moves.get(warp, ())) for warp in M.warps(idx).tolist()}
    result = exec_registers.registers_inc(M, at, idx, n, mask, guard, count)
    for warp, done in before.items():
        if len(moves.get(warp, ())) > done:
            _compare(M, warp)
    return result


def _compare(M: Machine, warp: int) -> None:
    """The warp's latest move, with those of its warpgroup that have come as far."""
    moves: dict[int, list[Move]] = M.registers.moves
    if warp not in moves:
        return
    done, last = len(moves[warp]), moves[warp][-1]
    for other in M.registers.group(warp):
        theirs = moves.get(other, [])
        if len(theirs) >= done and not theirs[done - 1].same(last):
            new = _access(M, warp, last)
            M.check.report(_SAME, _access(M, other, theirs[done - 1]), new, "", int(M.warp_cta[warp]))
            return


def block_ended(M: Machine, cta: int) -> None:
    """Warps that have executed fewer than others of their warpgroup."""
    moves: dict[int, list[Move]] = M.registers.moves
    for warp in range(cta * M.warps_per_cta, (cta + 1) * M.warps_per_cta):
        fewest = min(len(moves.get(other, ())) for other in M.registers.group(warp))
        if len(moves.get(warp, ())) > fewest:
            M.check.report(_SAME, None, _access(M, warp, moves[warp][fewest]), "", cta)


def _access(M: Machine, warp: int, move: Move) -> Access:
    found: Access = M.check.generic("setmaxnreg", move.at, warp, True, 1, 4)
    return found


HOOKS: dict[str, Any] = {f.__name__: f for f in (registers_dec, registers_inc)}
