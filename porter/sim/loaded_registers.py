# SPDX-License-Identifier: Apache-2.0
"""Results of tcgen05.ld: which registers hold them, and where they are used with no tcgen05.wait::ld between.

The PTX ISA wants the wait (9.7.16.6.4.5); shipped code uses results without it, and hardware then waits for them as for
those of any load. So a load is in flight until its warp executes the wait, or uses a result.
"""

from __future__ import annotations

from functools import lru_cache

from porter.ptx.table import Completion, Decoded
from porter.sim.program import EXIT, BasicBlock, Program


def is_load(ins: Decoded) -> bool:
    return ins.form.completion is Completion.TCGEN05_LD


def origins(program: Program) -> dict[str, frozenset[str]]:
    """Which results of loads a register may hold: compilers copy registers freely, also those of loads in flight."""
    held = {name: frozenset((name,)) for ins in program.code if is_load(ins) for name in ins.writes}
    moves = [(ins.uses, ins.writes) for ins in program.code if ins.parts[0] == "mov"]
    grown = bool(held)
    while grown:
        grown = False
        for uses, defs in moves:
            copied = frozenset().union(*(held[u] for u in uses if u in held))
            for name in defs if copied else ():
                before = held.get(name, frozenset())
                if not copied <= before:
                    held[name] = before | copied
                    grown = True
    return held


class Loads:
    """Which instructions load registers: those of some, by their indices, found once for each set of names."""

    def __init__(self, program: Program) -> None:
        self._writes = [(at, frozenset(ins.writes)) for at, ins in enumerate(program.code) if is_load(ins)]
        self._found: dict[frozenset[str], tuple[int, ...]] = {}

    def of(self, names: frozenset[str]) -> tuple[int, ...]:
        found = self._found.get(names)
        if found is None:
            found = self._found[names] = tuple(at for at, writes in self._writes if not names.isdisjoint(writes))
        return found


@lru_cache(maxsize=16)
def early_uses(program: Program) -> dict[int, frozenset[str]]:
    """The results that an instruction, by its index, uses on some path without a wait since their load."""
    held = origins(program)
    if not held:
        return {}
    pending = _pending(program)
    found: dict[int, frozenset[str]] = {}
    for block in program.blocks:
        left = pending[block.number]
        for at in range(block.start, block.end):
            ins = program.code[at]
            if ins.parts[0] != "mov":
                read = frozenset().union(*(held[u] for u in ins.uses if u in held))
                if read & left:
                    found[at] = read & left
            left = _after(ins, left)
    return found


def _pending(program: Program) -> list[frozenset[str]]:
    """Results that some path to a block has no wait for."""
    pending: list[frozenset[str]] = [frozenset() for _ in program.blocks]
    passes = [_passes(program, block) for block in program.blocks]
    work = list(range(len(program.blocks)))
    while work:
        block: BasicBlock = program.blocks[work.pop()]
        waits, own = passes[block.number]
        left = own if waits else pending[block.number] | own
        for number in block.succ:
            if number != EXIT and not left <= pending[number]:
                pending[number] |= left
                work.append(number)
    return pending


def _passes(program: Program, block: BasicBlock) -> tuple[bool, frozenset[str]]:
    """Whether a block waits for what was loaded ahead of it, and the results of its own loads that it leaves."""
    code = program.code[block.start : block.end]
    last = max((i for i, ins in enumerate(code) if ins.form.awaits is Completion.TCGEN05_LD), default=None)
    own = code if last is None else code[last + 1 :]
    return last is not None, frozenset(name for ins in own if is_load(ins) for name in ins.writes)


def _after(ins: Decoded, pending: frozenset[str]) -> frozenset[str]:
    if is_load(ins):
        return pending.union(ins.writes)
    return frozenset() if ins.form.awaits is Completion.TCGEN05_LD else pending
