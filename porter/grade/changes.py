# SPDX-License-Identifier: Apache-2.0
"""Other shapes of a kernel: what --what-if asks for, and what may lift a grade.

A change says what it makes of the kernel; whether the result fits a chip is asked at the end of all (`fitting`), so
that changes may be made one after the other in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from porter.grade.chips import Chip, values
from porter.grade.clocks import resident
from porter.grade.shape import Mma, Shape
from porter.ptx import tmem, wgmma
from porter.ptx.arch import WARP, limits
from porter.ptx.register_file import GRANULARITY, LEAST
from porter.ptx.umma import N_STEPS, legal_m, legal_n

_ROWS_OF_WARP = 16
"""Rows of a tile of MMAs whose parts a warp has."""
_OF_SUMS = 0.25
"""The share of what threads compute between two products that comes behind the wait for sums."""
_WARPS = 8
"""Warps that store a tile, where nobody knows how many threads there are."""


class Impossible(ValueError):
    """A change that the chip, or this kernel, does not allow; says why."""


def fitting(shape: Shape) -> Shape:
    """The shape. Raises Impossible if shared memory or Tensor Memory does not hold it."""
    most = limits(shape.arch).shared_per_block
    smem = shape.residency.smem
    if (smem or (shape.stages or 1) * (shape.load_bytes or 0)) > most:
        raise Impossible(f"{shape.stages} stages of {shape.load_bytes} bytes do not fit {most} bytes of shared memory")
    columns = shape.residency.tmem_columns
    if columns > tmem.COLUMNS:
        raise Impossible(f"{columns} columns of accumulators do not fit the {tmem.COLUMNS} of Tensor Memory")
    return shape


def stages(shape: Shape, count: int) -> Shape:
    """Another number of stages. Raises Impossible for none."""
    if count < 1:
        raise Impossible("a ring has at least one stage")
    more = (count - (shape.stages or 1)) * (shape.load_bytes or 0)
    smem = None if shape.residency.smem is None else shape.residency.smem + more
    roles = "pipelined" if shape.roles == "serial" and count > 1 else shape.roles
    return replace(shape, stages=count, roles=roles, residency=replace(shape.residency, smem=smem))


def tile(shape: Shape, m: int, n: int, k: int | None = None) -> Shape:
    """Another output tile of the block, or of the pair, and other elements of K in a stage.

    Raises Impossible for what no MMA has.
    """
    if not shape.is_product or shape.tile_k is None:
        raise Impossible("the stage is no plain product")
    first = shape.mmas[0][0]
    group = first.cta_group
    widths = legal_n(first.kind, group)
    mma_n = min(n, max(widths))
    if first.wgmma:
        mma_m = wgmma.M
        if m % mma_m:
            raise Impossible(f"rows of a tile come in {mma_m}")
    else:
        rows = [r for r in legal_m(first.kind, group) if m % r == 0]
        if not rows:
            raise Impossible(f"no MMA of {first.kind} and {group} blocks divides {m} rows")
        mma_m = max(rows)
    if n % mma_n or mma_n not in widths:
        raise Impossible(f"no MMA of {first.kind} and {group} blocks divides {n} columns")
    made = Mma(mma_m, mma_n, first.kind, group, first.a, first.wgmma)
    per_mma = made.operations // (2 * mma_m * mma_n)
    depth = k or shape.tile_k
    if depth % per_mma:
        raise Impossible(f"K = {depth} of a stage is no multiple of {per_mma}")
    count = (m // mma_m) * (n // mma_n) * (depth // per_mma)
    before = shape.load_bytes
    nbytes = None
    if before is not None and shape.tile_m and shape.tile_n:
        nbytes = before * (m + n) * depth // ((shape.tile_m + shape.tile_n) * shape.tile_k)
    columns = shape.residency.tmem_columns
    if columns and not first.wgmma:
        buffers = 2 if shape.epilogue.overlapped else 1
        needed = max(1, m // mma_m) * n * buffers
        columns = next((allocation for allocation in tmem.ALLOCATIONS if allocation >= needed), needed)
    smem = shape.residency.smem
    if smem is not None and before is not None and nbytes is not None:
        smem += (nbytes - before) * (shape.stages or 1)
    return replace(shape, mmas=((made, count),), tile_m=m, tile_n=n, load_bytes=nbytes,
                      residency=replace(shape.residency, tmem_columns=columns, smem=smem))  # fmt: skip


def pair(shape: Shape, rows: int = tmem.LANES) -> Shape:
    """Two blocks that multiply together, each with half of B. `rows`: the fewest of an MMA that two blocks share.
    Raises Impossible."""
    first = shape.mmas[0][0]
    if first.wgmma:
        raise Impossible("there are no pairs for wgmma")
    if first.cta_group == 2:
        raise Impossible("pairs multiply already")
    if not shape.is_product or first.m < rows:
        raise Impossible("pairs multiply tiles of 128 rows a block with tcgen05.mma")
    made = Mma(first.m * 2, first.n, first.kind, 2, first.a)
    nbytes, smem = shape.load_bytes, shape.residency.smem
    if nbytes is not None and shape.tile_m and shape.tile_n:
        nbytes = nbytes * (shape.tile_m + shape.tile_n // 2) // (shape.tile_m + shape.tile_n)
        if smem is not None:
            smem -= ((shape.load_bytes or 0) - nbytes) * (shape.stages or 1)
    return replace(shape, mmas=((made, shape.mmas[0][1]),), tile_m=(shape.tile_m or 0) * 2, load_bytes=nbytes,
                   cluster=max(2, shape.cluster), residency=replace(shape.residency, smem=smem))  # fmt: skip


def persistent(shape: Shape) -> Shape:
    """A block that takes one tile after the other. Raises Impossible."""
    if shape.persistent:
        raise Impossible("blocks take tiles one after the other")
    return replace(shape, persistent=True)


def overlap(shape: Shape) -> Shape:
    """A persistent kernel with two accumulators, whose epilogue other warps run. Raises Impossible."""
    columns = shape.residency.tmem_columns
    if shape.mmas[0][0].wgmma:
        raise Impossible("results of wgmma are in registers")
    if shape.epilogue.overlapped:
        raise Impossible("the epilogue is overlapped")
    end = replace(shape.epilogue, overlapped=True)
    return replace(shape, persistent=True, roles="specialized", epilogue=end,
                   residency=replace(shape.residency, tmem_columns=2 * columns))  # fmt: skip


def bulk_store(shape: Shape) -> Shape:
    """Results that warps stage, and that leave by bulk copies of `full_row_bytes` of a row. Raises Impossible."""
    end = shape.epilogue
    if end.store == "tma":
        raise Impossible("results leave by TMA already")
    if shape.tile_m is None or shape.tile_n is None:
        raise Impossible("the stage is no plain product")
    row = int(values()["full_row_bytes"])
    pieces = max(1, shape.tile_n * end.element_bytes // row)
    warps = min(shape.tile_m // shape.cta_group // _ROWS_OF_WARP, (shape.residency.threads or WARP * _WARPS) // WARP)
    smem = shape.residency.smem
    if smem is not None:
        # two parts, one of which is staged while the other leaves; rows do not begin at the same banks
        smem += 2 * warps * _ROWS_OF_WARP * (row + max(16, 8 * end.element_bytes))
    return replace(shape, epilogue=replace(end, store="tma", pieces=pieces),
                   residency=replace(shape.residency, smem=smem))  # fmt: skip


def specialize(shape: Shape) -> Shape:
    """A warp that only loads, one that only issues MMAs. Raises Impossible."""
    if shape.roles == "specialized" and not shape.waits_each:
        raise Impossible("loads and MMAs have their own warps")
    return replace(shape, roles="specialized", waits_each=False, stages=max(2, shape.stages or 2))


def full_rate(shape: Shape) -> Shape:
    """Two tiles of 64 rows in one MMA of 128. Raises Impossible."""
    first, count = shape.mmas[0]
    if first.wgmma or first.m != wgmma.M or count % 2 or len(shape.mmas) > 1 or first.n % N_STEPS[tmem.LANES]:
        raise Impossible("no two MMAs of 64 rows")
    return replace(shape, mmas=((replace(first, m=tmem.LANES), count // 2),), issuers=max(1, shape.issuers // 2))


def ahead(shape: Shape) -> Shape:
    """The first MMAs of a stage issued a stage ahead, and the last ones waited for a stage later, beside what threads
    compute. Raises Impossible."""
    if not (shape.work.instructions and shape.work.waits_mma):
        raise Impossible("threads do nothing between MMAs")
    if shape.ahead:
        raise Impossible("the first MMAs of a stage are issued a stage ahead")
    if any(mma.wgmma for mma, _ in shape.mmas):
        raise Impossible("results of wgmma are in registers, which threads compute from")
    first = tuple((mma, count) for mma, count in shape.mmas if mma.a == "shared")
    if not first or len(first) == len(shape.mmas):
        raise Impossible("MMAs of a stage are one product")
    return replace(shape, ahead=first, batches=max(1, shape.batches - 1), stages=max(2, shape.stages or 2),
                   late=_OF_SUMS)  # fmt: skip


def blocks(shape: Shape, count: int) -> Shape:
    """As many blocks on an SM, with the registers that are left for each. Raises Impossible for what does not fit."""
    chip, one = limits(shape.arch), shape.residency
    if one.threads is None or one.smem is None:
        raise Impossible("nobody knows the threads of a block, or its shared memory")
    if shape.persistent:
        raise Impossible("a persistent kernel has as many blocks as it launches")
    registers = chip.registers_per_sm // (count * one.threads) // GRANULARITY * GRANULARITY
    made = replace(shape, residency=replace(one, registers=min(registers, chip.registers_per_thread)))
    if registers < LEAST or resident(made) < count:
        raise Impossible(f"{count} blocks do not fit an SM")
    return made


def _shared(shape: Shape) -> Shape:
    if not shape.work.instructions:
        raise Impossible("threads do nothing between MMAs")
    if resident(shape) > 1:
        raise Impossible("blocks share an SM already")
    return blocks(shape, 2)


def fullest(shape: Shape) -> Shape:
    """As many stages as shared memory holds."""
    taken = (shape.residency.smem or 0) - (shape.stages or 1) * (shape.load_bytes or 0)
    most = (limits(shape.arch).shared_per_block - max(0, taken)) // max(1, shape.load_bytes or 1)
    return stages(shape, max(most, shape.stages or 1))


def _fullest(shape: Shape) -> Shape:
    full = fullest(shape)
    if full.stages == (shape.stages or 1):
        raise Impossible("shared memory is full")
    return full


def wider(shape: Shape) -> Shape:
    """A tile of twice the columns. Raises Impossible."""
    return tile(shape, shape.tile_m or 0, 2 * (shape.tile_n or 0))


def _pair_of_widest(shape: Shape) -> Shape:
    wide = shape if (shape.tile_n or 0) >= 256 else wider(shape)
    return _fullest(pair(wide))


_CHANGES: tuple[tuple[str, Callable[[Shape], Shape]], ...] = (
    ("MMAs of M = 128", full_rate),
    ("own warps for loads and MMAs", specialize),
    ("as many stages as fit", _fullest),
    ("a tile twice as wide", wider),
    ("a pair of blocks (cta_group::2)", pair),
    ("a pair with N = 256", _pair_of_widest),
    ("the first product of a stage issued ahead", ahead),
    ("a second block on the SM", _shared),
    ("persistent, two accumulators, epilogue overlapped", overlap),
)


def changes(shape: Shape, chip: Chip) -> Iterator[tuple[str, Shape]]:
    """What may lift a shape's grade and fits the chip."""
    for text, change in _CHANGES:
        try:
            yield text, fitting(change(shape))
        except Impossible:
            continue
