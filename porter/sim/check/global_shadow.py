# SPDX-License-Identifier: Apache-2.0
"""Shadow of global memory: who wrote each granule last, and who has read it or changed it atomically since.

Per allocation, two arrays of a number per granule: the last write, and a set of other accesses. Granules are 4
bytes, and become smaller when an access asks for it. Equal sets have one number, so that a tile that is always
accessed as a whole costs no more than one granule. All blocks of a launch share one shadow, those of later
waves too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.memory_order import MemoryOrder
from porter.sim.check.clocks import Done
from porter.sim.check.flags import Flags
from porter.sim.memory import Allocation
from porter.sim.program import Program

Array = npt.NDArray[Any]
_GRANULE = 4
_LARGEST_SET = 64
_SETS_KEPT = 1 << 14
"""Sets that are kept before it is first looked for those that no granule has any longer."""
_ACTORS_OF_A_GRID = 1 << 40


@dataclass(frozen=True)
class Wave:
    """What is known of blocks that ran together: enough to name them when they are gone. Blocks and clusters are
    numbered over the grid from `first_block` and `first_cluster` on, `grid` counts launches that may run at the same
    time."""

    first_block: int
    first_cluster: int
    warps_per_block: int
    blocks_per_cluster: int
    positions: Array
    program: Program
    grid: int = 0

    def block(self, warp: int) -> int:
        return self.first_block + warp // self.warps_per_block

    def cluster(self, warp: int) -> int:
        return self.first_cluster + warp // self.warps_per_block // self.blocks_per_cluster

    def position(self, warp: int) -> tuple[int, int, int]:
        x, y, z = self.positions[warp // self.warps_per_block].tolist()
        return x, y, z


@dataclass(eq=False, slots=True)
class GlobalAccess:
    """An access to global memory; the fields are as in `shadow.Access`. `actor` is the warp's number within the
    grid, `mapped` the tensor map fences that came after a write, as (cluster, event), `operands` what a bulk
    store writes, where and from where: lanes that execute it together with equal operands write the same."""

    kind: str
    at: int
    warp: int
    lane: int | None
    write: bool
    proxy: str
    done: Done
    order: MemoryOrder
    wave: Wave
    actor: int
    signals: str = ""
    mapped: list[tuple[int, tuple[int, int]]] | None = None
    operands: tuple[Any, ...] | None = None
    grouped: bool = False
    settled: list[tuple[int, int]] = field(default_factory=list)
    """Of a copy that uses a tensor map: where its warp has waited for all bulk groups that it made behind the copy."""

    @property
    def notes(self) -> dict[str, Any]:
        return {}

    @property
    def in_order(self) -> bool:
        """Whether it is over when its thread goes on."""
        return self.proxy == "generic" and self.kind != "cp.async"

    @property
    def atomic(self) -> bool:
        return self.kind in ("atomic", "reduce")


class GlobalShadow:
    """One allocation: `writer` holds access numbers, `others` set numbers, per granule; 0 is none."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.granule = _GRANULE
        count = -(-(allocation.end - allocation.start) // _GRANULE)
        self.writer = np.zeros(count, np.int32)
        self.others = np.zeros(count, np.int32)

    def fit(self, nbytes: int) -> None:
        """Granules of at most `nbytes` (of any multiple of which an access consists)."""
        if nbytes % self.granule == 0:
            return
        small = 2 if nbytes % 2 == 0 else 1
        times = self.granule // small
        self.writer, self.others = np.repeat(self.writer, times), np.repeat(self.others, times)
        self.granule = small

    def tile(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], numbers: Array) -> Array:
        """A view of `numbers` over a box: byte offset, and shape and strides in bytes, outermost first."""
        g, item = self.granule, numbers.itemsize
        inner = (*shape[:-1], shape[-1] // g)
        steps = (*(s // g * item for s in strides[:-1]), item)
        return np.lib.stride_tricks.as_strided(numbers[offset // g :], inner, steps)


class GlobalState:
    """The shadow of all global memory during one launch, or several that may overlap: `grid` is the number of the
    latest. `triggers`: it lets its dependents begin before its end (griddepcontrol.launch_dependents). `follows_end`:
    the grid before it does not, so that it has begun behind that grid's end."""

    def __init__(self) -> None:
        self.grid = 0
        self.triggers = self.follows_end = False
        self.flags = Flags()
        self.shadows: dict[int, GlobalShadow] = {}
        self.accesses: list[GlobalAccess | None] = [None]
        self.sets: list[dict[tuple[int, str, str], int]] = [{}]
        self.set_changes = [False]
        self.any_change = False
        # By warp: the epoch of its last release of tensor maps.
        self.released: dict[int, int] = {}
        self._extended: dict[tuple[int, int], int] = {}
        self._free: list[int] = []
        self._most_sets = _SETS_KEPT
        self._actors = np.zeros(1024, np.int64)

    def begin_dependent(self) -> None:
        """A grid begins that need not wait for the latest."""
        self.grid += 1
        self.triggers, self.follows_end = False, not self.triggers
        self.flags = Flags()
        self.released = {}

    def shadow(self, allocation: Allocation) -> GlobalShadow:
        found = self.shadows.get(allocation.start)
        if found is None or found.allocation is not allocation:
            found = self.shadows[allocation.start] = GlobalShadow(allocation)
        return found

    def enter(self, access: GlobalAccess) -> int:
        """The number of a new access."""
        number = len(self.accesses)
        self.accesses.append(access)
        if number == self._actors.size:
            self._actors = np.concatenate([self._actors, np.zeros(number, np.int64)])
        # Only a thread's own ordinary accesses are in order by themselves.
        actor = access.actor + access.wave.grid * _ACTORS_OF_A_GRID
        self._actors[number] = actor if access.in_order else -number
        return number

    def access(self, number: int) -> GlobalAccess:
        found = self.accesses[number]
        assert found is not None
        return found

    def actors(self, numbers: Array) -> Array:
        """Equal for accesses that need no order between them: those of one warp."""
        return self._actors[numbers]

    def extend(self, set_number: int, access_number: int) -> int:
        """The set with one more access, which replaces an earlier one of its kind by the same warp, of asynchronous
        ones that of the same thread with the same mbarrier, as they are over in their order. Of what a warp does
        between two synchronizations the first access stands for all: whatever orders one orders the others."""
        key = set_number, access_number
        found = self._extended.get(key)
        if found is None:
            access = self.access(access_number)
            own = access.actor, access.kind, "" if access.in_order else f"{access.lane} {access.signals}"
            held = self.sets[set_number].get(own)
            alike = held is not None and self._at_one_time(self.access(held), access)
            found = self._extended[key] = set_number if alike else self._with(set_number, own, access_number)
        return found

    def _at_one_time(self, one: GlobalAccess, other: GlobalAccess) -> bool:
        same_grid = one.wave.grid == other.wave.grid
        in_order = one.in_order and other.in_order
        return in_order and same_grid and (one.done, one.order) == (other.done, other.order)

    def _with(self, set_number: int, own: tuple[int, str, str], access_number: int) -> int:
        members = dict(self.sets[set_number])
        members.pop(own, None)
        while len(members) >= _LARGEST_SET:
            del members[next(iter(members))]
        members[own] = access_number
        changes = self.set_changes[set_number] or self.access(access_number).atomic
        self.any_change |= changes
        if self._free:
            found = self._free.pop()
            self.sets[found], self.set_changes[found] = members, changes
        else:
            found = len(self.sets)
            self.sets.append(members)
            self.set_changes.append(changes)
        return found

    def forget_unused_sets(self) -> None:
        """Numbers of sets that no granule has are given anew. Nobody else may hold one while this is called."""
        if len(self.sets) - len(self._free) < self._most_sets:
            return
        used = {0}
        for shadow in self.shadows.values():
            used.update(np.unique(shadow.others).tolist())
        for number in set(range(len(self.sets))) - used - set(self._free):
            self.sets[number] = {}
            self._free.append(number)
        self._extended.clear()
        self._most_sets = max(_SETS_KEPT, 2 * len(used))

    def members(self, set_numbers: Iterable[int], only_changes: bool) -> dict[int, int]:
        """Accesses of some sets, each with a set it was found in; perhaps only the atomic ones."""
        found: dict[int, int] = {}
        for number in set_numbers:
            if not number or (only_changes and not self.set_changes[number]):
                continue
            for access in self.sets[number].values():
                if not only_changes or self.access(access).atomic:
                    found.setdefault(access, number)
        return found
