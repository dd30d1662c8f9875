# SPDX-License-Identifier: Apache-2.0
"""Registers of asynchronous operations: results of wgmma and tcgen05.ld used before their wait, registers of a
wgmma written without a wgmma.fence, sources of a tcgen05.st overwritten before its wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from porter.ptx import ast
from porter.ptx.table import Completion, Decoded
from porter.sim.check.checker import Checker
from porter.sim.check.clocks import EXEC
from porter.sim.check.judge import Verdict, waits_for_group
from porter.sim.check.rulings import Ruling
from porter.sim.check.shadow import Access
from porter.sim.codegen import Context
from porter.sim.exec_tensor import matrix_registers
from porter.sim.loaded_registers import Loads, is_load, origins
from porter.sim.machine import Machine
from porter.sim.observer import Observer
from porter.sim.program import Program
from porter.sim.registers import Move


@dataclass
class Writes:
    """Registers that a stretch of code writes; `at` is its first instruction that does."""

    at: int
    names: set[str]


class Stretch:
    """The writes of some registers since a fence or wait, as the code of a function is generated.

    One call at the first of them tells of all: the set is complete by the time that the function runs.
    """

    def __init__(self) -> None:
        self.all: list[Writes] = []
        self._context: Context | None = None

    def end(self) -> None:
        self._context = None

    def add(self, cg: Context, names: set[str], event: str) -> None:
        if self._context is not cg:
            self._context = cg
            self.all.append(Writes(cg.at, set()))
            cg.line(cg.call(event, str(len(self.all) - 1)))
        self.all[-1].names |= names


class RegisterWatch(Observer):
    """Which registers of a kernel may be pending: those that some wgmma or tcgen05.ld writes."""

    def __init__(self, check: Checker) -> None:
        self.check = check
        self.machine = check.machine
        # Stretches of writes to wgmma registers since the warp's last wgmma.fence; no entry before its first.
        self._unfenced: dict[int, set[int]] = {}
        # When each warp has executed its setmaxnreg.
        self._moves: dict[int, list[tuple[int, int]]] = {}
        program = self.machine.program
        self.accumulators: set[str] = set()
        self.load_results: set[str] = set()
        self.stored: set[str] = set()
        # What some wgmma reads as A, and all that it has in registers.
        self.multiplied: set[str] = set()
        inputs: set[str] = set()
        for ins in program.code:
            if ins.form.completion is Completion.WGMMA_GROUP:
                self.accumulators.update(ins.writes)
                inputs |= matrix_registers(ins)
                self.multiplied |= matrix_registers(ins).difference(ins.writes)
            elif is_load(ins):
                self.load_results.update(ins.writes)
            elif ins.form.completion is Completion.TCGEN05_ST:
                self.stored.update(ins.registers("r"))
        self.origins = origins(program)
        self.loads = Loads(program)
        # Registers whose values come to be a wgmma's, by way of copies.
        self.sources = {name: frozenset((name,)) for name in inputs}
        self._follow_sources(program)
        self.unfenced = Stretch()
        self.overwrites = Stretch()

    def _follow_sources(self, program: Program) -> None:
        moves = [copy for ins in program.code if (copy := _copy(ins)) is not None]
        grown = bool(self.sources)
        while grown:
            grown = False
            for to, source in moves:
                if to in self.sources:
                    before = self.sources.get(source, frozenset())
                    if not self.sources[to] <= before:
                        self.sources[source] = before | self.sources[to]
                        grown = True

    def follow(self, before: RegisterWatch) -> None:
        """The code that was compiled in an earlier wave speaks of that one's stretches."""
        self.unfenced, self.overwrites = before.unfenced, before.overwrites

    def code(self, cg: Context, ins: Decoded) -> None:
        head = ins.parts[0]
        self._emit_writes(cg, ins)
        # Compilers copy registers freely, also while an operation owns them; a copy is no use yet, but taking a
        # register apart or putting one together is.
        parts = any(isinstance(o, ast.Vec) for o in ins.operands)
        if (head == "mov" and not parts) or not (self.accumulators or self.load_results):
            return
        # A wgmma that reads a register too does not mind others that do.
        touched = self.accumulators.intersection((*ins.uses, *ins.writes)) | self.multiplied.intersection(ins.writes)
        if touched and head != "wgmma":
            cg.line(cg.call("M.observer.touch_accumulator", repr(frozenset(touched))))
        if head == "mov":
            return
        read = frozenset().union(*(self.origins[u] for u in ins.uses if u in self.origins))
        if read and not is_load(ins):
            cg.line(cg.call("M.observer.use_loaded", repr(read)))

    def _emit_writes(self, cg: Context, ins: Decoded) -> None:
        p = ins.parts
        if p[0] == "wgmma":
            if p[1] == "fence":
                self.unfenced.end()
                cg.line(cg.call("M.observer.wgmma_fenced"))
            elif p[1] == "mma_async":
                cg.line(cg.call("M.observer.need_wgmma_fence", repr(matrix_registers(ins))))
            return
        if p[0] == "tcgen05" and p[1] in ("st", "wait::st"):
            self.overwrites.end()
        if not (self.sources or self.stored) or _copy(ins) is not None:
            return
        written = {name for d in ins.writes if d in self.sources for name in self.sources[d]}
        if written:
            self.unfenced.add(cg, written, "M.observer.write_unfenced")
        overwritten = self.stored.intersection(ins.writes)
        if overwritten:
            self.overwrites.add(cg, overwritten, "M.observer.overwrite_stored")

    # Called by generated code ----------------------------------------------------------------------------

    def wgmma_fenced(self, M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
        for warp in M.warps(idx).tolist():
            self._unfenced[warp] = set()

    def write_unfenced(self, M: Machine, at: int, idx: Any, n: int, mask: Any, stretch: int) -> None:
        for warp in M.warps(idx).tolist():
            if warp in self._unfenced:
                self._unfenced[warp].add(stretch)

    def need_wgmma_fence(self, M: Machine, at: int, idx: Any, n: int, mask: Any, names: frozenset[str]) -> None:
        """A wgmma uses registers: what others have written there needs a wgmma.fence, as does the first wgmma."""
        check = self.check
        for warp in M.warps(idx).tolist():
            stretches = self._unfenced.get(warp)
            new = check.generic("wgmma", at, warp, True, 1, 4)
            if stretches is None:
                verdict = Verdict("H29", "wgmma.fence before the first wgmma", "wgmma.fence.sync.aligned")
                check.report(verdict, None, new, "", int(M.warp_cta[warp]))
                continue
            for number in stretches:
                writes = self.unfenced.all[number]
                if not names.isdisjoint(writes.names):
                    old = check.generic("register", writes.at, warp, True, 1, 4)
                    # Compilers move copies and the zeroing of accumulators below the fence (NVIDIA's CuTe DSL GEMMs
                    # have it so), and ptxas, which sees both, keeps the order; it warns where that costs time.
                    copied = M.program.code[writes.at].parts[0] == "mov"
                    verdict = Verdict("H29", "wgmma.fence after the registers are written", "wgmma.fence.sync.aligned",
                                      Ruling.ACCUMULATOR_COPIES if copied else None)  # fmt: skip
                    check.report(verdict, old, new, "", int(M.warp_cta[warp]))

    def overwrite_stored(self, M: Machine, at: int, idx: Any, n: int, mask: Any, stretch: int) -> None:
        check = self.check
        names = self.overwrites.all[stretch].names
        for warp in M.warps(idx).tolist():
            for op in M.tmem.stores.get(warp, ()):
                if op.effect is not None and not names.isdisjoint(M.program.code[op.at].registers("r")):
                    (store,) = op.effect.accesses
                    new = check.generic("register", at, warp, True, 1, 4)
                    edge = "tcgen05.wait::st after the store", "tcgen05.wait::st.sync.aligned"
                    verdict = Verdict("H30", *edge, Ruling.STORE_SOURCES, doubtful=True)
                    check.report(verdict, store, new, "", int(M.warp_cta[warp]))

    def touch_accumulator(self, M: Machine, at: int, idx: Any, n: int, mask: Any, names: frozenset[str]) -> None:
        check = self.check
        for warp in M.warps(idx).tolist():
            for op in M.accumulators.warps[warp].all() if warp in M.accumulators.warps else ():
                assert op.effect is not None
                access = next((a for a in op.effect.accesses if a.warp == warp), None)
                if access is not None and not names.isdisjoint(op.effect.registers):
                    new = check.generic("register", at, warp, True, 1, 4)
                    missing = "a wgmma.wait_group that covers the wgmma"
                    verdict = Verdict("H29", *waits_for_group(access, "wgmma.wait_group", missing))
                    check.report(verdict, access, new, "", int(M.warp_cta[warp]))
                    return

    def use_loaded(self, M: Machine, at: int, idx: Any, n: int, mask: Any, names: frozenset[str]) -> None:
        check = self.check
        loads = self.loads.of(names)
        for warp in M.warps(idx).tolist():
            pending = check.loads.get(warp)
            if pending is None:
                continue
            for access in (a for load in loads for a in pending.get(load, ())):
                left: set[str] = access.notes["unread"]
                left -= names
                if not left:
                    access.notes.setdefault("consumed", check.clocks.now(warp))
                new = check.generic("register", at, warp, False, 1, 4)
                check.report(_NO_WAIT, access, new, "", int(M.warp_cta[warp]))

    # setmaxnreg: all warps of a warpgroup execute the same one (PTX ISA 9.7.19.5) -----------------------

    def moved(self, warp: int) -> None:
        """The warp's latest move, with those of its warpgroup that have come as far."""
        moves = self.machine.registers.moves
        done, last = len(moves[warp]), moves[warp][-1]
        self._before_the_next(warp, done)
        for other in self.machine.registers.group(warp):
            theirs = moves.get(other, [])
            if len(theirs) >= done and not theirs[done - 1].same(last):
                old, new = self._move(other, theirs[done - 1]), self._move(warp, last)
                self.check.report(_SAME, old, new, "", int(self.machine.warp_cta[warp]))
                return

    def _before_the_next(self, warp: int, done: int) -> None:
        """A warpgroup's warps synchronize between one setmaxnreg and the next."""
        events = self._moves
        for other in self.machine.registers.group(warp) if done > 1 else ():
            theirs = events.get(other, [])
            event = theirs[done - 2] if len(theirs) >= done - 1 else None
            if other != warp and (event is None or not self.check.clocks.knows(warp, EXEC, [event])):
                moves = self.machine.registers.moves
                old, new = (
                    self._move(other, moves[other][done - 2]) if event else None,
                    self._move(warp, moves[warp][-1]),
                )
                self.check.report(_MEET, old, new, "", int(self.machine.warp_cta[warp]))
                break
        events.setdefault(warp, []).append(self.check.clocks.now(warp))

    def block_ended(self, cta: int) -> None:
        """Warps that have executed fewer than others of their warpgroup."""
        M = self.machine
        moves = M.registers.moves
        for warp in range(cta * M.warps_per_cta, (cta + 1) * M.warps_per_cta):
            fewest = min(len(moves.get(other, ())) for other in M.registers.group(warp))
            if len(moves.get(warp, ())) > fewest:
                self.check.report(_SAME, None, self._move(warp, moves[warp][fewest]), "", cta)

    def _move(self, warp: int, move: Move) -> Access:
        return self.check.generic("setmaxnreg", move.at, warp, True, 1, 4)


_NO_WAIT = Verdict("H31", "tcgen05.wait::ld after the load", "tcgen05.wait::ld.sync.aligned", Ruling.LOAD_DEPENDENCE)
_MEET = Verdict("R1", "synchronization of the warpgroup since its setmaxnreg before", "bar.sync", Ruling.REGISTER_MOVES)
_SAME = Verdict("R1", "the same setmaxnreg in all warps of the warpgroup", "", Ruling.REGISTER_MOVES)


def _copy(ins: Decoded) -> tuple[str, str] | None:
    """(to, from) of a copy from register to register; compilers make these freely."""
    names = [o.name for o in ins.operands if isinstance(o, ast.Reg)]
    if ins.parts[0] != "mov" or ins.guard is not None or len(ins.operands) != 2 or len(names) != 2:
        return None
    return names[0], names[1]
