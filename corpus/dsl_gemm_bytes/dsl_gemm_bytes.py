# SPDX-License-Identifier: Apache-2.0
"""C = A B^T in CuTe DSL for Hopper, for operands of 8 bits: integers, or FP8 with sums in two levels.

A is (M, K), B is (N, K), C is (M, N). Two warpgroups share the rows of a tile and have half of its columns each; one
more warp loads. Of FP8 operands the tensor core sums one k tile, and a function adds that to totals in registers.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import cpasync, warpgroup


@cute.jit
def add_part(total: cute.Tensor, part: cute.Tensor):
    """total += part"""
    for i in cutlass.range_constexpr(cute.size(total)):
        total[i] = total[i] + part[i]


class BytesGemm:
    """One tile of `tile_shape_mn` per block; k tiles of 128."""

    def __init__(self, acc_dtype: type[cutlass.Numeric], tile_shape_mn: tuple[int, int], two_level: bool = False):
        self.acc_dtype = acc_dtype
        self.tile_shape_mnk = (*tile_shape_mn, 128)
        self.two_level = two_level
        self.mma_warps = 8
        self.stages = 3

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        self.a_dtype, self.b_dtype = a.element_type, b.element_type
        a_layout, b_layout = utils.LayoutEnum.from_tensor(a), utils.LayoutEnum.from_tensor(b)
        tile_m, tile_n, tile_k = self.tile_shape_mnk
        tiled_mma = sm90_utils.make_trivial_tiled_mma(
            self.a_dtype,
            self.b_dtype,
            a_layout.sm90_mma_major_mode(),
            b_layout.sm90_mma_major_mode(),
            self.acc_dtype,
            (1, 2, 1),
            tiler_mn=(64, tile_n // 2),
        )
        a_smem_layout = sm90_utils.make_smem_layout_a(a_layout, self.tile_shape_mnk, self.a_dtype, self.stages)
        b_smem_layout = sm90_utils.make_smem_layout_b(b_layout, self.tile_shape_mnk, self.b_dtype, self.stages)
        a_one, b_one = [cute.slice_(x, (None, None, 0)) for x in (a_smem_layout, b_smem_layout)]
        load = cpasync.CopyBulkTensorTileG2SOp()
        tma_a, a_tma = cpasync.make_tiled_tma_atom(load, a, a_one, (tile_m, tile_k))
        tma_b, b_tma = cpasync.make_tiled_tma_atom(load, b, b_one, (tile_n, tile_k))

        @cute.struct
        class SharedStorage:
            barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            a: cute.struct.Align[cute.struct.MemRange[self.a_dtype, cute.cosize(a_smem_layout)], 1024]
            b: cute.struct.Align[cute.struct.MemRange[self.b_dtype, cute.cosize(b_smem_layout)], 1024]

        self.shared_storage = SharedStorage
        self.bytes = cute.size_in_bytes(self.a_dtype, a_one) + cute.size_in_bytes(self.b_dtype, b_one)
        self.kernel(tma_a, a_tma, tma_b, b_tma, c, tiled_mma, a_smem_layout, b_smem_layout).launch(
            grid=(*cute.ceil_div(c.shape, (tile_m, tile_n)), 1),
            block=[32 * (self.mma_warps + 1), 1, 1],
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        tma_a: cute.CopyAtom,
        mA: cute.Tensor,
        tma_b: cute.CopyAtom,
        mB: cute.Tensor,
        mC: cute.Tensor,
        tiled_mma: cute.TiledMma,
        a_smem_layout: cute.ComposedLayout,
        b_smem_layout: cute.ComposedLayout,
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tidx, _, _ = cute.arch.thread_idx()
        bidx, bidy, _ = cute.arch.block_idx()
        smem = utils.SmemAllocator()
        storage = smem.allocate(self.shared_storage)
        sA = storage.a.get_tensor(a_smem_layout.outer, swizzle=a_smem_layout.inner)
        sB = storage.b.get_tensor(b_smem_layout.outer, swizzle=b_smem_layout.inner)
        loads = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.barriers.data_ptr(),
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.mma_warps),
            tx_count=self.bytes,
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        coord = (bidx, bidy, None)
        gA = cute.local_tile(mA, self.tile_shape_mnk, coord, proj=(1, None, 1))
        gB = cute.local_tile(mB, self.tile_shape_mnk, coord, proj=(None, 1, 1))
        k_tiles = cute.size(gA, mode=[2])

        if warp_idx == self.mma_warps:
            one = cute.make_layout(1)
            tAsA, tAgA = cpasync.tma_partition(
                tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
            )
            tBsB, tBgB = cpasync.tma_partition(
                tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2)
            )
            load_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
            for k_tile in cutlass.range(k_tiles, unroll=1):
                loads.producer_acquire(load_state)
                barrier, index = loads.producer_get_barrier(load_state), load_state.index
                cute.copy(tma_a, tAgA[(None, k_tile)], tAsA[(None, index)], tma_bar_ptr=barrier)
                cute.copy(tma_b, tBgB[(None, k_tile)], tBsB[(None, index)], tma_bar_ptr=barrier)
                loads.producer_commit(load_state)
                load_state.advance()
            loads.producer_tail(load_state)
        else:
            thr_mma = tiled_mma.get_slice(tidx)
            tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
            tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
            acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C(self.tile_shape_mnk[:2]))
            result = acc
            if cutlass.const_expr(self.two_level):
                result = cute.make_rmem_tensor(acc.layout, self.acc_dtype)
                result.fill(0)
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
            for _ in cutlass.range(k_tiles, unroll=1):
                loads.consumer_wait(state)
                warpgroup.fence()
                if cutlass.const_expr(self.two_level):
                    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
                for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                    part = (None, None, k_block, state.index)
                    cute.gemm(tiled_mma, acc, tCrA[part], tCrB[part], acc)
                    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                loads.consumer_release(state)
                state.advance()
                if cutlass.const_expr(self.two_level):
                    add_part(result, acc)

            tile = (self.tile_shape_mnk[0], self.tile_shape_mnk[1])
            tCgC = thr_mma.partition_C(cute.local_tile(mC, tile, (bidx, bidy)))
            tCcC = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mC.shape), tile, (bidx, bidy)))
            for i in cutlass.range_constexpr(cute.size(result)):
                if cute.elem_less(tCcC[i], mC.shape):
                    tCgC[i] = result[i].to(tCgC.element_type)
