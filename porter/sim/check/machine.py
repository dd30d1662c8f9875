# SPDX-License-Identifier: Apache-2.0
"""The simulator with a checker attached: the same machine, whose steps are told to the checker.

Generated code calls the functions of `HOOKS` in place of the simulator's own of the same names; a hook calls
the original in turn. Landing, mbarriers, wake-ups and exits are observed by overriding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx import ast
from porter.sim.check import (
    hooks_copy,
    hooks_cp_async,
    hooks_memory,
    hooks_registers,
    hooks_sync,
    hooks_tensor,
    hooks_wgmma,
)
from porter.sim.check.checker import Checker
from porter.sim.check.issues import Issue
from porter.sim.check.registers import RegisterWatch
from porter.sim.codegen import RUNTIME, Context
from porter.sim.engine import Engine, Operation
from porter.sim.executor import Executor
from porter.sim.mbarrier import Mbarriers

Array = npt.NDArray[Any]
HOOKS: dict[str, Any] = {
    **hooks_memory.HOOKS,
    **hooks_sync.HOOKS,
    **hooks_copy.HOOKS,
    **hooks_cp_async.HOOKS,
    **hooks_wgmma.HOOKS,
    **hooks_tensor.HOOKS,
    **hooks_registers.HOOKS,
}


class CheckingEngine(Engine):
    """Tells the checker which operation lands."""

    def __init__(self, machine: CheckingMachine) -> None:
        super().__init__(machine)
        self.check = machine.check
        self._issues: dict[Operation, Issue] = {}

    def issue(self, op: Operation) -> Operation:
        issue = self.check.next_issue()
        if issue is not None:
            self._issues[op] = issue
        return super().issue(op)

    def _run(self, op: Operation) -> None:
        check = self.check
        before, check.landing = check.landing, self._issues.pop(op, None)
        try:
            super()._run(op)
        finally:
            check.landing = before


class CheckingMbarriers(Mbarriers):
    """Tells the checker of arrivals by operations and of completed phases."""

    def __init__(self, machine: CheckingMachine) -> None:
        super().__init__(machine)
        self.check = machine.check

    def complete_tx(self, slot: int, cta: int, nbytes: int) -> None:
        self.check.signal(slot, cta)
        super().complete_tx(slot, cta, nbytes)

    def _arrive(self, slot: Array, cta: Array, count: Array, at: int) -> None:
        if self.check.landing is not None:
            self.check.signal(int(slot[0]), int(cta[0]))
        super()._arrive(slot, cta, count, at)

    def _check(self, slot: Array, cta: Array) -> None:
        before = self.phase[slot, cta].copy()
        super()._check(slot, cta)
        after = self.phase[slot, cta]
        for i in np.flatnonzero(after != before).tolist():
            self.check.phase_done(int(slot[i]), int(cta[i]), int(after[i]))


class CheckingMachine(Executor):
    """A wave of blocks with a checker."""

    check: Checker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check = Checker(self, self.options.level)
        self.mbar = CheckingMbarriers(self)
        self.engine = CheckingEngine(self)
        self.watched = RegisterWatch(self.program)
        for name, hook in HOOKS.items():
            assert name in RUNTIME, name
            self.compiler.namespace[name] = hook
        self.compiler.namespace.update(hooks_sync.EVENTS)

    def follow(self, before: Executor | None) -> None:
        super().follow(before)
        if before is not None:
            self.check.global_memory.follow(before.check.global_memory.state)

    def observe(self, cg: Context, ins: ast.Instruction) -> None:
        """Code for what functional runs need not do: fences, waits for loads, uses of watched registers."""
        self.watched.emit(cg, ins)
        hooks_sync.emit_events(cg, ins)

    def wake(self, *keys: Any) -> bool:
        for key in keys:
            if key[0] == "bar":
                self.check.barrier_done(key[1], key[2])
            elif key[0] == "cluster":
                self.check.cluster_done(key[1])
        return super().wake(*keys)

    def _exit(self, warps: Array, gone: Array) -> None:
        ctas = sorted(set(self.warp_cta[warps].tolist()))
        alive = [c for c in ctas if self.alive[c] > 0]
        super()._exit(warps, gone)
        for c in alive:
            if self.alive[c] == 0:
                self.check.block_ended(c)
                hooks_registers.block_ended(self, c)
