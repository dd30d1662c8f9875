# SPDX-License-Identifier: Apache-2.0
"""Fences of memory and of proxies (PTX ISA 9.7.13.4)."""

from __future__ import annotations

from porter.facts.events import Fence, Kind, MapEvent, MapUse
from porter.facts.instructions.copies import place_of
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import first
from porter.ptx.memory_order import Scope, fence_scope, fence_sides, fenced_spaces, fences_own_block


@family("fence", "membar")
def fence(step: Step) -> Run:
    what = _of(step)
    of_maps = _of_maps(step)
    place = step.optional("addr")
    narrow = fences_own_block(step.ins) or fence_scope(step.ins) is Scope.CTA

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if narrow and len(machine.blocks) > 1:
            machine.history.assumed.add("fences of one block order no accesses of others that need more")
        for event, lanes in machine.single(warp, group.lanes, "fence", step.at, Kind.FENCE):
            event.fence = what
            if of_maps is not None:
                where = 0 if place is None else place_of(step, place(machine, warp, group), first(lanes))
                machine.history.maps.append(MapEvent(of_maps, where, event.index, step.at))
        group.pc += 1
        return None

    return run


def _of(step: Step) -> Fence:
    parts = step.ins.parts
    if any(p.startswith("mbarrier_init") for p in parts):
        return Fence(inits=True)
    if fence_scope(step.ins) is not None:
        acquires, releases = fence_sides(step.ins)
        return Fence(acquires=acquires, releases=releases)
    if any(p.startswith("async") for p in parts):
        return Fence(proxy=fenced_spaces(step.ins)[0])
    # of tensor maps, and of other names for one place, which are of global memory
    return Fence()


def _of_maps(step: Step) -> MapUse | None:
    if not any(p.startswith("tensormap") for p in step.ins.parts):
        return None
    return MapUse.RELEASE if step.has("release") else MapUse.ACQUIRE
