# SPDX-License-Identifier: Apache-2.0
"""Whether blocks of a kernel wait for each other: a loop that does nothing but look at one place of global memory, as
the grid barrier of cooperative groups is, and flags, counters and locks of a kernel's own."""

from __future__ import annotations

from functools import lru_cache

from porter.ptx import ast
from porter.ptx.table import Decoded
from porter.sim.program import EXIT, BasicBlock, Program

_IDLE = frozenset((
    "ld", "atom", "nanosleep", "fence", "membar", "bra", "mov", "setp", "set", "selp", "and", "or", "xor", "not", "shl",
    "shr", "add", "sub", "mad", "mul", "min", "max", "cvt", "cvta", "vote", "shfl", "activemask", "match", "nop",
    "bar", "barrier",
))  # fmt: skip
"""What a loop that waits may do besides looking."""
_SHARED = frozenset(("shared", "shared::cta", "shared::cluster"))


@lru_cache(maxsize=16)
def waits_for_blocks(program: Program) -> int | None:
    """The index of an instruction that looks at global memory until another block has changed it; None if there is
    none."""
    for block in program.blocks:
        for number in block.succ:
            if number != EXIT and number <= block.number:
                found = _look(program, _loop(program, number, block.number))
                if found is not None:
                    return found
    return None


def _loop(program: Program, head: int, last: int) -> list[BasicBlock]:
    """The blocks from which a branch back from `last` is reached, none of them by way of `head`."""
    before: dict[int, list[int]] = {}
    for block in program.blocks[head : last + 1]:
        for number in block.succ:
            before.setdefault(number, []).append(block.number)
    found, work = {head, last}, [last]
    while work:
        number = work.pop()
        for earlier in before.get(number, ()) if number != head else ():
            if earlier not in found:
                found.add(earlier)
                work.append(earlier)
    return [program.blocks[number] for number in sorted(found)]


def _look(program: Program, loop: list[BasicBlock]) -> int | None:
    """What such a loop looks with."""
    body = [at for block in loop for at in range(block.start, block.end)]
    if not all(_is_idle(program.code[at]) for at in body):
        return None
    changed = {name for at in body for name in program.code[at].writes}
    return next((at for at in body if _is_look(program.code[at], changed)), None)


def _is_idle(ins: Decoded) -> bool:
    """A block may tell its other threads what one of them has seen."""
    return ins.parts[0] in _IDLE or (ins.parts[0] == "st" and not _SHARED.isdisjoint(ins.parts))


def _is_look(ins: Decoded, changed: set[str]) -> bool:
    """Whether it reads a place of global memory that is the same in each turn."""
    if ins.parts[0] not in ("ld", "atom") or not (_SHARED | {"local", "param", "const"}).isdisjoint(ins.parts):
        return False
    places = [operand.base for operand in ins.operands if isinstance(operand, ast.Mem)]
    return bool(places) and not any(isinstance(base, ast.Reg) and base.name in changed for base in places)
