# SPDX-License-Identifier: Apache-2.0
"""That two programs which hold the same at a cut hold the same a period later, whatever it is.

At two cuts each byte of both programs has a word; those that have the same one at both are of one class. A byte that is
one number at both is that number. From a cut on where each class is an unknown word of its own both programs are
followed again: if the bytes of each class have one word at the next cut as well, they have it at all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from porter.equal.contents import UNDEFINED
from porter.equal.turning import State
from porter.equal.words import Words, is_number, mixed, word

_CLASS = word("class")


def classes(first: Sequence[State], second: Sequence[State]) -> Words:
    """The classes of what the programs hold at one cut, and a period later: a word for each byte, in a row."""
    one, other = (np.concatenate([state.words for state in states]) for states in (first, second))
    stays = (one == other) & _is_known(one)
    return np.where(stays, one, mixed(_CLASS, one, other))


def hold(known: Words, states: Sequence[State]) -> bool:
    """Whether the bytes of each class have one word in these states."""
    words = np.concatenate([state.words for state in states])
    if len(words) != len(known) or bool((_is_known(known) & (words != known)).any()):
        return False
    order = np.argsort(known, kind="stable")
    same = known[order][1:] == known[order][:-1]
    return not bool((same & (words[order][1:] != words[order][:-1])).any())


def refined(known: Words, states: Sequence[State]) -> Words:
    """Smaller classes, whose bytes have one word in these states as well."""
    words = np.concatenate([state.words for state in states])
    return np.where(_is_known(known) & (words == known), known, mixed(_CLASS, known, words))


def parted(known: Words, states: Sequence[State]) -> list[State]:
    """The classes as what each program holds."""
    ends = np.cumsum([len(state.words) for state in states])[:-1]
    return [State(part, state.shape) for part, state in zip(np.split(known, ends), states, strict=True)]


def _is_known(words: Words) -> Words:
    found: Words = is_number(words) | (words == UNDEFINED)
    return found
