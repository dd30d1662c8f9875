# SPDX-License-Identifier: Apache-2.0
"""C = 2 A B^T in CuTe DSL for Hopper, with A converted and doubled in registers: A is (M, K), B is (N, K) of 16 bits,
C is (M, N). Each of two warpgroups has 64 rows of a tile; one more warp loads.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import cpasync, warpgroup


class MixedGemm:
    def __init__(self, tile_n: int):
        self.tile_n = tile_n
        self.tile_k = 64
        self.warpgroups = 2
        self.stages = 3

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        self.a_dtype, self.dtype = a.element_type, b.element_type
        a_layout, b_layout = utils.LayoutEnum.from_tensor(a), utils.LayoutEnum.from_tensor(b)
        tile = (64, self.tile_n, self.tile_k)
        tiled_mma = sm90_utils.make_trivial_tiled_mma(
            self.dtype,
            self.dtype,
            a_layout.sm90_mma_major_mode(),
            b_layout.sm90_mma_major_mode(),
            cutlass.Float32,
            (1, 1, 1),
            tiler_mn=(64, self.tile_n),
            a_source=warpgroup.OperandSource.RMEM,
        )
        a_smem_layout = sm90_utils.make_smem_layout_a(a_layout, tile, a.element_type, self.stages * self.warpgroups)
        b_smem_layout = sm90_utils.make_smem_layout_b(b_layout, tile, self.dtype, self.stages)
        load = cpasync.CopyBulkTensorTileG2SOp()
        a_one, b_one = [cute.slice_(x, (None, None, 0)) for x in (a_smem_layout, b_smem_layout)]
        tma_a, a_tma = cpasync.make_tiled_tma_atom(load, a, a_one, (64, self.tile_k))
        tma_b, b_tma = cpasync.make_tiled_tma_atom(load, b, b_one, (self.tile_n, self.tile_k))

        @cute.struct
        class SharedStorage:
            barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            a: cute.struct.Align[cute.struct.MemRange[self.a_dtype, cute.cosize(a_smem_layout)], 1024]
            b: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(b_smem_layout)], 1024]

        self.shared_storage = SharedStorage
        self.bytes = self.warpgroups * cute.size_in_bytes(a.element_type, a_one) + cute.size_in_bytes(self.dtype, b_one)
        self.kernel(tma_a, a_tma, tma_b, b_tma, c, tiled_mma, a_smem_layout, b_smem_layout).launch(
            grid=[cute.ceil_div(c.shape[0], 64 * self.warpgroups), cute.ceil_div(c.shape[1], self.tile_n), 1],
            block=[128 * self.warpgroups + 32, 1, 1],
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
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * self.warpgroups),
            tx_count=self.bytes,
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        gA = cute.local_tile(mA, (64, self.tile_k), (None, None))
        gB = cute.local_tile(mB, (self.tile_n, self.tile_k), (bidy, None))
        k_tiles = cute.size(gB, mode=[2])

        if warp_idx == 4 * self.warpgroups:
            one = cute.make_layout(1)
            tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
            tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
            load_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
            for k_tile in cutlass.range(k_tiles, unroll=1):
                loads.producer_acquire(load_state)
                barrier, index = loads.producer_get_barrier(load_state), load_state.index
                for part in cutlass.range_constexpr(self.warpgroups):
                    cute.copy(
                        tma_a,
                        tAgA[(None, self.warpgroups * bidx + part, k_tile)],
                        tAsA[(None, self.warpgroups * index + part)],
                        tma_bar_ptr=barrier,
                    )
                cute.copy(tma_b, tBgB[(None, k_tile)], tBsB[(None, index)], tma_bar_ptr=barrier)
                loads.producer_commit(load_state)
                load_state.advance()
            loads.producer_tail(load_state)
        else:
            team = warp_idx // 4
            thr_mma = tiled_mma.get_slice(tidx % 128)
            tCsA = thr_mma.partition_A(sA)
            tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
            bytes_a = cute.make_rmem_tensor(tCsA[(None, None, None, 0)].shape, sA.element_type)
            tCrA = tiled_mma.make_fragment_A(tCsA[(None, None, None, 0)])
            acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((64, self.tile_n)))
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
            for _ in cutlass.range(k_tiles, unroll=1):
                loads.consumer_wait(state)
                cute.autovec_copy(tCsA[(None, None, None, self.warpgroups * state.index + team)], bytes_a)
                tCrA.store((bytes_a.load().to(self.dtype) * 2).to(self.dtype))
                # One lane of the warp gives the buffer back, for TMA to write: the reads of all come before.
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.sync_warp()
                warpgroup.fence()
                for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                    cute.gemm(
                        tiled_mma,
                        acc,
                        tCrA[(None, None, k_block)],
                        tCrB[(None, None, k_block, state.index)],
                        acc,
                    )
                    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                loads.consumer_release(state)
                state.advance()

            coord = (self.warpgroups * bidx + team, bidy)
            tCgC = thr_mma.partition_C(cute.local_tile(mC, (64, self.tile_n), coord))
            tCcC = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mC.shape), (64, self.tile_n), coord))
            for i in cutlass.range_constexpr(cute.size(acc)):
                if cute.elem_less(tCcC[i], mC.shape):
                    tCgC[i] = acc[i].to(tCgC.element_type)
