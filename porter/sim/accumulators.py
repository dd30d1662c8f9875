# SPDX-License-Identifier: Apache-2.0
"""Accumulators of wgmma: kept as tiles while only tensor cores use them, in registers when others look.

A set of tiles belongs to one tuple of D registers. The tile of a warpgroup is in one of three states:
*registers* (the register bank holds it), *in flight* (wgmmas that have not landed write it; the bank holds
poison) or *resident* (all have landed; the tile holds it and the bank is out of date). Generated code calls
`settle` before it touches such registers, which brings resident tiles into the bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.nan import CANONICAL
from porter.ptx.operand_errors import OperandError
from porter.ptx.types import ElementType
from porter.sim.datapath.mma_arith import canonical
from porter.sim.datapath.wgmma import WgmmaForm, multiply, put_registers, take_registers
from porter.sim.effects import Effect
from porter.sim.operation import Groups, Operation
from porter.sim.wave import Wave

Array = npt.NDArray[Any]
POISON = np.uint32(CANONICAL["f32"])

# Tiles that are worked on together: few enough to stay in a core's second-level cache.
_TILE_BYTES = 1 << 19


def span(places: Sequence[int]) -> Any:
    """Indices as a slice if they are evenly spaced, else as they are."""
    if len(places) == 1:
        return slice(places[0], places[0] + 1)
    step = places[1] - places[0]
    if step > 0 and all(b - a == step for a, b in pairwise(places)):
        return slice(places[0], places[-1] + 1, step)
    return list(places)


class TileSet:
    """The accumulators [64, n] that lie in the register rows `rows`, one per warpgroup that uses them."""

    def __init__(self, rows: tuple[int, ...], n: int, d_type: ElementType, warps: int) -> None:
        self.rows = rows
        self.own = frozenset(rows)
        self.index = span(rows)
        if isinstance(self.index, list):
            self.index = np.array(rows)[:, None]
        self.n = n
        self.d_type = d_type
        self.words = np.empty((-(-warps // 4), 64, n), np.uint32)
        self.first: list[int] = []
        self.place = np.full(warps, -1, np.int64)
        self.resident = np.zeros(self.words.shape[0], bool)
        # The other sets that share registers with this one.
        self.rivals: list[TileSet] = []

    def place_of(self, first: int) -> int:
        """Where the tile of the warpgroup that begins with warp `first` is."""
        found = int(self.place[first])
        if found < 0:
            found = self.place[first] = len(self.first)
            self.first.append(first)
        return found


class GroupState:
    """A warpgroup's wgmmas in flight, oldest first."""

    def __init__(self) -> None:
        self.last: Fragment | None = None
        self.flight: list[Fragment] = []


class Accumulators:
    """All tiles of a machine, and the wgmmas in flight. `held` counts resident tiles."""

    def __init__(self, machine: Wave) -> None:
        self.machine = machine
        self.sets: dict[tuple[Any, ...], TileSet] = {}
        self.held = 0
        # By the first warp of a warpgroup, and by warp.
        self.groups: dict[int, GroupState] = {}
        self.warps: dict[int, Groups] = {}

    def group(self, first: int) -> GroupState:
        found = self.groups.get(first)
        if found is None:
            found = self.groups[first] = GroupState()
        return found

    def warp(self, warp: int) -> Groups:
        """A warp's wgmmas not yet in a group, and its groups."""
        found = self.warps.get(warp)
        if found is None:
            found = self.warps[warp] = Groups()
        return found

    def tiles(self, rows: tuple[int, ...], n: int, d_type: ElementType) -> TileSet:
        key = rows, n, d_type
        found = self.sets.get(key)
        if found is None:
            found = TileSet(rows, n, d_type, self.machine.W)
            for other in self.sets.values():
                if not other.own.isdisjoint(found.own):
                    other.rivals.append(found)
                    found.rivals.append(other)
            self.sets[key] = found
        return found

    def begin(self, tiles: TileSet, firsts: list[int], needed: list[bool]) -> None:
        """Tiles of warpgroups go in flight: take from the registers those that are not resident.

        `needed` says whose old value the wgmma adds to.
        """
        for rival in tiles.rivals:
            self._settle(rival, [p for p in rival.place[firsts].tolist() if p >= 0])
        places = [tiles.place_of(f) for f in firsts]
        resident = tiles.resident[places]
        self.held -= int(resident.sum())
        tiles.resident[places] = False
        fresh = np.flatnonzero(~resident).tolist()
        wanted = [i for i in fresh if needed[i]]
        bank = self.machine.banks[32]
        if wanted:
            warps = self._warps([firsts[i] for i in wanted])
            here = span([places[i] for i in wanted])
            registers = bank[tiles.index, warps]
            tiles.words[here] = take_registers(registers, tiles.n, tiles.d_type)
        if fresh and self.machine.late:
            bank[tiles.index, self._warps([firsts[i] for i in fresh])] = POISON

    def land(self, tiles: TileSet, place: int) -> None:
        """No wgmma on a tile is in flight any more."""
        self.held += 1
        tiles.resident[place] = True

    def settle(self, idx: Any) -> None:
        """Bring the resident tiles of the selected warps' warpgroups into the registers."""
        M = self.machine
        warps = M.warps(idx)
        firsts = np.unique(warps - M.warp_rank[warps] % 4)
        for tiles in self.sets.values():
            self._settle(tiles, [p for p in tiles.place[firsts].tolist() if p >= 0])

    def _settle(self, tiles: TileSet, places: list[int]) -> None:
        places = [p for p in places if tiles.resident[p]]
        if not places:
            return
        self.held -= len(places)
        tiles.resident[places] = False
        words = canonical(tiles.words[span(places)], tiles.d_type)
        warps = self._warps([tiles.first[p] for p in places])
        self.machine.banks[32][tiles.index, warps] = put_registers(words, tiles.d_type)

    @staticmethod
    def _warps(firsts: list[int]) -> Array:
        return (np.array(firsts)[:, None] + np.arange(4)).reshape(-1)


def _prepare(ops: list[Operation]) -> None:
    compute([op for op in ops if isinstance(op, Fragment) and not op.ready])


class Fragment(Operation):
    """A wgmma of one warpgroup. `previous` is the one in flight whose result it adds to."""

    prepare = staticmethod(_prepare)

    __slots__ = ("a", "accumulators", "b", "copies", "cta", "error", "following", "form", "metadata", "place",
                 "previous", "ready", "saved", "scale", "tiles")  # fmt: skip

    def __init__(
        self,
        accumulators: Accumulators,
        at: int,
        warp: int,
        cta: int,
        form: WgmmaForm,
        tiles: TileSet,
        a: int | Array,
        b: int,
        scale: bool,
        previous: Fragment | None,
        after: Operation | None,
        effect: Effect | None,
    ) -> None:
        self.accumulators = accumulators
        self.at = at
        self.warp = warp
        self.cta = cta
        self.form = form
        self.tiles = tiles
        self.place = tiles.place_of(warp)
        self.a, self.b, self.scale = a, b, scale
        # Of a sparse A, of the 128 threads.
        self.metadata: Array | None = None
        self.previous = previous
        self.following: Fragment | None = None
        self.copies: list[tuple[int, int, int, Array]] = []
        self.saved: Array | None = None
        self.error: OperandError | None = None
        self.ready = self.done = False
        self.after = [] if after is None or after.done else [after]
        self.keys = ()
        self.read = None
        self.effect = effect
        self.number = 0
        if previous is not None:
            previous.following = self

    def land(self) -> None:
        if not self.ready:
            compute([self])
        if self.error is not None:
            raise self.error
        if self.following is None:
            self.accumulators.land(self.tiles, self.place)
        if self.copies:
            assert self.saved is not None
            registers = put_registers(self.saved[None], self.tiles.d_type)
            bank = self.accumulators.machine.banks[32]
            for to, source, warp, lanes in self.copies:
                bank[to, warp] = np.where(lanes, registers[source, warp - self.warp], bank[to, warp])
        self.previous = self.saved = None


def compute(fragments: list[Fragment]) -> None:
    """Update the tiles of wgmmas, given in issue order; those of a tile must be next to land on it."""
    by_cta: dict[int, list[Fragment]] = {}
    for f in fragments:
        by_cta.setdefault(f.cta, []).append(f)
    batch: list[Fragment] = []
    width = 0
    with np.errstate(all="ignore"):
        for mine in by_cta.values():
            need = max(f.tiles.n for f in mine) * 64 * 8
            if batch and width + need > _TILE_BYTES:
                _compute(batch)
                batch, width = [], 0
            batch += mine
            width += need
        _compute(batch)


def _compute(fragments: list[Fragment]) -> None:
    """Those alike in everything but block and warpgroup are multiplied together."""
    level: dict[Fragment, int] = {}
    alike: dict[tuple[Any, ...], list[Fragment]] = {}
    for f in fragments:
        before = level.get(f.previous, -1) if f.previous is not None else -1
        level[f] = before + 1
        key = before + 1, f.at, f.a if isinstance(f.a, int) else None, f.b, f.scale
        alike.setdefault(key, []).append(f)
    seen: dict[Any, Any] = {}
    for key in sorted(alike, key=lambda k: k[0]):
        group = alike[key]
        one = group[0]
        ctas = [f.cta for f in group]
        here = span([f.place for f in group])
        words = one.tiles.words[here]
        a: int | Array = one.a if isinstance(one.a, int) else np.stack([np.asarray(f.a) for f in group])
        metadata = None if one.metadata is None else np.stack([np.asarray(f.metadata) for f in group])
        try:
            multiply(one.form, one.accumulators.machine.smem, ctas, a, one.b, words, one.scale, seen, metadata)
        except OperandError as problem:
            for f in group:
                f.error = problem
        if isinstance(here, list):
            one.tiles.words[here] = words
        for i, f in enumerate(group):
            f.ready = True
            if f.copies:
                f.saved = canonical(words[i].copy(), one.tiles.d_type)
