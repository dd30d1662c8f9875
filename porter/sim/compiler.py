# SPDX-License-Identifier: Apache-2.0
"""Compiles the blocks of a program on demand: storage for registers, chains of blocks, instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import CodeType
from typing import Any

from porter.ptx import ast
from porter.ptx.table import UNKNOWN, Completion, Decoded
from porter.sim.aligned import check_guard
from porter.sim.blocks import leading
from porter.sim.codegen import EMITTERS, Context, Unit
from porter.sim.exec_control import emit_control
from porter.sim.kinds import WIDTHS, Unsupported
from porter.sim.loaded_registers import early_uses
from porter.sim.machine import Machine
from porter.sim.membership import check_members
from porter.sim.program import BasicBlock, Program


@lru_cache(maxsize=1024)
def _code(source: str, name: str) -> CodeType:
    """Launches of a kernel with the same parameters have the same code."""
    return compile(source, name, "exec")


_OF_WHOLE_WARPS = frozenset(("alloc", "dealloc", "relinquish_alloc_permit", "ld", "st"))
"""Instructions of tcgen05 that are undefined if a thread of the warp has ended (PTX ISA 9.7.16.7.1, 9.7.16.8.3, .4)."""


class Compiler(Unit):
    """Compiles the blocks of one launch on demand."""

    def __init__(self, program: Program, machine: Machine) -> None:
        super().__init__(program, machine)
        self.refused: dict[int, str] = {}
        """Why instructions, by their index, have no code."""
        self.early_uses = early_uses(program) if machine.late else {}
        self._assign_slots()

    def _assign_slots(self) -> None:
        """Storage for registers that live across blocks, and for those whose storage the machine writes.

        Registers of one tensor core fragment get neighbouring slots.
        """
        order: dict[str, None] = {}
        for ins in self.program.code:
            if ins.form.completion is Completion.WGMMA_GROUP:
                order.update(dict.fromkeys(ins.writes))
        if order:
            self._add_copies(order)
        self.fragments = frozenset(order)
        seen = 0
        for b in self.program.blocks:
            live = b.live_out | (b.live_in if b.number == 0 else 0)
            order.update(dict.fromkeys(self.program.registers(live & ~seen)))
            seen |= live
        for name in order:
            width = self.program.widths.get(name)
            if width in WIDTHS:
                assert width is not None
                self.slots[name] = len(self.slot_widths)
                self.slot_widths.append(width)

    def _add_copies(self, order: dict[str, None]) -> None:
        """Copies of wgmma results, which compilers make also while the wgmma is in flight."""
        moves = [
            (ins.operands[0].name, ins.operands[1].name)
            for ins in self.program.code
            if ins.parts[0] == "mov"
            and len(ins.operands) == 2
            and isinstance(ins.operands[0], ast.Reg)
            and isinstance(ins.operands[1], ast.Reg)
        ]
        grown = True
        while grown:
            grown = False
            for to, source in moves:
                if source in order and to not in order and self.program.widths.get(to) == 32:
                    order[to] = None
                    grown = True

    def chain(self, first: BasicBlock, converged: bool) -> list[BasicBlock]:
        """The blocks that one function covers."""
        blocks = [first]
        if not converged:
            return blocks
        while len(blocks) < 200:
            last = blocks[-1]
            ending = self.program.code[last.end - 1]
            if last.succ != (last.number + 1,) or ending.parts[0] in ("bra", "brx", "bar", "barrier", "call"):
                break
            following = self.program.blocks[last.number + 1]
            joined = following.lead == "warp" or (following.lead == "group" and first.lead == "group")
            if following.label or not joined:
                break
            blocks.append(following)
        return blocks

    def compile(self, number: int, converged: bool) -> tuple[Callable[..., Any], list[BasicBlock]]:
        """The function of a block and the blocks it covers."""
        first = self.program.blocks[number]
        chain = self.chain(first, converged)
        cg = Context(self, converged)
        ended = False
        for b in chain:
            for at in range(b.start, b.end):
                cg.at = at
                ended = self._instruction(cg, at, at == first.start, chain[-1])
        last = chain[-1]
        if not ended:
            cg.guard = None
            cg.write_back(self.program.registers(last.live_out))
            cg.line(f"return idx, mask, {last.succ[0]}")
        source = f"def block_{number}(M, R, idx, n, mask):\n" + "\n".join(cg.lines) + "\n"
        exec(_code(source, f"<block {number}{' converged' if converged else ''}>"), self.namespace)
        return self.namespace[f"block_{number}"], chain

    def _instruction(self, cg: Context, at: int, leads: bool, last: BasicBlock) -> bool:
        """Emit one instruction; True if it ended the function."""
        ins = self.program.code[at]
        cg.ins = ins
        kept = len(cg.lines), dict(cg.env), set(cg.dirty)
        try:
            cg.guard = None
            cg.leads = leads
            if leads and not cg.converged:
                self._lead(cg, ins)
            self._guard(cg, ins)
            if ins.form is UNKNOWN:
                raise Unsupported("not in the instruction table")
            check_guard(cg, ins)
            check_members(cg, ins)
            if self.machine.observer is not None:
                self.machine.observer.code(cg, ins)
            if ins.parts[0] in ("bra", "brx", "ret", "exit", "trap", "bar", "barrier", "brkpt"):
                return emit_control(cg, ins, at, last, leads)
            emitter = EMITTERS.get(".".join(ins.parts[:2])) or EMITTERS.get(ins.parts[0])
            if emitter is None:
                raise Unsupported("")
            if at in self.early_uses:
                cg.line(cg.call("tmem_use_loaded", repr(self.early_uses[at])))
            emitter(cg, ins)
        except Unsupported as problem:
            # What the instruction table says of an instruction its emitter may take for granted: another failure is
            # a mistake of ours.
            del cg.lines[kept[0] :]
            cg.env, cg.dirty = kept[1], kept[2]
            cg.guard = None
            with suppress(Unsupported):
                self._guard(cg, ins)
            self.refused[at] = str(problem)
            cg.line(cg.call("unsupported", repr(str(problem))))
        return False

    def _guard(self, cg: Context, ins: Decoded) -> None:
        if ins.guard is not None:
            p = cg.src(ins.guard.operand, "p")
            cg.guard = cg.let(f"~{p}") if ins.guard.negated else p

    def _lead(self, cg: Context, ins: Decoded) -> None:
        """General version: gather the threads that must execute the leading instruction together."""
        if leading(ins) and ins.form.issue in ("warp", "warpgroup"):
            members = ins.get("mask")
            expr = "None" if members is None else cg.src(members, "u32")
            cg.narrow(f"gather_warp(M, {cg.at}, idx, n, mask, {expr})")
            if ins.parts[0] == "tcgen05" and ins.parts[1] in _OF_WHOLE_WARPS:
                cg.line(cg.call("require_all_threads", repr(".".join(ins.parts[:2]))))
