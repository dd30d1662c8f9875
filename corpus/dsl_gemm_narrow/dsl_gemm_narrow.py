# SPDX-License-Identifier: Apache-2.0
"""C = A B^T with a narrow tile in CuTe DSL for Hopper: 64 rows, the epilogue's tile written out.

A is (M, K, L), B is (N, K, L), C is (M, N, L), with any dimension but L contiguous. Each k tile is
multiplied and waited for before its buffer is given back, so the loads run ahead by as many tiles as there are buffers.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import cpasync, warpgroup


class NarrowGemm:
    """One tile of `tile_shape_mn` per block of one or two warpgroups."""

    def __init__(self, acc_dtype: type[cutlass.Numeric], tile_shape_mn: tuple[int, int], stages: int = 3):
        self.acc_dtype = acc_dtype
        self.tile_shape_mnk = (*tile_shape_mn, 1)
        self.atom_layout_mnk = (1, 1, 1)
        self.threads_per_cta = 128 * math.prod(self.atom_layout_mnk)
        self.stages = stages
        self.epi_stages = 2

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
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
        # Four instructions deep along K
        tile_k = 4 * cute.size(tiled_mma.shape_mnk, mode=[2])
        self.tile_shape_mnk = (self.tile_shape_mnk[0], self.tile_shape_mnk[1], tile_k)
        self.epi_tile = (64, 32)

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
        self.kernel(
            tma_a, a_tma, tma_b, b_tma, tma_c, c_tma, tiled_mma, a_smem_layout, b_smem_layout, c_smem_layout
        ).launch(
            grid=cute.ceil_div((*c.layout.shape,), (tile_m, tile_n, 1)),
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
        tiled_mma: cute.TiledMma,
        a_smem_layout: cute.ComposedLayout,
        b_smem_layout: cute.ComposedLayout,
        c_smem_layout: cute.ComposedLayout,
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tidx, _, _ = cute.arch.thread_idx()
        bidx, bidy, bidz = cute.arch.block_idx()
        if warp_idx == 0:
            cpasync.prefetch_descriptor(tma_a)
            cpasync.prefetch_descriptor(tma_b)

        smem = utils.SmemAllocator()
        storage = smem.allocate(self.shared_storage)
        sA = storage.a.get_tensor(a_smem_layout.outer, swizzle=a_smem_layout.inner)
        sB = storage.b.get_tensor(b_smem_layout.outer, swizzle=b_smem_layout.inner)
        sC = storage.c.get_tensor(c_smem_layout.outer, swizzle=c_smem_layout.inner)

        # Every warp gives a buffer back when its part of the WGMMA is done.
        num_warps = self.threads_per_cta // 32
        loads = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.load_barriers.data_ptr(),
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, num_warps),
            tx_count=cute.size_in_bytes(self.a_dtype, cute.slice_(a_smem_layout, (None, None, 0)))
            + cute.size_in_bytes(self.b_dtype, cute.slice_(b_smem_layout, (None, None, 0))),
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )

        # (tile M, tile K, k tiles), (tile N, tile K, k tiles), (tile M, tile N)
        coord = (bidx, bidy, None, bidz)
        gA = cute.local_tile(mA, self.tile_shape_mnk, coord, proj=(1, None, 1))
        gB = cute.local_tile(mB, self.tile_shape_mnk, coord, proj=(None, 1, 1))
        gC = cute.local_tile(mC, self.tile_shape_mnk, coord, proj=(1, 1, None))
        one = cute.make_layout(1)
        tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
        tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))

        thr_mma = tiled_mma.get_slice(cute.arch.make_warp_uniform(tidx // 128) * 128)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        accumulators = cute.make_rmem_tensor(thr_mma.partition_C(gC).shape, self.acc_dtype)

        k_tiles = cute.size(gA, mode=[2])
        load_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
        mma_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)

        if warp_idx == 0:
            for _ in cutlass.range(cutlass.min(self.stages, k_tiles), unroll=1):
                loads.producer_acquire(load_state)
                barrier = loads.producer_get_barrier(load_state)
                cute.copy(tma_a, tAgA[(None, load_state.count)], tAsA[(None, load_state.index)], tma_bar_ptr=barrier)
                cute.copy(tma_b, tBgB[(None, load_state.count)], tBsB[(None, load_state.index)], tma_bar_ptr=barrier)
                loads.producer_commit(load_state)
                load_state.advance()

        tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
        for _ in cutlass.range(k_tiles, unroll=1):
            loads.consumer_wait(mma_state)
            warpgroup.fence()
            for k_block in cutlass.range(cute.size(tCrA, mode=[2]), unroll_full=True):
                part = (None, None, k_block, mma_state.index)
                cute.gemm(tiled_mma, accumulators, tCrA[part], tCrB[part], accumulators)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            # Nothing else is in flight, so the buffer is free as soon as this WGMMA group is done.
            warpgroup.wait_group(0)
            loads.consumer_release(mma_state)
            mma_state.advance()
            if warp_idx == 0 and load_state.count < k_tiles:
                loads.producer_acquire(load_state)
                barrier = loads.producer_get_barrier(load_state)
                cute.copy(tma_a, tAgA[(None, load_state.count)], tAsA[(None, load_state.index)], tma_bar_ptr=barrier)
                cute.copy(tma_b, tBgB[(None, load_state.count)], tBsB[(None, load_state.index)], tma_bar_ptr=barrier)
                loads.producer_commit(load_state)
                load_state.advance()

        # Registers to shared memory to global memory, one epilogue tile at a time
        store_atom = cute.make_copy_atom(
            cute.nvgpu.warp.StMatrix8x8x16bOp(self.c_layout.is_m_major_c(), 4), self.c_dtype
        )
        tiled_store = cute.make_tiled_copy_S(store_atom, cute.make_tiled_copy_C_atom(store_atom, tiled_mma))
        thr_store = tiled_store.get_slice(tidx)
        tRS_sC = thr_store.partition_D(sC)
        tRS_rAcc = tiled_store.retile(accumulators)
        fragment = cute.make_layout(cute.shape(thr_store.partition_S(sC))[:3])
        tRS_rC = cute.make_rmem_tensor(fragment.shape, self.acc_dtype)
        per_tile = cute.size(tRS_rC)

        gC_epi = cute.zipped_divide(gC, self.epi_tile)
        bSG_sC, bSG_gC = cpasync.tma_partition(tma_c, 0, one, cute.group_modes(sC, 0, 2), gC_epi)
        epi_shape = gC_epi.shape[1]
        epi_tiles = cute.make_layout(epi_shape, stride=(epi_shape[1], 1))
        stores = pipeline.PipelineTmaStore.create(
            num_stages=self.epi_stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.threads_per_cta),
        )
        for epi_idx in cutlass.range_constexpr(cute.size(gC_epi, mode=[1])):
            for v in cutlass.range_constexpr(per_tile):
                tRS_rC[v] = tRS_rAcc[epi_idx * per_tile + v]
            tRS_rOut = cute.make_rmem_tensor(fragment.shape, self.c_dtype)
            tRS_rOut.store(tRS_rC.load().to(self.c_dtype))

            buffer = epi_idx % self.epi_stages
            cute.copy(tiled_store, tRS_rOut, tRS_sC[(None, None, None, buffer)])
            cute.arch.fence_proxy("async.shared", space="cta")
            pipeline.sync(barrier_id=1)
            if warp_idx == 0:
                cute.copy(tma_c, bSG_sC[(None, buffer)], bSG_gC[(None, epi_tiles.get_hier_coord(epi_idx))])
                stores.producer_commit()
                stores.producer_acquire()
            pipeline.sync(barrier_id=1)
        if warp_idx == 0:
            stores.producer_tail()
