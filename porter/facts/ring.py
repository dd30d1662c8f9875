# SPDX-License-Identifier: Apache-2.0
"""How many stages a ring of buffers has, from the text that advances its index."""

from __future__ import annotations

from collections.abc import Sequence

from porter.facts.code import Code, Loop
from porter.facts.warps import Warps
from porter.ptx import ast
from porter.ptx.arch import SHARED_LIMIT

_MOST = 32
_BESIDE = 4096
"""Bytes of shared memory that barriers and alignment take beside the stages."""


def ring_stages(warps: Warps, loops: Sequence[Loop], nbytes: int | None, smem: int | None) -> int | None:
    """The number of stages: what an index is compared with before it returns to 0, if shared memory holds as many; else
    as many as fill a launch's shared memory, or as mbarriers are initialized for and it has room for. None where the
    text leaves several, or none."""
    fitting = (smem or SHARED_LIMIT) // nbytes if nbytes else 0
    if smem is not None and fitting == 1:
        return 1
    most = min(_MOST, fitting) if fitting else _MOST
    wrapped = {
        found for loop in loops for at in loop.body if (found := _wrap(warps, at)) is not None and 2 <= found <= most
    }
    if len(wrapped) == 1:
        return wrapped.pop()
    if smem is not None and nbytes and fitting and smem - fitting * nbytes <= _BESIDE:
        return fitting if not wrapped or fitting in wrapped else None
    barriers = _by_barriers(warps.code, most)
    if smem is not None and not wrapped and fitting >= 2 and fitting in barriers:
        return fitting
    agreed = barriers & wrapped
    return agreed.pop() if len(agreed) == 1 else None


def _wrap(warps: Warps, at: int) -> int | None:
    code = warps.code
    ins = code.code[at]
    if ins.parts[0] == "selp" and len(ins.operands) == 4:
        picks = ins.operands[1:3]
        others = [o for o in picks if warps.number(at, o) != 0]
        if len(others) != 1:
            return None
        for place in code.definitions(at, ins.operands[3]):
            test = code.code[place]
            if test.parts[:2] in (("setp", "eq"), ("setp", "ne")):
                return _compared(warps, at, others[0], place)
        return None
    return None


def _compared(warps: Warps, at: int, other: ast.Operand, test: int) -> int | None:
    """Stages, if the index that goes on as `other` or as 0 is compared by the instruction at `test`: with their number
    behind the step, or with the last index ahead of it."""
    code = warps.code
    last = warps.number(test, code.code[test].operands[-1])
    index = code.code[test].operands[1]
    if last is None:
        return None
    mine, compared = code.definitions(at, other), code.definitions(test, index)
    for place in mine:
        step = code.code[place]
        if step.parts[0] == "add" and warps.number(place, step.operands[-1]) == 1 and place not in compared:
            return last + 1
    return last


def _by_barriers(code: Code, most: int) -> set[int]:
    """Numbers of stages that the mbarriers which are initialized one by one allow: two a stage, and up to three
    others."""
    inits = sum(ins.parts[:2] == ("mbarrier", "init") and not code.around(at) for at, ins in enumerate(code.code))
    return {s for s in range(1, most + 1) if 0 <= inits - 2 * s <= 3 or inits == s}
