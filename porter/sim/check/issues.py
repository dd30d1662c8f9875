# SPDX-License-Identifier: Apache-2.0
"""Asynchronous operations as the checker keeps them until they land or are waited for."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy.typing as npt

from porter.sim.check.global_shadow import GlobalAccess
from porter.sim.check.shadow import Access

Array = npt.NDArray[Any]


class Issue:
    """What an asynchronous operation will signal: `accesses` by order of its signals, or all of a commit."""

    __slots__ = ("accesses", "at", "channel", "kind", "message", "signals", "source")

    def __init__(
        self,
        kind: str,
        accesses: list[Access],
        message: Array | None = None,
        channel: tuple[int, int] | None = None,
        at: int = -1,
    ) -> None:
        self.kind = kind
        self.accesses = accesses
        self.message = message
        self.channel = channel
        self.at = at
        self.signals = 0
        # A copy's reading of global memory.
        self.source: GlobalAccess | None = None


class Groups:
    """A thread's operations in groups, oldest first; `open` is not yet a group."""

    def __init__(self) -> None:
        self.open: list[tuple[Access, ...]] = []
        self.groups: deque[list[tuple[Access, ...]]] = deque()

    def commit(self) -> None:
        """What is open becomes a group."""
        self.groups.append(self.open)
        self.open = []


class Channel:
    """tcgen05 operations of one thread since its last commit. `issued` counts all."""

    def __init__(self) -> None:
        self.issued = 0
        self.uncommitted: list[Access] = []
