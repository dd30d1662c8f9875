# SPDX-License-Identifier: Apache-2.0
"""mbarriers and barriers: each phase has the arrivals meant for it, each wait sees the phase that it is meant for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from porter.facts.events import Arrival, Edge, History, Mbarrier, Wait
from porter.ptx.memory_order import Scope
from porter.ptx.shared_window import RANK_SHIFT
from porter.sync.findings import Findings, Level
from porter.sync.views import Views

Named = Callable[[int], str]
"""Gives the name of the mbarrier at an address."""


class _Phases:
    """The arrivals of an mbarrier by phase, and the events of those that ended one."""

    def __init__(self, barrier: Mbarrier) -> None:
        self.barrier = barrier
        self.arrivals: dict[int, list[Arrival]] = defaultdict(list)
        for arrival in (*barrier.arrivals, *barrier.open_arrivals):
            self.arrivals[arrival.phase].append(arrival)
        self._awaited = [0] * len(barrier.phases)
        for arrival in barrier.arrivals:
            self._awaited[arrival.phase] |= 1 << arrival.event

    def is_over(self, phase: int, seen: int) -> bool:
        """Whether a phase has ended for who has seen these events: its end, or everything that it waits for."""
        return bool(seen >> self.barrier.phases[phase] & 1) or not self._awaited[phase] & ~seen


def look_at_phases(history: History, views: Views, findings: Findings, named: Named) -> None:
    for barrier in (*history.barriers.values(), *history.retired):
        phases = _Phases(barrier)
        _uses(history, barrier, views, findings, named)
        _ends(barrier, views, findings, named)
        for arrival in (*barrier.arrivals, *barrier.open_arrivals):
            _arrival(phases, arrival, views, findings, named)
        for expect in barrier.expects:
            _expected(phases, expect, views, findings, named)
        for wait in barrier.waits:
            _wait(history, phases, wait, views, findings, named)
        if not history.blocked and barrier.outstanding and barrier.bytes_copied:
            text = (
                f"{named(barrier.address)}: phase {len(barrier.phases)} is left with {barrier.bytes_expected} bytes "
                f"expected and {barrier.bytes_copied} copied"
            )
            findings.add("bytes", text, _last(barrier))
    for event, at, before, name in history.rounds:
        if before is not None and not views.execution[event] >> before & 1:
            findings.add("B2", f"{name}: an arrival may be counted in the round before", at)


def _last(barrier: Mbarrier) -> int | None:
    return barrier.uses[-1][1] if barrier.uses else None


def _uses(history: History, barrier: Mbarrier, views: Views, findings: Findings, named: Named) -> None:
    home = barrier.address >> RANK_SHIFT
    for event, at, asynchronous in barrier.uses:
        memory, proxy = _seen_before(history, event, views.memory), _seen_before(history, event, views.proxy, False)
        if not memory >> barrier.init & 1:
            # execution alone is enough in practice where the block has fences (docs/rulings.md, init-fence)
            known = _seen_before(history, event, views.execution) >> barrier.init & 1
            level: Level = "strict" if known and _fences_inits(history, home) else "error"
            text = f"{named(barrier.address)}: a use that does not come behind its initialization"
            findings.add("H21", text, at, level=level)
            continue
        warp = history.events[event].warp
        other = warp is not None and warp.rank != home
        if (asynchronous or other) and not proxy >> barrier.init & 1:
            who = "an asynchronous operation" if asynchronous else "another block"
            text = f"{named(barrier.address)}: {who} uses it without fence.mbarrier_init behind its initialization"
            findings.add("H21", text, at, level="strict")


def _fences_inits(history: History, rank: int) -> bool:
    """Whether threads of a block have a fence.mbarrier_init."""
    fences = (e for e in history.events if e.fence is not None and e.fence.inits)
    return any(e.warp is not None and e.warp.rank == rank for e in fences)


def _arrival(phases: _Phases, arrival: Arrival, views: Views, findings: Findings, named: Named) -> None:
    """The end of the phase before comes ahead of an arrival: else it may be counted in that phase."""
    phase = arrival.phase
    if phase and not phases.is_over(phase - 1, views.execution[arrival.event]):
        what = "bytes of a copy" if arrival.of_copy else "an arrival"
        text = (
            f"{named(phases.barrier.address)}: {what} meant for phase {phase} may be counted in phase {phase - 1}: "
            "nothing puts it behind that phase's end"
        )
        findings.add("phase", text, arrival.at)


def _expected(
    phases: _Phases, expect: tuple[int, int, int], views: Views, findings: Findings, named: Named
) -> None:  # fmt: skip
    """An arrival of the same phase comes behind what its bytes are expected by: else the phase may end without them."""
    event, phase, at = expect
    own = [a for a in phases.arrivals[phase] if not a.of_copy]
    if own and not any(views.execution[a.event] >> event & 1 for a in own):
        name = named(phases.barrier.address)
        findings.add("bytes", f"{name}: phase {phase} may end before its bytes are expected", at)


def _ends(barrier: Mbarrier, views: Views, findings: Findings, named: Named) -> None:
    """All operations come ahead of what makes it invalid."""
    for end, at in barrier.ends:
        for event, use, _ in barrier.uses:
            if use != at and not views.execution[end] >> event & 1:
                text = f"{named(barrier.address)} may be made invalid ahead of an operation on it"
                findings.add("barrier", text, at, first=use)


def _wait(
    history: History, phases: _Phases, wait: Wait, views: Views, findings: Findings, named: Named
) -> None:  # fmt: skip
    barrier = phases.barrier
    if wait.by_parity and not _knows_one_before(history, phases, wait, views):
        text = (
            f"{named(barrier.address)}: a wait meant for phase {wait.phase} is satisfied by phase {wait.phase - 2} as "
            "well"
        )
        findings.add("H33", text, wait.at)
    following = wait.phase + 1
    is_followed = wait.by_parity and following < len(barrier.phases)
    if is_followed and not views.execution[barrier.phases[following]] >> wait.event & 1:
        level: Level = "review" if _is_held_by_warp(history, barrier, wait, views) else "strict"
        text = (
            f"{named(barrier.address)}: a wait for phase {wait.phase} may come when phase {following} is over as well: "
            "nothing makes that phase wait for it"
        )
        findings.add("H33", text, wait.at, level=level)
    for arrival in phases.arrivals[wait.phase]:
        narrow = Scope.CTA in (arrival.scope, wait.scope)
        if not arrival.of_copy and arrival.rank != wait.rank and narrow:
            name = named(barrier.address)
            text = f"{name}: arrival and wait in different blocks, one of them with the scope of a block"
            findings.add("M1", text, wait.at, first=arrival.at, level="review")


def _is_held_by_warp(history: History, barrier: Mbarrier, wait: Wait, views: Views) -> bool:
    """Whether the phase behind a wait comes behind the same wait by other lanes of the warp, which go together unless
    the compiler parts them."""
    warp, end = history.events[wait.event].warp, views.execution[barrier.phases[wait.phase + 1]]
    return any(
        w.phase == wait.phase and w.at == wait.at and history.events[w.event].warp == warp and end >> w.event & 1
        for w in barrier.waits
    )


def _knows_one_before(history: History, phases: _Phases, wait: Wait, views: Views) -> bool:
    """Whether the phase ahead of that which is waited for, or a later one, is known to be over to who waits, when the
    wait begins."""
    if wait.phase < 1:
        return True
    seen = _seen_before(history, wait.event, views.execution)
    return any(phases.is_over(number, seen) for number in range(wait.phase - 1, len(phases.barrier.phases)))


def _seen_before(history: History, event: int, view: list[int], themselves: bool = True) -> int:
    """What the threads of an event have seen when it begins: what it is told itself, as a wait is, does not count."""
    seen = 0
    for edge, before in history.events[event].edges:
        if edge is Edge.PROGRAM:
            seen |= view[before] | (1 << before if themselves else 0)
    return seen
