# SPDX-License-Identifier: Apache-2.0
"""Several products in one launch, in CuTe DSL for Hopper: C_g = A_g B_g^T for every group g (experts, say).

The rows of all groups lie behind each other in A (M, K) and C (M, N); B is (N, K, groups). A table gives each
group's first row, its rows and how much of K it has, which may be nothing. Rows of one group must not be
loaded or overwritten with another's, so every block keeps tensor maps of its own for A and C and changes them
when it comes to another group.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import cpasync, warpgroup


class GroupedGemm:
    """`blocks` blocks that share the tiles of all groups among them."""

    def __init__(self, acc_dtype: type[cutlass.Numeric], tile_shape_mn: tuple[int, int], groups: int, blocks: int):
        self.acc_dtype = acc_dtype
        self.tile_shape_mnk = (*tile_shape_mn, 1)
        # A thread of one warpgroup would run out of registers with a tile of 128 by 256.
        self.atom_layout_mnk = (2, 1, 1) if tile_shape_mn[0] * tile_shape_mn[1] > 128 * 128 else (1, 1, 1)
        self.mma_warpgroups = math.prod(self.atom_layout_mnk)
        self.mma_threads = 128 * self.mma_warpgroups
        self.threads_per_cta = 128 + self.mma_threads
        # Warps 0 to 3 are the loading warpgroup; the first warp behind them stores.
        self.load_warp = 0
        self.store_warp = 4
        self.load_registers = 40
        self.mma_registers = 232
        self.epilogue_barrier = pipeline.NamedBarrier(barrier_id=1, num_threads=self.mma_threads)
        self.groups = groups
        self.blocks = blocks
        self.stages = 4
        self.epi_stages = 2

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        c: cute.Tensor,
        table: cute.Tensor,
        maps: cute.Tensor,
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
        # Four instructions deep along K
        tile_k = 4 * cute.size(tiled_mma.shape_mnk, mode=[2])
        self.tile_shape_mnk = (self.tile_shape_mnk[0], self.tile_shape_mnk[1], tile_k)
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
        self.kernel(
            tma_a,
            a_tma,
            tma_b,
            b_tma,
            tma_c,
            c_tma,
            tiled_mma,
            a_smem_layout,
            b_smem_layout,
            c_smem_layout,
            a,
            c,
            table,
            maps,
        ).launch(
            grid=[self.blocks, 1, 1],
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
        whole_a: cute.Tensor,
        whole_c: cute.Tensor,
        table: cute.Tensor,
        maps: cute.Tensor,
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tidx, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
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

        # (tile M, tile K, tiles M, k tiles), (tile N, tile K, tiles N, k tiles, groups), (tile M, tile N, ...)
        gA = cute.local_tile(mA, cute.slice_(self.tile_shape_mnk, (None, 0, None)), (None, None))
        gB = cute.local_tile(mB, cute.slice_(self.tile_shape_mnk, (0, None, None)), (None, None, None))
        gC = cute.local_tile(mC, cute.slice_(self.tile_shape_mnk, (None, None, 0)), (None, None))
        one = cute.make_layout(1)
        tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
        tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))

        warpgroup_idx = cute.arch.make_warp_uniform(tidx // 128)
        warpgroup_threads = cute.make_layout(self.mma_warpgroups, stride=128)
        thr_mma = tiled_mma.get_slice(warpgroup_threads(warpgroup_idx - 1))
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        tCgC = thr_mma.partition_C(gC)
        accumulators = cute.make_rmem_tensor(tCgC.shape[:3], self.acc_dtype)
        tiles_n = cute.size(gC, mode=[3])

        updates = utils.TensorMapManager(utils.TensorMapUpdateMode.GMEM, 128)
        map_a = updates.get_tensormap_ptr(maps[(block, 0, None)].iterator)
        map_c = updates.get_tensormap_ptr(maps[(block, 1, None)].iterator)

        if warpgroup_idx == 0:
            cute.arch.setmaxregister_decrease(self.load_registers)

        if warp_idx == self.load_warp:
            updates.init_tensormap_from_atom(tma_a, map_a, self.load_warp)
            updates.fence_tensormap_initialization()
            load_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
            last_group = cutlass.Int32(-1)
            tile = block
            group, m, n = self.find(table, tiles_n, tile)
            while group < self.groups:
                k = table[(group, 2)]
                if group != last_group and k > 0:
                    rows_of_group = self.rows(whole_a, table[(group, 0)], (table[(group, 1)], k))
                    updates.update_tensormap((rows_of_group,), (tma_a,), (map_a,), self.load_warp, (None,))
                    updates.fence_tensormap_update(map_a)
                descriptor = updates.get_tensormap_ptr(map_a, cute.AddressSpace.generic)
                for k_tile in cutlass.range(cute.ceil_div(k, self.tile_shape_mnk[2]), unroll=1):
                    loads.producer_acquire(load_state)
                    barrier = loads.producer_get_barrier(load_state)
                    index = load_state.index
                    cute.copy(
                        tma_a,
                        tAgA[(None, m, k_tile)],
                        tAsA[(None, index)],
                        tma_bar_ptr=barrier,
                        tma_desc_ptr=descriptor,
                    )
                    cute.copy(tma_b, tBgB[(None, n, k_tile, group)], tBsB[(None, index)], tma_bar_ptr=barrier)
                    loads.producer_commit(load_state)
                    load_state.advance()
                last_group = group
                tile += self.blocks
                group, m, n = self.find(table, tiles_n, tile)
            loads.producer_tail(load_state)

        if warpgroup_idx > 0:
            cute.arch.setmaxregister_increase(self.mma_registers)
            updates.init_tensormap_from_atom(tma_c, map_c, self.store_warp)
            updates.fence_tensormap_initialization()
            mma_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            done_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)

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

            executed = cutlass.Int32(0)
            last_group = cutlass.Int32(-1)
            tile = block
            group, m, n = self.find(table, tiles_n, tile)
            while group < self.groups:
                if group != last_group and warp_idx == self.store_warp:
                    rows_of_group = self.rows(whole_c, table[(group, 0)], (table[(group, 1)], whole_c.shape[1]))
                    updates.update_tensormap((rows_of_group,), (tma_c,), (map_c,), self.store_warp, (None,))
                    updates.fence_tensormap_update(map_c)
                k_tiles = cute.ceil_div(table[(group, 2)], self.tile_shape_mnk[2])
                # A group may have no k tile at all: its C is zero.
                accumulators.fill(0.0)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
                for k_tile in cutlass.range(k_tiles, unroll=1):
                    loads.consumer_wait(mma_state)
                    warpgroup.fence()
                    for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                        part = (None, None, k_block, mma_state.index)
                        cute.gemm(tiled_mma, accumulators, tCrA[part], tCrB[part], accumulators)
                    warpgroup.commit_group()
                    # The WGMMA group before this one is done: its buffer is free.
                    warpgroup.wait_group(1)
                    if k_tile > 0:
                        loads.consumer_release(done_state)
                        done_state.advance()
                    mma_state.advance()
                warpgroup.wait_group(0)
                if k_tiles > 0:
                    loads.consumer_release(done_state)
                    done_state.advance()

                gC_epi = cute.zipped_divide(gC[(None, None, m, n)], self.epi_tile)
                bSG_sC, bSG_gC = cpasync.tma_partition(tma_c, 0, one, cute.group_modes(sC, 0, 2), gC_epi)
                epi_shape = gC_epi.shape[1]
                epi_tiles = cute.make_layout(epi_shape, stride=(epi_shape[1], 1))
                epi_count = cute.size(gC_epi, mode=[1])
                first = executed * epi_count
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
                            tma_c,
                            bSG_sC[(None, buffer)],
                            bSG_gC[(None, epi_tiles.get_hier_coord(epi_idx))],
                            tma_desc_ptr=updates.get_tensormap_ptr(map_c, cute.AddressSpace.generic),
                        )
                        stores.producer_commit()
                        stores.producer_acquire()
                    self.epilogue_barrier.arrive_and_wait()
                executed += 1
                last_group = group
                tile += self.blocks
                group, m, n = self.find(table, tiles_n, tile)
            stores.producer_tail()

    @cute.jit
    def find(self, table: cute.Tensor, tiles_n: cutlass.Int32, tile: cutlass.Int32):
        """Group of a tile and its place there; a group that does not exist if there are fewer tiles."""
        group = cutlass.Int32(self.groups)
        m = cutlass.Int32(0)
        n = cutlass.Int32(0)
        before = cutlass.Int32(0)
        for g in cutlass.range_constexpr(self.groups):
            count = cute.ceil_div(table[(g, 1)], self.tile_shape_mnk[0]) * tiles_n
            if tile >= before and tile < before + count:
                group = cutlass.Int32(g)
                m = (tile - before) // tiles_n
                n = (tile - before) % tiles_n
            before += count
        return group, m, n

    @cute.jit
    def rows(self, whole: cute.Tensor, first: cutlass.Int32, shape: tuple[cutlass.Int32, cutlass.Int32]):
        """A group's rows of a tensor whose second dimension is contiguous."""
        part = cute.domain_offset((first, 0), whole)
        return cute.make_tensor(part.iterator.align(16), cute.make_layout(shape, stride=whole.stride))
