# SPDX-License-Identifier: Apache-2.0
"""Tensor maps that threads change and publish (PTX ISA 9.7.9.28, 9.7.13.16)."""

from __future__ import annotations

from porter.facts.events import Event, MapEvent, MapUse
from porter.facts.instructions.copies import place_of
from porter.facts.instructions.memory import touch
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.launched import GLOBAL
from porter.facts.machine import Machine
from porter.facts.placed import look_at_place
from porter.facts.state import Group, Warp
from porter.facts.tensor_maps import whole
from porter.facts.values import bits, first, of_lane
from porter.ptx.alignment import CHANGED_MAP
from porter.ptx.tensormap import ENCODED_BYTES, SIZING_FIELDS, replaced


@family("tensormap")
def tensormap(step: Step) -> Run:
    return _replace(step) if step.ins.parts[1] == "replace" else _publish(step)


def _replace(step: Step) -> Run:
    """A value that is data leaves the bytes as they are, unless the size of the box follows from it."""
    address, value, ordinal = step.value("map"), step.value("value"), step.optional("ordinal")
    name = step.ins.modifiers["field"]

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        where, given = address(machine, warp, group), value(machine, warp, group)
        number = ordinal(machine, warp, group) if ordinal is not None else 0
        assert isinstance(number, int)
        for event, lanes in machine.single(warp, group.lanes, "tensormap.replace", step.at):
            for lane in bits(lanes) if isinstance(where, tuple) else (first(lanes),):
                place, new = place_of(step, where, lane), of_lane(given, lane)
                look_at_place(machine, place, 1 << lane, 0, step.at, CHANGED_MAP)
                data = map_bytes(machine, place, step.at)
                if new is None and name in SIZING_FIELDS:
                    data = None
                elif data is not None and new is not None:
                    data = replaced(data, name, new, number)
                _write(machine, warp, event, place, data, step.at)
        machine.history.trace[warp.name].append(("map", where, given if name in SIZING_FIELDS else None, step.at))
        group.pc += 1
        return None

    return run


def _publish(step: Step) -> Run:
    """tensormap.cp_fenceproxy: one copy by the warp, and its release."""
    target, source = step.value("dst"), step.value("src")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        lane = first(group.lanes)
        where, read = (place_of(step, v(machine, warp, group), lane) for v in (target, source))
        for place in (where, read):
            look_at_place(machine, place, 1 << lane, 0, step.at, CHANGED_MAP)
        event = machine.joint(warp, group.lanes, "tensormap.cp_fenceproxy", step.at)
        touch(machine, warp, event, 1 << lane, read, ENCODED_BYTES, False, step.at)
        _write(machine, warp, event, where, map_bytes(machine, read, step.at), step.at)
        released = machine.joint(warp, group.lanes, "release of a tensor map", step.at)
        machine.history.maps.append(MapEvent(MapUse.RELEASE, 0, released.index, step.at))
        machine.history.trace[warp.name].append(("map", where, read, step.at))
        group.pc += 1
        return None

    return run


def map_bytes(machine: Machine, place: int, at: int) -> bytes | None:
    """The map in global or in shared memory; None where it is not known."""
    if place >= GLOBAL:
        return machine.maps.at(place)
    block = machine.block_of(place, at)
    return whole([block.read(place + i, 1) for i in range(ENCODED_BYTES)])


def _write(machine: Machine, warp: Warp, event: Event, place: int, data: bytes | None, at: int) -> None:
    known = None if data is None else int.from_bytes(data, "little")
    if place < GLOBAL:
        touch(machine, warp, event, event.lanes & -event.lanes, place, ENCODED_BYTES, True, at)
        machine.block_of(place, at).write(place, ENCODED_BYTES, known)
        return
    machine.maps.store(place, ENCODED_BYTES, known)
    machine.overwrite(place, at)
    machine.history.maps.append(MapEvent(MapUse.WRITE, place, event.index, at))
