# SPDX-License-Identifier: Apache-2.0
"""Results of tcgen05.ld: which registers hold them, and where they are used with no tcgen05.wait::ld between.

The PTX ISA wants the wait (9.7.16.6.4.5); shipped code uses results without it, and hardware then waits for them as for
those of any load. So a load is in flight until its warp executes the wait, or uses a result.
"""

from __future__ import annotations

from porter.ptx import ast
from porter.sim.operand_registers import uses_and_defs
from porter.sim.program import EXIT, BasicBlock, Program


def is_load(ins: ast.Instruction) -> bool:
    return ins.parts[:2] == ("tcgen05", "ld")


def results(ins: ast.Instruction) -> frozenset[str]:
    """The registers that a tcgen05.ld writes, that of a reduction among them."""
    operands = ins.operands[: 2 if ins.parts[2] == "red" else 1]
    items = [i for to in operands for i in (to.items if isinstance(to, ast.Vec) else (to,))]
    return frozenset(i.name for i in items if isinstance(i, ast.Reg))


def origins(program: Program) -> dict[str, frozenset[str]]:
    """Which results of loads a register may hold: compilers copy registers freely, also those of loads in flight."""
    held = {name: frozenset((name,)) for ins in program.code if is_load(ins) for name in results(ins)}
    moves = [uses_and_defs(ins) for ins in program.code if ins.parts[0] == "mov"]
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
                read = frozenset().union(*(held[u] for u in uses_and_defs(ins)[0] if u in held))
                if read & left:
                    found[at] = read & left
            left = _after(ins, left)
    return found


def _pending(program: Program) -> list[frozenset[str]]:
    """Results that some path to a block has no wait for."""
    pending: list[frozenset[str]] = [frozenset() for _ in program.blocks]
    work = list(range(len(program.blocks)))
    while work:
        block: BasicBlock = program.blocks[work.pop()]
        left = pending[block.number]
        for ins in program.code[block.start : block.end]:
            left = _after(ins, left)
        for number in block.succ:
            if number != EXIT and not left <= pending[number]:
                pending[number] |= left
                work.append(number)
    return pending


def _after(ins: ast.Instruction, pending: frozenset[str]) -> frozenset[str]:
    if is_load(ins):
        return pending | results(ins)
    return frozenset() if ins.parts[:2] == ("tcgen05", "wait::ld") else pending
