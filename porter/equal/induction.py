# SPDX-License-Identifier: Apache-2.0
"""That two programs which hold the same at a cut hold the same a period later, whatever it is.

At two cuts each byte of both programs has a word; those that have the same one at both are of one class. A byte that is
one number at both is that number. From a cut on where each class is an unknown word of its own both programs are
followed again: if the bytes of each class have one word at the next cut as well, they have it at all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from porter.equal.contents import UNDEFINED
from porter.equal.turning import State
from porter.equal.words import Words, is_number, mixed, word

_CLASS = word("class")


@dataclass(frozen=True)
class Classes:
    """Of what the programs hold at a cut: a word for each byte, in a row, that of its class, or that which it is itself
    where it `stays`."""

    words: Words
    stays: npt.NDArray[np.bool_]

    def hold(self, states: Sequence[State]) -> bool:
        """Whether the bytes of each class have one word in these states."""
        words = _words(states)
        if len(words) != len(self.words) or bool((self.stays & (words != self.words)).any()):
            return False
        order = np.argsort(self.words, kind="stable")
        same = self.words[order][1:] == self.words[order][:-1]
        return not bool((same & (words[order][1:] != words[order][:-1])).any())

    def refined(self, states: Sequence[State]) -> Classes:
        """Smaller classes, whose bytes have one word in these states as well."""
        words = _words(states)
        stays = self.stays & (words == self.words)
        return Classes(np.where(stays, self.words, mixed(_CLASS, self.words, words)), stays)

    def parted(self, states: Sequence[State]) -> list[State]:
        """The classes as what each program holds."""
        ends = np.cumsum([len(state.words) for state in states])[:-1]
        return [State(part, state.shape) for part, state in zip(np.split(self.words, ends), states, strict=True)]


def classes(first: Sequence[State], second: Sequence[State], other: Sequence[State] | None = None) -> Classes:
    """The classes of what the programs hold at one cut, and a period later. `other`: at the first cut of another size,
    where any word that is the same at all three stays, as one of symbols; else numbers alone do."""
    one, two = _words(first), _words(second)
    stays = one == two
    if other is not None and len(three := _words(other)) == len(one):
        stays &= one == three
    else:
        stays &= is_number(one) | (one == UNDEFINED)
    return Classes(np.where(stays, one, mixed(_CLASS, one, two)), stays)


def _words(states: Sequence[State]) -> Words:
    return np.concatenate([state.words for state in states])
