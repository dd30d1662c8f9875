# SPDX-License-Identifier: Apache-2.0
"""The checker's part for global memory: accesses of threads and bulk copies against the shadow, and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.memory_order import MemoryOrder, memory_order
from porter.ptx.table import Decoded
from porter.ptx.tensormap import ENCODED_BYTES, TensorMap
from porter.sim.check.flags import FlagUser
from porter.sim.check.foreign import Imports
from porter.sim.check.global_lanes import GlobalLanes
from porter.sim.check.global_shadow import GlobalAccess, GlobalShadow, GlobalState, Wave
from porter.sim.check.judge import Verdict
from porter.sim.check.judge_global import GlobalJudge
from porter.sim.check.reports import Reports
from porter.sim.codegen import Context
from porter.sim.datapath.tma import Mode, boxes, made_for, problems_of
from porter.sim.effects import Effect
from porter.sim.machine import Machine
from porter.sim.memory import Allocation
from porter.sim.observer import Observer
from porter.sim.threads import active_warps

Array = npt.NDArray[Any]
_WEAK = MemoryOrder()
# How many warps that read one place with one instruction are told apart.
_ROUNDS = 4


class GlobalMemoryCheck(Observer):
    """Of one wave. `follow` hands it what earlier waves of the launch did."""

    def __init__(self, check: Reports) -> None:
        self.check = check
        M: Machine = check.machine
        self.machine = M
        first = M.ctas.start
        self.wave = Wave(first, first // M.cluster_size, M.warps_per_cta, M.cluster_size, M.grid.index, M.program)
        self.imports = Imports(check.clocks, self.wave.first_cluster)
        self.follow(GlobalState())
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._orders: dict[int, MemoryOrder] = {}
        # Whether the kernel changes tensor maps, which it then fences or copies.
        self._maps_change = any(p.startswith("tensormap") for ins in M.program.code for p in ins.parts)
        # By warp the copies that use tensor maps: since the last bulk group was made, and in groups not waited for.
        self._issued: dict[int, list[GlobalAccess]] = {}
        self._grouped: dict[int, list[GlobalAccess]] = {}
        self.lanes = GlobalLanes(check.lanes, M.W, self._found)
        # The lanes of the threads whose accesses are being judged, in the order of their places.
        self._acting: Array | None = None

    def follow(self, state: GlobalState) -> None:
        """What was done before, by earlier waves of this grid or by a grid that this one may overlap with."""
        self.state = state
        self.wave = replace(self.wave, grid=state.grid)
        self.users = FlagUser(
            state.flags,
            self.imports,
            self.wave.first_block,
            self.machine.warps_per_cta,
            cumulative=self.check.level == "practice",
        )
        self.judge = GlobalJudge(self.users, state)

    def order(self, at: int) -> MemoryOrder:
        found = self._orders.get(at)
        if found is None:
            found = self._orders[at] = memory_order(self.machine.program.code[at])
        return found

    def allocation(self, address: int) -> Allocation | None:
        return self.machine.memory.find(address) or self.machine.internal.find(address)

    # Numbers of accesses ------------------------------------------------------------------------------

    def _generic(self, kind: str, at: int, warp: int, order: MemoryOrder, lane: int | None = None) -> int:
        """The access number of a warp's instruction, the same until its next synchronization; `lane` if only one
        is active."""
        now = self.check.clocks.now(warp)
        key = kind, at, warp, now[1], lane
        found = self._numbers.get(key)
        if found is None:
            actor = self.wave.first_block * self.wave.warps_per_block + warp
            access = GlobalAccess(kind, at, warp, lane, kind != "load", "generic", [now], order, self.wave, actor)
            found = self._numbers[key] = self.state.enter(access)
        return found

    def bulk(
        self, kind: str, at: int, warp: int, lane: int | None, write: bool, done: Any, signals: str = ""
    ) -> GlobalAccess:
        """An access by an asynchronous copy; `done` is filled in when something can prove it over."""
        actor = self.wave.first_block * self.wave.warps_per_block + warp
        proxy = "generic" if kind == "cp.async" else "async"
        return GlobalAccess(kind, at, warp, lane, write, proxy, done, _WEAK, self.wave, actor, signals)

    # Threads ------------------------------------------------------------------------------------------

    def touches_global(
        self, at: int, idx: Any, n: int, mask: Any, groups: Sequence[tuple[Allocation, Array, Any]], size: int,
        item: int, kind: str, value: Any = None, effects: Mapping[int, Effect] | None = None,
    ) -> None:  # fmt: skip
        if value is not None:
            value = np.broadcast_to(np.asarray(value), (n, 32, size // item) if size > item else (n, 32))
        self.state.forget_unused_sets()
        warps = self.machine.warps(idx)
        order, opcode = self.order(at), self.machine.program.code[at].parts[0]
        lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
        for allocation, offsets, part in groups:
            active = lanes if part is None else part & lanes
            shadow = self.state.shadow(allocation)
            shadow.fit(item)
            rows, columns = np.nonzero(active)
            if rows.size == 0:
                continue
            where = np.broadcast_to(offsets, (n, 32))[rows, columns].astype(np.int64)
            if order.strong:
                self.flag_reads(warps, rows, where, allocation.start, order, kind)
            step = np.arange(size // shadow.granule)
            place = where[:, None] // shadow.granule + step
            present = np.unique(rows)
            numbers = np.zeros(n, np.int32)
            starts = np.searchsorted(rows, np.arange(n + 1))
            self._acting = columns
            for row in present.tolist():
                warp = int(warps[row])
                if effects is None:
                    single = columns[starts[row]] if starts[row + 1] - starts[row] == 1 else None
                    numbers[row] = self._generic(kind, at, warp, order, None if single is None else int(single))
                else:
                    numbers[row] = self.state.enter(
                        self.bulk(kind, at, warp, None, False, effects[warp].accesses[0].done)
                    )
            per_lane = numbers[rows][:, None]
            if not order.strong and opcode in ("ld", "st"):
                stored = None if kind == "load" else partial(_bytes, value, rows, columns, item)
                self.lanes.accessed(self.state, shadow, place, per_lane[:, 0], warps[rows], columns, stored)
            if kind in ("load", "cp.async"):
                self._reads(shadow, place, per_lane)
            else:
                same = None if value is None else (where, rows, columns, value)
                self._writes(shadow, place, per_lane, kind == "atomic", same)
            self._acting = None
            if kind in ("write", "atomic"):
                self.flag_writes(warps, rows, where, allocation.start, order, kind)

    def _reads(self, shadow: GlobalShadow, place: Array, numbers: Array) -> None:
        state = self.state
        wrote = shadow.writer[place]
        if wrote.any():
            self._judge(shadow, place, wrote, numbers)
        others = shadow.others[place]
        if state.any_change and others.any():
            self._judge_sets(shadow, place, others, numbers, only_changes=True)
        self._join(shadow, place, others, numbers)

    def _join(self, shadow: GlobalShadow, place: Array, others: Array, numbers: Array) -> None:
        """Add accesses to the sets at their places; of many warps at one place, to some."""
        numbers = np.broadcast_to(numbers, place.shape)
        for _ in range(_ROUNDS):
            sets = self._extended(others, numbers)
            shadow.others[place] = sets
            left = shadow.others[place] != sets
            if not left.any():
                return
            place, numbers = place[left], numbers[left]
            others = shadow.others[place]

    def _extended(self, sets: Array, numbers: Any) -> Array:
        """Set numbers with access numbers added, element by element."""
        state = self.state
        code = sets.astype(np.int64) << 32 | numbers
        first = int(code.flat[0])
        if (code == first).all():
            return np.full(code.shape, state.extend(first >> 32, first & 0xFFFFFFFF), np.int32)
        pairs, inverse = np.unique(code, return_inverse=True)
        new = np.array([state.extend(p >> 32, p & 0xFFFFFFFF) for p in pairs.tolist()], np.int32)
        result: Array = new[inverse].reshape(code.shape)
        return result

    def _with_plain(self, others: Array, wrote: Array) -> Array:
        """The sets with the last writer of each place, unless that is an atomic, which is among them: atomics have no
        order with each other, so that each has to be ordered after it."""
        found = others
        for number in np.unique(wrote).tolist():
            if number and not self.state.access(number).atomic:
                there = wrote == number
                found = np.where(there, self._extended(found, np.int32(number)), found)
        return found

    def _writes(self, shadow: GlobalShadow, place: Array, numbers: Array, atomic: bool, same: Any) -> None:
        wrote = shadow.writer[place]
        if wrote.any():
            self._judge(shadow, place, wrote, numbers, same)
        others = shadow.others[place]
        if others.any():
            self._judge_sets(shadow, place, others, numbers, only_changes=False)
        if atomic:
            others = self._with_plain(others, wrote)
        shadow.writer[place] = numbers
        # Several warps may have come to one place with the same instruction.
        back = shadow.writer[place]
        if (back != numbers).any():
            self._judge(shadow, place, np.where(back != numbers, back, 0), numbers, same)
        if atomic:
            self._join(shadow, place, others, numbers)
        else:
            shadow.others[place] = 0

    def _judge(self, shadow: GlobalShadow, place: Array, old: Array, new: Array, same: Any = None) -> None:
        """Every pair of an earlier access and a new one at the same granule."""
        state = self.state
        suspect = (old != 0) & (state.actors(old) != state.actors(new))
        if not suspect.any():
            return
        code = old.astype(np.int64) << 32 | np.broadcast_to(new, old.shape)
        pairs, first = np.unique(code[suspect], return_index=True)
        granules = place[suspect][first]
        elements = np.nonzero(suspect)[0][first]
        for pair, granule, element in zip(pairs.tolist(), granules.tolist(), elements.tolist(), strict=True):
            one, two = state.access(pair >> 32), state.access(pair & 0xFFFFFFFF)
            alike = same is not None and _stores_what_is_there(shadow, same, element)
            self._report(one, self._by_lane(two, element), shadow, granule, alike)

    def _by_lane(self, access: GlobalAccess, element: int) -> GlobalAccess:
        """An access of threads as that of the lane that came to a place."""
        return access if self._acting is None else replace(access, lane=int(self._acting[element]))

    def _judge_sets(self, shadow: GlobalShadow, place: Array, sets: Array, new: Array, only_changes: bool) -> None:
        state = self.state
        code = sets.astype(np.int64) << 32 | np.broadcast_to(new, sets.shape)
        pairs, first = np.unique(code, return_index=True)
        granules = place.reshape(-1)[first]
        elements = first // (sets.size // len(sets))
        for pair, granule, element in zip(pairs.tolist(), granules.tolist(), elements.tolist(), strict=True):
            two = state.access(pair & 0xFFFFFFFF)
            for number in state.members([pair >> 32], only_changes):
                one = state.access(number)
                if one.actor != two.actor or not one.in_order or one.wave.grid != two.wave.grid:
                    self._report(one, self._by_lane(two, element), shadow, granule)

    def _report(
        self, old: GlobalAccess, new: GlobalAccess, shadow: GlobalShadow, granule: int, alike: bool = False
    ) -> None:
        verdict = self.judge.judge(old, new, alike)
        if verdict is not None:
            self._found(verdict, old, new, shadow, granule)

    def _found(
        self, verdict: Verdict, old: GlobalAccess, new: GlobalAccess, shadow: GlobalShadow, granule: int
    ) -> None:
        allocation, g = shadow.allocation, shadow.granule
        name = allocation.name or f"the allocation at {allocation.start:#x}"
        where = f"byte {granule * g:#x} of {name} (global address {allocation.start + granule * g:#x})"
        self.check.report(verdict, old, new, where, None)

    # Dependent grids ----------------------------------------------------------------------------------

    def code(self, cg: Context, ins: Decoded) -> None:
        if ins.parts[0] == "griddepcontrol":
            cg.line(cg.call("M.observer.grids", repr(ins.parts[1] == "wait")))
        if self._maps_change and "bulk" in ins.parts:
            if "commit_group" in ins.parts:
                cg.line(cg.call("M.observer.bulk_grouped"))
            elif "wait_group" in ins.parts and cg.integer(ins["n"]) == 0:
                cg.line(cg.call("M.observer.bulk_settled"))

    def grids(self, M: Machine, at: int, idx: Any, n: int, mask: Any, waits: bool) -> None:
        """Called by generated code."""
        active = active_warps(M, idx, n, mask)
        self.state.triggers |= bool(active) and not waits
        for _, warp in active if waits else ():
            self.check.waits.add(at)
            self.judge.wait_for_grids(warp)

    # Flags --------------------------------------------------------------------------------------------

    def flag_reads(self, warps: Array, rows: Array, where: Array, memory: Any, order: MemoryOrder, kind: str) -> None:
        """Loads at byte offsets `where` of a memory acquire what its flags carry."""
        if memory not in self.state.flags.locations or kind in ("write", "atomic"):
            return
        for row in np.unique(rows).tolist():
            self.users.read(int(warps[row]), memory, np.unique(where[rows == row]).tolist(), order)

    def flag_writes(self, warps: Array, rows: Array, where: Array, memory: Any, order: MemoryOrder, kind: str) -> None:
        users = self.users
        if not order.strong:
            if memory in self.state.flags.locations:
                users.overwrite(memory, where.tolist())
            # Older code stores its flags with plain stores after a fence: to review, but it does synchronize.
            warp = int(warps[rows[0]])
            if rows.size == 1 and self.check.level == "practice" and warp in users.fenced:
                strong = MemoryOrder(True, max(users.fenced[warp]))
                users.write(warp, memory, where[:1].tolist(), strong)
            return
        for row in np.unique(rows).tolist():
            warp, offsets = int(warps[row]), np.unique(where[rows == row]).tolist()
            # Atomics of one instruction happen one after the other.
            (users.update if kind == "atomic" else users.write)(warp, memory, offsets, order)

    # Bulk copies --------------------------------------------------------------------------------------

    def copy_span(self, address: int, nbytes: int, access: GlobalAccess) -> None:
        """A copy reads or writes `nbytes` at an address. Out-of-bounds ones are the simulator's matter."""
        found = self.allocation(address)
        if found is not None and nbytes and address + nbytes <= found.end:
            self._copy(found, address - found.start, (nbytes,), (1,), access, nbytes)

    def copy_tile(
        self,
        tensor_map: TensorMap,
        coords: list[int],
        access: GlobalAccess,
        mode: Mode = "tile",
        offsets: Sequence[int] = (),
    ) -> None:
        if problems_of(tensor_map) or not made_for(tensor_map, mode):
            return
        if len(coords) != (5 if mode == "rows" else tensor_map.rank):
            return
        for box in boxes(tensor_map, coords, mode, offsets):
            found = self.allocation(box.address)
            if found is None:
                continue
            span = sum((n - 1) * s for n, s in zip(box.shape, box.strides, strict=True)) + 1
            if box.address + span <= found.end:
                item = tensor_map.dtype.element_bytes
                self._copy(found, box.address - found.start, box.shape, box.strides, access, item)

    def _copy(
        self,
        allocation: Allocation,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        access: GlobalAccess,
        item: int,
    ) -> None:
        state = self.state
        state.forget_unused_sets()
        shadow = state.shadow(allocation)
        for unit in {offset | 4, item if shape[-1] % 4 else 4, *(s | 4 for s in strides[:-1])}:
            shadow.fit(unit & -unit)
        number = state.enter(access)
        writer = shadow.tile(offset, shape, strides, shadow.writer)
        others = shadow.tile(offset, shape, strides, shadow.others)
        base = offset // shadow.granule
        if writer.any():
            for old in np.unique(writer).tolist():
                if old:
                    self._report(state.access(old), access, shadow, base)
        first = int(others.flat[0])
        sets = [first] if (others == first).all() else np.unique(others).tolist()
        for old in state.members(sets, only_changes=not access.write):
            self._report(state.access(old), access, shadow, base)
        if access.atomic and writer.any():
            others[...] = self._with_plain(others, writer)
            first, sets = int(others.flat[0]), np.unique(others).tolist()
        if access.write:
            writer[...] = number
        if access.write and not access.atomic:
            others[...] = 0
        elif len(sets) == 1:
            others[...] = state.extend(first, number)
        else:
            others[...] = self._extended(others, np.int32(number))

    # Tensor maps --------------------------------------------------------------------------------------

    def bulk_grouped(self, M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
        """cp.async.bulk.commit_group. Called by generated code."""
        for _, warp in active_warps(M, idx, n, mask):
            self._grouped.setdefault(warp, []).extend(self._issued.pop(warp, ()))

    def bulk_settled(self, M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
        """cp.async.bulk.wait_group for all groups, with .read or without. Called by generated code."""
        for _, warp in active_warps(M, idx, n, mask):
            for use in self._grouped.pop(warp, ()):
                use.settled.append(self.check.clocks.now(warp))

    def release_tensor_maps(self, warp: int) -> None:
        """fence.proxy.tensormap release: covers the writes of maps that the warp has made so far."""
        self.state.released[self.wave.first_block * self.wave.warps_per_block + warp] = self.check.clocks.now(warp)[1]
        self.check.clocks.advance(warp)

    def use_tensor_map(self, at: int, warp: int, lane: int | None, address: int) -> list[GlobalAccess]:
        """A copy reads its tensor map through a proxy of its own, until it is over: the access, where somebody may
        change maps meanwhile."""
        if self._maps_change:
            use = self.bulk("tensor map", at, warp, lane, False, [])
            use.proxy = "tensormap"
            self.copy_span(address, ENCODED_BYTES, use)
            self._issued.setdefault(warp, []).append(use)
            return [use]
        for shadow, granule, old in self._map_writes(address):
            use = self.bulk("tensor map", at, warp, lane, False, [])
            use.proxy = "tensormap"
            self._report(old, use, shadow, granule)
        return []

    def fence_tensor_map(self, warp: int, address: int) -> None:
        """fence.proxy.tensormap acquire: covers the writes of the map that the warp knows."""
        event = self.wave.cluster(warp), self.check.clocks.now(warp)
        for _, _, old in self._map_writes(address):
            if self.judge.knows(warp, 0, old):
                old.mapped = [*(old.mapped or ()), event]

    def _map_writes(self, address: int) -> list[tuple[GlobalShadow, int, GlobalAccess]]:
        found = self.allocation(address)
        shadow = None if found is None else self.state.shadows.get(found.start)
        if found is None or shadow is None:
            return []
        first = (address - found.start) // shadow.granule
        part = shadow.writer[first : first + ENCODED_BYTES // shadow.granule]
        numbers, where = np.unique(part, return_index=True)
        return [
            (shadow, first + at, self.state.access(number))
            for number, at in zip(numbers.tolist(), where.tolist(), strict=True)
            if number
        ]


def _bytes(value: Array, rows: Array, columns: Array, item: int) -> Array:
    """What each thread stores, [threads, bytes], by its warp's row and its lane."""
    stored = np.ascontiguousarray(np.asarray(value, f"u{item}")[rows, columns])
    return stored.reshape(rows.size, -1).view(np.uint8)


def _stores_what_is_there(shadow: GlobalShadow, same: Any, element: int) -> bool:
    """Whether one thread's store, given by its place among the active ones, does not change its location."""
    where, rows, columns, values = same
    mine = np.ascontiguousarray(values[rows[element], columns[element]]).reshape(-1).view(np.uint8)
    start = int(where[element])
    return bool(np.array_equal(shadow.allocation.data[start : start + mine.size], mine))
