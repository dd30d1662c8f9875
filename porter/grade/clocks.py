# SPDX-License-Identifier: Apache-2.0
"""Clocks of one SM that the parts of a stage and of a tile take, each for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from porter.grade.chips import Chip, values
from porter.grade.shape import Mma, Shape
from porter.ptx import occupancy, tmem
from porter.ptx.arch import WARP, limits
from porter.ptx.occupancy import Taken
from porter.ptx.umma import K_BYTES


def interval(mma: Mma) -> float:
    """Clocks from one MMA to the next on the tensor cores of an SM, or of both SMs of a pair, which work together.

    The larger of what the products take and of what shared memory takes to deliver the operands.
    """
    c = values()
    half = mma.cta_group
    tensor = mma.n / (4 if half == 2 and mma.m <= tmem.LANES else 2)
    a_rows = mma.m / half if mma.a == "shared" else 0
    if half == 2:
        a_rows *= c["pair_a_factor"]
    shared = K_BYTES * (a_rows + mma.n / half) / c["smem_bytes_per_clock"]
    if mma.wgmma:
        return max(tensor, shared)
    return max(tensor + c["mma_overhead"], shared, c["pair_shortest_mma"] if half == 2 else 0)


def latency(mma: Mma) -> float:
    """Clocks from the end of the last MMA's interval until a wait for it ends."""
    c = values()
    if mma.wgmma:
        return c["wgmma_latency"]
    alone = c["mma_latency_ts"] if mma.a == "tensor" else c["mma_latency_ss"]
    return alone + (c["mma_latency_pair"] if mma.cta_group == 2 else 0)


def ceiling(mma: Mma, chip: Chip) -> float:
    """The share of the chip's nominal rate that no kernel of such MMAs exceeds, whatever else it does."""
    return mma.operations / (interval(mma) * mma.cta_group * chip.mma_clocks * mma.speed)


def load_latency(nbytes: int, clock_ghz: float, far: bool = False) -> tuple[float, float]:
    """Clocks of a TMA load of `nbytes` on an idle chip, until the wait for it ends: those that any load takes, and
    those that its bytes take. `far`: from DRAM."""
    c = values()
    where = "dram" if far else "l2"
    return c[f"load_latency_{where}_ns"] * clock_ghz, nbytes / c[f"load_bytes_per_clock_{where}"]


def fill_rate(shape: Shape, chip: Chip) -> float:
    """Bytes a clock that TMA brings into one SM while all others load too. Rows of boxes below 128 bytes cost.
    What is multicast does not come from L2 for each, and threads have only so much on its way to registers."""
    c = values()
    if shape.by_threads:
        threads = shape.residency.threads or WARP
        return threads * c["register_bytes_in_flight"] / (c["load_latency_l2_ns"] * chip.clock_ghz)
    if shape.multicast:
        return c["load_bytes_per_clock_l2"]
    full = c["fill_bytes_per_clock" if chip.arch != "sm_90a" else "fill_bytes_per_clock_h100"]
    row, narrow, wide = shape.row_bytes, c["narrow_row_bytes"], c["full_row_bytes"]
    if row is None or row >= wide:
        return full
    share = (max(row, narrow) - narrow) / (wide - narrow)
    return c["fill_narrow_rows"] + share * (full - c["fill_narrow_rows"])


def drain(shape: Shape) -> float:
    """Clocks that the results of one block's tile take from its columns or registers to global memory."""
    c = values()
    if shape.tile_m is None or shape.tile_n is None:
        return 0.0
    end = shape.epilogue
    nbytes = shape.tile_m * shape.tile_n * end.element_bytes / shape.cta_group
    if end.store == "tma":
        half = nbytes / c["store_bytes_per_clock_tma"]
        staged = max(half, nbytes * end.ways / c["smem_bytes_per_clock"])
        stored = max(half, staged) + min(half, staged) / end.pieces
    else:
        stored = nbytes / c["store_bytes_per_clock" + ("_rows" if end.store == "rows" else "")]
    loads = 0.0
    if end.load_columns is not None:
        halves = max(shape.tile_m / shape.cta_group / tmem.LANES, 1)
        loads = shape.tile_n / end.load_columns * c["narrow_load_clocks"] * halves
    return stored + loads


def resident(shape: Shape) -> int:
    """Blocks that share an SM, by what is known of what one takes; at least 1. Where nobody knows its shared memory,
    the stages alone count."""
    one = shape.residency
    smem = one.smem or (shape.stages or 0) * (shape.load_bytes or 0) or None
    if shape.persistent or not (smem or one.tmem_columns or one.threads):
        return 1
    taken = Taken(one.threads, one.registers, smem, columns=one.tmem_columns)
    return max(1, occupancy.resident(taken, limits(shape.arch)).blocks)


Term = Literal[
    "tensor core", "barrier latency", "TMA fill", "epilogue", "uncoalesced access", "launch", "waves", "MUFU",
    "instruction issue", "HBM", "occupancy", "bank conflicts",
]  # fmt: skip


@dataclass(frozen=True)
class Clocks:
    """Of one stage: `mma` on the tensor core for each issuer, `peak` at the nominal rate, `tail` until a wait for it
    ends; `load` that a load takes beyond its bytes, `transfer` that they take on an idle chip, `fill` on one where all
    SMs load; `issue` that a stage takes its issuer at least, `mufu` and `instructions` of each issuer's work. Of one
    tile: `drain`; of one block: `launch`. `burst`: from the first to the last MMA that one issuer issues. `ahead`: the
    share of `mma` that is issued a stage ahead, `ahead_tail` until a wait for that ends, `ahead_load` its share of what
    is loaded."""

    mma: float
    peak: float
    tail: float
    load: float
    transfer: float
    fill: float
    issue: float
    mufu: float
    instructions: float
    drain: float
    launch: float
    burst: float = 0.0
    ahead: float = 0.0
    ahead_tail: float = 0.0
    ahead_load: float = 0.0


def clocks(shape: Shape, chip: Chip, far: bool = False) -> Clocks:
    """What each part of a shape takes on a chip; stages, roles and blocks are the schedule's."""
    c = values()
    issuers = shape.issuers
    nbytes = shape.load_bytes or 0
    latent, transfer = load_latency(nbytes, chip.clock_ghz, far) if nbytes else (0.0, 0.0)
    speed = shape.mmas[0][0].speed
    early = [mma for mma, _ in shape.ahead]
    all_mmas = sum(interval(mma) * count for mma, count in shape.mmas)
    waited = sorted((latency(mma) for mma, _ in shape.mmas if mma not in early), reverse=True)
    return Clocks(
        mma=all_mmas / issuers + c["stage_overhead"] / issuers,
        peak=shape.operations / (chip.mma_clocks * speed * shape.cta_group) / issuers,
        tail=sum(waited[: shape.batches]),
        load=latent,
        transfer=transfer,
        fill=nbytes / fill_rate(shape, chip),
        issue=c["stage_issue"] / issuers,
        mufu=shape.work.mufu / chip.mufu_per_clock / issuers,
        instructions=shape.work.instructions / chip.issue_per_clock / issuers,
        drain=drain(shape),
        launch=c["launch_clocks"],
        burst=c["mma_issue"] * sum(count for _, count in shape.mmas) / issuers,
        ahead=sum(interval(mma) * count for mma, count in shape.ahead) / all_mmas,
        ahead_tail=max((latency(mma) for mma in early), default=0.0),
        ahead_load=sum(mma.n * count for mma, count in shape.ahead) / sum(mma.n * count for mma, count in shape.mmas),
    )
