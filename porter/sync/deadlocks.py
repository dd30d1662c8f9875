# SPDX-License-Identifier: Apache-2.0
"""Deadlocks told by cause: who waits where for what, the starved one first, and what is likely missing.

What would serve a barrier is seen by going on: all barriers that are waited for are let pass, and who then arrives
where is who would have. Nothing of that is a fact of the kernel; it orders what is told, and tells no more than a
likely cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from porter.facts.events import Arrival, Awaited, Blocked, Kind, Mbarrier, NotUnderstood, Wait, WarpName
from porter.facts.executor import run
from porter.facts.machine import Machine
from porter.ptx.arch import WARP
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT
from porter.ptx.wgmma import THREADS as WARPGROUP

_ROUNDS = 3
"""How often barriers are let pass."""
_STEPS = 100_000
"""Instructions that are executed behind a deadlock."""


@dataclass(frozen=True)
class Place:
    """An instruction that has to do with a deadlock: "is initialized", "expects bytes"."""

    what: str
    at: int


@dataclass(frozen=True)
class Waiting:
    """What is waited for (`awaited`: with its state), by whom, and what it comes behind. `cause`: one of bytes, copy,
    count, mask, parity, arrive, commit, cycle, or empty where others are to come first or nothing is known; `why` says
    it as a sentence, and `places` are instructions that it is told from."""

    name: str
    awaited: str
    by: tuple[Blocked, ...]
    behind: tuple[str, ...] = ()
    cause: str = ""
    why: str = ""
    places: tuple[Place, ...] = ()


@dataclass
class _Open:
    """A barrier at the deadlock. `came`: the warps whose arrivals, or if only bytes are missing
    whose copies, have come; `servers`: those whose would still come."""

    name: str
    state: str
    by: list[Blocked]
    barrier: Mbarrier | None
    arrivals: tuple[Arrival, ...]
    pending: int
    expected: int
    copied: int
    phase: int
    waits: tuple[Wait, ...] = ()
    came: frozenset[WarpName] = frozenset()
    servers: frozenset[WarpName] = frozenset()


def told(machine: Machine) -> tuple[Waiting, ...]:
    """Those that wait at the end of an execution which does not come to its end, the starved first. The machine goes
    on: nothing may be told of its history behind this."""
    machine.on_head = machine.on_comparison = None
    blocked = list(machine.history.blocked)
    opens: dict[object, _Open] = {}
    for one in blocked:
        key: object = one.why if one.awaited is None else one.awaited
        if key not in opens:
            opens[key] = _open(machine, one)
        opens[key].by.append(one)
    _go_on(machine, opens)
    waits_for: dict[WarpName, set[object]] = defaultdict(set)
    for key, found in opens.items():
        for one in found.by:
            waits_for[one.warp].add(key)
    behind: dict[object, set[object]] = {}
    for key, found in opens.items():
        servers = found.servers if isinstance(key, Awaited) else _beside(found.by)
        behind[key] = {other for warp in servers for other in waits_for[warp]}
        if not isinstance(key, Awaited):
            behind[key].discard(key)
    waiting = {key: _waiting(machine, opens, behind, key) for key in opens}
    return tuple(waiting[key] for key in _starved_first(behind, waiting))


def _open(machine: Machine, one: Blocked) -> _Open:
    found = _Open(one.why, one.why, [], None, (), 0, 0, 0, 0)
    if one.awaited is None or one.awaited.number is None:
        return found
    if one.awaited.rank is not None:
        found.name = f"barrier {one.awaited.number}"
        arrivals = machine.blocks[one.awaited.rank].named[one.awaited.number].arrivals
        found.came = _issuers(machine, arrivals)
        return found
    barrier = machine.history.barriers[one.awaited.number]
    found.name, found.barrier, found.phase = machine.named(barrier.address), barrier, len(barrier.phases)
    found.arrivals, found.pending = tuple(barrier.open_arrivals), barrier.pending
    found.expected, found.copied = barrier.bytes_expected, barrier.bytes_copied
    found.waits = tuple(barrier.waits)
    found.came = _issuers(machine, (a.event for a in found.arrivals if a.of_copy is not bool(found.pending)))
    return found


def _issuer(machine: Machine, event: int) -> WarpName | None:
    """The warp that an event, or what it follows from, is of."""
    events = machine.history.events
    while events[event].warp is None and events[event].edges:
        event = events[event].edges[0][1]
    return events[event].warp


def _issuers(machine: Machine, events: Iterable[int]) -> frozenset[WarpName]:
    return frozenset(warp for event in events if (warp := _issuer(machine, event)) is not None)


def _go_on(machine: Machine, opens: dict[object, _Open]) -> None:
    """Let pass what is waited for, again and again, and note who arrives that had not."""
    rounds, events = len(machine.history.rounds), len(machine.history.events)
    try:
        for _ in range(_ROUNDS):
            awaited = {one.awaited for one in machine.history.blocked if one.awaited is not None}
            machine.history.blocked.clear()
            for one in sorted(awaited, key=str):
                machine.force(one)
            run(machine, machine.steps + _STEPS)
    except NotUnderstood:
        pass  # what has come so far tells enough
    for key, found in opens.items():
        if found.barrier is not None:
            every = (*found.barrier.arrivals, *found.barrier.open_arrivals)
            later = [a.event for a in every if a.event >= events and a.of_copy is not bool(found.pending)]
            found.servers = _issuers(machine, later) - found.came
        elif key == Awaited():
            warps = {one.warp for other in opens.values() for one in other.by}
            found.servers = frozenset(warps - {one.warp for one in found.by})
        elif isinstance(key, Awaited):
            later = [event for event, *_, of in machine.history.rounds[rounds:] if of == found.name]
            found.servers = frozenset(w for w in _issuers(machine, later) if w.rank == key.rank) - found.came


def _beside(waiting: Iterable[Blocked]) -> set[WarpName]:
    """The warps that a wait for other lanes or warps is about: those of the warpgroups."""
    warps = WARPGROUP // WARP
    groups = {(one.warp.rank, one.warp.warp // warps) for one in waiting}
    return {WarpName(rank, group * warps + number) for rank, group in groups for number in range(warps)}


def _starved_first(behind: dict[object, set[object]], waiting: dict[object, Waiting]) -> list[object]:
    """Each behind those that it comes behind; of those that come behind each other the one with the fewest first, and
    one that has a cause of its own; barriers ahead of what else is waited for."""
    found: list[object] = []
    left = dict(behind)
    while left:
        key = min(left, key=lambda k: (
            len(left[k].intersection(left) - {k}), waiting[k].cause in ("", "cycle"), not isinstance(k, Awaited)
        ))  # fmt: skip
        found.append(key)
        del left[key]
    return found


def _reaches(behind: dict[object, set[object]], key: object) -> bool:
    """Whether what a barrier comes behind comes behind itself."""
    seen: set[object] = set()
    todo = list(behind[key])
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += behind[one]
    return key in seen


# Causes -----------------------------------------------------------------------------------------------


Cause = tuple[str, str, tuple[Place, ...]]
_NONE: Cause = ("", "", ())


def _waiting(
    machine: Machine, opens: dict[object, _Open], behind: dict[object, set[object]], key: object
) -> Waiting:  # fmt: skip
    found = opens[key]
    others = tuple(opens[other].name for other in opens if other in behind[key] and other != key)
    is_cycle = _reaches(behind, key)
    cause, why, places = _NONE
    if found.barrier is not None:
        cause, why, places = _cause(machine, found, found.barrier, is_cycle, bool(behind[key]))
    elif isinstance(key, Awaited) and key.number is not None and not behind[key]:
        cause, why = "count", "no other warp comes to it"
    if not cause and is_cycle:
        cause, why = "cycle", "those that would arrive wait, behind others or by themselves, for this"
    return Waiting(found.name, found.state, tuple(found.by), others, cause, why, tuple(places))


def _cause(machine: Machine, found: _Open, barrier: Mbarrier, is_cycle: bool, is_behind: bool) -> Cause:
    skipped = _parity(machine, found, is_cycle)
    if skipped:
        return "parity", skipped, ()
    if is_behind:
        return _NONE
    init = Place("is initialized", machine.history.events[barrier.init].at)
    masked = _mask(machine, found, barrier)
    if masked is not None:
        return "mask", "a multicast brings it to other blocks and not to this one", (masked,)
    if not found.pending:
        return _bytes(machine, found)
    if found.phase:
        return _missing(machine, found, barrier)
    if found.arrivals:
        why = f"it is initialized for {barrier.count} arrivals, and {barrier.count - found.pending} come"
        return "count", why, (init, *_places((a for a in found.arrivals if not a.of_copy), "arrives"))
    if _uncommitted(machine):
        return "commit", "nothing arrives, and there are tcgen05.mma that no tcgen05.commit tells of", (init,)
    return "arrive", "nothing arrives, now or later", (init,)


def _bytes(machine: Machine, found: _Open) -> Cause:
    expecting = (a for a in found.arrivals if "expect_tx" in machine.code.code[a.at].parts)
    expects = _places(expecting, "expects bytes")
    if not found.copied:
        return "copy", f"{found.expected} bytes are expected, and no copy brings any", expects
    how = "more" if found.expected > found.copied else "fewer"
    why = f"{found.expected} bytes are expected, {how} than the {found.copied} that copies bring"
    return "bytes", why, (*expects, *_places((a for a in found.arrivals if a.of_copy), "brings bytes"))


def _missing(machine: Machine, found: _Open, barrier: Mbarrier) -> Cause:
    """What has arrived in the phase before and does not in this one."""
    came = {(a.at, _issuer(machine, a.event)) for a in found.arrivals}
    before = [a for a in barrier.arrivals if a.phase == found.phase - 1 and not a.of_copy]
    missing = [a for a in before if (a.at, _issuer(machine, a.event)) not in came]
    commits = [a for a in missing if machine.history.events[a.event].kind is Kind.COMMIT]
    warps = sorted(_issuers(machine, (a.event for a in missing)))
    why = f"of those that arrived in phase {found.phase - 1} these do not arrive again: {', '.join(map(str, warps))}"
    return "commit" if commits else "arrive", why, _places(missing, f"arrived in phase {found.phase - 1}")


def _parity(machine: Machine, found: _Open, is_cycle: bool) -> str:
    """Whether somebody waits for another phase than its next one."""
    for one in found.by:
        waited = [w.phase for w in found.waits if machine.history.events[w.event].warp == one.warp]
        newest = max(waited, default=-1)
        if found.phase and newest < found.phase - 1:
            return (
                f"{one.warp} has not waited for phase {found.phase - 1}, which is over: it waits with the parity of "
                "the next one"
            )
    if not found.phase and not found.arrivals and not found.waits and is_cycle:
        return "it waits for phase 0, ahead of what would arrive: parity 1 is that of the phase ahead of the first"
    return ""


def _mask(machine: Machine, found: _Open, barrier: Mbarrier) -> Place | None:
    """A multicast that has come to the mbarrier of another block at this place, and not to this."""
    own = {a.at for a in found.arrivals}
    for other in machine.history.barriers.values():
        if other is barrier or other.address & OFFSET_MASK != barrier.address & OFFSET_MASK:
            continue
        for arrival in (*other.arrivals, *other.open_arrivals):
            parts = machine.code.code[arrival.at].parts
            if arrival.phase == found.phase and arrival.at not in own and "multicast::cluster" in parts:
                return Place(f"reaches block {other.address >> RANK_SHIFT}", arrival.at)
    return None


def _uncommitted(machine: Machine) -> bool:
    committed = {end for event in machine.history.events for end in event.completes}
    return any(
        end not in committed for b in machine.blocks for w in b.warps for ends in w.mmas.values() for end in ends
    )


def _places(arrivals: Iterable[Arrival], what: str) -> tuple[Place, ...]:
    return tuple(Place(what, at) for at in dict.fromkeys(a.at for a in arrivals))
