# SPDX-License-Identifier: Apache-2.0
"""What must not outlive a block or precede it: asynchronous accesses, accesses of other blocks, Tensor Memory."""

from __future__ import annotations

from porter.facts.events import Access, Engine, Event, History, Kind, Remote
from porter.sync.findings import Findings, Level
from porter.sync.views import Views

_ASYNC = frozenset((Engine.LOAD, Engine.STORE, Engine.STORE_ASYNC, Engine.RED_ASYNC, Engine.MMA, Engine.CP))


def look_at_lifetimes(history: History, views: Views, findings: Findings) -> None:
    """Of an execution that came to its end."""
    ended = {rank: _over(views.execution, exits) for rank, exits in history.exits.items()}
    for access in history.accesses:
        over = ended.get(access.space.rank, 0)
        verb = "writes" if access.write else "reads"
        if access.end is None:
            if access.space.tensor:
                text = f"{access.engine.value} is not waited for before the block ends"
                findings.add("X1", text, access.at, level="strict")
            elif access.engine is not Engine.CP_ASYNC or access.write:
                text = f"the block may end while {access.engine.value} {verb} its shared memory: nothing waits for it"
                findings.add("X1", text, access.at, level=_level(history, access))
        elif access.engine in _ASYNC and not access.space.tensor and not over >> access.end & 1:
            text = f"the block may end while {access.engine.value} {verb} its shared memory"
            findings.add("X1", text, access.at, level=_level(history, access))
    _peers(history, views, findings, ended)
    for rank, columns in history.unfreed.items():
        if columns:
            listed = ", ".join(f"{count} at {start}" for start, count in columns.items())
            findings.add("columns", f"Tensor Memory of block {rank} is never freed: columns {listed}", None)
    for event, at, relinquished in history.allocations:
        if any(not views.execution[later] >> event & 1 for later in relinquished):
            findings.add("L3", "tcgen05.alloc that does not come ahead of relinquish_alloc_permit", at)


def _level(history: History, access: Access) -> Level:
    """A block's own copies may be left to its end in practice, but for those whose source another block needs, and
    stores that no wait can be for (docs/rulings.md, block-end)."""
    warp = history.events[access.start].warp
    own = warp is not None and warp.rank == access.space.rank
    return "strict" if own and (access.engine is not Engine.STORE or access.grouped) else "error"


def _over(view: list[int], events: list[int]) -> int:
    found = 0
    for event in events:
        found |= view[event] | 1 << event
    return found


def _peers(history: History, views: Views, findings: Findings, ended: dict[int, int]) -> None:
    seen = {rank: _over(views.memory, exits) for rank, exits in history.exits.items()}
    begun = {rank: _of_block(history.events, rank) for rank in ended}
    waiting = _unwaited(history)
    for remote in history.remote:
        event = history.events[remote.event]
        if event.warp is not None and not views.execution[remote.event] & begun.get(remote.rank, 0):
            text = f"shared memory of block {remote.rank} is used before that block is known to run"
            findings.add("H32", text, remote.at, between_blocks=True)
        over = seen if remote.by_thread else ended
        if not over.get(remote.rank, 0) >> remote.event & 1:
            findings.add("H26", _outlived(remote), remote.at, between_blocks=True)
        elif remote.event in waiting.get(remote.rank, ()):
            findings.add("H26", _outlived(remote), remote.at, level="strict", between_blocks=True)


def _unwaited(history: History) -> dict[int, set[int]]:
    """By block the arrivals of others' commits that no wait of it is for: a newer commit may arrive ahead of an older
    one (docs/rulings.md, commit-arrival)."""
    events = history.events
    commits = {remote.event: remote.rank for remote in history.remote if events[remote.event].kind is Kind.COMMIT}
    if not commits:
        return {}
    behind: list[frozenset[int]] = []
    for event in events:
        newer = event.kind is Kind.COMMIT
        given = [e for _, e in event.edges if not (newer and events[e].kind is Kind.COMMIT)]
        known = {behind[e] for e in given}
        own = commits.keys() & given
        behind.append(frozenset(own).union(*known) if own or len(known) > 1 else next(iter(known), frozenset()))
    return {
        rank: {e for e, where in commits.items() if where == rank}.difference(*(behind[e] for e in exits))
        for rank, exits in history.exits.items()
    }


def _of_block(events: list[Event], rank: int) -> int:
    found = 0
    for event in events:
        if event.warp is not None and event.warp.rank == rank:
            found |= 1 << event.index
    return found


def _outlived(remote: Remote) -> str:
    return f"block {remote.rank} may have ended when {remote.what} of block {remote.source} comes to its shared memory"
