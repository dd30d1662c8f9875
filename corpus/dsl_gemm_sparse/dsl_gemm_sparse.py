# SPDX-License-Identifier: Apache-2.0
"""C = A B^T in CuTe DSL for Hopper, without the k tiles that a mask leaves out.

A is (M, K) and B is (N, K), both with columns contiguous; C is (M, N). Mask has a number for each k tile, of which 1
says that it counts; the last one always does. One warpgroup loads and multiplies tiles of 64 rows, so there may be no
MMA at all between two waits. The accumulator comes from a helper and goes through another.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup

TILE = (64, 128, 64)
STAGES = 2
THREADS = 128


@cute.jit
def cleared(tiled_mma: cute.TiledMma) -> cute.Tensor:
    """An accumulator of zeros."""
    acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C(TILE[:2]))
    acc.fill(0.0)
    return acc


@cute.jit
def multiplied(tiled_mma: cute.TiledMma, acc: cute.Tensor, a: cute.Tensor, b: cute.Tensor) -> cute.Tensor:
    """acc + a b"""
    atom = cute.make_mma_atom(tiled_mma.op)
    atom.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.fence()
    for k_block in cutlass.range_constexpr(cute.size(a, mode=[2])):
        cute.gemm(atom, acc, a[(None, None, k_block)], b[(None, None, k_block)], acc)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    return acc


class SparseGemm:
    """One tile of 64 by 128 per block; a tile of A and B is loaded while the one before is multiplied."""

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, mask: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        self.dtype = a.element_type
        columns = utils.LayoutEnum.COL_MAJOR
        op = warpgroup.MmaF16BF16Op(
            self.dtype,
            cutlass.Float32,
            (64, TILE[1], 16),
            warpgroup.OperandSource.SMEM,
            OperandMajorMode.MN,
            OperandMajorMode.MN,
        )
        tiled_mma = cute.make_tiled_mma(cute.make_mma_atom(op), (1, 1, 1))
        a_smem_layout = sm90_utils.make_smem_layout_a(columns, TILE, self.dtype, STAGES)
        b_smem_layout = sm90_utils.make_smem_layout_b(columns, TILE, self.dtype, STAGES)
        load = cpasync.CopyBulkTensorTileG2SOp()
        a_one, b_one = [cute.slice_(x, (None, None, 0)) for x in (a_smem_layout, b_smem_layout)]
        tma_a, a_tma = cpasync.make_tiled_tma_atom(load, a, a_one, (TILE[0], TILE[2]))
        tma_b, b_tma = cpasync.make_tiled_tma_atom(load, b, b_one, (TILE[1], TILE[2]))
        self.bytes = cute.size_in_bytes(self.dtype, a_one) + cute.size_in_bytes(self.dtype, b_one)
        self.kernel(tma_a, a_tma, tma_b, b_tma, mask, c, tiled_mma, a_smem_layout, b_smem_layout).launch(
            grid=(*cute.ceil_div(c.shape, TILE[:2]), 1), block=[THREADS, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        tma_a: cute.CopyAtom,
        mA: cute.Tensor,
        tma_b: cute.CopyAtom,
        mB: cute.Tensor,
        mMask: cute.Tensor,
        mC: cute.Tensor,
        tiled_mma: cute.TiledMma,
        a_smem_layout: cute.ComposedLayout,
        b_smem_layout: cute.ComposedLayout,
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tidx, _, _ = cute.arch.thread_idx()
        bidx, bidy, _ = cute.arch.block_idx()
        smem = utils.SmemAllocator()
        barriers = smem.allocate_array(cutlass.Int64, STAGES)
        sA = smem.allocate_tensor(self.dtype, a_smem_layout.outer, 1024, a_smem_layout.inner)
        sB = smem.allocate_tensor(self.dtype, b_smem_layout.outer, 1024, b_smem_layout.inner)
        if warp_idx == 0:
            with cute.arch.elect_one():
                for stage in cutlass.range_constexpr(STAGES):
                    cute.arch.mbarrier_init(barriers + stage, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

        gA = cute.local_tile(mA, (TILE[0], TILE[2]), (bidx, None))
        gB = cute.local_tile(mB, (TILE[1], TILE[2]), (bidy, None))
        one = cute.make_layout(1)
        tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
        tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
        k_tiles = cute.size(gA, mode=[2])

        thr_mma = tiled_mma.get_slice(tidx)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        acc = cleared(tiled_mma)
        loaded, used = cutlass.Int32(0), cutlass.Int32(0)  # tiles that count
        pending = False
        for step in cutlass.range(k_tiles + 1, unroll=1):
            # The tile that was asked for in the step before is multiplied after this one is asked for.
            counts = False
            if step < k_tiles:
                counts = mMask[step] == 1 or step == k_tiles - 1
            if counts:
                if warp_idx == 0:
                    stage = loaded % STAGES
                    with cute.arch.elect_one():
                        cute.arch.mbarrier_arrive_and_expect_tx(barriers + stage, self.bytes)
                    cute.copy(tma_a, tAgA[(None, step)], tAsA[(None, stage)], tma_bar_ptr=barriers + stage)
                    cute.copy(tma_b, tBgB[(None, step)], tBsB[(None, stage)], tma_bar_ptr=barriers + stage)
                loaded += 1
            if pending:
                stage = used % STAGES
                cute.arch.mbarrier_wait(barriers + stage, used // STAGES % 2)
                part = (None, None, None, stage)
                acc = multiplied(tiled_mma, acc, tCrA[part], tCrB[part])
                used += 1
            pending = counts
            # The stage is free in all warps.
            cute.arch.sync_threads()

        tCgC = thr_mma.partition_C(cute.local_tile(mC, TILE[:2], (bidx, bidy)))
        tCcC = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mC.shape), TILE[:2], (bidx, bidy)))
        for i in cutlass.range_constexpr(cute.size(acc)):
            if cute.elem_less(tCcC[i], mC.shape):
                tCgC[i] = acc[i].to(tCgC.element_type)
