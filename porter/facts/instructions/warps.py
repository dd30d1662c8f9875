# SPDX-License-Identifier: Apache-2.0
"""What the lanes of a warp do together."""

from __future__ import annotations

from porter.facts.instructions.registry import Outcome, Run, Step, family, lanes_where
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import ALL, Value, first, squeezed
from porter.ptx.arch import WARP


@family("elect")
def elect(step: Step) -> Run:
    chosen, number = step.register("p"), step.register("d")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
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
    by_index = step.has("idx")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        found: Value = value(machine, warp, group)
        lane = other(machine, warp, group)
        # a bound that is another divides the warp
        whole = by_index and bound(machine, warp, group) == WARP - 1
        if isinstance(found, tuple):
            found = found[lane % WARP] if whole and isinstance(lane, int) else None
        if name is not None:
            group.registers[name] = found
        if valid is not None:
            group.registers[valid] = 1 if whole else None
        group.pc += 1
        return None

    return run


@family("vote")
def vote(step: Step) -> Run:
    name = step.register("d")
    asked = step.value("a")
    mode = next(m for m in ("ballot", "all", "any", "uni") if step.has(m))

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
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


@family("redux", "match")
def reduce(step: Step) -> Run:
    name, value = step.register("d"), step.value("a")
    keeps = step.ins.parts[0] == "redux" and any(step.has(m) for m in ("min", "max", "and", "or"))

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        found = value(machine, warp, group)
        group.registers.update(dict.fromkeys(step.flow.writes[step.at]))
        if name is not None:
            group.registers[name] = found if keeps and isinstance(found, int) else None
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
