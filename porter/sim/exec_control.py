# SPDX-License-Identifier: Apache-2.0
"""Branches, exits and barriers: the instructions that end a block (PTX ISA 9.7.12, 9.7.13)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.table import Decoded
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
def branch_table(M: Machine, at: int, idx: Any, n: int, mask: Any, index: Any, targets: tuple[int, ...]) -> Array:
    """brx.idx: the target block of every lane. Raises Stop for an active thread whose index is that of none."""
    chosen = np.broadcast_to(np.asarray(index).astype(np.int64), (n, 32))
    beyond = chosen >= len(targets)
    if beyond.any():
        beyond = beyond & (True if mask is None else mask)
        if beyond.any():
            index = int(chosen[beyond][0])
            signed = f" ({index - (1 << 32)})" if index >> 31 else ""
            what = f"index {index}{signed} of a table of {len(targets)} targets"
            raise Stop(Code.SIM_BRANCH, what, at, *M.first_lane(idx, n, mask, beyond))
    return np.array(targets, np.int64)[np.minimum(chosen, len(targets) - 1)]


def emit_control(cg: Context, ins: Decoded, at: int, last: BasicBlock, leads: bool) -> bool:
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
        index = cg.get("index")
        table = last.succ[:-1] if guard is not None else last.succ
        if not table:
            raise Unsupported("branch table")
        chosen = cg.let(cg.call("branch_table", index, f"{tuple(table)}"))
        if cg.guard is not None:
            chosen = cg.let(f"where({cg.guard}, {chosen}, {following})")
        cg.guard = None
        cg.write_back(cg.unit.program.registers(last.live_out))
        cg.line(f"return idx, mask, {chosen}")
        return True
    cg.guard = None
    cg.write_back(cg.unit.program.registers(last.live_out))
    if predicate is None:
        cg.line(f"return idx, mask, {target}")
    else:
        assert guard is not None
        yes, no = (following, target) if guard.negated else (target, following)
        cg.line(f"return idx, mask, ({predicate}, {yes}, {no})")
    return True


def _barrier(cg: Context, ins: Decoded, last: BasicBlock, following: int) -> bool:
    given = ins.modifiers
    if "warp" in given:
        # The threads were gathered by the lead.
        return False
    if "cluster" in given and "arrive" in given:
        cg.line(cg.call("cluster_arrive"))
        return False
    if "cluster" not in given:
        number = cg.get("a")
        if "red" in given:
            return _barrier_reduce(cg, ins, number)
        count = cg.get("b") if "b" in ins else "None"
        if "arrive" in given:
            cg.line(cg.call("barrier_arrive", number, count))
            return False
    mask = cg.mask()
    cg.guard = None
    cg.write_back(cg.unit.program.registers(last.live_out))
    what = "cluster_wait" if "cluster" in given else "barrier_sync"
    more = "" if "cluster" in given else f"{number}, {count}, "
    cg.line(f"return idx, mask, {what}(M, {cg.at}, idx, n, mask, {mask}, {more}{following})")
    return True


def _barrier_reduce(cg: Context, ins: Decoded, number: str) -> bool:
    """bar.red leads its block: the threads stay until the barrier completes, then read the result."""
    predicate = cg.get("c")
    count = cg.get("b") if "b" in ins else "None"
    how = ins.modifiers.get("op", "popc")
    call = f"barrier_reduce(M, {cg.at}, idx, n, mask, {number}, {count}, {predicate}, {how!r})"
    cg.narrow(call, ", result")
    cg.put("d" if how == "popc" else "p", "result")
    return False


@emits("nop", "pmevent", "nanosleep", "griddepcontrol", "membar", "fence")
@emits("prefetch", "prefetchu", "discard", "applypriority")
def _nothing(cg: Context, ins: Decoded) -> None:
    """Orders or hints that do not change what a functional run computes."""


@emits("createpolicy")
def _createpolicy(cg: Context, ins: Decoded) -> None:
    cg.put("policy", cg.const("u64", 0))
