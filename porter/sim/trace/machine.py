# SPDX-License-Identifier: Apache-2.0
"""The simulator with a recorder attached: the same machine, functional or checking, that tells what it does.

As with the checker, generated code calls wrappers of some of the simulator's functions, and landing,
mbarriers, parking and wake-ups are observed by overriding. A machine that is not traced has none of this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from porter.ptx import ast
from porter.sim.codegen import Context
from porter.sim.engine import Engine, Operation
from porter.sim.executor import Executor
from porter.sim.mbarrier import Mbarriers
from porter.sim.trace import labels
from porter.sim.trace.tracer import Tracer

Array = npt.NDArray[Any]


class TracingEngine(Engine):
    """Tells the tracer which operation is issued and which one lands."""

    machine: TracingMachine

    def issue(self, op: Operation) -> Operation:
        self.machine.tracer.issued(op)
        return super().issue(op)

    def read_sources(self, op: Operation) -> None:
        if op.read is not None and not op.done:
            self.machine.tracer.sources_read(op)
        super().read_sources(op)

    def _run(self, op: Operation) -> None:
        tracer = self.machine.tracer
        before, tracer.landing = tracer.landing, op
        tracer.recorder.advance()
        try:
            super()._run(op)
        finally:
            tracer.landing = before
            tracer.landed(op)


class TracingMbarriers(Mbarriers):
    """Tells the tracer of arrivals and completed phases."""

    machine: TracingMachine

    def complete_tx(self, slot: int, cta: int, nbytes: int) -> None:
        self.machine.tracer.signalled(slot, cta, f"{nbytes} bytes arrive")
        super().complete_tx(slot, cta, nbytes)

    def _arrive(self, slot: Array, cta: Array, count: Array, at: int) -> None:
        # Arrivals of threads come through `_mbar_arrive`, which knows the threads.
        if self.machine.tracer.landing is not None:
            for s, c, k in zip(slot.tolist(), cta.tolist(), count.tolist(), strict=True):
                self.machine.tracer.signalled(s, c, "arrive" if k == 1 else f"{k} arrivals")
        super()._arrive(slot, cta, count, at)

    def _check(self, slot: Array, cta: Array) -> None:
        before = self.phase[slot, cta].copy()
        super()._check(slot, cta)
        changed = np.flatnonzero(self.phase[slot, cta] != before)
        places = {(int(slot[i]), int(cta[i])) for i in changed.tolist()}
        for place in sorted(places):
            self.machine.tracer.phase_done(*place)


class TracingMachine(Executor):
    """Mixed into a kind of machine by `traced`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        recorder = self.options.trace
        assert recorder is not None
        self.tracer = Tracer(self, recorder)
        self.mbar = _mixed(TracingMbarriers, type(self.mbar))(self)
        self.engine = _mixed(TracingEngine, type(self.engine))(self)
        names = self.compiler.namespace
        for name, wrapper in _WRAPPERS.items():
            names[name] = functools.partial(wrapper, names[name])
        names["trace_event"] = _event

    def observe(self, cg: Context, ins: ast.Instruction) -> None:
        inner = super().observe
        if inner is not None:
            inner(cg, ins)
        if labels.is_event(ins):
            cg.line(cg.call("trace_event"))

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.tracer.finish()

    def _execute(self, number: int, idx: Any, n: int, mask: Any) -> None:
        length = self._function(number, mask is None)[2]
        self.tracer.step(self.warps(idx), self.program.blocks[number].start, length)
        super()._execute(number, idx, n, mask)

    def park(self, idx: Any, n: int, lanes: Array, keys: Any) -> None:
        super().park(idx, n, lanes, keys)
        self.tracer.parked(self.warps(idx), lanes, keys)

    def wake(self, *keys: Any) -> bool:
        self.tracer.woken(keys)
        return super().wake(*keys)

    def _exit(self, warps: Array, gone: Array) -> None:
        super()._exit(warps, gone)
        self.tracer.exited(warps)


def traced(kind: type[Executor]) -> type[Executor]:
    """A kind of machine, with a tracer."""
    return cast("type[Executor]", _mixed(TracingMachine, kind))


_MIXED: dict[tuple[Any, Any], Any] = {}


def _mixed(mixin: Any, base: Any) -> Any:
    """A class that is both, made once."""
    found = _MIXED.get((mixin, base))
    if found is None:
        found = _MIXED[mixin, base] = type(f"{mixin.__name__}Of{base.__name__}", (mixin, base), {})
    return found


# Called by generated code, in place of the functions that they call ------------------------------------


def _event(M: TracingMachine, at: int, idx: Any, n: int, mask: Any) -> None:
    M.tracer.event(at, _active(M, idx, n, mask))


def _active(M: TracingMachine, idx: Any, n: int, mask: Any) -> list[tuple[int, Array | None]]:
    """(warp, active lanes) of traced warps; None for all lanes."""
    warps = M.warps(idx).tolist()
    if mask is None:
        return [(w, None) for w in warps if w in M.tracer.warps]
    lanes = np.broadcast_to(mask, (n, 32))
    return [(w, lanes[row]) for row, w in enumerate(warps) if w in M.tracer.warps and lanes[row].any()]


def _mbar_init(inner: Any, M: TracingMachine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: Any) -> None:
    inner(M, at, idx, n, mask, addr, count)
    for slot, cta in _places(M, at, idx, n, mask, addr):
        M.tracer.phase_begins(slot, cta)


def _mbar_arrive(inner: Any, M: TracingMachine, at: int, idx: Any, n: int, mask: Any, addr: Any, *rest: Any) -> Any:
    for (slot, cta), warps in _places(M, at, idx, n, mask, addr).items():
        M.tracer.signalled(slot, cta, "arrive", warps)
    return inner(M, at, idx, n, mask, addr, *rest)


def _mbar_wait(inner: Any, M: TracingMachine, at: int, idx: Any, n: int, mask: Any, addr: Any, *rest: Any) -> Any:
    result = inner(M, at, idx, n, mask, addr, *rest)
    if result is None:
        return None
    chosen, count, new_mask, complete = result
    passed = np.broadcast_to(complete, (count, 32))
    if new_mask is not None:
        passed = passed & np.broadcast_to(new_mask, (count, 32))
    row_of = {int(w): row for row, w in enumerate(M.warps(idx).tolist())}
    seen = np.zeros((n, 32), bool)
    for i, w in enumerate(M.warps(chosen).tolist()):
        seen[row_of[int(w)]] = passed[i]
    for (slot, cta), warps in _places(M, at, idx, n, seen, addr).items():
        M.tracer.passed(at, slot, cta, warps)
    return result


def _places(
    M: TracingMachine, at: int, idx: Any, n: int, mask: Any, addr: Any
) -> dict[tuple[int, int], list[tuple[int, Array]]]:
    """The mbarriers that active threads name, with the traced warps and lanes that name each."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    found: dict[tuple[int, int], list[tuple[int, Array]]] = {}
    if not lanes.any():
        return found
    slots, ctas = M.mbar.locate(at, idx, n, lanes, addr)
    keys = np.full((n, 32), -1, np.int64)
    keys[lanes] = slots * M.n_cta + ctas
    for row, w in enumerate(M.warps(idx).tolist()):
        for key in np.unique(keys[row][lanes[row]]).tolist():
            slot, cta = divmod(key, M.n_cta)
            warps = found.setdefault((slot, cta), [])
            if w in M.tracer.warps:
                warps.append((w, keys[row] == key))
    return found


def _wait(inner: Any, M: TracingMachine, at: int, idx: Any, n: int, mask: Any, *rest: Any) -> Any:
    """An instruction that waits for asynchronous operations: they land while it does."""
    with M.tracer.waiting(at, _active(M, idx, n, mask)):
        return inner(M, at, idx, n, mask, *rest)


_WRAPPERS: dict[str, Callable[..., Any]] = {
    "mbar_init": _mbar_init,
    "mbar_arrive": _mbar_arrive,
    "mbar_wait": _mbar_wait,
    **dict.fromkeys(("wgmma_wait", "bulk_wait", "cp_async_wait", "tmem_wait_stores"), _wait),
}
