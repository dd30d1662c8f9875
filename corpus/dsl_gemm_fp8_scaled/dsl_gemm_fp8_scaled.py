# SPDX-License-Identifier: Apache-2.0
"""C = A B^T for FP8 with block scales, in CuTe DSL for Hopper: WGMMA sums one block of K, registers the rest.

A is (M, K, L) with one scale for every row and 128 elements of K, B is (N, K, L) with one for every block of
128 by 128. The tensor core's FP8 sums are short, so each block of K is scaled and added in FP32 registers.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import cpasync, warpgroup

SCALE_BLOCK = 128


class ScaledGemm:
    """`blocks` blocks that share the tiles of `tile_shape_mn` among them; a k tile is one block of scales."""

    def __init__(self, acc_dtype: type[cutlass.Numeric], tile_shape_mn: tuple[int, int], blocks: int):
        self.acc_dtype = acc_dtype
        self.tile_shape_mnk = (*tile_shape_mn, 1)
        # A thread holds two accumulators, so a tile of 128 by 128 takes two warpgroups.
        self.atom_layout_mnk = (2, 1, 1) if tile_shape_mn[0] > 64 else (1, 1, 1)
        self.mma_warpgroups = math.prod(self.atom_layout_mnk)
        self.mma_threads = 128 * self.mma_warpgroups
        self.threads_per_cta = 128 + self.mma_threads
        # Warps 0 to 3 are the loading warpgroup; the first warp behind them stores.
        self.load_warp = 0
        self.store_warp = 4
        self.load_registers = 40
        self.mma_registers = 232
        self.epilogue_barrier = pipeline.NamedBarrier(barrier_id=1, num_threads=self.mma_threads)
        self.blocks = blocks
        self.stages = 4
        self.epi_stages = 2

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        scale_a: cute.Tensor,
        scale_b: cute.Tensor,
        c: cute.Tensor,
        stream: cuda.CUstream,
    ):
        self.a_dtype = a.element_type
        self.b_dtype = b.element_type
        self.c_dtype = c.element_type
        self.c_layout = utils.LayoutEnum.from_tensor(c)
        a_layout = utils.LayoutEnum.from_tensor(a)
        b_layout = utils.LayoutEnum.from_tensor(b)

        tiled_mma = sm90_utils.make_trivial_tiled_mma(
            self.a_dtype,
            self.b_dtype,
            a_layout.sm90_mma_major_mode(),
            b_layout.sm90_mma_major_mode(),
            self.acc_dtype,
            self.atom_layout_mnk,
            tiler_mn=(64, self.tile_shape_mnk[1]),
        )
        self.tile_shape_mnk = (self.tile_shape_mnk[0], self.tile_shape_mnk[1], SCALE_BLOCK)
        self.epi_tile = sm90_utils.compute_tile_shape_or_override(
            self.tile_shape_mnk, self.c_dtype, is_cooperative=self.atom_layout_mnk == (2, 1, 1)
        )

        a_smem_layout = sm90_utils.make_smem_layout_a(a_layout, self.tile_shape_mnk, self.a_dtype, self.stages)
        b_smem_layout = sm90_utils.make_smem_layout_b(b_layout, self.tile_shape_mnk, self.b_dtype, self.stages)
        c_smem_layout = sm90_utils.make_smem_layout_epi(
            self.c_dtype, self.c_layout, self.epi_tile, self.epi_stages
        )

        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        tile_m, tile_n, tile_k = self.tile_shape_mnk
        tma_a, a_tma = cpasync.make_tiled_tma_atom(
            load, a, cute.slice_(a_smem_layout, (None, None, 0)), (tile_m, tile_k)
        )
        tma_b, b_tma = cpasync.make_tiled_tma_atom(
            load, b, cute.slice_(b_smem_layout, (None, None, 0)), (tile_n, tile_k)
        )
        tma_c, c_tma = cpasync.make_tiled_tma_atom(
            store, c, cute.slice_(c_smem_layout, (None, None, 0)), self.epi_tile
        )

        @cute.struct
        class SharedStorage:
            load_barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            a: cute.struct.Align[cute.struct.MemRange[self.a_dtype, cute.cosize(a_smem_layout)], 1024]
            b: cute.struct.Align[cute.struct.MemRange[self.b_dtype, cute.cosize(b_smem_layout)], 1024]
            c: cute.struct.Align[cute.struct.MemRange[self.c_dtype, cute.cosize(c_smem_layout)], 1024]

        self.shared_storage = SharedStorage
        tiles = cute.ceil_div((*c.layout.shape,), (tile_m, tile_n, 1))
        tile_params = utils.PersistentTileSchedulerParams(tiles, (1, 1, 1))
        self.kernel(
            tma_a,
            a_tma,
            tma_b,
            b_tma,
            tma_c,
            c_tma,
            scale_a,
            scale_b,
            tiled_mma,
            a_smem_layout,
            b_smem_layout,
            c_smem_layout,
            tile_params,
        ).launch(
            grid=utils.StaticPersistentTileScheduler.get_grid_shape(tile_params, self.blocks),
            block=[self.threads_per_cta, 1, 1],
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        tma_a: cute.CopyAtom,
        mA: cute.Tensor,
        tma_b: cute.CopyAtom,
        mB: cute.Tensor,
        tma_c: cute.CopyAtom,
        mC: cute.Tensor,
        mSA: cute.Tensor,
        mSB: cute.Tensor,
        tiled_mma: cute.TiledMma,
        a_smem_layout: cute.ComposedLayout,
        b_smem_layout: cute.ComposedLayout,
        c_smem_layout: cute.ComposedLayout,
        tile_params: utils.PersistentTileSchedulerParams,
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tidx, _, _ = cute.arch.thread_idx()
        if warp_idx == 0:
            cpasync.prefetch_descriptor(tma_a)
            cpasync.prefetch_descriptor(tma_b)

        smem = utils.SmemAllocator()
        storage = smem.allocate(self.shared_storage)
        sA = storage.a.get_tensor(a_smem_layout.outer, swizzle=a_smem_layout.inner)
        sB = storage.b.get_tensor(b_smem_layout.outer, swizzle=b_smem_layout.inner)
        sC = storage.c.get_tensor(c_smem_layout.outer, swizzle=c_smem_layout.inner)

        # Every warp gives a buffer back when its part of the WGMMA is done.
        num_warps = self.mma_threads // 32
        loads = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.load_barriers.data_ptr(),
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, num_warps),
            tx_count=cute.size_in_bytes(self.a_dtype, cute.slice_(a_smem_layout, (None, None, 0)))
            + cute.size_in_bytes(self.b_dtype, cute.slice_(b_smem_layout, (None, None, 0))),
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )

        # (tile M, tile K, tiles M, k tiles, L), (tile N, tile K, tiles N, k tiles, L), (tile M, tile N, ...)
        gA = cute.local_tile(mA, cute.slice_(self.tile_shape_mnk, (None, 0, None)), (None, None, None))
        gB = cute.local_tile(mB, cute.slice_(self.tile_shape_mnk, (0, None, None)), (None, None, None))
        gC = cute.local_tile(mC, cute.slice_(self.tile_shape_mnk, (None, None, 0)), (None, None, None))
        one = cute.make_layout(1)
        tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
        tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))

        warpgroup_idx = cute.arch.make_warp_uniform(tidx // 128)
        warpgroup_threads = cute.make_layout(self.mma_warpgroups, stride=128)
        thr_mma = tiled_mma.get_slice(warpgroup_threads(warpgroup_idx - 1))
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        tCgC = thr_mma.partition_C(gC)
        acc_shape = tCgC.shape[:3]
        accumulators = cute.make_rmem_tensor(acc_shape, self.acc_dtype)
        block_sum = cute.make_rmem_tensor(acc_shape, self.acc_dtype)
        k_tiles = cute.size(gA, mode=[3])

        if warpgroup_idx == 0:
            cute.arch.setmaxregister_decrease(self.load_registers)

        if warp_idx == self.load_warp:
            load_tiles = utils.StaticPersistentTileScheduler.create(
                tile_params, cute.arch.block_idx(), cute.arch.grid_dim()
            )
            work = load_tiles.initial_work_tile_info()
            load_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
            while work.is_valid_tile:
                m, n, batch = work.tile_idx
                for k_tile in cutlass.range(k_tiles, unroll=1):
                    loads.producer_acquire(load_state)
                    barrier = loads.producer_get_barrier(load_state)
                    index = load_state.index
                    cute.copy(tma_a, tAgA[(None, m, k_tile, batch)], tAsA[(None, index)], tma_bar_ptr=barrier)
                    cute.copy(tma_b, tBgB[(None, n, k_tile, batch)], tBsB[(None, index)], tma_bar_ptr=barrier)
                    loads.producer_commit(load_state)
                    load_state.advance()
                load_tiles.advance_to_next_work()
                work = load_tiles.get_current_work()
            loads.producer_tail(load_state)

        if warpgroup_idx > 0:
            cute.arch.setmaxregister_increase(self.mma_registers)
            mma_tiles = utils.StaticPersistentTileScheduler.create(
                tile_params, cute.arch.block_idx(), cute.arch.grid_dim()
            )
            work = mma_tiles.initial_work_tile_info()
            mma_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)

            store_atom = sm90_utils.sm90_get_smem_store_op(
                self.c_layout, elem_ty_d=self.c_dtype, elem_ty_acc=self.acc_dtype
            )
            matrix_atom = cute.make_copy_atom(
                cute.nvgpu.warp.StMatrix8x8x16bOp(self.c_layout.is_m_major_c(), 4), self.c_dtype
            )
            tiled_store = cute.make_tiled_copy_S(store_atom, cute.make_tiled_copy_C_atom(matrix_atom, tiled_mma))
            thr_store = tiled_store.get_slice(tidx - 128)
            tRS_sC = thr_store.partition_D(sC)
            tRS_rAcc = tiled_store.retile(accumulators)
            fragment = cute.make_layout(cute.shape(thr_store.partition_S(sC))[:3])
            tRS_rC = cute.make_rmem_tensor(fragment.shape, self.acc_dtype)
            tRS_rOut = cute.make_rmem_tensor(fragment.shape, self.c_dtype)
            per_tile = cute.size(tRS_rC)
            stores = pipeline.PipelineTmaStore.create(
                num_stages=self.epi_stages,
                producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.mma_threads),
            )

            # Which row and column of the tile each of a thread's registers holds
            thread_mma = tiled_mma.get_slice(tidx - 128)
            tCcC = thread_mma.partition_C(cute.make_identity_tensor(self.tile_shape_mnk[:2]))

            while work.is_valid_tile:
                m, n, batch = work.tile_idx
                first_row = m * self.tile_shape_mnk[0]
                scale_n = n * self.tile_shape_mnk[1] // SCALE_BLOCK
                accumulators.fill(0.0)
                for k_tile in cutlass.range(k_tiles, unroll=1):
                    loads.consumer_wait(mma_state)
                    warpgroup.fence()
                    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
                    for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                        part = (None, None, k_block, mma_state.index)
                        cute.gemm(tiled_mma, block_sum, tCrA[part], tCrB[part], block_sum)
                        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
                    warpgroup.commit_group()
                    scale_of_b = mSB[(scale_n, k_tile, batch)]
                    warpgroup.wait_group(0)
                    loads.consumer_release(mma_state)
                    # Both scales are the same for all of a row
                    for i in cutlass.range_constexpr(cute.size(block_sum)):
                        scale = mSA[(first_row + tCcC[i][0], k_tile, batch)] * scale_of_b
                        accumulators[i] = accumulators[i] + scale * block_sum[i]
                    mma_state.advance()

                gC_epi = cute.zipped_divide(gC[(None, None, *work.tile_idx)], self.epi_tile)
                bSG_sC, bSG_gC = cpasync.tma_partition(tma_c, 0, one, cute.group_modes(sC, 0, 2), gC_epi)
                epi_shape = gC_epi.shape[1]
                epi_tiles = cute.make_layout(epi_shape, stride=(epi_shape[1], 1))
                epi_count = cute.size(gC_epi, mode=[1])
                first = mma_tiles.num_tiles_executed * epi_count
                for epi_idx in cutlass.range_constexpr(epi_count):
                    for v in cutlass.range_constexpr(per_tile):
                        tRS_rC[v] = tRS_rAcc[epi_idx * per_tile + v]
                    tRS_rOut.store(tRS_rC.load().to(self.c_dtype))
                    buffer = (first + epi_idx) % self.epi_stages
                    cute.copy(tiled_store, tRS_rOut, tRS_sC[(None, None, None, buffer)])
                    cute.arch.fence_proxy("async.shared", space="cta")
                    self.epilogue_barrier.arrive_and_wait()
                    if warp_idx == self.store_warp:
                        cute.copy(
                            tma_c, bSG_sC[(None, buffer)], bSG_gC[(None, epi_tiles.get_hier_coord(epi_idx))]
                        )
                        stores.producer_commit()
                        stores.producer_acquire()
                    self.epilogue_barrier.arrive_and_wait()
                mma_tiles.advance_to_next_work()
                work = mma_tiles.get_current_work()
            stores.producer_tail()
