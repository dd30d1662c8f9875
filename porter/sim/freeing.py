# SPDX-License-Identifier: Apache-2.0
"""Where the next thing a warp may have to wait for lies behind a tcgen05.dealloc.

Nothing keeps a warp that stands there from freeing its columns now, so the scheduler runs it first: whoever still uses
them then is found out, wherever in the code the two stand. It is for the dealloc what landing late is for operations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from porter.sim.program import EXIT, BasicBlock, Program

_WAITING = ("bar", "barrier")


def freeing_blocks(program: Program) -> npt.NDArray[np.bool_] | None:
    """[blocks + 1] by number, the last False: from which blocks a dealloc is reached without waiting; None if from
    none."""
    blocks = program.blocks
    found = np.zeros(len(blocks) + 1, bool)
    before: list[list[int]] = [[] for _ in blocks]
    for b in blocks:
        for number in b.succ:
            if number != EXIT:
                before[number].append(b.number)
    frees = {b.number for b in blocks if _frees(program, b)}
    work = list(frees)
    found[work] = True
    while work:
        number = work.pop()
        if blocks[number].lead == "wait" and number not in frees:
            continue
        for earlier in before[number]:
            if not found[earlier] and program.code[blocks[earlier].end - 1].parts[0] not in _WAITING:
                found[earlier] = True
                work.append(earlier)
    return found if found.any() else None


def _frees(program: Program, block: BasicBlock) -> bool:
    return any(ins.parts[:2] == ("tcgen05", "dealloc") for ins in program.code[block.start : block.end])
