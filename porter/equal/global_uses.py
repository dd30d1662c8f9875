# SPDX-License-Identifier: Apache-2.0
"""Accesses of a cluster to global memory whose order counts: one execution tells only where they have one.

Most kernels load from places that nobody stores to, and store to each place once. Of an execution only the pages are
kept. Where those meet, the cluster is executed once more, with an event for each access to them: accesses of different
threads, one of which stores, have to be ordered by the synchronization of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from porter.equal.words import Words
from porter.facts.events import NotUnderstood
from porter.facts.machine import Machine
from porter.facts.state import Warp
from porter.ptx.arch import WARP
from porter.sync.views import Views, views_of

Addresses = npt.NDArray[np.int64]
How = Literal["load", "store", "reduction"]
PAGE = 12
"""Bits of an address below those that tell pages apart."""
_BLOCK = 1 << 16
"""More than the threads of a block."""


class UnorderedError(NotUnderstood):
    """What a kernel leaves is not the same in all schedules."""


class User(NamedTuple):
    """Lanes of a warp, one for each row of addresses, or, without them, an asynchronous operation. `cached`: its loads
    may find what was there at the launch."""

    warp: Warp
    lanes: npt.NDArray[np.intp] | None
    at: int
    cached: bool = False


class _Use(NamedTuple):
    """Accesses to bytes `addresses` [rows, bytes], by row the thread and the event behind them."""

    addresses: Addresses
    words: Words | None
    how: How
    user: User
    threads: npt.NDArray[np.int64]
    events: npt.NDArray[np.int64]


def different(numbers: Addresses) -> set[int]:
    """The numbers, each once: most of them follow one that is the same."""
    flat = numbers.reshape(-1)
    return {*flat[:1].tolist(), *flat[1:][flat[1:] != flat[:-1]].tolist()}


def _each_once(numbers: Addresses) -> Addresses:
    """The numbers in order, each once. `numpy.unique` hashes them, which takes ten times as long for addresses that
    follow one another."""
    found = np.sort(numbers)
    return found[np.concatenate(([True], found[1:] != found[:-1]))[: len(found)]]


@dataclass
class GlobalUses:
    """`pages` of global memory by what was done to them. Accesses to those that are `watched` are kept."""

    machine: Machine
    watched: frozenset[int] = frozenset()
    pages: dict[How, set[int]] = field(default_factory=lambda: {"load": set(), "store": set(), "reduction": set()})
    uses: list[_Use] = field(default_factory=list)

    def note(self, how: How, addresses: Addresses, user: User, words: Words | None = None) -> None:
        touched = different(addresses >> PAGE)
        self.pages[how].update(touched)
        if self.watched.isdisjoint(touched):
            return
        places = addresses.reshape(len(user.lanes) if user.lanes is not None else 1, -1)
        if user.lanes is None:
            threads, events = np.array([-1 - len(self.uses)]), np.array([-1])
        else:
            lanes = sum({1 << int(lane) for lane in user.lanes})
            by_lane = np.zeros(WARP, np.int64)
            for event, some in self.machine.single(user.warp, lanes, f"{how} in global memory", user.at):
                by_lane[[lane for lane in range(WARP) if some >> lane & 1]] = event.index
            threads = user.warp.block.rank * _BLOCK + user.warp.number * WARP + user.lanes
            events = by_lane[user.lanes]
        self.uses.append(_Use(places, words, how, user, threads.astype(np.int64), events))

    def bytes_of(self, *hows: How) -> Addresses:
        """Of the watched ones."""
        found = [use.addresses.reshape(-1) for use in self.uses if use.how in hows]
        return _each_once(np.concatenate(found)) if found else np.empty(0, np.int64)

    def require_order(self) -> None:
        """Raises UnorderedError: accesses have none."""
        if not self.uses:
            return
        flat = _Flat.of(self.uses)
        order = np.argsort(flat.places, kind="stable")
        starts = np.flatnonzero(np.concatenate(([True], np.diff(flat.places[order]) != 0)))
        stores, threads = flat.stores[order], flat.threads[order]
        is_stored = np.logical_or.reduceat(stores, starts)
        if (is_stored & np.logical_or.reduceat(flat.cached[order], starts)).any():
            at = next(use.user.at for use in self.uses if use.user.cached)
            raise UnorderedError("a load that may not find what the kernel itself stores", at)
        several = np.minimum.reduceat(threads, starts) != np.maximum.reduceat(threads, starts)
        ends, seen = [*starts[1:].tolist(), len(order)], set[object]()
        views: Views | None = None
        for group in np.flatnonzero(is_stored & several).tolist():
            entries = order[starts[group] : ends[group]]
            rows, words = flat.rows[entries], flat.words[entries]
            # the bytes of a word have been accessed alike
            alike = rows.tobytes(), (words[:, None] == words[None, :]).tobytes()
            if alike in seen:
                continue
            seen.add(alike)
            views = views or views_of(self.machine.history, lambda event, found: None)
            _require_order(flat, entries.tolist(), views)


@dataclass(frozen=True)
class _Flat:
    """Accesses byte by byte, in the order in which they were executed. `rows` tells those of one thread by one
    instruction apart from others; `words`: what is stored; nothing but a word of its own where that does not count."""

    places: Addresses
    rows: Addresses
    threads: Addresses
    events: Addresses
    at: Addresses
    words: Words
    loads: npt.NDArray[np.bool_]
    stores: npt.NDArray[np.bool_]
    reductions: npt.NDArray[np.bool_]
    cached: npt.NDArray[np.bool_]

    @staticmethod
    def of(uses: list[_Use]) -> _Flat:
        sizes = [use.addresses.size for use in uses]

        def each(values: Iterable[object]) -> npt.NDArray[Any]:
            return np.repeat(np.array(list(values)), sizes)

        def by_row(values: Iterable[Addresses]) -> Addresses:
            each_row = zip(values, uses, strict=True)
            return np.concatenate([np.repeat(row, use.addresses.shape[1]) for row, use in each_row])

        firsts = np.cumsum([0, *(len(use.threads) for use in uses)])
        words = [use.words.reshape(-1) if use.words is not None else np.zeros(use.addresses.size, np.uint64)
                 for use in uses]  # fmt: skip
        return _Flat(
            np.concatenate([use.addresses.reshape(-1) for use in uses]),
            by_row(np.arange(len(use.threads)) + first for use, first in zip(uses, firsts, strict=False)),
            by_row(use.threads for use in uses),
            by_row(use.events for use in uses),
            each(use.user.at for use in uses),
            np.concatenate(words),
            each(use.how == "load" for use in uses),
            each(use.how != "load" for use in uses),
            each(use.how == "reduction" for use in uses),
            each(use.user.cached for use in uses),
        )


def require_apart(uses: Sequence[GlobalUses], stored: Sequence[Addresses], some_alone: bool) -> None:
    """Clusters run in any order: one must not load what another one changes, nor add to what it stores. `stored`: bytes
    that each stores to. Where there are others, which are not looked at, it loads nothing of what is watched but its
    own.

    Raises:
        UnorderedError: it does.
    """
    changed = [
        _each_once(np.concatenate((own, use.bytes_of("reduction")))) for own, use in zip(stored, uses, strict=True)
    ]

    def of_others(which: Sequence[Addresses], index: int) -> Addresses:
        return np.concatenate([which[index][:0], *(found for i, found in enumerate(which) if i != index)])

    for index, use in enumerate(uses):
        loaded, own, added = use.bytes_of("load"), changed[index], use.bytes_of("reduction")
        if not len(loaded) and not len(added):
            continue
        if np.isin(added, of_others(stored, index)).any():
            at = next(u.user.at for u in use.uses if u.how == "reduction")
            raise UnorderedError("a block adds to what another one stores", at)
        others = of_others(changed, index)
        crossing = ~np.isin(loaded, own) if some_alone else np.isin(loaded, others)
        if crossing.any():
            where = loaded[np.flatnonzero(crossing)[0]]
            at = next(u.user.at for u in use.uses if u.how == "load" and where in u.addresses)
            raise UnorderedError("a block loads what another one may store to", at)


def to_watch(uses: Sequence[GlobalUses], allocated: Sequence[tuple[int, int]], some_alone: bool) -> frozenset[int]:
    """Pages that some cluster changes; where there are others, those of all allocations that they are of."""
    changed = frozenset[int]().union(*(use.pages["store"] | use.pages["reduction"] for use in uses))
    if not some_alone:
        return changed
    ends = [(start >> PAGE, end - 1 >> PAGE) for start, end in allocated]
    of_changed = [(first, last) for first, last in ends if any(first <= page <= last for page in changed)]
    loaded = frozenset[int]().union(*(use.pages["load"] for use in uses))
    return changed | {page for page in loaded if any(first <= page <= last for first, last in of_changed)}


def _require_order(flat: _Flat, entries: list[int], views: Views) -> None:
    """Raises UnorderedError: of accesses to one byte two of different threads have no order, and it counts."""
    for index, second in enumerate(entries):
        for first in entries[:index]:
            if flat.threads[first] == flat.threads[second] or not (flat.stores[first] or flat.stores[second]):
                continue
            if flat.reductions[first] and flat.reductions[second]:
                continue
            stored = not (flat.loads[first] or flat.loads[second] or flat.reductions[first] or flat.reductions[second])
            if stored and flat.words[first] == flat.words[second]:
                continue
            before, after = int(flat.events[first]), int(flat.events[second])
            if before < 0 or after < 0 or not views.memory[after] >> before & 1:
                what = "store different things to" if stored else "load and store"
                why = f"threads {what} one place of global memory in no order"
                raise UnorderedError(why, int(flat.at[second]))
