# SPDX-License-Identifier: Apache-2.0
"""Registers that asynchronous operations still write: results of wgmma and tcgen05.ld before their wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from porter.ptx import ast
from porter.sim.check.judge import Verdict
from porter.sim.program import Program, uses_and_defs

if TYPE_CHECKING:
    from porter.sim.codegen import Context
    from porter.sim.machine import Machine


class RegisterWatch:
    """Which registers of a kernel may be pending: those that some wgmma or tcgen05.ld writes."""

    def __init__(self, program: Program) -> None:
        self.accumulators: set[str] = set()
        self.loaded: set[str] = set()
        for ins in program.code:
            if ins.parts[0] == "wgmma" and ins.parts[1] == "mma_async":
                self.accumulators.update(uses_and_defs(ins)[1])
            elif ins.parts[0] == "tcgen05" and ins.parts[1] == "ld":
                self.loaded.update(uses_and_defs(ins)[1])
        self.origins = {name: frozenset((name,)) for name in self.loaded}
        self._follow_copies(program)

    def _follow_copies(self, program: Program) -> None:
        """Which loaded registers a register may hold a copy of."""
        moves = [uses_and_defs(ins) for ins in program.code if ins.parts[0] == "mov"]
        grown = bool(self.loaded)
        while grown:
            grown = False
            for uses, defs in moves:
                held = frozenset().union(*(self.origins[u] for u in uses if u in self.origins))
                for name in defs if held else ():
                    before = self.origins.get(name, frozenset())
                    if not held <= before:
                        self.origins[name] = before | held
                        grown = True

    def emit(self, cg: Context, ins: ast.Instruction) -> None:
        head = ins.parts[0]
        # Compilers copy registers freely, also while an operation owns them; a copy is no use yet.
        if head == "mov" or not (self.accumulators or self.loaded):
            return
        uses, defs = uses_and_defs(ins)
        touched = self.accumulators.intersection((*uses, *defs))
        if touched and head != "wgmma":
            cg.line(cg.call("touch_accumulator", repr(frozenset(touched))))
        read = frozenset().union(*(self.origins[u] for u in uses if u in self.origins))
        if read and not (head == "tcgen05" and ins.parts[1] == "ld"):
            cg.line(cg.call("use_loaded", repr(read)))


def touch_accumulator(M: Machine, at: int, idx: Any, n: int, mask: Any, names: frozenset[str]) -> None:
    check: Any = M.check
    for warp in M.warps(idx).tolist():
        groups = check.wgmmas.get(warp)
        if groups is None:
            continue
        for group in (*groups.groups, groups.open):
            for (access,) in group:
                if not names.isdisjoint(access.notes["registers"]):
                    new = check.generic("register", at, warp, True, 1, 4)
                    verdict = Verdict("H29", "a wgmma.wait_group that covers the wgmma", "wgmma.wait_group")
                    check.report(verdict, access, new, "", int(M.warp_cta[warp]))
                    return


def use_loaded(M: Machine, at: int, idx: Any, n: int, mask: Any, names: frozenset[str]) -> None:
    check: Any = M.check
    for warp in M.warps(idx).tolist():
        for access in check.loads.get(warp, ()):
            registers: set[str] = access.notes["registers"]
            if registers.isdisjoint(names):
                continue
            left: set[str] = access.notes["unread"]
            left -= names
            if not left:
                access.notes.setdefault("consumed", check.clocks.now(warp))
            new = check.generic("register", at, warp, False, 1, 4)
            verdict = Verdict("H31", "tcgen05.wait::ld after the load", "tcgen05.wait::ld.sync.aligned", strict=True)
            check.report(verdict, access, new, "", int(M.warp_cta[warp]))


EVENTS: dict[str, Any] = {"touch_accumulator": touch_accumulator, "use_loaded": use_loaded}
