# SPDX-License-Identifier: Apache-2.0
"""Fences of shared memory alone: `fence.release.sync_restrict::shared::cta` and
`fence.acquire.sync_restrict::shared::cluster` (PTX ISA 9.7.13.4).

What threads know is kept for all memory together. So such a fence makes an event of its own, which proves those
accesses over that are in the named state space and that the fence orders: it is added to what proves each of them, and
it, not all that the thread knows, is what the fence tells or learns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.memory_order import Scope
from porter.sim.check.checker import Checker
from porter.sim.check.clocks import ASYNC, EXACT, LOCAL, ORDER
from porter.sim.check.foreign import holds
from porter.sim.check.shadow import Access

Array = npt.NDArray[Any]


class RestrictedFences:
    """Of one wave."""

    def __init__(self, check: Checker) -> None:
        self.check = check

    def fence(self, warp: int, releases: bool) -> None:
        """One of the two, of `.cluster` scope."""
        if releases:
            self._release(warp)
        else:
            self._acquire(warp)

    def _release(self, warp: int) -> None:
        clocks, cta = self.check.clocks, int(self.check.machine.warp_cta[warp])
        events = list(self._prove("released", warp, clocks.state[warp], [cta]))
        message = clocks.blank()
        for view, event in events:
            message[view, event[0]] = event[1]
        _copy_fenced(clocks.state[warp], message)
        clocks.advance(warp)
        clocks.add_fenced(warp, message)
        self.check.global_memory.users.add_fenced(warp, message)

    def _acquire(self, warp: int) -> None:
        M, clocks = self.check.machine, self.check.clocks
        first = int(M.warp_cta[warp]) // M.cluster_size * M.cluster_size
        news = [clocks.held[warp, far] for far in (False, True) if (warp, far) in clocks.held]
        for message in (*news, *self.check.global_memory.users.held(warp, Scope.CLUSTER)):
            for view, event in self._prove("acquired", warp, message, range(first, first + M.cluster_size)):
                clocks.state[warp, view, event[0]] = event[1]
            _copy_fenced(message, clocks.state[warp])

    def _prove(self, what: str, warp: int, known: Array, ctas: Iterable[int]) -> Iterator[tuple[int, tuple[int, int]]]:
        """By view, an event that proves what is `known` [views, components] of some blocks' shared memory."""
        clocks, ctas = self.check.clocks, set(ctas)
        for view in (ORDER, EXACT):
            component = clocks.component((what, int(clocks.own[warp]), view))
            event = component, int(clocks.state[warp, view, component]) + 1
            clocks.state[warp, view, component] = event[1]
            for access in self._accesses(ctas):
                proved = any(c == component for c, _ in access.done)
                if not proved and holds(known, view, access.done):
                    access.done.append(event)
            yield view, event

    def _accesses(self, ctas: set[int]) -> Iterator[Access]:
        """Accesses to shared memory, and those of mbarriers in it."""
        life = self.check.mbarriers
        uses = (use for place, by in life.uses.items() if place[1] in ctas for use in by.values())
        objects = (access for of in (life.inits, life.ended) for place, access in of.items() if place[1] in ctas)
        return chain(*(self.check.shared[cta].accesses for cta in ctas), uses, objects)


def _copy_fenced(known: Array, into: Array) -> None:
    """What proxy fences have covered in shared memory."""
    width = min(known.shape[1], into.shape[1])
    for view in (ASYNC, *range(LOCAL, min(len(known), len(into)))):
        np.maximum(into[view, :width], known[view, :width], out=into[view, :width])
