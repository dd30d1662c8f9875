# SPDX-License-Identifier: Apache-2.0
"""What a trace holds: tracks of slices, and flows between slices.

The axis is order, not time: a tick passes with every step of the simulator's scheduler and with every event
that is recorded, whatever it would cost on hardware. Two slices that overlap were under way together in this
run; how long one is says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["warp", "tensor core", "commit", "TMA", "copy", "store", "mbarrier", "barrier"]
Category = Literal["run", "wait", "event", "operation", "phase", "mark"]

DEFAULT_LIMIT = 200_000
DEFAULT_BLOCKS = 4


@dataclass(frozen=True)
class Group:
    """The tracks of one thread block of one launch. `block` is its index in the grid."""

    number: int
    launch: int
    kernel: str
    block: tuple[int, int, int]

    @property
    def name(self) -> str:
        return f"block {','.join(map(str, self.block))}"


@dataclass(eq=False)
class Track:
    """A row. `index` tells rows of one kind in a group apart: warp, shared memory offset, barrier number; `row`
    counts the rows that overlapping slices of one thing need."""

    group: Group
    kind: Kind
    name: str
    index: int = 0
    row: int = 0


@dataclass(eq=False, slots=True)
class Slice:
    """From tick `start` up to tick `end`; a *mark* has no extent. `end` is -1 while it is open."""

    track: Track
    category: Category
    name: str
    start: int
    end: int
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Flow:
    """An arrow from within one slice (at a tick) to within another."""

    name: str
    source: Slice
    left: int
    target: Slice
    reached: int


@dataclass
class Launched:
    """`traced` of the launch's `blocks` were recorded."""

    kernel: str
    blocks: int
    traced: int = 0


@dataclass
class Recorder:
    """Takes what the launches of a run tell it.

    `kernels` says by their mangled names which kernels are recorded (default: all); `blocks` which of their
    blocks, by their number in launch order (those of a cluster are neighbours); None means the first
    `DEFAULT_BLOCKS`, in whole clusters. No more than `limit` slices and flows are kept; `left_out` counts the
    others.
    """

    limit: int = DEFAULT_LIMIT
    blocks: Callable[[int], bool] | None = None
    kernels: Callable[[str], bool] | None = None
    tick: int = 0
    launches: list[Launched] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    left_out: int = 0

    def wants(self, block: int, cluster: int) -> bool:
        """Whether the block of this number is recorded; `cluster` is the number of blocks in a cluster."""
        if self.kernels is not None and not self.kernels(self.launches[-1].kernel):
            return False
        if self.blocks is not None:
            return self.blocks(block)
        return block < -(-DEFAULT_BLOCKS // cluster) * cluster

    def advance(self) -> int:
        self.tick += 1
        return self.tick

    def add_group(self, block: tuple[int, int, int]) -> Group:
        launched = self.launches[-1]
        launched.traced += 1
        group = Group(len(self.groups), len(self.launches) - 1, launched.kernel, block)
        self.groups.append(group)
        return group

    def add_track(self, group: Group, kind: Kind, name: str, index: int = 0, row: int = 0) -> Track:
        track = Track(group, kind, name, index, row)
        self.tracks.append(track)
        return track

    def open(
        self,
        track: Track,
        category: Category,
        name: str,
        start: int,
        end: int = -1,
        args: Mapping[str, Any] | None = None,
    ) -> Slice | None:
        """A slice, or None if the trace is full."""
        if self._full():
            return None
        made = Slice(track, category, name, start, end, dict(args or {}))
        self.slices.append(made)
        return made

    def connect(self, name: str, source: Slice | None, left: int, target: Slice | None, reached: int) -> None:
        """An arrow, if both ends were kept."""
        if source is not None and target is not None and not self._full():
            self.flows.append(Flow(name, source, left, target, reached))

    def _full(self) -> bool:
        if len(self.slices) + len(self.flows) < self.limit:
            return False
        self.left_out += 1
        return True
