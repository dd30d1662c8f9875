# SPDX-License-Identifier: Apache-2.0
"""Qualified names of the cutlass package that the recognition of kernels asks for."""

from __future__ import annotations

WARPGROUP = "cutlass.cute.nvgpu.warpgroup"
TCGEN05 = "cutlass.cute.nvgpu.tcgen05"
HELPERS = "cutlass.utils.hopper_helpers"
PIPELINE = "cutlass.pipeline"

TILED_MMA = f"{HELPERS}.make_trivial_tiled_mma"
STORE_OPS = (f"{HELPERS}.sm90_get_smem_store_op", f"{HELPERS}.get_smem_store_op")
EPI_TILE = f"{HELPERS}.compute_tile_shape_or_override"
GEMM = "cutlass.cute.gemm"
FENCE = f"{WARPGROUP}.fence"
COMMIT = f"{WARPGROUP}.commit_group"
WAIT = f"{WARPGROUP}.wait_group"
ACCUMULATE = f"{WARPGROUP}.Field.ACCUMULATE"
TMA_ASYNC = f"{PIPELINE}.PipelineTmaAsync.create"
TMA_STORE = f"{PIPELINE}.PipelineTmaStore.create"
COOPERATIVE_GROUP = f"{PIPELINE}.CooperativeGroup"
REGISTERS = ("cutlass.cute.make_rmem_tensor", "cutlass.cute.make_fragment")
REGISTERS_LIKE = ("cutlass.cute.make_rmem_tensor_like", "cutlass.cute.make_fragment_like")

HOPPER_ONLY = (
    f"{WARPGROUP}.",
    f"{HELPERS}.",
    f"{PIPELINE}.PipelineTmaAsync",
    f"{PIPELINE}.PipelineTmaMultiConsumersAsync",
)
"""Prefixes of names that a Blackwell kernel has no business with, but for those below."""

SHARED_LAYOUTS = frozenset(
    {
        EPI_TILE,
        f"{HELPERS}.get_smem_layout_atom",
        f"{HELPERS}.make_smem_layout_a",
        f"{HELPERS}.make_smem_layout_b",
        f"{WARPGROUP}.make_smem_layout_atom",
        f"{WARPGROUP}.SmemLayoutAtomKind",
        f"{WARPGROUP}.OperandMajorMode",
    }
)
"""Names that say how tiles lie in shared memory. Both tensor cores read the same layouts (PTX ISA 9.7.15.5.1
and 9.7.16.3), so these stay as they are."""


def hopper_only(name: str) -> bool:
    """Whether a qualified name has to be gone from a port."""
    if any(name == kept or name.startswith(kept + ".") for kept in SHARED_LAYOUTS):
        return False
    return any(name.startswith(prefix) for prefix in HOPPER_ONLY)
