# SPDX-License-Identifier: Apache-2.0
"""Barriers of a block and of a cluster (PTX ISA 9.7.13.1 to 9.7.13.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from porter.facts.events import Awaited, Edge, Kind
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.instructions.warps import warp_barrier
from porter.facts.machine import Machine
from porter.facts.state import Came, Group, Round, Warp
from porter.ptx.arch import WARP
from porter.ptx.barriers import is_barrier, is_count
from porter.ptx.bits import unsigned


@family("bar", "barrier")
def barrier(step: Step) -> Run:
    if step.ins.parts[1] == "warp":
        return warp_barrier(step)
    if step.ins.parts[1] == "cluster":
        return _cluster_arrive(step) if step.has("arrive") else _cluster_wait(step)
    return _named(step)


def _named(step: Step) -> Run:
    number, count = step.value("a"), step.optional("b")
    written = step.flow.writes[step.at]
    arrives = step.has("arrive")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        which = number(machine, warp, group)
        threads = count(machine, warp, group) if count is not None else None
        if not isinstance(which, int) or (count is not None and not isinstance(threads, int)):
            raise step.not_understood("the barrier or its count")
        which = unsigned(which, 32)
        if not is_barrier(which) or (isinstance(threads, int) and not is_count(unsigned(threads, 32))):
            of = f" of {unsigned(threads, 32)} threads" if isinstance(threads, int) else ""
            machine.problem("bar", f"there is no barrier {which}{of}", step.at)
            raise step.not_understood(f"barrier {which}{of}")
        barrier = warp.block.named[which]
        if not (came := partial(_came, barrier, warp, group))():
            if not _all_come(step, machine, warp, group, which, came):
                return Outcome.BLOCKED
            _arrive(step, machine, warp, which, threads if isinstance(threads, int) else None)
        group.barrier = None
        mine = barrier.waiting[warp]
        if not arrives and len(barrier.ends) <= mine.round:
            group.wait(
                lambda: len(barrier.ends) > mine.round,
                lambda: f"barrier {which}: {barrier.threads} of {barrier.count or warp.block.live_threads} threads",
                Awaited(which, warp.block.rank),
            )
            return Outcome.BLOCKED
        barrier.waiting[warp] = mine._replace(lanes=mine.lanes & ~group.lanes)
        if not arrives:
            edges = [(Edge.PROGRAM, mine.arrival), (Edge.SYNC, barrier.ends[mine.round])]
            event = machine.event(Kind.STEP, f"behind barrier {which}", warp, group.lanes, step.at, edges)
            machine.go_on(warp, group.lanes, event)
        group.registers.update(dict.fromkeys(written))
        group.pc += 1
        return None

    return run


_OF_CLUSTER = -1


def _came(barrier: Round, warp: Warp, group: Group) -> bool:
    """Whether the lanes of a group have arrived, with others of the warp, and not gone on."""
    return warp in barrier.waiting and bool(barrier.waiting[warp].lanes & group.lanes)


def _all_come(step: Step, machine: Machine, warp: Warp, group: Group, which: int, came: Callable[[], bool]) -> bool:
    """Whether all threads of a warp are at the barrier, be it at several instructions, which only those that are not
    aligned may be; else the group waits for the others. `which`: its number, or the cluster's."""
    group.barrier = which

    def apart() -> bool:
        return all(g.barrier == which for g in warp.groups)

    if apart() and len(warp.groups) > 1:
        parts = [machine.code.code[g.pc].parts for g in warp.groups]
        if any("aligned" in p or p[0] == "bar" for p in parts):
            what = f"parts of a warp come to {step.ins.opcode} by two instructions"
            machine.problem("lanes apart", what, step.at, "strict")
        return True
    if machine.gathered(warp, group):
        return True
    together = group.ready
    group.ready = lambda: came() or apart() or (together is not None and together())
    return False


def _arrive(step: Step, machine: Machine, warp: Warp, which: int, threads: int | None) -> None:
    barrier = warp.block.named[which]
    event = machine.joint(warp, warp.live, f"barrier {which}", step.at)
    before = barrier.ends[-1] if barrier.ends else None
    if threads != WARP:
        # else each arrival is a round by itself
        machine.history.rounds.append((event.index, step.at, before, f"barrier {which}"))
    if barrier.arrivals and barrier.count != threads:
        machine.problem("bar", f"barrier {which}: {barrier.count} and {threads} threads in one round", step.at)
    barrier.count = threads
    barrier.arrivals.append(event.index)
    barrier.threads += WARP
    barrier.waiting[warp] = Came(len(barrier.ends), event.index, warp.live)
    machine.end_round(warp.block, which, step.at)


def _cluster_arrive(step: Step) -> Run:
    relaxed = step.has("relaxed")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not warp.arrived & group.lanes:
            if not _all_come(step, machine, warp, group, _OF_CLUSTER, lambda: bool(warp.arrived & group.lanes)):
                return Outcome.BLOCKED
            event = machine.joint(warp, warp.live, "barrier.cluster.arrive", step.at)
            if warp.cluster_round is not None:
                machine.problem("bar", "a second barrier.cluster.arrive ahead of the wait", step.at)
            warp.cluster_round, warp.arrived = len(machine.cluster.ends), warp.live
            machine.cluster.arrivals.append((event.index, relaxed, warp, warp.live))
            machine.end_cluster_round(step.at)
        group.barrier = None
        warp.arrived &= ~group.lanes
        group.pc += 1
        return None

    return run


def _cluster_wait(step: Step) -> Run:
    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        round_ = warp.cluster_round
        if round_ is None:
            machine.problem("bar", "barrier.cluster.wait without an arrive", step.at)
            group.pc += 1
            return None
        if len(machine.cluster.ends) <= round_:
            group.wait(lambda: len(machine.cluster.ends) > round_, lambda: "the cluster's barrier", Awaited())
            return Outcome.BLOCKED
        event = machine.joint(warp, group.lanes, "barrier.cluster.wait", step.at)
        event.edges.append((Edge.SYNC, machine.cluster.ends[round_]))
        warp.cluster_round = None
        group.pc += 1
        return None

    return run
