# SPDX-License-Identifier: Apache-2.0
"""What the simulator tells those who watch a run: the checker and the tracer.

A machine that nobody watches has no observer, and makes nothing that only an observer would look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.table import Decoded
from porter.sim.effects import Effect, Place
from porter.sim.memory import Allocation
from porter.sim.operation import Operation

Array = npt.NDArray[Any]


class Named:
    """The mbarriers that the threads of an instruction name: `key` [n, 32] is slot * blocks + block, -1 for none."""

    def __init__(self, warps: Array, lanes: Array, slot: Array, cta: Array, blocks: int) -> None:
        """`slot` and `cta` are flat over `lanes`, which is [n, 32], or [n, 1] where one stands for all of its warp."""
        self.warps = warps
        self.blocks = blocks
        self.key = np.full(lanes.shape, -1, np.int64)
        self.key[lanes] = slot * blocks + cta
        if lanes.shape[1] == 1:
            self.key = np.repeat(self.key, 32, axis=1)

    def among(self, lanes: Array) -> Named:
        """Those that some of the threads name."""
        found = object.__new__(Named)
        found.warps, found.blocks, found.key = self.warps, self.blocks, np.where(lanes, self.key, -1)
        return found

    def by_warp(self) -> list[tuple[int, Array, list[Place]]]:
        """(warp, active lanes [32], mbarriers in the order of the lanes)."""
        found = []
        for warp, row in zip(self.warps.tolist(), self.key, strict=True):
            active = row >= 0
            if active.any():
                slots = dict.fromkeys(row[active].tolist())
                found.append((warp, active, [divmod(key, self.blocks) for key in slots]))
        return found

    def lanes(self, warp: int, place: Place) -> list[int]:
        """The lanes of a warp that name one."""
        row = self.key[int(np.argmax(self.warps == warp))]
        return np.flatnonzero(row == place[0] * self.blocks + place[1]).tolist()

    def by_place(self) -> dict[Place, list[tuple[int, Array]]]:
        """Who names each: (warp, lanes [32])."""
        found: dict[Place, list[tuple[int, Array]]] = {}
        for warp, row in zip(self.warps.tolist(), self.key, strict=True):
            for key in np.unique(row[row >= 0]).tolist():
                found.setdefault(divmod(key, self.blocks), []).append((warp, row == key))
        return found


class Observer:
    """Is told of what happens; what it does not care for, it leaves to these methods.

    Instructions are told by their index `at`, with `idx`, `n` and `mask` as generated code has them.
    """

    def code(self, cg: Any, ins: Decoded) -> None:
        """An instruction is about to be compiled: generate calls ahead of it."""

    # Threads ------------------------------------------------------------------------------------------

    def step(self, warps: Array, at: int, count: int) -> None:
        """Warps execute `count` instructions from index `at` on."""

    def parked(self, warps: Array, lanes: Array, keys: Any) -> None:
        """Threads have stopped until a key is woken; `keys` as `Progress.park` takes them."""

    def woken(self, keys: Sequence[Any]) -> None:
        """Whoever waits for these keys is about to go on."""

    def exited(self, warps: Array) -> None:
        """Threads of these warps have ended; who waits for them has not gone on yet."""

    def finish(self) -> None:
        """The wave has come to its end, or was stopped."""

    # Operations ---------------------------------------------------------------------------------------

    def issues(self, effect: Effect) -> Effect:
        """What is about to be done, or issued; returns it."""
        return effect

    def elects(self, at: int, idx: Any, n: int, mask: Any) -> None:
        """An instruction that is meant for one thread of a warp is executed."""

    def tolerates(self, kind: str, at: int, warps: Array) -> None:
        """Warps give an operand that the PTX ISA does not allow and practice does."""

    def issued(self, op: Operation) -> None:
        """The engine takes an operation on."""

    def grouped(self, warp: int, ops: Sequence[Operation]) -> None:
        """A warp, or a thread of it, makes a group of operations that it has issued, for a wait_group to name."""

    def sources_read(self, op: Operation) -> None:
        """An operation reads its sources."""

    def landing(self, op: Operation) -> None:
        """An operation is about to land."""

    def landed(self, op: Operation) -> None:
        """It has, or was stopped at it."""

    def waiting(self, at: int, idx: Any, n: int, mask: Any) -> None:
        """Warps wait for operations, which land meanwhile."""

    def waited(self, at: int, due: Iterable[tuple[int, Sequence[Operation]]], read: bool) -> None:
        """Each warp of `due` has waited for its operations, or, with `read`, for the reading of their sources."""

    def loaded(self, at: int, warp: int) -> None:
        """A warp has waited for its tcgen05.ld."""

    # Memory of threads --------------------------------------------------------------------------------

    def touches_shared(
        self, at: int, idx: Any, n: int, lanes: Array, where: Array, size: int, kind: str, item: int | None = None,
        value: Any = None,
    ) -> None:  # fmt: skip
        """Threads are about to access `size` bytes each at byte indices `where` of all shared memory; `lanes` and
        `where` are [n, accesses]. `kind` is load, write or atomic, `item` the bytes that one access consists of (None:
        `size`), `value` what is stored, [n, accesses] or [n, accesses, count]."""

    def touches_global(
        self,
        at: int,
        idx: Any,
        n: int,
        mask: Any,
        groups: Sequence[tuple[Allocation, Array, Any]],
        size: int,
        item: int,
        kind: str,
        value: Any = None,
        effects: Mapping[int, Effect] | None = None,
    ) -> None:
        """The same in global memory, at what `global_access.global_groups` gives; `value` is what is stored, `effects`,
        by warp, are those of a cp.async that reads."""

    def published(self, at: int, warp: int) -> None:
        """A warp has copied a tensor map to global memory with a fence of its proxy."""

    # Tensor Memory ------------------------------------------------------------------------------------

    def allocates(self, cta: int, start: int, columns: int) -> None:
        """Columns of a block become allocated."""

    def allocated(self, at: int, warp: int, offset: int, start: int, columns: int, group: int) -> None:
        """A warp has got columns, the first of which it has written to shared memory at `offset`."""

    def asks(self, at: int, warp: int, group: int) -> None:
        """A warp comes to a tcgen05.alloc, where it may have to wait."""

    def frees(self, at: int, warp: int, bits: int, group: int) -> None:
        """A warp deallocates the columns of `bits`."""

    def relinquishes(self, at: int, warp: int, group: int) -> None:
        """A warp gives up its block's right to allocate."""

    # Barriers -----------------------------------------------------------------------------------------

    def joins(self, key: Any, at: int, warps: Array, waits: bool) -> None:
        """Warps are about to arrive at a barrier: ("bar", block, number) or ("cluster", cluster)."""

    def joins_in_parts(self, key: Any, at: int, warps: Array, lanes: Array) -> None:
        """The same of warps of which perhaps not all threads do, with those that do, [n, 32]; told ahead of `joins`."""

    def completes(self, key: Any) -> None:
        """It is complete."""

    def cluster_waits(self, warps: Array, waiting: Array) -> None:
        """Warps wait for their cluster barrier with the threads `waiting` [n, 32]; those without any go on."""

    def moved(self, warp: int) -> None:
        """A warp has executed a setmaxnreg."""

    # mbarriers ----------------------------------------------------------------------------------------

    def initialized(self, at: int, named: Named, valid: set[Place]) -> None:
        """Threads have initialized mbarriers; `valid` are those that there were before."""

    def invalidates(self, at: int, named: Named) -> None:
        """Threads invalidate mbarriers."""

    def expects(self, at: int, named: Named) -> None:
        """Threads change transaction counts."""

    def arrives(self, at: int, named: Named, counts: Array) -> None:
        """Threads are about to arrive, each `counts` [n, 32] times."""

    def arrived(self) -> None:
        """They have."""

    def tests(self, at: int, named: Named, complete: Array) -> Array | None:
        """Threads test phases, `complete` [n, 32] or not, and may go on with either answer. Returns which of them [n,
        32] are to be told that theirs is not complete, as it was some time before; None for none."""
        return None

    def passed(self, at: int, named: Named) -> None:
        """Threads have found the phases complete that they wait for."""

    def signals(self, slot: int, cta: int, arrivals: int, nbytes: int) -> None:
        """The landing operation is about to signal an mbarrier: arrivals, or bytes."""

    def phase_done(self, slot: int, cta: int) -> None:
        """An mbarrier has completed a phase."""

    def history(self, slot: int, cta: int) -> str | None:
        """Who has arrived on an mbarrier so far, for the report of a deadlock."""
        return None


class Observers(Observer):
    """Several observers as one. Each is told only of what it has a method of its own for."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        for name, method in vars(Observer).items():
            told = [getattr(o, name) for o in observers if getattr(type(o), name) is not method]
            if told and not name.startswith("_"):
                setattr(self, name, told[0] if len(told) == 1 else partial(_tell, told))

    def __getattr__(self, name: str) -> Any:
        """What the code that an observer has had generated calls of it."""
        found = next(getattr(o, name) for o in self._observers if hasattr(o, name))
        setattr(self, name, found)
        return found


def _tell(told: Sequence[Any], *args: Any) -> Any:
    answers = [method(*args) for method in told]
    return next((answer for answer in answers if answer is not None), None)
