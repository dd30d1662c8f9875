# SPDX-License-Identifier: Apache-2.0
"""What addresses that threads give mean: places in the shared memory of a cluster, and its mbarriers."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT, signal_rank
from porter.sim.machine import Machine
from porter.sim.results import Stop

Array = npt.NDArray[Any]


def shared_place(M: Machine, cta: int, address: int, nbytes: int, at: int, warp: int, lane: int) -> tuple[int, int]:
    """(block, byte offset) of a shared address as seen by a thread of block `cta`."""
    rank, offset = address >> RANK_SHIFT, address & OFFSET_MASK
    if rank >= M.cluster_size or offset + nbytes > M.smem_size:
        what = f"shared address {address:#x} ({nbytes} bytes) is outside the cluster's shared memory"
        raise Stop(Code.SIM_OUT_OF_BOUNDS, what, at, warp, lane)
    return (int(M.cta_first[cta]) + rank if M.clustered else cta), offset


def multicast_blocks(M: Machine, cta: int, mask: int, at: int, warp: int, lane: int) -> list[int]:
    """The blocks that a multicast mask names, a bit for each rank of the cluster of block `cta`."""
    if mask >> M.cluster_size:
        what = f"multicast mask {mask:#x} names blocks beyond the cluster's {M.cluster_size}"
        raise Stop(Code.SIM_OUT_OF_BOUNDS, what, at, warp, lane)
    return [int(M.cta_first[cta]) + r for r in range(M.cluster_size) if mask >> r & 1]


def signal_of(M: Machine, cta: int, mbar: int, target: int, pair: bool, at: int) -> tuple[int, int]:
    """The mbarrier that counts the bytes landing in block `target`, as (slot, block)."""
    rank = signal_rank(int(M.cta_rank[target]), mbar >> RANK_SHIFT, pair)
    offset = mbar & OFFSET_MASK
    return M.mbar.resolve(cta, rank << RANK_SHIFT | offset if M.clustered else offset, at)
