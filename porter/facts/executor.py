# SPDX-License-Identifier: Apache-2.0
"""Executes a machine: warp after warp until all threads have ended, or nothing moves."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from porter.facts.deciding import deciding
from porter.facts.events import Blocked, History, NotUnderstood
from porter.facts.instructions.registry import Outcome, compiled
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.stretches import Stretch, stretches
from porter.facts.undefined import blame, carry
from porter.facts.values import merged
from porter.ptx.member_masks import member_mask

MOST_STEPS = 3_000_000
"""Instructions of warps that are executed before an execution is given up."""
MOST_EVENTS = 40_000
"""Events of an execution: what each knows of the others takes memory with their square."""
_PATIENCE = 40
"""Rounds in which nothing moves before a random schedule counts as stuck."""
_CHOSEN = 0.6


@contextmanager
def no_garbage() -> Iterator[None]:
    """What an execution makes is there until its end: looking for garbage meanwhile finds none, and takes a fourth of
    the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@no_garbage()
def run(machine: Machine, most: int = MOST_STEPS) -> History:
    """Execute until all threads have ended, or nothing moves.

    Raises:
        NotUnderstood: something happens whose order nobody could tell.
    """
    tries = 0
    while machine.lands or any(w.groups for b in machine.blocks for w in b.warps):
        moved = False
        for block in machine.blocks:
            for warp in _order(machine, block.warps):
                if warp.groups and (machine.dice is None or machine.dice.random() < _CHOSEN):
                    moved |= _go(machine, warp, most)
        moved |= machine.land(some=True)
        if moved:
            tries = 0
        elif not machine.land(some=False) and not _has_failed(machine) and not _is_stirred(machine):
            tries += 1
            if machine.dice is None or tries > _PATIENCE:
                _stuck(machine)
                break
    for block in machine.blocks:
        machine.history.unfreed[block.rank] = dict(block.columns)
        machine.history.allocations += [(e, at, tuple(block.relinquished)) for e, at in block.allocations]
    return machine.history


def _has_failed(machine: Machine) -> bool:
    """Have a wait fail that may, and that nothing ends unless it does."""
    for block in machine.blocks:
        for group in (g for warp in block.warps for g in warp.groups):
            if group.fails is False:
                group.fails, group.ready = True, None
                return True
    return False


def _is_stirred(machine: Machine) -> bool:
    return machine.on_rest is not None and machine.on_rest()


def _order(machine: Machine, warps: list[Warp]) -> list[Warp]:
    found = warps[::-1] if machine.schedule.backward else list(warps)
    if machine.dice is not None:
        machine.dice.shuffle(found)
    return found


def _go(machine: Machine, warp: Warp, most: int) -> bool:
    """Have a warp execute until it waits, has waited, or has ended."""
    moved = False
    flow, events, on_head = machine.flow, machine.history.events, machine.on_head
    marks, on_mark = machine.marks, machine.on_mark
    step = _step if machine.follow is not None else None
    in_a_row = stretches(flow, machine.reads_global, step, machine.on_numbers is not None, marks)
    while warp.groups:
        alone = len(warp.groups) == 1
        if not alone and _merge(machine, warp):
            moved = True
            continue
        ready = [g for g in warp.groups if g.ready is None or g.ready()]
        if not ready:
            return moved
        group = ready[0] if len(ready) == 1 else min(ready, key=lambda g: g.pc)
        group.ready = None
        outcome = None
        while outcome is None and group.lanes:
            if machine.steps > most or len(events) > MOST_EVENTS:
                what = f"{most} instructions" if machine.steps > most else f"{MOST_EVENTS} events"
                raise NotUnderstood(f"more than {what} are executed", group.pc)
            place = group.pc
            if place in marks and on_mark is not None and on_mark(warp, group):
                return True
            stretch = in_a_row.at(place, warp)
            if stretch is not None and _is_for(stretch, warp, group):
                stretch.run(machine, warp, group)
                machine.steps += stretch.last + 1 - place
            if stretch is not None and group.pc != place:
                moved, place = True, stretch.last
            else:
                machine.steps += 1
                outcome = _step(machine, warp, group)
                moved |= outcome is not Outcome.BLOCKED
            if on_head is not None:
                if flow.branches[place]:
                    machine.branched.add((place, group.pc))
                if group.pc in flow.heads:
                    on_head(warp, group, place)
                    if group.ready is not None:
                        return True
            if outcome is Outcome.MET:
                return True
            if not alone:
                break
    return moved


def _is_for(stretch: Stretch, warp: Warp, group: Group) -> bool:
    """Whether a group meets no other one inside of a stretch, and what is undefined has no part in it."""
    if group.undefined and not stretch.named.isdisjoint(group.undefined):
        return False
    if len(warp.groups) == 1:
        return True
    return not any(group.pc < g.pc < stretch.end for g in warp.groups)


def _step(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
    """Execute one instruction."""
    flow, at = machine.flow, group.pc
    if at == len(flow.decoded):
        machine.leave(warp, group, at - 1)
        return Outcome.PARTED
    if (warp.loaded or warp.flight.registers) and flow.touches_flight[at]:
        machine.check_registers(warp, group.lanes, at)
    if warp.flight.touched is not None and flow.wgmma_operands[at]:
        machine.note_operands(warp, at)
    if group.undefined and not flow.named[at].isdisjoint(group.undefined):
        carry(flow, group, at)
    try:
        if machine.follow is None:
            return compiled(flow, at)(machine, warp, group)
        then = machine.follow(warp, group)
        outcome = compiled(flow, at)(machine, warp, group)
        if then is not None and outcome is not Outcome.BLOCKED:
            then()
    except ValueError as error:
        raise NotUnderstood(str(error), at) from error
    except NotUnderstood:
        blame(machine, group, at)
        raise
    return outcome


def _merge(machine: Machine, warp: Warp) -> bool:
    """Join two groups that are at one place."""
    by_place: dict[int, Group] = {}
    for group in warp.groups:
        known = by_place.setdefault(group.pc, group)
        if known is group:
            continue
        follows = machine.follow is not None
        needed = (machine.flow.live if follows else deciding(machine.flow, machine.reads_global))[group.pc]
        both = known.lanes | group.lanes
        known.registers = {
            name: merged(known.registers.get(name), group.registers.get(name), group.lanes, both)
            for name in needed
            if name in known.registers or name in group.registers
        }
        known.meet(group)
        known.lanes, known.ready = both, None
        warp.groups.remove(group)
        return True
    return False


def _stuck(machine: Machine) -> None:
    for block in machine.blocks:
        for warp in block.warps:
            for group in warp.groups:
                opcode = machine.code.code[group.pc].parts
                if opcode[0] == "barrier" and "aligned" not in opcode and group.lanes != warp.live:
                    raise NotUnderstood("parts of a warp that come to a barrier apart", group.pc)
                if opcode[:2] != ("bar", "warp") and _comes_elsewhere(machine, warp, group):
                    raise NotUnderstood(f"lanes of a warp that come to {opcode[0]} at several places", group.pc)
                why = group.why() if group.why is not None and group.ready is not None else ""
                blocked = Blocked(warp.name, group.lanes, group.pc, why, group.awaited)
                machine.history.blocked.append(blocked)


def _comes_elsewhere(machine: Machine, warp: Warp, group: Group) -> bool:
    """Whether others of the warp are at another instruction like that which needs all lanes of a mask: they may meet
    there, and what they give each other is not followed."""
    code, decoded = machine.code.code, machine.flow.decoded[group.pc]
    if decoded is None or member_mask(decoded) is None:
        return False
    return any(g.pc != group.pc and code[g.pc].parts == decoded.parts for g in warp.groups)
