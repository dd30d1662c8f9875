# SPDX-License-Identifier: Apache-2.0
"""What the lanes of a warp do together."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from porter.facts.instructions.registry import Outcome, Run, Step, family, lanes_where
from porter.facts.machine import Machine
from porter.facts.state import Group, Undefined, Warp
from porter.facts.values import ALL, Value, bits, first, is_known, of_lane, squeezed
from porter.ptx.arch import WARP
from porter.ptx.bits import signed, unsigned
from porter.ptx.shuffle import source_lane

Sets = list[tuple[int, int]]
"""The lanes that execute an instruction together, and the mask that they have."""


def _coming(step: Step) -> Callable[[Machine, Warp, Group], Sets | None]:
    """Gives the lanes of a group by their member masks, if all have come that these name; else the group waits. Lanes
    whose mask is complete go on where others wait."""
    mask_of = step.value("mask")

    def come(machine: Machine, warp: Warp, group: Group) -> Sets | None:
        masks = by_mask(machine, group, mask_of(machine, warp, group))
        for mask, lanes in masks.items():
            _look_at_mask(step, machine, group, mask, lanes)
        waiting = {mask: lanes for mask, lanes in masks.items() if mask & warp.live & ~group.lanes}
        if waiting and len(waiting) < len(masks) and step.ins.guard is None:
            warp.groups.append(group.parted(group.pc, functools.reduce(operator.or_, waiting.values())))
            group.narrow()
            return [(lanes, mask) for mask, lanes in masks.items() if mask not in waiting]
        if not machine.gathered(warp, group, functools.reduce(operator.or_, waiting, 0)):
            return None
        return [(lanes, mask) for mask, lanes in masks.items()]

    return come


def by_mask(machine: Machine, group: Group, mask: Value) -> dict[int, int]:
    """The lanes of a group by their member mask; masks that are data are those of the lanes that come."""
    if isinstance(mask, int):
        return {mask & ALL: group.lanes}
    found: dict[int, int] = {}
    for lane in bits(group.lanes):
        named = of_lane(mask, lane)
        if named is None:
            machine.history.assumed.add("member masks that are data name the lanes that come")
            return {group.lanes: group.lanes}
        found[named & ALL] = found.get(named & ALL, 0) | 1 << lane
    return found


def _by_set(sets: Sets, lanes: int, made: Callable[[int], int | None]) -> Value:
    """A register that all lanes of a set have alike."""
    found: list[int | None] = [None] * WARP
    for some, _ in sets:
        one = made(some)
        for lane in bits(some):
            found[lane] = one
    return squeezed(tuple(found), lanes)


def _look_at_mask(step: Step, machine: Machine, group: Group, mask: int, lanes: int) -> None:
    outside, others = lanes & ~mask, group.lanes & mask & ~lanes
    opcode = step.ins.opcode
    if outside:
        what = f"{opcode} by lane {first(outside)}, which is not in its member mask {mask:#x}"
        machine.problem("mask", what, step.at)
    if others:
        what = f"{opcode} with the member mask {mask:#x}, of which lane {first(others)} has another mask"
        machine.problem("mask", what, step.at)


@family("elect")
def elect(step: Step) -> Run:
    chosen, number, come = step.register("p"), step.register("d"), _coming(step)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        sets = come(machine, warp, group)
        if sets is None:
            return Outcome.BLOCKED
        for lanes, _ in sets:
            machine.joint(warp, lanes, "elect", step.at)
        leaders = {first(lanes) for lanes, _ in sets}
        if chosen is not None:
            group.registers[chosen] = squeezed(tuple(int(lane in leaders) for lane in range(WARP)), group.lanes)
        if number is not None:
            group.registers[number] = _by_set(sets, group.lanes, first)
        group.pc += 1
        return None

    return run


@family("shfl")
def shfl(step: Step) -> Run:
    name, valid = step.register("d"), step.register("p")
    value, other, bound = step.value("a"), step.value("b"), step.value("c")
    mode, come = step.ins.modifiers["mode"], _coming(step)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        sets = come(machine, warp, group)
        if sets is None:
            return Outcome.BLOCKED
        found, by, within = (v(machine, warp, group) for v in (value, other, bound))
        sources = [_source(mode, lane, of_lane(by, lane), of_lane(within, lane)) for lane in range(WARP)]
        absent = _absent(sources, sets)
        if name is not None and (absent or not isinstance(found, int)):
            taken = (None if absent >> lane & 1 or source is None else of_lane(found, source[0])
                     for lane, source in enumerate(sources))  # fmt: skip
            found = squeezed(tuple(taken), group.lanes)
        if name is not None:
            group.registers[name] = found
        if name is not None and absent:
            group.undefined[name] = Undefined(absent, step.at)
        if valid is not None:
            inside = tuple(None if source is None else int(source[1]) for source in sources)
            group.registers[valid] = squeezed(inside, group.lanes)
        group.pc += 1
        return None

    return run


def _source(mode: str, lane: int, by: int | None, within: int | None) -> tuple[int, bool] | None:
    """The lane that one reads from, its own where the other is outside of the segment; None if that is data."""
    if by is None or within is None:
        return None
    found, inside = source_lane(mode, lane, by, within)
    return found if inside else lane, inside


def _absent(sources: list[tuple[int, bool] | None], sets: Sets) -> int:
    """The lanes that read from one that does not execute it with them, or that their mask leaves out."""
    found = 0
    for lanes, mask in sets:
        if lanes & mask != ALL:
            for lane in bits(lanes):
                source = sources[lane]
                found |= (source is not None and not (lanes & mask) >> source[0] & 1) << lane
    return found


@family("vote")
def vote(step: Step) -> Run:
    name, asked, come = step.register("d"), step.value("a"), _coming(step)
    mode = next(m for m in ("ballot", "all", "any", "uni") if step.has(m))

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        sets = come(machine, warp, group)
        if sets is None:
            return Outcome.BLOCKED
        holds = lanes_where(asked(machine, warp, group), group.lanes)
        if name is not None:
            made = None if holds is None else functools.partial(_vote, mode, holds)
            group.registers[name] = None if made is None else _by_set(sets, group.lanes, made)
        group.pc += 1
        return None

    return run


def _vote(mode: str, holds: int, lanes: int) -> int:
    found = holds & lanes
    match mode:
        case "ballot":
            return found
        case "all":
            return int(found == lanes)
        case "any":
            return int(found != 0)
    return int(found in (0, lanes))


@family("activemask")
def activemask(step: Step) -> Run:
    name = step.register("d")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if name is not None:
            group.registers[name] = group.lanes
        group.pc += 1
        return None

    return run


_BITS = 32
"""Of what redux joins."""
_JOINED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "min": min, "max": max,
}  # fmt: skip


@family("redux", "match")
def reduce(step: Step) -> Run:
    name, value, kind = step.register("d"), step.value("a"), step.ins.parts[-1]
    joined = next((_JOINED[p] for p in step.ins.parts if p in _JOINED), None) if step.ins.parts[0] == "redux" else None
    read, come = signed if kind[0] == "s" else unsigned, _coming(step)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        sets = come(machine, warp, group)
        if sets is None:
            return Outcome.BLOCKED
        found = value(machine, warp, group)
        group.registers.update(dict.fromkeys(step.flow.writes[step.at]))
        if name is not None and joined is not None and kind[0] in "bsu" and is_known(found, group.lanes):
            together = functools.partial(
                _joined, joined, [read(of_lane(found, lane) or 0, _BITS) for lane in range(WARP)]
            )
            group.registers[name] = _by_set(sets, group.lanes, together)
        group.pc += 1
        return None

    return run


def _joined(join: Callable[[int, int], int], numbers: list[int], lanes: int) -> int:
    return unsigned(functools.reduce(join, (numbers[lane] for lane in bits(lanes))), _BITS)


def warp_barrier(step: Step) -> Run:
    """bar.warp.sync, which the lanes of a mask may come to at several places."""
    mask, come = step.value("mask"), _coming(step)

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        wanted = mask(machine, warp, group)
        if not is_known(wanted, group.lanes):
            raise step.not_understood("the mask")
        if isinstance(wanted, int):
            group.barrier = _OF_MASKS - (wanted & ALL)
            others = [g for g in warp.groups if g is not group and g.barrier == group.barrier]
            if others and _are_all(warp, group.barrier):
                _meet(step, machine, warp, [group, *others])
                return Outcome.MET
        sets = come(machine, warp, group)
        if sets is None:
            missing, number = group.ready, group.barrier
            group.ready = lambda: (missing is not None and missing()) or _are_all(warp, number)
            return Outcome.BLOCKED
        group.barrier = None
        for lanes, _ in sets:
            machine.joint(warp, lanes, "bar.warp.sync", step.at)
        group.pc += 1
        return None

    return run


_OF_MASKS = -2
"""That of a mask is called this and the mask below it, beside the numbers of barriers and the cluster's."""


def _are_all(warp: Warp, number: int | None) -> bool:
    """Whether all lanes of a mask are at a bar.warp.sync of that mask."""
    if number is None:
        return False
    here = functools.reduce(operator.or_, (g.lanes for g in warp.groups if g.barrier == number), 0)
    return not (_OF_MASKS - number) & warp.live & ~here


def _meet(step: Step, machine: Machine, warp: Warp, groups: list[Group]) -> None:
    """Have groups at several places go on together."""
    machine.joint(warp, functools.reduce(operator.or_, (g.lanes for g in groups)), "bar.warp.sync", step.at)
    for group in groups:
        if group.lanes & ~(_OF_MASKS - (group.barrier or _OF_MASKS)):
            machine.problem("mask", "bar.warp.sync by lanes that are not in their member mask", step.at)
        group.barrier = group.ready = None
        group.pc += 1
