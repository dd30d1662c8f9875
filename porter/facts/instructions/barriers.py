# SPDX-License-Identifier: Apache-2.0
"""Barriers of a block and of a cluster (PTX ISA 9.7.13.1 to 9.7.13.3)."""

from __future__ import annotations

from porter.facts.events import Awaited, Edge, Kind
from porter.facts.instructions.registry import Outcome, Run, Step, family
from porter.facts.instructions.warps import warp_barrier
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.ptx.arch import WARP
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
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        barrier = warp.block.named[unsigned(which, 32)]
        if warp not in barrier.waiting:
            _arrive(step, machine, warp, group, unsigned(which, 32), threads if isinstance(threads, int) else None)
            if arrives:
                group.pc += 1
                return None
        round_, arrival = barrier.waiting[warp]
        if len(barrier.ends) <= round_:
            group.wait(
                lambda: len(barrier.ends) > round_,
                lambda: f"barrier {which}: {barrier.threads} of {barrier.count or warp.block.live_threads} threads",
                Awaited(unsigned(which, 32), warp.block.rank),
            )
            return Outcome.BLOCKED
        del barrier.waiting[warp]
        edges = [(Edge.PROGRAM, arrival), (Edge.SYNC, barrier.ends[round_])]
        machine.go_on(warp, group.lanes, machine.event(Kind.STEP, f"behind barrier {which}", warp, group.lanes,
                                                        step.at, edges))  # fmt: skip
        group.registers.update(dict.fromkeys(written))
        group.pc += 1
        return None

    def _arrive(step: Step, machine: Machine, warp: Warp, group: Group, which: int, threads: int | None) -> None:
        barrier = warp.block.named[which]
        event = machine.joint(warp, group.lanes, f"barrier {which}", step.at)
        before = barrier.ends[-1] if barrier.ends else None
        if threads != WARP:
            # else each arrival is a round by itself
            machine.history.rounds.append((event.index, step.at, before, f"barrier {which}"))
        if barrier.arrivals and barrier.count != threads:
            machine.problem("bar", f"barrier {which}: {barrier.count} and {threads} threads in one round", step.at)
        barrier.count = threads
        barrier.arrivals.append(event.index)
        barrier.threads += WARP
        if not arrives:
            barrier.waiting[warp] = (len(barrier.ends), event.index)
        machine.end_round(warp.block, which, step.at)

    return run


def _cluster_arrive(step: Step) -> Run:
    relaxed = step.has("relaxed")

    def run(machine: Machine, warp: Warp, group: Group) -> Outcome | None:
        if not machine.gathered(warp, group):
            return Outcome.BLOCKED
        event = machine.joint(warp, group.lanes, "barrier.cluster.arrive", step.at)
        if warp.cluster_round is not None:
            machine.problem("bar", "a second barrier.cluster.arrive ahead of the wait", step.at)
        warp.cluster_round = len(machine.cluster.ends)
        machine.cluster.arrivals.append((event.index, relaxed, warp, group.lanes))
        machine.end_cluster_round(step.at)
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
