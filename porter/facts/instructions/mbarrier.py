# SPDX-License-Identifier: Apache-2.0
"""mbarriers (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from collections.abc import Iterator

from porter.facts import cells
from porter.facts.events import Awaited, Edge, Engine, Event, Kind, Mbarrier, Signal, Space, Wait
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.placed import look_at_place
from porter.facts.state import Group, Warp
from porter.facts.values import Value, bits, first, of_lane
from porter.ptx.barriers import MBARRIER_BYTES
from porter.ptx.bits import unsigned
from porter.ptx.memory_order import mbarrier_scope
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT

_TOKEN = 1 << 60
"""A state that an arrival returns is this and its phase."""


@family("mbarrier")
def mbarrier(step: Step) -> Run:
    match step.ins.parts[1]:
        case "init":
            return _init(step)
        case "inval":
            return _inval(step)
        case "try_wait" | "test_wait":
            return _wait(step)
        case "arrive" | "expect_tx":
            return _arrive(step)
    raise step.not_understood("the effect")


def _init(step: Step) -> Run:
    address, count = step.value("mbar"), step.value("count")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, wanted = address(machine, warp, group), count(machine, warp, group)
        lanes = bits(group.lanes) if isinstance(where, tuple) else (first(group.lanes),)
        for lane in lanes:
            place, number = of_lane(where, lane), of_lane(wanted, lane)
            if place is None or number is None:
                raise step.not_understood("the place or count")
            some = 1 << lane if isinstance(where, tuple) else group.lanes
            look_at_place(machine, place, some, MBARRIER_BYTES, step.at)
            for event, _ in machine.single(warp, some, "mbarrier.init", step.at, Kind.INIT)[:1]:
                _initialized(machine, event, place, unsigned(number, 32), step.at)
        group.pc += 1
        return None

    return run


def _initialized(machine: Machine, event: Event, place: int, count: int, at: int) -> None:
    if place in machine.history.barriers:
        machine.problem("init", f"{machine.named(place)} is initialized twice", at)
    if not count:
        machine.problem("count", f"{machine.named(place)} is initialized for no arrival", at)
    machine.names.initialized(place, at)
    machine.history.barriers[place] = Mbarrier(place, count, event.index, pending=count)
    space = Space(machine.block_of(place, at).rank, False)
    touched = cells.of_bytes(place & OFFSET_MASK, MBARRIER_BYTES)
    machine.access(space, Engine.BARRIER, True, touched, event.index, event.index, at)


def _inval(step: Step) -> Run:
    address = step.value("mbar")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = address(machine, warp, group)
        if not isinstance(where, int):
            raise step.not_understood("the place")
        for event, _ in machine.single(warp, group.lanes, "mbarrier.inval", step.at):
            barrier = machine.mbarrier(where, event, step.at)
            barrier.ends.append((event.index, step.at))
        machine.history.retired.append(machine.history.barriers.pop(where))
        group.pc += 1
        return None

    return run


def _wait(step: Step) -> Run:
    """What fails is repeated until it succeeds, or need not be heeded: then all of those fail, or all succeed. Lanes
    that wait for other phases go on by themselves."""
    done = step.register("done")
    address = step.value("mbar")
    parity = step.has("parity")
    state = step.value("parity" if parity else "state")
    unheeded = step.flow.ways.is_unheeded(step.at)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        found = _by_phase(step, address(machine, warp, group), state(machine, warp, group), group.lanes)
        waits = [_Awaiting(step, machine, place, wanted, parity, lanes) for (place, wanted), lanes in found.items()]
        if unheeded and not all(one.is_first for one in waits):
            machine.history.peeks = True
            if group.fails or not machine.schedule.peeks:
                group.fails = None
                if done is not None:
                    group.registers[done] = 0
                group.pc += 1
                return None
            group.fails = False
        over = [one for one in waits if one.is_over()]
        if not over:
            group.wait(lambda: any(one.is_over() for one in waits), lambda: machine.state_of(waits[0].barrier),
                       Awaited(waits[0].barrier.address))  # fmt: skip
            return Outcome.BLOCKED
        left = group.lanes & ~sum(one.lanes for one in over)
        if left:
            warp.groups.append(group.parted(group.pc, left))
            group.narrow()
        group.fails = None
        for one in over:
            one.passes(warp)
        if done is not None:
            group.registers[done] = 1
        group.pc += 1
        return Outcome.MET

    return run


def _by_phase(step: Step, where: Value, wanted: Value, lanes: int) -> dict[tuple[int, int], int]:
    """Lanes by the mbarrier that they wait for and its parity or state."""
    if isinstance(where, int) and isinstance(wanted, int):
        return {(where, wanted): lanes}
    found: dict[tuple[int, int], int] = {}
    for lane in bits(lanes):
        place, number = of_lane(where, lane), of_lane(wanted, lane)
        if place is None or number is None:
            raise step.not_understood("the mbarrier or the phase, which is data,")
        found[place, number] = found.get((place, number), 0) | 1 << lane
    return found


class _Awaiting:
    """Lanes that wait for one phase. `wanted`: a parity, or the state that an arrival gave."""

    def __init__(self, step: Step, machine: Machine, place: int, wanted: int, parity: bool, lanes: int) -> None:
        barrier = machine.history.barriers.get(place)
        if barrier is None:
            machine.problem("barrier", f"a wait for {machine.named(place)}, which is not initialized", step.at)
            raise step.not_understood(f"a wait for {machine.named(place)}, which is not initialized,")
        self.barrier, self.lanes = barrier, lanes
        self._step, self._machine, self._wanted, self._parity = step, machine, wanted, parity

    @property
    def is_first(self) -> bool:
        """Whether it is a wait that passes ahead of the first phase."""
        return self._parity and not self.barrier.phases and bool(self._wanted & 1)

    def is_over(self) -> bool:
        ended = len(self.barrier.phases)
        return (ended - 1) & 1 == self._wanted & 1 if self._parity else ended > self._wanted - _TOKEN

    def passes(self, warp: Warp) -> None:
        barrier, machine, step = self.barrier, self._machine, self._step
        phase = len(barrier.phases) - 1 if self._parity else self._wanted - _TOKEN
        edge = Edge.SEEN if step.has("relaxed") else Edge.SYNC
        for event, _ in machine.single(warp, self.lanes, "mbarrier wait", step.at):
            barrier.uses.append((event.index, step.at, False))
            barrier.waits.append(
                Wait(event.index, phase, self._parity, warp.block.rank, mbarrier_scope(step.ins), step.at)
            )
            if phase >= 0:
                event.edges.append((edge, barrier.phases[phase]))
        machine.history.trace[warp.name].append(("wait", Signal(barrier.address, phase & 1), step.at))


def _arrive(step: Step) -> Run:
    name = step.register("state") if "state" in step.ins else None
    address = step.value("mbar")
    amount = step.optional("tx") or step.optional("count")
    expects = step.has("expect_tx")
    arrives = step.ins.parts[1] == "arrive"
    edge = Edge.RELAXED if step.has("relaxed") else Edge.SYNC
    scope = mbarrier_scope(step.ins)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where = address(machine, warp, group)
        given: Value = amount(machine, warp, group) if amount is not None else 1
        token = None
        for event, lanes in machine.single(warp, group.lanes, "mbarrier arrive", step.at):
            for some, place, number in _by_barrier(step, where, given, lanes):
                barrier = machine.mbarrier(place, event, step.at)
                machine.reach(event, place >> RANK_SHIFT, warp, "an arrival", step.at)
                if expects:
                    machine.expect(barrier, some * number)
                    if not arrives:
                        barrier.expects.append((event.index, len(barrier.phases), step.at))
                if arrives:
                    token = _TOKEN + len(barrier.phases)
                    count = some * (1 if expects else number)
                    machine.arrive(barrier, event, count, step.at, warp.block.rank, edge, scope)
        machine.history.trace[warp.name].append(("arrive", Signal(where), given, step.at))
        if name is not None:
            group.registers[name] = token
        group.pc += 1
        return None

    return run


def _by_barrier(step: Step, where: Value, given: Value, lanes: int) -> Iterator[tuple[int, int, int]]:
    """(lanes, mbarrier, number) of arrivals: together where all lanes share both."""
    if isinstance(where, int) and isinstance(given, int):
        yield lanes.bit_count(), where, unsigned(given, 32)
        return
    for lane in bits(lanes):
        place, number = of_lane(where, lane), of_lane(given, lane)
        if place is None or number is None:
            raise step.not_understood("the mbarrier or count")
        yield 1, place, unsigned(number, 32)
