# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory of the running blocks: contents and life cycle (PTX ISA 9.7.16.1, 9.7.16.7).

The 512 columns of an SM are for all blocks on it. A block that has allocated keeps others of its SM from allocating
until it gives that right up, or ends (ruling `alloc-permit`).
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.tmem import ALLOCATIONS, COLUMNS, LANES, MIN_ALLOCATION, column_of
from porter.sim.loaded_registers import Loads
from porter.sim.operation import Operation
from porter.sim.results import Stop
from porter.sim.wave import Wave

Array = npt.NDArray[Any]


class PendingLoad(NamedTuple):
    """A tcgen05.ld that its warp has neither waited for nor used."""

    at: int
    cta: int
    columns: Array


class Use:
    """The columns that an operation uses in some blocks, which have to stay allocated until it lands.

    Raises Stop if a block does not hold all of them.
    """

    __slots__ = ("at", "columns", "ctas", "holders", "tensor_memory", "warp", "what")

    def __init__(
        self, tensor_memory: TensorMemory, ctas: list[int], columns: Array, at: int, warp: int, what: str
    ) -> None:
        self.tensor_memory = tensor_memory
        self.ctas, self.columns = ctas, columns
        self.at, self.warp, self.what = at, warp, what
        self.holders = [tensor_memory.check_columns(c, columns, at, warp, what) for c in ctas]

    def landing(self) -> None:
        """The operation completes now. Raises Stop if a column has been freed since it was issued."""
        for cta, before in zip(self.ctas, self.holders, strict=True):
            now = self.tensor_memory.holder[cta][self.columns]
            if (now != before).any():
                self.tensor_memory.refuse(self.columns[now != before], self.at, self.warp, self.what, late=True)


class Pipe:
    """A block pair's tcgen05 operations in issue order: the last of all, and the last of each thread."""

    def __init__(self) -> None:
        self.last: Operation | None = None
        self.by_thread: dict[tuple[int, int], Operation] = {}


def _sharers(multiprocessor: Array) -> list[list[int]]:
    """For each block, given the SM of each [blocks], the blocks on the same one."""
    found: dict[int, list[int]] = {}
    for cta, sm in enumerate(multiprocessor.tolist()):
        found.setdefault(sm, []).append(cta)
    return [found[sm] for sm in multiprocessor.tolist()]


class TensorMemory:
    def __init__(self, machine: Wave) -> None:
        self.machine = machine
        self._cells: Array | None = None
        n = machine.n_cta
        # The number of the allocation that a column belongs to, 0 for a free one.
        self.holder = np.zeros((n, COLUMNS), np.int64)
        self._allocated = 0
        self.allocations: list[dict[int, tuple[int, int]]] = [{} for _ in range(n)]
        self.relinquished = [False] * n
        self.cta_group = [0] * n
        # Blocks whose warp waits in alloc: (warp, columns, shared address); who waits for the peer block's warp at
        # another operation of a pair; the warps of both whose turn has come meanwhile.
        self.requests: dict[int, tuple[int, int, int]] = {}
        # The blocks on the SM of each, itself among them; which block of an SM has the right to allocate.
        self.sharers = _sharers(machine.multiprocessor)
        self.permits: dict[int, int] = {}
        self._meeting: dict[Any, list[tuple[int, int]]] = {}
        self.granted: set[int] = set()
        self.stores: dict[int, list[Operation]] = {}
        # Of each warp, by their instructions.
        self.loads: dict[int, dict[int, list[PendingLoad]]] = {}
        self._loading = Loads(machine.program)
        self.decoded: dict[Any, Any] = {}
        self._pipes: dict[int, Pipe] = {}

    def pipe(self, cta: int) -> Pipe:
        """The blocks of a pair share one, so that pair operations issued by either keep their order."""
        return self._pipes.setdefault(cta - (int(self.machine.cta_rank[cta]) & 1), Pipe())

    def all_cells(self) -> Array:
        """[blocks, 128, 512] u32; never-written cells hold a NaN pattern."""
        if self._cells is None:
            self._cells = np.full((self.machine.n_cta, LANES, COLUMNS), 0xFFFFFFFF, np.uint32)
        return self._cells

    def cells(self, cta: int) -> Array:
        """Those of a block [128, 512]."""
        found: Array = self.all_cells()[cta]
        return found

    def use_group(self, cta: int, group: int, at: int, warp: int) -> None:
        """A kernel uses one cta_group value throughout."""
        if self.cta_group[cta] not in (0, group):
            self._stop(f"cta_group::{group} after cta_group::{self.cta_group[cta]} in one kernel", at, warp)
        self.cta_group[cta] = group

    def _stop(self, what: str, at: int, warp: int) -> None:
        raise Stop(Code.SIM_TMEM_ALLOCATION, what, at, warp)

    def check_alloc(self, cta: int, columns: int, at: int, warp: int) -> None:
        if columns not in ALLOCATIONS:
            self._stop(f"{columns} columns: a power of two from {MIN_ALLOCATION} to {COLUMNS} is needed", at, warp)
        if self.relinquished[cta]:
            self._stop("alloc after relinquish_alloc_permit", at, warp)

    def find_free(self, ctas: list[int], columns: int) -> int | None:
        """First column of a free run on the SMs of all the blocks, aligned to its size; None if they have to wait."""
        if any(self.barred(cta) is not None for cta in ctas):
            return None
        there = [other for cta in ctas for other in self.sharers[cta]]
        taken: Array = np.asarray((self.holder[there] != 0).any(axis=0))
        for start in range(0, COLUMNS - columns + 1, columns):
            if not taken[start : start + columns].any():
                return start
        return None

    def asking(self, cta: int) -> list[int]:
        """The blocks that allocate together with one: it alone, or its pair."""
        if self.cta_group[cta] != 2:
            return [cta]
        even = cta - (int(self.machine.cta_rank[cta]) & 1)
        return [even, even + 1]

    def awaits_columns(self, cta: int) -> bool:
        """Whether nothing but columns, or the right to allocate, is missing for a block's allocation."""
        return all(other in self.requests for other in self.asking(cta))

    def held(self, cta: int) -> int:
        """The columns that a block holds."""
        return int(np.count_nonzero(self.holder[cta]))

    def barred(self, cta: int) -> int | None:
        """The block that keeps another one of its SM from allocating."""
        holder = self.permits.get(int(self.machine.multiprocessor[cta]), cta)
        return None if holder == cta else holder

    def relinquish(self, cta: int) -> None:
        self.relinquished[cta] = True
        self.leave(cta)

    def leave(self, cta: int) -> None:
        """A block allocates nothing more: it has said so, or has ended."""
        sm = int(self.machine.multiprocessor[cta])
        if self.permits.get(sm) == cta:
            del self.permits[sm]
            if len(self.sharers[cta]) > 1:
                self._wake_sharers(cta)

    def _wake_sharers(self, cta: int) -> None:
        self.machine.activity += 1
        self.machine.wake(*(("tmem", other) for other in self.sharers[cta]))

    def allocate(self, cta: int, start: int, columns: int, at: int) -> None:
        self._allocated += 1
        self.permits[int(self.machine.multiprocessor[cta])] = cta
        self.holder[cta, start : start + columns] = self._allocated
        if self.machine.observer is not None:
            self.machine.observer.allocates(cta, start, columns)
        self.allocations[cta][start] = (columns, at)

    def deallocate(self, cta: int, address: int, columns: int, at: int, warp: int) -> None:
        start = column_of(address)
        found = self.allocations[cta].get(start)
        if address >> 16 or found is None:
            self._stop(f"dealloc of {address:#x}, which no alloc returned", at, warp)
            return
        if found[0] != columns:
            self._stop(f"dealloc of {columns} columns, but {found[0]} were allocated", at, warp)
        for loading, loads in self.loads.items():
            for load in chain.from_iterable(loads.values()):
                freed = (load.columns >= start) & (load.columns < start + columns)
                if load.cta == cta and freed.any():
                    self.refuse(load.columns[freed], load.at, loading, "tcgen05.ld", late=True)
        del self.allocations[cta][start]
        self.holder[cta, start : start + columns] = 0
        # Later contents of these columns are unknown.
        self.cells(cta)[:, start : start + columns] = 0xFFFFFFFF
        self._wake_sharers(cta)

    def meets(self, key: Any, cta: int, warp: int) -> bool:
        """A warp of block `cta` has come to an operation of its pair: whether the peer's has too. If not, it is to wait
        under `key`."""
        if self.take_grant(warp):
            return True
        waiting = self._meeting.setdefault(key, [])
        peer = next((i for i, (other, _) in enumerate(waiting) if other != cta), None)
        if peer is None:
            waiting.append((cta, warp))
            return False
        self.granted.add(waiting.pop(peer)[1])
        self.machine.activity += 1
        self.machine.wake(key)
        return True

    def take_grant(self, warp: int) -> bool:
        """Whether the peer's warp has come for this one meanwhile."""
        found = warp in self.granted
        self.granted.discard(warp)
        return found

    def check_columns(self, cta: int, columns: Array, at: int, warp: int, what: str) -> Array:
        """The allocation that each column belongs to. Raises Stop if one belongs to none."""
        try:
            holders = self.holder[cta][columns]
        except IndexError:
            holders = np.zeros(0, np.int64)
        if holders.size and holders.all():
            return holders
        if columns.size:
            inside = self.holder[cta][np.minimum(columns, COLUMNS - 1)]
            self.refuse(columns[(columns >= COLUMNS) | (inside == 0)], at, warp, what)
        return holders

    def holds(self, ctas: Array, columns: Array) -> bool:
        """Whether each of some blocks [n] holds all its columns [n, k]."""
        return bool(columns.max() < COLUMNS and self.holder[ctas[:, None], columns].all())

    def refuse(self, columns: Array, at: int, warp: int, what: str, late: bool = False) -> NoReturn:
        """Raises Stop: an access touches these columns, which are not its block's, or with `late` no longer are when
        it completes."""
        column = int(columns.min())
        if late:
            text = f"{what}, when it completes, touches column {column}, which has been freed since it was issued"
        else:
            text = f"{what} touches column {column}, which is not allocated"
        raise Stop(Code.SIM_TMEM_UNALLOCATED, text, at, warp)

    def loading(self, warp: int, load: PendingLoad) -> None:
        """A load is issued; under the eager schedule it is over at once."""
        if self.machine.late:
            self.loads.setdefault(warp, {}).setdefault(load.at, []).append(load)

    def loaded(self, warp: int, used: frozenset[str] | None = None) -> None:
        """A warp has waited for its loads, or for those only whose results it has `used`."""
        if used is None:
            self.loads.pop(warp, None)
        elif warp in self.loads:
            pending = self.loads[warp]
            for at in self._loading.of(used):
                pending.pop(at, None)

    def check_leaks(self) -> None:
        """At the kernel's end nothing may be left allocated."""
        M = self.machine
        for cta, held in enumerate(self.allocations):
            for start, (columns, at) in held.items():
                raise Stop(
                    Code.SIM_TMEM_LEAK,
                    f"{columns} columns at column {start} are still allocated at the end of the kernel",
                    at,
                    cta * M.warps_per_cta,
                )
