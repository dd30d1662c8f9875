# SPDX-License-Identifier: Apache-2.0
"""What kernels leave in global memory, and where two of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from porter.equal.contents import Addresses, Stored
from porter.equal.global_uses import PAGE
from porter.equal.words import Words, word
from porter.facts.events import NotUnderstood
from porter.ptx.tensormap import HOW_COPIED

_HOW_COPIED = word("how a tensor map is copied")


class WrittenTwice(NotUnderstood):
    """A place that two clusters write different things to."""


class Difference(NamedTuple):
    """A byte of global memory that two kernels leave otherwise, and the instructions that have written it; None for one
    that has not."""

    address: int
    original: int | None
    port: int | None


@dataclass(frozen=True)
class Outcome:
    """Bytes that are written, by ascending address: what each holds, and which instruction has written it last.
    `reductions`: (address, operation, word, instruction) of each, in order. `twice`: pages in which a byte has been
    stored to with different things."""

    addresses: Addresses
    words: Words
    at: Addresses
    reductions: tuple[tuple[int, str, int, int], ...] = ()
    twice: frozenset[int] = frozenset()


def of_cluster(stored: Sequence[Stored]) -> Outcome:
    """What a cluster leaves; of a byte that is written twice the last word counts."""
    plain = [s for s in stored if not s.how]
    reduced = sorted(
        (address, s.how, word, s.at)
        for s in stored
        if s.how
        for address, word in zip(s.addresses.tolist(), s.words.tolist(), strict=True)
    )
    addresses = np.concatenate([s.addresses for s in plain]) if plain else np.empty(0, np.int64)
    words = np.concatenate([s.words for s in plain]) if plain else np.empty(0, np.uint64)
    at = np.concatenate([np.full(len(s.addresses), s.at, np.int64) for s in plain]) if plain else np.empty(0, np.int64)
    # the last of equal addresses is the first of the reversed ones
    known, last, which = np.unique(addresses[::-1], return_index=True, return_inverse=True)
    newest = words[::-1][last]
    others = addresses[::-1][newest[which] != words[::-1]]
    twice = frozenset(np.unique(others >> PAGE).tolist())
    return Outcome(known, newest, at[::-1][last], tuple(reduced), twice)


def by_description(outcome: Outcome, maps: Sequence[int]) -> Outcome:
    """The same where tensor maps at some addresses count by the tensors that they describe, however they are copied."""
    apart = np.add.outer(np.array(maps, np.int64), np.array(HOW_COPIED, np.int64)).reshape(-1)
    return replace(outcome, words=np.where(np.isin(outcome.addresses, apart), _HOW_COPIED, outcome.words))


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """What clusters leave that run in any order.

    Raises:
        WrittenTwice: two write different things to one place.
    """
    addresses = np.concatenate([o.addresses for o in outcomes])
    words = np.concatenate([o.words for o in outcomes])
    at = np.concatenate([o.at for o in outcomes])
    order = np.argsort(addresses, kind="stable")
    addresses, words, at = addresses[order], words[order], at[order]
    again = addresses[1:] == addresses[:-1]
    if bool((again & (words[1:] != words[:-1])).any()):
        where = int(np.flatnonzero(again & (words[1:] != words[:-1]))[0])
        raise WrittenTwice("two blocks write different things to one place", int(at[where]))
    first = np.concatenate(([True], ~again)) if len(addresses) else np.empty(0, bool)
    reductions = tuple(sorted(r for o in outcomes for r in o.reductions))
    return Outcome(addresses[first], words[first], at[first], reductions)


def difference(original: Outcome, port: Outcome) -> Difference | None:
    """The first byte that is not the same."""
    found: list[Difference] = []
    missing = _first(original, port)
    if missing is not None:
        found.append(Difference(missing[0], missing[1], None))
    added = _first(port, original)
    if added is not None:
        found.append(Difference(added[0], None, added[1]))
    _, one, other = np.intersect1d(original.addresses, port.addresses, assume_unique=True, return_indices=True)
    apart = np.flatnonzero(original.words[one] != port.words[other])
    if len(apart):
        i, j = one[apart[0]], other[apart[0]]
        found.append(Difference(int(original.addresses[i]), int(original.at[i]), int(port.at[j])))
    for one_of, other_of in zip(original.reductions, port.reductions, strict=False):
        if one_of[:3] != other_of[:3]:
            found.append(Difference(min(one_of[0], other_of[0]), one_of[3], other_of[3]))
            break
    if not found and len(original.reductions) != len(port.reductions):
        longer = max(original.reductions, port.reductions, key=len)[min(len(original.reductions), len(port.reductions))]
        of_original = len(original.reductions) > len(port.reductions)
        found.append(Difference(longer[0], longer[3] if of_original else None, None if of_original else longer[3]))
    return min(found, key=lambda d: d.address, default=None)


def _first(one: Outcome, other: Outcome) -> tuple[int, int] | None:
    """The first byte that only one writes, and its instruction."""
    alone = np.flatnonzero(~np.isin(one.addresses, other.addresses, assume_unique=True))
    return (int(one.addresses[alone[0]]), int(one.at[alone[0]])) if len(alone) else None
