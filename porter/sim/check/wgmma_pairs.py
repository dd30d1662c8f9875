# SPDX-License-Identifier: Apache-2.0
"""Registers that two wgmma use: accumulators of one shape keep their order, everything else needs a wgmma.fence or a
wait (PTX ISA 9.7.15.7.1, 9.7.15.7.3)."""

from __future__ import annotations

import itertools
from typing import Any

from porter.ptx import ast
from porter.ptx.table import Completion, Decoded
from porter.ptx.wgmma import WgmmaOp
from porter.sim.check.checker import Checker
from porter.sim.check.judge import Verdict
from porter.sim.check.rulings import Ruling
from porter.sim.check.shadow import Access
from porter.sim.codegen import Context
from porter.sim.machine import Machine
from porter.sim.observer import Observer
from porter.sim.program import Program


class WgmmaPairs(Observer):
    """Watches the pairs of wgmma, if a kernel has any, whose registers meet."""

    def __init__(self, check: Checker) -> None:
        self.check = check
        # By the index of a wgmma those whose registers it meets.
        self._before = _pairs(check.machine.program)
        self._watched = {at for pairs in self._before.values() for at in pairs} | set(self._before)
        # Each warp's latest issue of the watched wgmma since its last wgmma.fence.
        self._unfenced: dict[int, dict[int, Access]] = {}

    def code(self, cg: Context, ins: Decoded) -> None:
        if not self._watched or ins.parts[0] != "wgmma":
            return
        if ins.parts[1] == "fence":
            cg.line(cg.call("M.observer.wgmma_order"))
        elif cg.at in self._watched:
            cg.line(cg.call("M.observer.wgmma_meets"))

    # Called by generated code ----------------------------------------------------------------------------

    def wgmma_order(self, M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
        for warp in M.warps(idx).tolist():
            self._unfenced.pop(warp, None)

    def wgmma_meets(self, M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
        check = self.check
        before = self._before.get(at, {})
        for warp in M.warps(idx).tolist():
            unfenced = self._unfenced.setdefault(warp, {})
            flight = self._in_flight(M, warp)
            new = check.generic("wgmma", at, warp, True, 1, 4)
            for other in before:
                old = flight.get(other) or unfenced.get(other)
                verdict = None if old is None else _judge(M.program, other, at, other in flight, other in unfenced)
                if verdict is not None:
                    check.report(verdict, old, new, "", int(M.warp_cta[warp]))
            unfenced[at] = new

    @staticmethod
    def _in_flight(M: Machine, warp: int) -> dict[int, Access]:
        found: dict[int, Access] = {}
        for op in M.accumulators.warps[warp].all() if warp in M.accumulators.warps else ():
            assert op.effect is not None
            for access in op.effect.accesses:
                if access.warp == warp:
                    found[op.at] = access
        return found


def _pairs(program: Program) -> dict[int, dict[int, None]]:
    """Of each wgmma those whose registers it shares other than as an accumulator of one shape."""
    code = program.code
    alike: dict[tuple[Any, ...], list[int]] = {}
    for at, ins in enumerate(code):
        if ins.form.completion is Completion.WGMMA_GROUP:
            alike.setdefault((ins.modifiers["shape"], _results(ins), _inputs(ins)), []).append(at)
    found: dict[int, dict[int, None]] = {}
    for firsts, seconds in itertools.product(alike.values(), repeat=2):
        first, second = code[firsts[0]], code[seconds[0]]
        if _feeds(first, second) or _meet(first, second):
            for at in seconds:
                found.setdefault(at, {}).update(dict.fromkeys(firsts))
    return found


def _results(ins: Decoded) -> frozenset[str]:
    return frozenset(ins.registers("d"))


def _inputs(ins: Decoded) -> frozenset[str]:
    return frozenset(ins.registers("a") if isinstance(ins["a"], ast.Vec) else ())


def _feeds(first: Decoded, second: Decoded) -> bool:
    """The second reads as A what the first writes."""
    return not _results(first).isdisjoint(_inputs(second))


def _meet(first: Decoded, second: Decoded) -> bool:
    """The second overwrites registers of the first that are not accumulators of one shape."""
    results = _results(second)
    if not results.isdisjoint(_inputs(first)):
        return True
    return first.modifiers["shape"] != second.modifiers["shape"] and not results.isdisjoint(_results(first))


def _judge(program: Program, first: int, second: int, in_flight: bool, unfenced: bool) -> Verdict | None:
    old, new = program.code[first], program.code[second]
    if in_flight and _feeds(old, new):
        return Verdict("H29", "a wgmma.wait_group that covers the wgmma whose result the other reads",
                       "wgmma.wait_group")  # fmt: skip
    if unfenced:
        # One fragment at the same place, from another K: the tensor core takes them in the order of their issue.
        alike = _results(old) == _results(new) and WgmmaOp.of(old.modifiers).n == WgmmaOp.of(new.modifiers).n
        missing = "wgmma.fence between two wgmma that use a register other than as accumulators of one shape"
        ruling = Ruling.WGMMA_REGISTERS if alike or not in_flight else None
        return Verdict("H29", missing, "wgmma.fence.sync.aligned", ruling)
    if in_flight:
        return Verdict("H29", "a wgmma.wait_group that covers the wgmma whose registers the other overwrites",
                       "wgmma.wait_group", Ruling.WGMMA_REGISTERS)  # fmt: skip
    return None
