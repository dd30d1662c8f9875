# SPDX-License-Identifier: Apache-2.0
"""What the lanes of a warp do together."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from porter.facts.instructions.registry import Outcome, Run, Step, family, lanes_where
from porter.facts.machine import Machine
from porter.facts.operands import Reader
from porter.facts.state import Group, Warp
from porter.facts.values import ALL, Value, bits, first, is_known, of_lane, squeezed
from porter.ptx.arch import WARP
from porter.ptx.bits import signed, unsigned
from porter.ptx.shuffle import source_lane


def _has_come(machine: Machine, warp: Warp, group: Group, mask: Reader) -> bool:
    """Whether all lanes of a mask have come; the group waits for those that have not."""
    wanted = mask(machine, warp, group)
    return machine.gathered(warp, group, wanted & ALL if isinstance(wanted, int) else ALL)


@family("elect")
def elect(step: Step) -> Run:
    chosen, number = step.register("p"), step.register("d")
    mask = step.value("mask")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not _has_come(machine, warp, group, mask):
            return Outcome.BLOCKED
        machine.joint(warp, group.lanes, "elect", step.at)
        leader = first(group.lanes)
        if chosen is not None:
            group.registers[chosen] = squeezed(tuple(int(lane == leader) for lane in range(WARP)), group.lanes)
        if number is not None:
            group.registers[number] = leader
        group.pc += 1
        return None

    return run


@family("shfl")
def shfl(step: Step) -> Run:
    name, valid = step.register("d"), step.register("p")
    value, other, bound = step.value("a"), step.value("b"), step.value("c")
    mode = step.ins.modifiers["mode"]
    mask = step.value("mask")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not _has_come(machine, warp, group, mask):
            return Outcome.BLOCKED
        found, by, within = (v(machine, warp, group) for v in (value, other, bound))
        sources = [_source(mode, lane, of_lane(by, lane), of_lane(within, lane)) for lane in range(WARP)]
        if name is not None and not isinstance(found, int):
            found = squeezed(tuple(_taken(found, source, group.lanes) for source in sources), group.lanes)
        if name is not None:
            group.registers[name] = found
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


def _taken(value: Value, source: tuple[int, bool] | None, lanes: int) -> int | None:
    """What lanes that are not there have nobody knows."""
    return of_lane(value, source[0]) if source is not None and lanes >> source[0] & 1 else None


@family("vote")
def vote(step: Step) -> Run:
    name = step.register("d")
    asked = step.value("a")
    mode = next(m for m in ("ballot", "all", "any", "uni") if step.has(m))
    mask = step.value("mask")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not _has_come(machine, warp, group, mask):
            return Outcome.BLOCKED
        holds = lanes_where(asked(machine, warp, group), group.lanes)
        found: int | None = None
        if holds is not None:
            alike = holds in (0, group.lanes)
            found = {"ballot": holds, "all": int(holds == group.lanes), "any": int(holds != 0), "uni": int(alike)}[mode]
        if name is not None:
            group.registers[name] = found
        group.pc += 1
        return None

    return run


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
    read = signed if kind[0] == "s" else unsigned
    mask = step.value("mask")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not _has_come(machine, warp, group, mask):
            return Outcome.BLOCKED
        found = value(machine, warp, group)
        group.registers.update(dict.fromkeys(step.flow.writes[step.at]))
        if name is not None and joined is not None and kind[0] in "bsu" and is_known(found, group.lanes):
            numbers = [read(v, _BITS) for lane in bits(group.lanes) if (v := of_lane(found, lane)) is not None]
            group.registers[name] = unsigned(functools.reduce(joined, numbers), _BITS)
        group.pc += 1
        return None

    return run


def warp_barrier(step: Step) -> Run:
    """bar.warp.sync."""
    mask = step.value("mask")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        wanted = mask(machine, warp, group)
        if not isinstance(wanted, int):
            raise step.not_understood("the mask")
        if not machine.gathered(warp, group, wanted & ALL):
            return Outcome.BLOCKED
        machine.joint(warp, group.lanes, "bar.warp.sync", step.at)
        group.pc += 1
        return None

    return run
