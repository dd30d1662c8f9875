# SPDX-License-Identifier: Apache-2.0
"""Branches, and the end of threads."""

from __future__ import annotations

from porter.facts.events import NotUnderstood
from porter.facts.flow import called
from porter.facts.instructions.registry import OF_RUNTIME, Outcome, Run, Step, family, lanes_where, orders
from porter.facts.machine import Machine
from porter.facts.operands import reader
from porter.facts.state import Group, Warp


@family("bra")
def branch(step: Step) -> Run:
    after = step.flow.code.successors[step.at]
    guard = step.ins.guard
    if not after:
        raise step.not_understood("the target")
    if guard is None or len(after) == 1:
        target = after[0]

        def always(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
            group.pc = target
            return None

        return always
    condition = reader(step.flow.code, step.at, guard.operand)
    flipped = int(guard.negated)
    there, here = after

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        taken = lanes_where(condition(machine, warp, group), group.lanes, flipped)
        if taken is None:
            return _undecided(step, machine, warp, group)
        if taken in (0, group.lanes):
            group.pc = there if taken else here
            return None
        machine.branched.add((step.at, there))
        warp.groups.append(group.parted(there, taken, step.flow.live[there]))
        group.narrow(step.flow.live[here])
        group.pc = here
        return Outcome.PARTED

    return run


def _undecided(step: Step, machine: Machine, warp: Warp, group: Group) -> Outcome | None:
    """A branch on data. A side that only leads to a trap is not taken; else neither side may do anything that others
    wait for, and what either writes is not known behind it."""
    flow = step.flow
    ways = [t for t in flow.code.successors[step.at] if t not in flow.lost]
    if len(ways) == 1:
        group.pc = ways[0]
        return None
    meet = flow.meets.get(step.at)
    if meet is None:
        raise NotUnderstood("a branch on data whose ways do not meet", step.at)
    between = flow.between(step.at, meet)
    machine.branched.update((at, to) for at in (step.at, *between) for to in flow.code.successors[at])
    for at in between:
        if orders(flow.code.code[at]) and flow.code.code[at].parts[0] not in ("elect", "fence", "membar"):
            what = f"a branch on data, on which {flow.code.code[at].opcode} depends"
            raise NotUnderstood(what, step.at)
        if warp.loaded or warp.flight.registers:
            machine.check_registers(warp, group.lanes, at)
        group.registers.update(dict.fromkeys(flow.writes[at]))
        for name in flow.writes[at]:
            group.undefined.pop(name, None)
        if flow.code.code[at].parts[0] == "st":
            warp.local.forget()
    machine.history.assumed.add("either side of a branch on data may be taken: neither has to do with order")
    group.pc = meet
    return None


@family("exit", "ret")
def end(step: Step) -> Run:
    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        machine.leave(warp, group, step.at)
        return Outcome.PARTED

    return run


@family("trap", "brkpt")
def trap(step: Step) -> Run:
    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        raise NotUnderstood("a trap is come to", step.at)

    return run


@family("call")
def call(step: Step) -> Run:
    """Of the device runtime; other functions stand where they are called, and what is left is not followed."""
    if called(step.flow.code.code[step.at]) not in OF_RUNTIME:
        raise step.not_understood("the function")
    return nothing(step)


@family("nanosleep", "prefetch", "prefetchu", "discard", "applypriority", "pmevent", "griddepcontrol", "createpolicy")
def nothing(step: Step) -> Run:
    """What orders nothing that is looked at here."""
    written = step.flow.writes[step.at]

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        group.registers.update(dict.fromkeys(written))
        group.pc += 1
        return None

    return run
