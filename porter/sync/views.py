# SPDX-License-Identifier: Apache-2.0
"""What each event knows to be over, in the five views that differ: execution, memory, proxy, and the two of tcgen05
fences. A view is an integer with one bit an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from porter.facts.events import Edge, Event, History, Kind


@dataclass
class Views:
    """By event. `execution`: what has happened before. `memory`: what of that is visible in shared memory. `proxy`:
    what of that asynchronous operations see too. `taken`: what a thread's tcgen05 operations come behind; `published`
    and `received`: what fences have handed to a synchronization, and from one. `released`: what a relaxed operation
    carries. `seen`, `seen_by_proxy`: what a fence that acquires will add to `memory` and `proxy`."""

    execution: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    proxy: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    seen_by_proxy: list[int] = field(default_factory=list)
    conflicts: dict[int, int] = field(default_factory=dict)
    """By end of an asynchronous operation the accesses that it conflicts with and comes behind: who is told of the one
    is told of the others."""


def views_of(history: History, at_start: Callable[[int, Views], None]) -> Views:
    """The views of all events. `at_start` is called with each event whose own view is complete: it looks at accesses
    that begin there, and may add to `conflicts`."""
    views = Views()
    inits = 0
    for event in history.events:
        _join(views, event)
        if event.kind is not Kind.STEP:
            _apply(views, event, inits)
            if event.kind is Kind.INIT:
                inits |= 1 << event.index
        at_start(event.index, views)
    return views


def _join(views: Views, event: Event) -> None:
    edges = event.edges
    if len(edges) == 1 and edges[0][0] is Edge.PROGRAM:
        # most events come behind one of their thread alone, and share what it knows: views are large
        before = edges[0][1]
        bit = 1 << before
        views.execution.append(views.execution[before] | bit)
        views.memory.append(views.memory[before] | bit)
        for of_kind in (views.proxy, views.taken, views.published, views.received, views.released, views.seen,
                        views.seen_by_proxy):  # fmt: skip
            of_kind.append(of_kind[before])
        return
    execution = memory = proxy = taken = published = received = released = seen = seen_by_proxy = 0
    for edge, before in edges:
        bit = 1 << before
        execution |= views.execution[before] | bit
        if edge is Edge.PROGRAM:
            memory |= views.memory[before] | bit
            proxy |= views.proxy[before]
            taken |= views.taken[before]
            received |= views.received[before]
            published |= views.published[before]
            released |= views.released[before]
            seen |= views.seen[before]
            seen_by_proxy |= views.seen_by_proxy[before]
        elif edge is not Edge.EXECUTION:
            published |= views.published[before]
            received |= views.published[before]
            if edge is not Edge.COMPLETION:
                is_released = edge in (Edge.SYNC, Edge.SEEN)
                given = views.memory[before] | bit if is_released else views.released[before]
                by_proxy = views.proxy[before] if is_released else views.proxy[before] & views.released[before]
                if edge in (Edge.SYNC, Edge.RELAXED):
                    memory |= given
                    proxy |= by_proxy
                else:
                    seen |= given
                    seen_by_proxy |= by_proxy
            else:
                memory |= bit | views.conflicts.get(before, 0)
    views.execution.append(execution)
    views.memory.append(memory)
    views.proxy.append(proxy)
    views.taken.append(taken)
    views.published.append(published)
    views.received.append(received)
    views.released.append(released)
    views.seen.append(seen)
    views.seen_by_proxy.append(seen_by_proxy)


def _apply(views: Views, event: Event, inits: int) -> None:
    at = event.index
    bit = 1 << at
    match event.kind:
        case Kind.BEFORE_SYNC:
            views.published[at] |= views.taken[at] | bit
        case Kind.AFTER_SYNC:
            views.taken[at] |= views.received[at]
        case Kind.TMEM:
            views.taken[at] |= bit
        case Kind.ALLOC:
            views.taken[at] |= bit
            views.published[at] |= bit
        case Kind.PHASE:
            views.taken[at] = 0
            views.published[at] |= views.received[at]
        case Kind.COMMIT:
            _commit(views, event)
        case Kind.FENCE if event.fence is not None:
            if event.fence.proxy:
                views.proxy[at] |= views.memory[at] | bit
            if event.fence.inits:
                views.released[at] |= views.memory[at] & inits
                views.proxy[at] |= views.memory[at] & inits
            if event.fence.acquires:
                views.memory[at] |= views.seen[at]
                views.proxy[at] |= views.seen_by_proxy[at]
            if event.fence.releases:
                views.released[at] |= views.memory[at]


def _commit(views: Views, event: Event) -> None:
    """A commit stands for the operations of its thread and what its thread has taken over, not for the thread's
    memory."""
    done = 0
    for end in event.completes:
        if end == event.index or views.execution[event.index] >> end & 1:
            done |= 1 << end | views.conflicts.get(end, 0)
    issued = event.edges[0][1]
    views.memory[event.index] = done
    views.proxy[event.index] = views.taken[event.index] = views.received[event.index] = 0
    views.published[event.index] = views.taken[issued] | done
