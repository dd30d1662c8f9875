# SPDX-License-Identifier: Apache-2.0
"""cp.async, bulk copies and TMA (PTX ISA 9.7.9.25)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from porter.facts import cells
from porter.facts.events import Access, Edge, Engine, Event, Kind, MapEvent, MapUse, Signal, Space
from porter.facts.instructions.memory import not_over_barriers
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.launched import PARAMETERS
from porter.facts.machine import Machine
from porter.facts.operands import Reader, reader
from porter.facts.placed import look_at_place
from porter.facts.state import Batches, Group, Warp
from porter.facts.tensor_maps import Box
from porter.facts.values import Value, bits, of_lane
from porter.ptx import ast
from porter.ptx.alignment import BULK_COPY, TENSOR_COPY, TENSOR_MAP
from porter.ptx.bits import unsigned
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT, signal_rank


@family("cp")
def cp(step: Step) -> Run:
    parts = step.ins.parts
    if "bulk" not in parts:
        return _cp_async(step)
    if "prefetch" in parts:
        return _skipped(step)
    if "commit_group" in parts:
        return _commit(step, lambda warp, lane: warp.bulk[lane])
    if "wait_group" in parts:
        return _wait(step, lambda warp, lane: warp.bulk[lane])
    if "mbar" not in step.ins:
        return _bulk_store(step)
    return _tensor_load(step) if "tensor" in parts else _bulk_load(step)


def _skipped(step: Step) -> Run:
    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        group.pc += 1
        return None

    return run


def place_of(step: Step, value: Value, lane: int) -> int:
    found = of_lane(value, lane)
    if found is None:
        raise step.not_understood("an address, which is data,")
    return found


# Groups -----------------------------------------------------------------------------------------------


Of = Callable[[Warp, int], Batches]


def _commit(step: Step, of: Of) -> Run:
    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        machine.single(warp, group.lanes, "commit_group", step.at)
        for lane in bits(group.lanes):
            of(warp, lane).commit()
        group.pc += 1
        return None

    return run


def _wait(step: Step, of: Of, everything: bool = False) -> Run:
    left = step.optional("n")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        count = left(machine, warp, group) if left is not None else 0
        assert isinstance(count, int)
        for event, lanes in machine.single(warp, group.lanes, "wait_group", step.at):
            for lane in bits(lanes):
                batches = of(warp, lane)
                if everything:
                    batches.commit()
                _end(batches.leave(unsigned(count, 32)), event)
                batches.waits.append(event.index)
        group.pc += 1
        return None

    return run


def _end(accesses: Iterable[Access], event: Event) -> None:
    for access in accesses:
        if access.end is None:
            access.end = event.index
        elif access.end != event.index and (Edge.COMPLETION, access.end) not in event.edges:
            # an mbarrier was told of it as well
            event.edges.append((Edge.COMPLETION, access.end))


# cp.async ---------------------------------------------------------------------------------------------


def _cp_async(step: Step) -> Run:
    match step.ins.parts[2]:
        case "commit_group":
            return _commit(step, lambda warp, lane: warp.cp_async[lane])
        case "wait_group":
            return _wait(step, lambda warp, lane: warp.cp_async[lane])
        case "wait_all":
            return _wait(step, lambda warp, lane: warp.cp_async[lane], everything=True)
        case "mbarrier":
            return _cp_async_arrive(step)
    return _cp_async_copy(step)


def _cp_async_copy(step: Step) -> Run:
    target, size, source = step.value("dst"), step.value("size"), step.value("src")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, nbytes = target(machine, warp, group), size(machine, warp, group)
        assert isinstance(nbytes, int)
        look_at_place(machine, where, group.lanes, nbytes, step.at)
        # of the source it may copy less
        look_at_place(machine, source(machine, warp, group), group.lanes, 0, step.at, nbytes)
        for event, lanes in machine.single(warp, group.lanes, "cp.async", step.at):
            touched = 0
            for lane in bits(lanes):
                touched |= cells.of_bytes(place_of(step, where, lane) & OFFSET_MASK, nbytes)
            not_over_barriers(machine, warp.block.rank, touched, step.at)
            access = machine.access(Space(warp.block.rank, False), Engine.CP_ASYNC, True, touched, event.index, None,
                                    step.at)  # fmt: skip
            for lane in bits(lanes):
                warp.cp_async[lane].open.append(access)
        group.pc += 1
        return None

    return run


def _cp_async_arrive(step: Step) -> Run:
    """An arrival when all copies of a thread so far are over. Without .noinc it is one that the phase did not wait for:
    it is added to what is pending first."""
    address = step.value("mbar")
    adds = not step.has("noinc")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = address(machine, warp, group)
        for event, lanes in machine.single(warp, group.lanes, "cp.async.mbarrier.arrive", step.at):
            by_place: dict[int, int] = defaultdict(int)
            for lane in bits(lanes):
                by_place[place_of(step, where, lane)] |= 1 << lane
            for place, some in by_place.items():
                barrier = machine.mbarrier(place, event, step.at)
                over = machine.event(Kind.COMMIT, "copies are over", None, 0, step.at, [(Edge.EXECUTION, event.index)])
                ends = {over.index}
                for lane in bits(some):
                    batches = warp.cp_async[lane]
                    _end((a for batch in (*batches.committed, batches.open) for a in batch), over)
                    ends.update(batches.waits)
                over.completes = tuple(ends)
                if adds:
                    barrier.pending += some.bit_count()
                    barrier.expects.append((event.index, len(barrier.phases), step.at))
                machine.arrive(barrier, over, some.bit_count(), step.at, warp.block.rank, of_copy=adds)
        machine.history.trace[warp.name].append(("arrive behind copies", Signal(where), step.at))
        group.pc += 1
        return None

    return run


# Bulk -------------------------------------------------------------------------------------------------


def _bulk_store(step: Step) -> Run:
    """From shared memory to global memory, read until a wait_group."""
    source, target = step.value("src"), step.optional("dst")
    size = None if "map" in step.ins else step.value("size")
    box = _box(step) if size is None else None

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = source(machine, warp, group)
        look_at_place(machine, where, group.lanes, 0, step.at, TENSOR_COPY if size is None else BULK_COPY)
        if size is not None and target is not None:
            _look_at_bulk(step, machine, group, target(machine, warp, group), size(machine, warp, group))
        for event, lane in machine.lane_starts(warp, group, "bulk store", step.at):
            place = place_of(step, where, lane)
            if box is not None:
                of_map, (_, count) = box(machine, warp, group, lane)
            else:
                of_map, count = None, place_of(step, size(machine, warp, group) if size is not None else None, lane)
            space = Space(machine.block_of(place, step.at).rank, False)
            access = machine.access(space, Engine.STORE, False, cells.of_bytes(place & OFFSET_MASK, count),
                                    event.index, None, step.at)  # fmt: skip
            _use(step, machine, of_map, event, access)
            warp.bulk[lane].open.append(access)
        group.pc += 1
        return None

    return run


def _bulk_load(step: Step) -> Run:
    target, size, barrier = step.value("dst"), step.value("size"), step.value("mbar")
    mask = step.optional("mask") if step.has("multicast::cluster") else None
    reads_shared = step.ins.space("src").startswith("shared")
    engine = Engine.RED_ASYNC if step.has("reduce") else Engine.LOAD
    source = step.value("src")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, nbytes, arrives = (v(machine, warp, group) for v in (target, size, barrier))
        look_at_place(machine, where, group.lanes, 0, step.at, BULK_COPY)
        _look_at_bulk(step, machine, group, source(machine, warp, group), nbytes)
        for event, lane in machine.lane_starts(warp, group, "bulk copy", step.at):
            place, count, mbar = (place_of(step, v, lane) for v in (where, nbytes, arrives))
            read = None
            if reads_shared:
                read = _read_source(step, machine, event, place_of(step, source(machine, warp, group), lane), count)
            for rank in _ranks(step, machine, warp, group, mask, place):
                land(step, machine, warp, event, rank, place, count, mbar if mask is None else beside(mbar, rank),
                     engine, read)  # fmt: skip
        machine.history.trace[warp.name].append(("copy", where, Signal(arrives), nbytes, step.at))
        group.pc += 1
        return None

    return run


def _look_at_bulk(step: Step, machine: Machine, group: Group, place: Value, nbytes: Value) -> None:
    """The side of a bulk copy that it is told nothing else of, and its size."""
    look_at_place(machine, nbytes, group.lanes, 0, step.at, BULK_COPY)
    look_at_place(machine, place, group.lanes, nbytes if isinstance(nbytes, int) else 0, step.at, BULK_COPY)


def _read_source(step: Step, machine: Machine, event: Event, place: int, count: int) -> Access:
    """A copy between blocks is over for its source when its bytes have arrived."""
    space = Space(machine.block_of(place, step.at).rank, False)
    touched = cells.of_bytes(place & OFFSET_MASK, count)
    return machine.access(space, Engine.STORE, False, touched, event.index, None, step.at)


def _tensor_load(step: Step) -> Run:
    target, barrier = step.value("dst"), step.value("mbar")
    mask = step.optional("mask") if step.has("multicast::cluster") else None
    box, of_pair = _box(step), step.has("cta_group::2")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, arrives = target(machine, warp, group), barrier(machine, warp, group)
        look_at_place(machine, where, group.lanes, 0, step.at, TENSOR_COPY)
        sizes: list[int] = []
        for event, lane in machine.lane_starts(warp, group, "TMA load", step.at):
            place, mbar = place_of(step, where, lane), place_of(step, arrives, lane)
            of_map, (counted, covered) = box(machine, warp, group, lane)
            sizes.append(counted)
            for rank in _ranks(step, machine, warp, group, mask, place):
                signal = mbar if mask is None else beside(mbar, signal_rank(rank, mbar >> RANK_SHIFT, of_pair))
                access = land(step, machine, warp, event, rank, place, counted, signal, covered=covered)
                _use(step, machine, of_map, event, access)
        machine.history.trace[warp.name].append(("copy", where, Signal(arrives), tuple(sizes), step.at))
        group.pc += 1
        return None

    return run


OfBox = Callable[[Machine, Warp, Group, int], tuple[int, Box]]
"""Gives the address of the tensor map of a lane's copy, and what the copy moves."""


def _box(step: Step) -> OfBox:
    operand = next(o for o in step.ins.operands if isinstance(o, ast.Mem) and o.parts)
    of_map = reader(step.flow.code, step.at, operand.base)
    mode = step.ins.modifiers.get("mode", "tile")

    def box(machine: Machine, warp: Warp, group: Group, lane: int) -> tuple[int, Box]:
        address = of_lane(of_map(machine, warp, group), lane)
        found = None if address is None else machine.maps.box(address, mode)
        if address is None or found is None:
            raise step.not_understood("the tensor map, whose box nobody tells,")
        look_at_place(machine, address, 1 << lane, 0, step.at, TENSOR_MAP)
        return address, found

    return box


def _use(step: Step, machine: Machine, of_map: int | None, event: Event, access: Access) -> None:
    """Note that a copy uses a map that threads may have written."""
    if of_map is not None and step.flow.changes_maps and of_map < PARAMETERS:
        machine.history.maps.append(MapEvent(MapUse.COPY, of_map, event.index, step.at, access))


def _ranks(step: Step, machine: Machine, warp: Warp, group: Group, mask: Reader | None, place: int) -> list[int]:
    """The blocks that a copy goes to."""
    if mask is None:
        return [machine.block_of(place, step.at).rank]
    wanted = mask(machine, warp, group)
    if not isinstance(wanted, int):
        raise step.not_understood("the mask of blocks")
    found = list(bits(wanted & 0xFFFF))
    missing = [rank for rank in found if rank >= len(machine.blocks)]
    if missing:
        machine.problem("multicast", f"a multicast to block {missing[0]}, which is not there", step.at)
    return [rank for rank in found if rank < len(machine.blocks)]


def beside(address: int, rank: int) -> int:
    """The same place in another block."""
    return address & OFFSET_MASK | rank << RANK_SHIFT


def land(
    step: Step, machine: Machine, warp: Warp, event: Event, rank: int, place: int, nbytes: int, mbar: int,
    engine: Engine = Engine.LOAD, read: Access | None = None, write: Callable[[], None] | None = None,
    covered: int | None = None,
) -> Access:  # fmt: skip
    """Have bytes come to a place in a block and be counted by an mbarrier. `read`: the access to their source;
    `write` puts numbers there, where bytes are some; `covered`: bytes that they take, if those are others."""
    covered = nbytes if covered is None else covered
    barrier = machine.mbarrier(mbar, event, step.at, asynchronous=True)
    machine.reach(event, rank, warp, "a copy", step.at)
    touched = cells.of_bytes(place & OFFSET_MASK, covered)
    not_over_barriers(machine, rank, touched, step.at)
    access = machine.access(Space(rank, False), engine, True, touched, event.index, None, step.at)

    def finish() -> None:
        landed = machine.event(Kind.STEP, "bytes have landed", None, 0, step.at, [(Edge.PROGRAM, event.index)])
        access.end = landed.index
        if write is not None:
            write()
        if read is not None:
            read.end = landed.index
        machine.reach(landed, rank, warp, "a copy", step.at)
        machine.landed(barrier, landed, nbytes, step.at, warp.block.rank)

    machine.later(finish)
    return access
