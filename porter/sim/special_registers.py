# SPDX-License-Identifier: Apache-2.0
"""Values of special registers (PTX ISA 10) for the warps of a wave of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.arch import limits
from porter.ptx.shared_window import SYSTEM_SHARED
from porter.sim.wave import Wave

Array = npt.NDArray[Any]

GRID_WORKSPACE = "%grid_workspace"
"""Name, among the addresses of variables, of what the blocks of a cooperative launch share. CUDA's cooperative
groups read its address from %envreg1 (high word) and %envreg2 (cooperative_groups/details/driver_abi.h)."""
_FEW = limits("sm_90").multiprocessors
_LANE = np.arange(32, dtype=np.uint32)[None, :]


def special_registers(M: Wave) -> dict[str, Any]:
    """Values by name; they broadcast to [warps, 32]. Those that are not here change, or are zero."""
    bx, by, _ = M.launch.block
    s: dict[str, Any] = {}

    def per_warp(values: Array) -> Array:
        return values.astype(np.uint32)[M.warp_cta][:, None]

    t = M.thread
    s["laneid"] = _LANE
    one = np.uint32(1)
    s["lanemask_eq"] = one << _LANE
    s["lanemask_lt"] = (one << _LANE) - one
    s["lanemask_le"] = ((one << _LANE) - one) | (one << _LANE)
    s["lanemask_gt"] = ~s["lanemask_le"]
    s["lanemask_ge"] = ~s["lanemask_lt"]
    ux, uy = np.uint32(bx), np.uint32(by)
    s["tid.x"], s["tid.y"], s["tid.z"] = t % ux, t // ux % uy, t // (ux * uy)
    s["warpid"] = M.warp_rank.astype(np.uint32)[:, None]
    s["nwarpid"] = np.uint32(64)
    for i, axis in enumerate("xyz"):
        s[f"ntid.{axis}"] = np.uint32(M.launch.block[i])
        s[f"nctaid.{axis}"] = np.uint32(M.launch.grid[i])
        s[f"ctaid.{axis}"] = per_warp(M.grid.index[:, i])
        s[f"cluster_nctaid.{axis}"] = np.uint32(M.launch.cluster[i])
        s[f"nclusterid.{axis}"] = np.uint32(M.launch.grid[i] // M.launch.cluster[i])
        s[f"clusterid.{axis}"] = per_warp(M.grid.cluster_index[:, i])
        s[f"cluster_ctaid.{axis}"] = per_warp(M.grid.index_in_cluster[:, i])
    s["cluster_ctarank"] = per_warp(M.cta_rank)
    s["cluster_nctarank"] = np.uint32(M.cluster_size)
    s["is_explicit_cluster"] = np.uint32(M.clustered)
    s["smid"] = per_warp(M.multiprocessor)
    s["nsmid"] = np.uint32(M.options.resident or max(_FEW, int(M.multiprocessor.max()) + 1))
    s["gridid"] = np.uint64(1)
    workspace = M.addresses.get(GRID_WORKSPACE, 0)
    s["envreg1"], s["envreg2"] = np.uint32(workspace >> 32), np.uint32(workspace & 0xFFFFFFFF)
    s["dynamic_smem_size"] = np.uint32(M.launch.dynamic_smem)
    s["total_smem_size"] = np.uint32(M.smem_size - SYSTEM_SHARED)
    s["aggr_smem_size"] = np.uint32(M.smem_size)
    s["reserved_smem_offset_begin"] = np.uint32(0)
    s["reserved_smem_offset_end"] = np.uint32(SYSTEM_SHARED)
    s["reserved_smem_offset_cap"] = np.uint32(SYSTEM_SHARED)
    s["reserved_smem_offset_0"] = np.uint32(0)
    s["reserved_smem_offset_1"] = np.uint32(0)
    return s
