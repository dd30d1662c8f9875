# SPDX-License-Identifier: Apache-2.0
"""Registers whose value can still decide which way is taken, or what an instruction does that others wait for.

What only goes into coordinates of copies, into global memory, or from one register to the next decides nothing: these
are the strongly live variables of the textbooks, with branches and everything that is neither computed nor of global
memory as what needs its operands.
"""

from __future__ import annotations

from functools import lru_cache

from porter.facts.flow import Flow
from porter.facts.instructions.registry import computes
from porter.ptx import ast
from porter.ptx.tensormap import SIZING_FIELDS

_DATA = frozenset(("ld", "st"))


@lru_cache(maxsize=64)
def deciding(flow: Flow, reads_global: bool = False) -> list[frozenset[str]]:
    """By instruction the registers that decide something at it or behind it. `reads_global`: what is loaded from global
    memory may decide something as well, and so may what is stored anywhere."""
    needed = [_needed(flow, at, reads_global) for at in range(len(flow.uses))]

    def taken(at: int, behind: frozenset[str]) -> frozenset[str]:
        ins = flow.decoded[at]
        if ins is not None and computes(ins) and not flow.writes[at] & behind:
            return frozenset()
        return needed[at]

    return flow.backwards(taken)


def _needed(flow: Flow, at: int, reads_global: bool) -> frozenset[str]:
    if reads_global:
        return flow.uses[at]
    ins = flow.code.code[at]
    guard = frozenset() if ins.guard is None else _names(flow, at, ins.guard.operand)
    if ins.parts[0] in _DATA and "global" in ins.parts:
        return guard
    tensor_copy = ins.parts[:2] == ("cp", "async") and "tensor" in ins.parts
    if tensor_copy or ins.parts[0] == "stmatrix" or ins.parts[:2] == ("tcgen05", "st"):
        # a box has its bytes wherever it lies; matrices are data
        return guard.union(*(_names(flow, at, o.base if isinstance(o, ast.Mem) else o) for o in ins.operands))
    if ins.parts[:2] == ("tensormap", "replace") and SIZING_FIELDS.isdisjoint(ins.parts):
        return guard.union(*(_names(flow, at, o.base) for o in ins.operands if isinstance(o, ast.Mem)))
    if ins.parts[0] == "wgmma":
        # accumulators and fragments are data
        return guard.union(*(_names(flow, at, o) for o in ins.operands))
    return flow.uses[at]


def _names(flow: Flow, at: int, operand: ast.Operand) -> frozenset[str]:
    name = flow.code.register(at, operand)
    return frozenset() if name is None else frozenset((name,))
