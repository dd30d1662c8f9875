# SPDX-License-Identifier: Apache-2.0
"""Which output tile the MMAs of a loop make: the one whose operands are the bytes that a stage loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from porter.grade.shape import Mma
from porter.ptx import tmem
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.umma import K_BYTES

USUAL_ROW = SwizzleMode.B128.span
"""Bytes of a row of a box with the widest swizzle."""


@dataclass(frozen=True)
class Tiling:
    """`mmas` are those of one stage by all `issuers`; `m` x `n` is None if the stage is no plain product. `columns` of
    Tensor Memory hold one tile."""

    mmas: tuple[tuple[Mma, int], ...]
    m: int | None
    n: int | None
    load_bytes: int | None
    issuers: int
    columns: int | None = None
    row_bytes: int | None = None
    """Bytes of K of a stage."""

    @staticmethod
    def of_all(mmas: Counter[Mma], load_bytes: int | None, issuers: int) -> Tiling:
        """All MMAs as they are."""
        counted = tuple((mma, count * issuers) for mma, count in mmas.items())
        return Tiling(counted, None, None, load_bytes, issuers)


def solve(
    mmas: Counter[Mma],
    nbytes: int | None,
    issuers: Sequence[int],
    phases: Sequence[int] = (),
    row_bytes: int = USUAL_ROW,
) -> Tiling | None:
    """The tile whose stage has `nbytes`; `issuers` are how many may issue the same MMAs for tiles of their own.

    A loop may hold several stages; `phases` are numbers of them that its text suggests, the best first. Of a tile and
    the same one turned, which are alike in all that counts, the higher is taken. A stage is rather as deep as the rows
    of boxes are wide. None if MMAs differ in more than N, nothing fits, or different tiles do.
    """
    if nbytes is None:
        return None
    if len(mmas) != 1:
        return _side_by_side(mmas, nbytes, issuers, row_bytes)
    (mma, count), *_ = mmas.items()
    found = {
        stages: tilings
        for stages in range(1, count + 1)
        if count % stages == 0 and (tilings := list(dict.fromkeys(_tiles(mma, count // stages, nbytes, issuers))))
    }
    suggested = next((found[p] for p in phases if p in found), None)
    chosen = suggested or [tiling for tilings in found.values() for tiling in tilings]
    chosen = [t for t in chosen if t.row_bytes == row_bytes] or chosen
    if len({t.m * t.n for t in chosen if t.m and t.n}) != 1:
        return None
    return max(chosen, key=lambda t: (t.m or 0, t.issuers if mma.wgmma else -t.issuers))


def _side_by_side(mmas: Counter[Mma], nbytes: int, issuers: Sequence[int], row_bytes: int) -> Tiling | None:
    """A tile whose columns MMAs of different N share, each as often as the others."""
    first, count = next(iter(mmas.items()))
    if any(replace(mma, n=first.n) != first for mma in mmas) or set(mmas.values()) != {count} or first.cta_group != 1:
        return None
    n = sum(mma.n for mma in mmas)
    found = []
    for several in issuers:
        for rows in _divisors(count):
            steps, m = count // rows, first.m * rows * several
            a_rows = 0 if first.a != "shared" else m
            wide = None if first.wgmma else _columns(first, rows, 1, several) // first.n * n
            if nbytes == K_BYTES * steps * (a_rows + n) and K_BYTES * steps == row_bytes:
                counted = tuple((mma, times * several) for mma, times in mmas.items())
                found.append(Tiling(counted, m, n, nbytes, several, wide, row_bytes))
    return found[0] if len(found) == 1 else None


def _tiles(mma: Mma, count: int, nbytes: int, issuers: Sequence[int]) -> Iterator[Tiling]:
    group = mma.cta_group
    for several in issuers:
        for rows in _divisors(count):
            for columns in _divisors(count // rows):
                steps = count // rows // columns
                m, n = mma.m * rows * several, mma.n * columns
                if _columns(mma, rows, columns, several) > tmem.COLUMNS:
                    continue
                whole = K_BYTES * steps * (m + n)
                a_in_registers = K_BYTES * steps * n
                # An mbarrier of a pair expects what both blocks load.
                if nbytes not in (whole, whole // group) and (mma.a == "shared" or nbytes != a_in_registers):
                    continue
                mine = whole // group if nbytes != a_in_registers else nbytes
                wide = None if mma.wgmma else _columns(mma, rows, columns, several)
                yield Tiling(((mma, count * several),), m, n, mine, several, wide, K_BYTES * steps)


def _columns(mma: Mma, rows: int, columns: int, several: int) -> int:
    """Of Tensor Memory, for the accumulators of a block; tiles of 64 rows share them by two. Of wgmma, 32-bit registers
    of an accumulator's threads, of which there are not more."""
    if mma.wgmma:
        return rows * columns * mma.n
    tiles = rows * several
    if mma.m // mma.cta_group == 64:
        tiles = -(-tiles // 2)
    return tiles * columns * mma.n


def _divisors(number: int) -> Iterator[int]:
    return (d for d in range(1, number + 1) if number % d == 0)
