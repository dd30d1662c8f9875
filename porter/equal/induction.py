# SPDX-License-Identifier: Apache-2.0
"""That two programs which hold the same at a cut hold the same a period later, whatever it is.

At some cuts each byte of both programs has a word; those that have the same one at all are of one class. A byte that is
one number at all is that number. From a cut on where each class is an unknown word of its own both programs are
followed again: if the bytes of each class have one word at the next cut as well, they have it at all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from porter.equal.contents import UNDEFINED
from porter.equal.turning import Mask, State
from porter.equal.words import Words, is_number, mixed, word

_CLASS = word("class")


@dataclass(frozen=True)
class Classes:
    """Of what the programs hold at a cut: a word for each byte, in a row, that of its class, or the number that it is
    where it `stays`. Those of sums of symbols, `sums`, are themselves at each cut: they are made by sums and products
    with numbers that are lines alone, and so are what some cuts show."""

    words: Words
    stays: Mask
    sums: Mask

    def hold(self, states: Sequence[State], seen: Sequence[State] | None = None) -> bool:
        """Whether the bytes of each class have one word in these states, and sums that which was `seen`."""
        words, sums = _words(states), _sums(states)
        if len(words) != len(self.words) or bool((self.stays & (words != self.words) | self.sums & ~sums).any()):
            return False
        if seen is not None and bool((self.sums & (words != _words(seen))).any()):
            return False
        one, other = self._pairs
        return not bool((words[one] != words[other]).any())

    @cached_property
    def _pairs(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Bytes of one class: each but the first with the one before it."""
        places = np.flatnonzero(~self.sums)
        order = places[np.argsort(self.words[places], kind="stable")]
        same = self.words[order][1:] == self.words[order][:-1]
        return order[1:][same], order[:-1][same]

    def hold_sums(self, states: Sequence[State]) -> bool:
        """Whether sums of symbols are the same in these states."""
        words, sums = _words(states), _sums(states)
        return bool((self.sums == sums).all()) and not bool((self.sums & (words != self.words)).any())

    def refined(self, states: Sequence[State], seen: Sequence[State]) -> Classes:
        """Smaller classes, whose bytes have one word in these states as well."""
        words = _words(states)
        stays, sums = self.stays & (words == self.words), self.sums & _sums(states) & (words == _words(seen))
        return Classes(np.where(stays | sums, self.words, mixed(_CLASS, self.words, words)), stays, sums)

    def parted(self, states: Sequence[State]) -> list[State]:
        """The classes as what each program holds."""
        ends = np.cumsum([len(state.words) for state in states])[:-1]
        parts = zip(states, np.split(self.words, ends), np.split(self.sums, ends), strict=True)
        return [State(words, state.shape, sums) for state, words, sums in parts]


def classes(first: Sequence[State], *others: Sequence[State]) -> Classes:
    """The classes of what the programs hold at one cut, and some periods later."""
    one, later = _words(first), [_words(states) for states in others]
    sums = np.logical_and.reduce([_sums(states) for states in (first, *others)])
    stays = np.logical_and.reduce([one == words for words in later]) & (is_number(one) | (one == UNDEFINED)) & ~sums
    return Classes(np.where(stays | sums, one, mixed(_CLASS, one, *later)), stays, sums)


def _words(states: Sequence[State]) -> Words:
    return np.concatenate([state.words for state in states])


def _sums(states: Sequence[State]) -> Mask:
    return np.concatenate([state.sums for state in states])
