# SPDX-License-Identifier: Apache-2.0
"""Turns that repeat but for their mbarriers: rings of these whose turns are no part of the period of everything else.

With 3 stages, and 8 mbarriers of MMAs, turns repeat after 48, and would have to be looked at three times. After 6 the
stages and their parities do, and each mbarrier has handed on to the one 6 places behind it: one permutation for all
warps and all turns. What orders what is the same then, whatever the mbarriers are called, and so are the cells that
are accessed. So order follows from executions a short period apart; that all of them go on as seen is shown by one
whole period, in which everything that repeats meets everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from porter.facts.events import Signal
from porter.facts.values import Value
from porter.ptx.shared_window import OFFSET_MASK

Entry = tuple[object, ...]


@dataclass
class Renaming:
    """Which mbarrier stands for which one a period later, and whether its parity turns, as pairs of entries show it."""

    _later: dict[int, int] = field(default_factory=dict)
    _earlier: dict[int, int] = field(default_factory=dict)
    _turned: dict[int, int] = field(default_factory=dict)

    def copy(self) -> Renaming:
        return Renaming(dict(self._later), dict(self._earlier), dict(self._turned))

    def takes(self, entry: Entry, later: Entry) -> bool:
        """Whether an entry is another one a period later, in the way that all before were."""
        if len(entry) != len(later):
            return False
        for one, other in zip(entry, later, strict=True):
            if not isinstance(one, Signal) or not isinstance(other, Signal):
                if one != other:
                    return False
            elif not self._takes(one, other):
                return False
        return True

    def _takes(self, one: Signal, other: Signal) -> bool:
        first, second = _lanes(one.where), _lanes(other.where)
        if len(first) != len(second):
            return False
        for place, later in zip(first, second, strict=True):
            if place is None and later is None:
                continue
            if place is None or later is None or (place ^ later) & ~OFFSET_MASK:
                return False
            start, end = place & OFFSET_MASK, later & OFFSET_MASK
            if self._later.setdefault(start, end) != end or self._earlier.setdefault(end, start) != start:
                return False
            if one.parity is not None and other.parity is not None:
                turned = one.parity ^ other.parity
                if self._turned.setdefault(start, turned) != turned:
                    return False
        return True

    def names(self, entry: Entry) -> bool:
        """Whether an entry names an mbarrier for which another one, or another parity, stands a period later."""
        signals = (part for part in entry if isinstance(part, Signal))
        places = (place & OFFSET_MASK for one in signals for place in _lanes(one.where) if place is not None)
        return any(self._later.get(place, place) != place or self._turned.get(place) for place in places)

    def periods(self) -> int | None:
        """After how many periods all mbarriers are themselves again; None where that was not seen."""
        found = 1
        for start in self._later:
            place, length, turned = start, 0, 0
            while not length or place != start:
                if place not in self._later:
                    return None
                turned ^= self._turned.get(place, 0)
                place, length = self._later[place], length + 1
            found = math.lcm(found, length * (1 + turned))
        return found

    def farthest(self, trace: Sequence[Entry]) -> int:
        """The most entries from one that names an mbarrier which is renamed to the next that equals it."""
        last: dict[Entry, int] = {}
        most = 0
        for number, entry in enumerate(trace):
            if self.names(entry):
                most = max(most, number - last.get(entry, number))
                last[entry] = number
        return most


def _lanes(where: Value) -> tuple[int | None, ...]:
    return where if isinstance(where, tuple) else (where,)
