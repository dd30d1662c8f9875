# SPDX-License-Identifier: Apache-2.0
"""Branches, exits and barriers: the instructions that end a block (PTX ISA 9.7.12, 9.7.13)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.sim.codegen import Context, emits, runtime
from porter.sim.kinds import Unsupported
from porter.sim.machine import Machine
from porter.sim.program import EXIT, BasicBlock
from porter.sim.results import Stop

Array = npt.NDArray[Any]


@runtime
def unsupported(M: Machine, at: int, idx: Any, n: int, mask: Any, why: str) -> None:
    """Reached an instruction that cannot be executed: the run has no verdict."""
    if mask is None or np.any(mask):
        ins = M.program.code[at]
        text = " ".join((ins.text or ins.opcode).split())
        raise Stop(
            Code.SIM_UNKNOWN_INSTRUCTION,
            f"`{text}`" + (f" ({why})" if why else ""),
            at,
            *M.first_lane(idx, n, mask),
        )


@runtime
def trap(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    if mask is None or np.any(mask):
        raise Stop(Code.SIM_TRAP, "trap instruction", at, *M.first_lane(idx, n, mask))


@runtime
def branch_table(index: Array, n: int, targets: tuple[int, ...]) -> Array:
    """brx.idx: the target block of every lane."""
    table = np.array(targets, np.int64)
    return np.broadcast_to(table[np.minimum(index.astype(np.int64), len(targets) - 1)], (n, 32))


def emit_control(cg: Context, ins: ast.Instruction, at: int, last: BasicBlock, leads: bool) -> bool:
    """Generate a control instruction; True if the function ends with it."""
    p = ins.parts
    head = p[0]
    following = last.number + 1 if last.number + 1 < len(cg.program.blocks) else EXIT
    if head in ("bar", "barrier"):
        return _barrier(cg, ins, last, following)
    guard = ins.guard
    predicate = None
    if guard is not None:
        assert isinstance(guard.operand, ast.Reg)
        value = cg.value(guard.operand.name)
        predicate = cg.form(value, "p")
        if value.origin is not None and value.origin in cg.unit.slots:
            predicate = cg.let(f"{predicate}.copy()")
    if head == "trap" or head == "brkpt":
        cg.line(cg.call("trap"))
        target = EXIT
    elif head in ("ret", "exit"):
        target = EXIT
    elif head == "bra":
        target = last.succ[0]
    else:
        index = cg.src(ins.operands[0], "u32")
        table = last.succ[:-1] if guard is not None else last.succ
        if not table:
            raise Unsupported("branch table")
        chosen = cg.let(f"branch_table({index}, n, {tuple(table)})")
        if cg.guard is not None:
            chosen = cg.let(f"where({cg.guard}, {chosen}, {following})")
        cg.guard = None
        cg.write_back(sorted(last.live_out))
        cg.line(f"return idx, mask, {chosen}")
        return True
    cg.guard = None
    cg.write_back(sorted(last.live_out))
    if predicate is None:
        cg.line(f"return idx, mask, {target}")
    else:
        assert guard is not None
        yes, no = (following, target) if guard.negated else (target, following)
        cg.line(f"return idx, mask, ({predicate}, {yes}, {no})")
    return True


def _barrier(cg: Context, ins: ast.Instruction, last: BasicBlock, following: int) -> bool:
    p = ins.parts
    if p[1] == "warp":
        # The threads were gathered by the lead.
        return False
    if p[0] == "barrier" and p[1] == "cluster":
        if p[2] == "arrive":
            cg.line(cg.call("cluster_arrive"))
            return False
        guard = cg.guard
        mask = cg.mask()
        cg.guard = None
        cg.write_back(sorted(last.live_out))
        cg.line(f"return idx, mask, cluster_wait(M, {cg.at}, idx, n, mask, {mask}, {following})")
        del guard
        return True
    what = p[2] if p[1] == "cta" else p[1]
    number = cg.src(ins.operands[0], "u32") if what != "red" else cg.src(ins.operands[1], "u32")
    if what == "red":
        return _barrier_reduce(cg, ins)
    count = cg.src(ins.operands[1], "u32") if len(ins.operands) > 1 else "None"
    if what == "arrive":
        cg.line(cg.call("barrier_arrive", number, count))
        return False
    mask = cg.mask()
    cg.guard = None
    cg.write_back(sorted(last.live_out))
    cg.line(f"return idx, mask, barrier_sync(M, {cg.at}, idx, n, mask, {mask}, {number}, {count}, {following})")
    return True


def _barrier_reduce(cg: Context, ins: ast.Instruction) -> bool:
    """bar.red leads its block: the threads stay until the barrier completes, then read the result."""
    ops = ins.operands
    negated = isinstance(ops[-1], ast.Neg)
    predicate = cg.src(ops[-1], "p")
    del negated
    number = cg.src(ops[1], "u32")
    count = cg.src(ops[2], "u32") if len(ops) > 3 else "None"
    how = next(x for x in ins.parts if x in ("popc", "and", "or"))
    if cg.guard is not None:
        raise Unsupported("a predicated barrier reduction")
    call = f"barrier_reduce(M, {cg.at}, idx, n, mask, {number}, {count}, {predicate}, {how!r})"
    cg.narrow(call, ", result")
    cg.set(ops[0], "u32" if how == "popc" else "p", "result")
    return False


@emits("nop", "pmevent", "nanosleep", "griddepcontrol", "membar", "fence")
@emits("prefetch", "prefetchu", "discard", "applypriority")
def _nothing(cg: Context, ins: ast.Instruction) -> None:
    """Orders or hints that do not change what a functional run computes."""


@emits("createpolicy")
def _createpolicy(cg: Context, ins: ast.Instruction) -> None:
    cg.set(ins.operands[0], "u64", cg.const("u64", 0))
