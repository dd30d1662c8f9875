# SPDX-License-Identifier: Apache-2.0
"""setmaxnreg: the warps of a warpgroup execute the same ones and meet in between, and what is taken has been given
whatever the order (PTX ISA 9.7.19.5)."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from porter.facts.events import History, Move
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.sync.findings import Findings
from porter.sync.views import Views


def look_at_registers(history: History, views: Views, findings: Findings) -> None:
    """Of an execution that came to its end."""
    if not history.moves:
        return
    groups: dict[tuple[int, int], list[list[Move]]] = defaultdict(list)
    ended = {history.events[e].warp for exits in history.exits.values() for e in exits}
    for name in sorted(n for n in ended if n is not None):
        groups[name.rank, name.warp * WARP // WARPGROUP].append(history.moves.get(name, []))
    for of_warps in groups.values():
        _alike(of_warps, views, findings)
    every = [move for moves in history.moves.values() for move in moves]
    taken = 0
    for move in every:
        taken |= 1 << move.event if move.change > 0 else 0
    if any(move.change < 0 and views.execution[move.event] & taken for move in every):
        history.assumed.add("registers are taken in the order that was executed")


def _alike(warps: list[list[Move]], views: Views, findings: Findings) -> None:
    first = warps[0]
    for moves in warps[1:]:
        for one, other in zip(first, moves, strict=False):
            if (one.action, one.count) != (other.action, other.count):
                text = "the warps of a warpgroup execute setmaxnreg with different counts"
                findings.add("R1", text, other.at, first=one.at, level="review")
                return
        if len(moves) != len(first):
            text = "not all warps of the warpgroup execute it as often"
            findings.add("R1", text, max(first, moves, key=len)[-1].at, level="review")
            return
    for number, (before, after) in enumerate(pairwise(first)):
        if any(not views.execution[moves[number + 1].event] >> other[number].event & 1
               for moves in warps for other in warps):  # fmt: skip
            text = "warps of the warpgroup may come to it before all have executed the one before"
            findings.add("R1", text, after.at, first=before.at, level="review")
