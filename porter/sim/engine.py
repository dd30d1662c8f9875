# SPDX-License-Identifier: Apache-2.0
"""Asynchronous operations: issued now, landed later.

Issuing captures an operation's operands; landing reads its sources, writes its results and signals its
completion. When it lands is the schedule's choice between those two bounds: at issue (eager); only when a
thread waits for it, or all threads are blocked or gone (late); at a random time in between (random). An
operation lands after those it depends on, which models the orders that hardware keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from porter.diagnostics import Code
from porter.ptx.operand_errors import OperandError, UnsupportedOperandError
from porter.sim.memory import MemoryAccessError
from porter.sim.operation import Groups, Operation
from porter.sim.results import Stop
from porter.sim.wave import Wave


class Engine:
    def __init__(self, machine: Wave) -> None:
        self.machine = machine
        self.pending: dict[int, Operation] = {}
        self.by_key: dict[Any, dict[int, Operation]] = {}
        self._serial = 0
        self._landed = 0
        self._seen = 0

    def issue(self, op: Operation) -> Operation:
        """Take an operation on; lands it at once under the eager schedule."""
        self.machine.activity += 1
        if self.machine.observer is not None:
            self.machine.observer.issued(op)
        if not self.machine.late:
            self._run(op)
            return op
        self._serial += 1
        op.number = self._serial
        self.pending[op.number] = op
        if len(op.keys) > 1:
            # Several signals may go to one place: those of a pair of blocks to the mbarrier of one.
            op.keys = list(dict.fromkeys(op.keys))
        for key in op.keys:
            self.by_key.setdefault(key, {})[op.number] = op
        return op

    def read_sources(self, op: Operation) -> None:
        """Make an operation read its sources now, if it has not."""
        if op.read is not None and not op.done:
            if self.machine.observer is not None:
                self.machine.observer.sources_read(op)
            read, op.read = op.read, None
            self._guarded(op, read)

    def land(self, op: Operation) -> None:
        """Land an operation, and first those that come before it."""
        stack = [op]
        while stack:
            top = stack[-1]
            if top.done:
                stack.pop()
                continue
            first = next((a for a in top.after if not a.done), None)
            if first is not None:
                stack.append(first)
                continue
            stack.pop()
            self._run(top)

    def land_all(self, ops: Iterable[Operation]) -> None:
        left = [op for op in ops if not op.done]
        self._prepare(left)
        for op in left:
            self.land(op)

    def _prepare(self, ops: list[Operation]) -> None:
        """Let operations that are about to land one after another, with those before them, share their work.

        Only if all are of one kind, but for those that touch no memory: what one reads is then what it would
        read at its own landing.
        """
        found: dict[Operation, None] = {}
        stack = [op for op in ops if not op.done]
        while stack:
            op = stack.pop()
            if op not in found:
                found[op] = None
                stack += [before for before in op.after if not before.done]
        work = [op for op in found if not op.silent]
        if len(work) < 2:
            return
        prepare = work[0].prepare
        if prepare is not None and all(op.prepare is prepare for op in work):
            prepare(sorted(work, key=lambda op: op.number))

    def wait(
        self, at: int, idx: Any, n: int, mask: Any, due: Sequence[tuple[int, Sequence[Operation]]], read: bool = False
    ) -> None:
        """An instruction that waits: the operations of each warp of `due` land, or, with `read`, read their sources."""
        observer = self.machine.observer
        if observer is not None:
            observer.waiting(at, idx, n, mask)
        ops = dict.fromkeys(op for _, mine in due for op in mine)
        if read:
            for op in ops:
                self.read_sources(op)
        else:
            self.land_all(ops)
        if observer is not None:
            observer.waited(at, due, read)

    def commit(self, warp: int, groups: Groups) -> None:
        """What a warp, or a thread of it, has issued since its last group becomes a group."""
        if self.machine.observer is not None:
            self.machine.observer.grouped(warp, groups.open)
        groups.commit()

    def _run(self, op: Operation) -> None:
        observer = self.machine.observer
        if observer is None:
            self._land(op)
            return
        observer.landing(op)
        try:
            self._land(op)
        finally:
            observer.landed(op)

    def _land(self, op: Operation) -> None:
        self.read_sources(op)
        if op.number:
            del self.pending[op.number]
            for key in op.keys:
                found = self.by_key[key]
                del found[op.number]
                if not found:
                    del self.by_key[key]
        op.done = True
        op.after = []
        self._landed += 1
        self.machine.activity += 1
        self._guarded(op, op.land)

    def _guarded(self, op: Operation, action: Callable[[], None]) -> None:
        """Turn errors of the datapaths into findings about the issuing instruction."""
        try:
            action()
        except UnsupportedOperandError as problem:
            raise Stop(Code.SIM_UNKNOWN_INSTRUCTION, str(problem), op.at, op.warp) from problem
        except MemoryAccessError as problem:
            raise Stop(Code.SIM_OUT_OF_BOUNDS, str(problem), op.at, op.warp) from problem
        except OperandError as problem:
            raise Stop(Code.SIM_DESCRIPTOR, str(problem), op.at, op.warp) from problem

    # Schedules ----------------------------------------------------------------------------------------

    def land_for_waiters(self) -> bool:
        """All threads wait: land what they wait for, else the oldest operation. False if none pends."""
        if not self.pending:
            return False
        wanted: dict[int, Operation] = {}
        for key in self.machine.parked:
            wanted.update(self.by_key.get(key, {}))
        if wanted:
            with self.machine.waking_together():
                self._prepare(list(wanted.values()))
                for number in sorted(wanted):
                    self.land(wanted[number])
        else:
            self.land(self.pending[min(self.pending)])
        return True

    def maybe_land(self) -> None:
        """Random schedule: land a random pending operation now and then."""
        rng = self.machine.random
        assert rng is not None
        while self.pending and rng.random() < 0.25:
            self.land_any()

    def land_any(self) -> bool:
        """Random schedule: land one pending operation. False if there is none."""
        rng = self.machine.random
        assert rng is not None
        if not self.pending:
            return False
        numbers = list(self.pending)
        self.land(self.pending[numbers[rng.randrange(len(numbers))]])
        return True

    def nudge(self) -> None:
        """Called now and then: threads that poll memory must not keep operations from landing for ever."""
        if self.pending and self._landed == self._seen:
            self.land(self.pending[min(self.pending)])
        self._seen = self._landed

    def drain(self) -> bool:
        """All threads have ended: land what is left. False if nothing was."""
        if not self.pending:
            return False
        for number in sorted(self.pending):
            op = self.pending.get(number)
            if op is not None:
                self.land(op)
        return True
