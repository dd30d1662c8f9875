# SPDX-License-Identifier: Apache-2.0
"""Fences of memory and of proxies (PTX ISA 9.7.13.4)."""

from __future__ import annotations

from porter.facts.events import Fence, Kind
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.ptx.memory_order import Scope, fence_scope, fence_sides, fenced_spaces, fences_own_block


@family("fence", "membar")
def fence(step: Step) -> Run:
    what = _of(step)
    narrow = fences_own_block(step.ins) or fence_scope(step.ins) is Scope.CTA

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if narrow and len(machine.blocks) > 1:
            machine.history.assumed.add("fences of one block order no accesses of others that need more")
        for event, _ in machine.single(warp, group.lanes, "fence", step.at, Kind.FENCE):
            event.fence = what
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
    # of tensor maps and of other names for one place: global memory, which is not looked at
    return Fence()
