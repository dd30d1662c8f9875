# SPDX-License-Identifier: Apache-2.0
"""What every warp knows to have happened: vector clocks with a component for each thing that can complete.

Components, per cluster: each warp (its own count of synchronizing steps, the epoch), each mbarrier (phases
completed) and each thread that issues tcgen05 operations (operations completed). An event that has happened
is a set of (component, value) pairs, any of which proves it.

Each warp holds these views of the past:

=========  ==================================================================================
`ORDER`    what happened before in memory order, by any synchronization that is not relaxed, or that fences make up for
`EXEC`     what happened before in the order of execution: by relaxed synchronization too. This is what the fences
           of tcgen05 build on (PTX ISA 9.7.16.6.3)
`ASYNC`    the part of it that a proxy fence has made visible to the asynchronous proxy in shared memory
`LOCAL`    and on, one for each block of a cluster: the part that is visible in the shared memory of that block alone,
           by a fence of one of its threads that names `.shared::cta`
`GLOBAL`   the same for global memory
`EXACT`    `ORDER`, but of what several lanes of a warp did only as much as was ordered before the lanes that
           then arrived: an arrival of one lane tells of the others up to the warp's last synchronization
`FENCED`   the part that fences of at least .gpu scope have covered, by whichever thread
`PARKED`   tcgen05 operations published by a before_thread_sync fence or a commit and received,
           which an after_thread_sync fence moves to `TENSOR`
`PAST`     `EXEC`, and of who commits tcgen05 operations how far it had come by then
`TENSOR`   what tcgen05 operations issued from now on are ordered after
=========  ==================================================================================

A message is what one synchronization carries from thread to thread: all but `TENSOR`; a
relaxed one carries `EXEC`, `PARKED` and `PAST`, and of the rest what fences have released.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Done = list[tuple[int, int]]

ORDER, ASYNC, GLOBAL, FENCED, EXACT, EXEC, PARKED, PAST, LOCAL = range(9)
TENSOR = -1
CARRIED = -1
"""Where the views end that make up a message."""
_EXECUTED = slice(EXEC, PAST + 1)


class Clocks:
    """`state` [warps, views, components] of one wave of clusters of so many blocks. Warps are numbered over all its
    blocks."""

    def __init__(self, warps: int, warps_per_cluster: int, blocks: int = 1) -> None:
        self.per_cluster = warps_per_cluster
        self.capacity = warps_per_cluster + 64
        # A block that is a cluster by itself needs no view of its own memory.
        self.state: Array = np.zeros((warps, LOCAL + 1 + (blocks if blocks > 1 else 0), self.capacity), np.int64)
        self.own = np.arange(warps) % warps_per_cluster
        self._rank = self.own * blocks // warps_per_cluster
        self._single = blocks == 1
        self.epoch = np.ones(warps, np.int64)
        for view in (ORDER, EXACT, EXEC, PAST):
            self.state[np.arange(warps), view, self.own] = 1
        # The epoch that ended with a warp's last synchronization of its lanes; the components of its lane sets.
        self.synced = np.zeros(warps, np.int64)
        self.lane_sets: dict[int, dict[int, int]] = {}
        self._components: dict[Any, int] = {}
        # Messages of relaxed synchronization: what a fence has released, what was received but not acquired. The key
        # says of which warp, and whether for or from other blocks, which only fences of wider scope than .cta reach.
        self.fenced: dict[tuple[int, bool], Array] = {}
        self.held: dict[tuple[int, bool], Array] = {}
        # By warp what a proxy fence that acquires has covered, for the warp's own operations.
        self._acquired: dict[int, Array] = {}
        self._used = warps_per_cluster
        # That a block of the cluster runs, by its rank: what its own warps know from the first, and others are told.
        self._starts = [self.component(("start", rank)) for rank in range(blocks if blocks > 1 else 0)]
        for rank, start in enumerate(self._starts):
            self.state[self._rank == rank, EXEC, start] = 1
        self._all_met = [not self._starts] * (warps // warps_per_cluster)

    def component(self, key: Any) -> int:
        """The component of an mbarrier or issuing thread; `key` is the same for all clusters."""
        found = self._components.get(key)
        if found is None:
            found = self._components[key] = self._used
            self._used += 1
            if found >= self.capacity:
                grown = np.zeros((*self.state.shape[:2], 2 * self.capacity), np.int64)
                grown[:, :, : self.capacity] = self.state
                self.state, self.capacity = grown, 2 * self.capacity
        return found

    def blank(self) -> Array:
        """A message without news."""
        return np.zeros((self.state.shape[1] + CARRIED, self._used), np.int64)

    def message(self, warp: int) -> Array:
        """All that a warp knows and synchronization carries."""
        return self.state[warp, :CARRIED, : self._used].copy()

    # Blocks that run ----------------------------------------------------------------------------------

    def started(self, warp: int, rank: int) -> bool:
        """Whether a warp knows that the block of this rank in its cluster runs."""
        return bool(self._single or self.state[warp, EXEC, self._starts[rank]])

    def meet(self, warp: int, rank: int) -> None:
        """A warp learns that the block of this rank in its cluster runs."""
        self.state[warp, EXEC, self._starts[rank]] = 1

    def starts(self, warp: int) -> Array:
        """A message that tells which blocks run, as far as the warp knows, and nothing else."""
        message = self.blank()
        message[EXEC, self._starts] = self.state[warp, EXEC, self._starts]
        return message

    def start(self, warp: int) -> Array:
        """A message that tells that the warp's block runs, and nothing else."""
        message = self.blank()
        message[EXEC, self._starts[self._rank[warp]]] = 1
        return message

    def all_met(self, warp: int) -> bool:
        """Whether all warps of the cluster know that all of its blocks run."""
        cluster = warp // self.per_cluster
        if not self._all_met[cluster]:
            first = cluster * self.per_cluster
            known = self.state[first : first + self.per_cluster, EXEC][:, self._starts]
            self._all_met[cluster] = bool(known.all())
        return self._all_met[cluster]

    def now(self, warp: int) -> tuple[int, int]:
        """The event "this warp has come to this point"."""
        return int(self.own[warp]), int(self.epoch[warp])

    def advance(self, warp: int) -> None:
        """Begin a new epoch: what the warp does from now on is not part of what it published."""
        self.epoch[warp] += 1
        row, own, now = self.state[warp], self.own[warp], self.epoch[warp]
        row[ORDER, own] = row[EXACT, own] = row[EXEC, own] = row[PAST, own] = now

    def lanes_synced(self, warp: int) -> None:
        """The warp's lanes are ordered among themselves."""
        self.synced[warp] = self.epoch[warp]
        self.advance(warp)

    def by_lanes(self, warp: int, lanes: int) -> tuple[int, int]:
        """The event "these lanes (a bit each) of the warp have come to this point"."""
        sets = self.lane_sets.setdefault(warp, {})
        found = sets.get(lanes)
        if found is None:
            found = sets[lanes] = self.component(("lanes", int(self.own[warp]), lanes))
        return found, int(self.epoch[warp])

    def release(self, warp: int, lanes: int | None = None) -> Array:
        """The message that a warp's synchronization sends; `lanes` if not all of its lanes take part."""
        if lanes is not None:
            # Making a component may widen the state, so all of them come first.
            told = [c for held, c in self.lane_sets.get(warp, {}).items() if held & ~lanes == 0]
            message = self.message(warp)
            message[EXACT, self.own[warp]] = self.synced[warp]
            message[EXACT, told] = self.epoch[warp]
            self.advance(warp)
            return message
        message = self.message(warp)
        self.advance(warp)
        return message

    def receive(self, warp: int, message: Array) -> None:
        own = self.state[warp, :CARRIED, : message.shape[1]]
        np.maximum(own, message, out=own)

    def merge(self, into: Array | None, message: Array) -> Array:
        """Both messages in one."""
        if into is None:
            return message
        if into.shape[1] < message.shape[1]:
            into, message = message.copy(), into
        part = into[:, : message.shape[1]]
        np.maximum(part, message, out=part)
        return into

    # Relaxed synchronization --------------------------------------------------------------------------

    def fence(self, warp: int, wide: bool, acquires: bool = True, releases: bool = True) -> None:
        """A memory fence: releases for later relaxed operations, acquires what earlier ones received. `wide`: its scope
        takes in other blocks of the cluster."""
        for far in (False, True)[: 1 + wide]:
            if acquires and (warp, far) in self.held:
                self.receive(warp, self.held.pop((warp, far)))
        message = self.release(warp)
        for far in (False, True)[: 1 + wide]:
            if releases:
                self.fenced[warp, far] = message

    def mark_fenced(self, warp: int) -> None:
        """A fence of at least .gpu scope has been executed."""
        view = self.state[warp]
        np.maximum(view[FENCED], view[ORDER], out=view[FENCED])

    def fenced_message(self, warp: int) -> Array:
        """What fences have covered, by the warp's own threads or by others before a synchronization with it."""
        message = self.blank()
        covered = message[FENCED] = self.state[warp, FENCED, : self._used]
        message[ORDER] = covered
        np.minimum(self.state[warp, GLOBAL, : self._used], covered, out=message[GLOBAL])
        return message

    def fence_inits(self, warp: int) -> tuple[tuple[int, int], Array]:
        """fence.mbarrier_init: an event that also relaxed synchronization carries, and the message of it."""
        component = self.component(("init", int(self.own[warp])))
        value = int(self.state[warp, ORDER, component]) + 1
        self.state[warp, (ORDER, EXEC), component] = value
        message = self.blank()
        message[(ORDER, EXEC), component] = value
        self.add_fenced(warp, message)
        return (component, value), message

    def add_fenced(self, warp: int, message: Array) -> None:
        """A fence of some accesses has released them, beside what earlier fences have."""
        for far in (False, True):
            found = self.fenced.get((warp, far))
            self.fenced[warp, far] = message if found is None else self.merge(found.copy(), message)

    def execution(self, warp: int) -> Array:
        """What any synchronization tells of the order of execution: that the warp has come so far."""
        message = self.blank()
        message[_EXECUTED] = self.state[warp, _EXECUTED, : self._used]
        self.advance(warp)
        return message

    def release_relaxed(self, warp: int, far: bool) -> Array:
        """What a relaxed barrier or arrival tells (ruling `relaxed-order`), perhaps to `far` blocks."""
        message, found = self.execution(warp), self.fenced.get((warp, far))
        return message if found is None else self.merge(message, found)

    def past(self, warp: int) -> Array:
        """How far the warp knows all warps to have come, itself among them."""
        return self.state[warp, PAST, : self._used].copy()

    def issued(self, past: Array) -> Array:
        """A message of an operation that was issued with this past, and of nothing else."""
        message = self.blank()
        message[PAST, : past.size] = past
        return message

    def parks(self, warp: int) -> bool:
        """Whether the warp has tcgen05 operations to publish."""
        return bool(self.state[warp, PARKED].any())

    def receive_relaxed(self, warp: int, message: Array, far: bool) -> None:
        """A relaxed wait: the order of execution at once, the rest if a fence follows; `far` from other blocks too."""
        executed = self.state[warp, _EXECUTED, : message.shape[1]]
        np.maximum(executed, message[_EXECUTED], out=executed)
        self.held[warp, far] = self.merge(self.held.get((warp, far)), message.copy())

    # Fences -------------------------------------------------------------------------------------------

    def proxy_fence(
        self, warp: int, shared: bool = True, global_: bool = True, own: bool = False, local: bool = False
    ) -> None:
        """fence.proxy.async for the named state spaces; `own`: for what the warp itself issues, and no other; `local`:
        of shared memory that of the warp's block alone."""
        view = self.state[warp]
        if own:
            self._acquired[warp] = view[ORDER].copy()
            return
        of_shared = LOCAL + int(self._rank[warp]) if local and not self._single else ASYNC
        for wanted, into in ((shared, of_shared), (global_, GLOBAL)):
            if wanted:
                np.maximum(view[into], view[ORDER], out=view[into])
        self.advance(warp)

    def before_thread_sync(self, warp: int) -> None:
        view = self.state[warp]
        np.maximum(view[PARKED], view[TENSOR], out=view[PARKED])
        view[PARKED, self.own[warp]] = self.epoch[warp]
        self.advance(warp)

    def publish_alloc(self, warp: int) -> tuple[int, int]:
        """tcgen05.alloc: the event of an operation that is over when the warp goes on, so that no
        before_thread_sync fence need publish it."""
        component = self.component(("alloc", int(self.own[warp])))
        value = int(self.state[warp, ORDER, component]) + 1
        self.state[warp, (ORDER, EXEC, PARKED), component] = value
        return component, value

    def after_thread_sync(self, warp: int) -> bool:
        """Whether there was anything to order."""
        view = self.state[warp]
        news = bool((view[PARKED] > view[TENSOR]).any())
        if news:
            np.maximum(view[TENSOR], view[PARKED], out=view[TENSOR])
        return news

    # Questions ----------------------------------------------------------------------------------------

    def knows(self, warp: int, view: int, done: Iterable[tuple[int, int]]) -> bool:
        """Whether, in a view, one of the events is in the warp's past."""
        row = self.state[warp, view]
        return any(row[c] >= v for c, v in done)

    def fenced_for(self, warp: int, done: Iterable[tuple[int, int]], block: int) -> bool:
        """Whether one of the events, which concerns the shared memory of the `block` with this rank, is ordered before
        what a warp issues through the asynchronous proxy."""
        row = self._acquired.get(warp)
        if row is not None and any(c < row.size and row[c] >= v for c, v in done):
            return True
        return self.knows(warp, ASYNC, done) or (not self._single and self.knows(warp, LOCAL + block, done))

    def fenced_in_a_block(self, warp: int, done: Iterable[tuple[int, int]]) -> bool:
        """Whether fences of `.shared::cta` have covered one of the events, in whichever block."""
        views = self.state[warp, LOCAL:TENSOR]
        return any(bool((views[:, c] >= v).any()) for c, v in done)

    def known_by_block(self, first: int, count: int, done: Done, view: int = ORDER) -> bool:
        """Whether any of a block's warps has the event in its past."""
        rows = self.state[first : first + count, view]
        return any(bool((rows[:, c] >= v).any()) for c, v in done)
