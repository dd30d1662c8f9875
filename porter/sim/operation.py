# SPDX-License-Identifier: Apache-2.0
"""Asynchronous operations as the engine keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from porter.sim.effects import Effect


class Operation:
    """One asynchronous operation.

    `land` performs it. `keys` are what threads may be parked on that it helps to release. `at` is the index
    of its instruction and `warp` who issued it. `read`, if given, reads the sources and is done at the latest
    just before `land`. `prepare`, if given, does ahead what many operations of the kind, given in issue order, can
    share; they then land one after another with nothing between but `silent` ones, which touch no memory. `effect` is
    there if the machine is observed.
    """

    prepare: Callable[[list[Operation]], None] | None = None
    silent: bool = False

    __slots__ = ("after", "at", "done", "effect", "keys", "land", "number", "read", "warp")

    def __init__(
        self,
        at: int,
        warp: int,
        land: Callable[[], None],
        after: Sequence[Operation | None] = (),
        keys: Sequence[Any] = (),
        read: Callable[[], None] | None = None,
        effect: Effect | None = None,
    ) -> None:
        self.done: bool = False
        self.at = at
        self.warp = warp
        self.land = land
        self.after = [op for op in after if op is not None and not op.done]
        self.keys = keys
        self.read = read
        self.effect = effect
        self.number = 0


class Groups:
    """Operations not yet in a group, and the groups, oldest first."""

    def __init__(self) -> None:
        self.open: list[Operation] = []
        self.groups: deque[list[Operation]] = deque()

    def all(self) -> list[Operation]:
        return [op for g in self.groups for op in g] + self.open

    def due(self, left: int, keep: bool = False) -> list[Operation]:
        """The operations of all groups but the last `left`, which are forgotten unless `keep`."""
        count = max(len(self.groups) - left, 0)
        found = [op for group in list(self.groups)[:count] for op in group]
        if not keep:
            for _ in range(count):
                self.groups.popleft()
        return found

    def commit(self) -> None:
        """What is open becomes a group."""
        self.groups.append(self.open)
        self.open = []
