# SPDX-License-Identifier: Apache-2.0
"""C = A B^T in CuTe DSL for Hopper, with MMAs that a helper of another module issues.

A is (M, K), B is (N, K), C is (M, N). Persistent blocks: one warpgroup loads, two multiply and store. They share each
tile, or with `pingpong` take turns, each with a tile of its own: one multiplies while the other stores. With
`rectify`, max(A, 0) is multiplied, from registers.
"""

import functools

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
import mma_helpers
from cutlass.cute.nvgpu import cpasync, warpgroup


class HelperGemm:
    """`blocks` blocks that share the tiles of `tile_shape_mn` among them."""

    def __init__(
        self, tile_shape_mn: tuple[int, int], blocks: int, rectify: bool = False, pingpong: bool = False
    ):
        self.tile_shape_mnk = (*tile_shape_mn, 64)
        self.blocks = blocks
        self.rectify = rectify
        self.pingpong = pingpong
        self.atom_layout_mnk = (1, 1, 1) if pingpong else (2, 1, 1)
        self.mma_threads = 128 if pingpong else 256  # that work on the same tile
        self.threads_per_cta = 384
        self.load_registers = 40
        self.mma_registers = 232
        self.stages = 4
        # Barriers 1 and 2 are for the threads of a tile, 3 and 4 hand the turn to a warpgroup.
        self.tile_barrier = 1
        self.turn_barrier = 3

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        self.dtype = a.element_type
        self.c_dtype = c.element_type
        a_layout, b_layout, c_layout = [utils.LayoutEnum.from_tensor(x) for x in (a, b, c)]
        source = warpgroup.OperandSource.RMEM if self.rectify else warpgroup.OperandSource.SMEM
        tiled_mma = sm90_utils.make_trivial_tiled_mma(
            self.dtype,
            self.dtype,
            a_layout.sm90_mma_major_mode(),
            b_layout.sm90_mma_major_mode(),
            cutlass.Float32,
            self.atom_layout_mnk,
            tiler_mn=(64, self.tile_shape_mnk[1]),
            a_source=source,
        )
        tile_m, tile_n, tile_k = self.tile_shape_mnk
        buffers = 2 if self.pingpong else 1
        a_smem_layout = sm90_utils.make_smem_layout_a(a_layout, self.tile_shape_mnk, self.dtype, self.stages)
        b_smem_layout = sm90_utils.make_smem_layout_b(b_layout, self.tile_shape_mnk, self.dtype, self.stages)
        c_smem_layout = sm90_utils.make_smem_layout_epi(self.c_dtype, c_layout, (tile_m, tile_n), buffers)
        a_one, b_one, c_one = [
            cute.slice_(x, (None, None, 0)) for x in (a_smem_layout, b_smem_layout, c_smem_layout)
        ]
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        tma_a, a_tma = cpasync.make_tiled_tma_atom(load, a, a_one, (tile_m, tile_k))
        tma_b, b_tma = cpasync.make_tiled_tma_atom(load, b, b_one, (tile_n, tile_k))
        tma_c, c_tma = cpasync.make_tiled_tma_atom(store, c, c_one, (tile_m, tile_n))
        self.store_atom = functools.partial(sm90_utils.get_smem_store_op, c_layout, self.c_dtype, cutlass.Float32)

        @cute.struct
        class SharedStorage:
            barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            a: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(a_smem_layout)], 1024]
            b: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(b_smem_layout)], 1024]
            c: cute.struct.Align[cute.struct.MemRange[self.c_dtype, cute.cosize(c_smem_layout)], 1024]

        self.shared_storage = SharedStorage
        self.bytes = cute.size_in_bytes(self.dtype, a_one) + cute.size_in_bytes(self.dtype, b_one)
        tiles = cute.ceil_div(c.shape[0], tile_m) * cute.ceil_div(c.shape[1], tile_n)
        self.kernel(
            tma_a, a_tma, tma_b, b_tma, tma_c, c_tma, tiled_mma, a_smem_layout, b_smem_layout, c_smem_layout
        ).launch(
            grid=[cutlass.min(self.blocks, tiles), 1, 1],
            block=[self.threads_per_cta, 1, 1],
            min_blocks_per_mp=1,
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
        block, _, _ = cute.arch.block_idx()
        blocks, _, _ = cute.arch.grid_dim()
        smem = utils.SmemAllocator()
        storage = smem.allocate(self.shared_storage)
        sA = storage.a.get_tensor(a_smem_layout.outer, swizzle=a_smem_layout.inner)
        sB = storage.b.get_tensor(b_smem_layout.outer, swizzle=b_smem_layout.inner)
        sC = storage.c.get_tensor(c_smem_layout.outer, swizzle=c_smem_layout.inner)
        loads = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.barriers.data_ptr(),
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.mma_threads // 32),
            tx_count=self.bytes,
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )

        # (tile M, tile K, tiles M, k tiles), (tile N, tile K, tiles N, k tiles), (tile M, tile N, tiles M, tiles N)
        tile_m, tile_n, tile_k = self.tile_shape_mnk
        gA = cute.local_tile(mA, (tile_m, tile_k), (None, None))
        gB = cute.local_tile(mB, (tile_n, tile_k), (None, None))
        gC = cute.local_tile(mC, (tile_m, tile_n), (None, None))
        one = cute.make_layout(1)
        tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
        tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
        tCsC, tCgC = cpasync.tma_partition(tma_c, 0, one, cute.group_modes(sC, 0, 2), cute.group_modes(gC, 0, 2))
        tiles_m, tiles_n = cute.size(gC, mode=[2]), cute.size(gC, mode=[3])
        k_tiles = cute.size(gA, mode=[3])

        if warp_idx < 4:
            cute.arch.setmaxregister_decrease(self.load_registers)
            if warp_idx == 0:
                load_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
                for tile in cutlass.range(block, tiles_m * tiles_n, blocks, unroll=1):
                    m, n = tile % tiles_m, tile // tiles_m
                    for k_tile in cutlass.range(k_tiles, unroll=1):
                        loads.producer_acquire(load_state)
                        barrier, index = loads.producer_get_barrier(load_state), load_state.index
                        cute.copy(tma_a, tAgA[(None, m, k_tile)], tAsA[(None, index)], tma_bar_ptr=barrier)
                        cute.copy(tma_b, tBgB[(None, n, k_tile)], tBsB[(None, index)], tma_bar_ptr=barrier)
                        loads.producer_commit(load_state)
                        load_state.advance()
                loads.producer_tail(load_state)
        else:
            cute.arch.setmaxregister_increase(self.mma_registers)
            # Who works on the same tile, and which tiles
            team = warp_idx // 4 - 1 if cutlass.const_expr(self.pingpong) else 0
            teams = 2 if cutlass.const_expr(self.pingpong) else 1
            thread = tidx - 128 - 128 * team
            thr_mma = tiled_mma.get_slice(thread)
            tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
            acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((tile_m, tile_n)))
            if cutlass.const_expr(self.rectify):
                matrix_atom = cute.make_copy_atom(cute.nvgpu.warp.LdMatrix8x8x16bOp(False, 4), self.dtype)
                copy_a = cute.make_tiled_copy_A(matrix_atom, tiled_mma)
                tCrA = copy_a.get_slice(thread).partition_S(sA)
                registers = cute.make_rmem_tensor(tiled_mma.partition_shape_A((tile_m, tile_k)), self.dtype)
                multiply = functools.partial(mma_helpers.multiply_rectified, tiled_mma, copy_a, registers, acc)
            else:
                tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
                multiply = functools.partial(mma_helpers.multiply, tiled_mma, acc)
            tiled_store = cute.make_tiled_copy_C(self.store_atom(), tiled_mma)
            tRS_sC = tiled_store.get_slice(thread).partition_D(sC)
            out = cute.make_rmem_tensor(acc.layout, self.c_dtype)
            team_barrier = pipeline.NamedBarrier(self.tile_barrier + team, self.mma_threads)
            storing_warp = warp_idx == 4 + 4 * team

            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            if team > 0:
                for _ in cutlass.range(k_tiles, unroll=1):
                    state.advance()
            for tile in cutlass.range(block + team * blocks, tiles_m * tiles_n, teams * blocks, unroll=1):
                if cutlass.const_expr(self.pingpong):
                    self.wait_for_turn(team, tile != block)
                for k_tile in cutlass.range(k_tiles, unroll=1):
                    loads.consumer_wait(state)
                    part = (None, None, None, state.index)
                    multiply(tCrA[part], tCrB[part], k_tile == 0)
                    loads.consumer_release(state)
                    state.advance()
                if cutlass.const_expr(self.pingpong):
                    if tile + blocks < tiles_m * tiles_n:
                        cute.arch.barrier_arrive(barrier_id=self.turn_barrier + 1 - team, number_of_threads=256)
                    for _ in cutlass.range(k_tiles, unroll=1):
                        state.advance()

                # The buffer is free when the last store has read it.
                if storing_warp:
                    with cute.arch.elect_one():
                        cute.arch.cp_async_bulk_wait_group(0, read=True)
                team_barrier.arrive_and_wait()
                out.store(acc.load().to(self.c_dtype))
                cute.copy(tiled_store, tiled_store.retile(out), tRS_sC[(None, None, None, team)])
                cute.arch.fence_proxy("async.shared", space="cta")
                team_barrier.arrive_and_wait()
                if storing_warp:
                    with cute.arch.elect_one():
                        cute.copy(tma_c, tCsC[(None, team)], tCgC[(None, tile % tiles_m, tile // tiles_m)])
                        cute.arch.cp_async_bulk_commit_group()
            if storing_warp:
                with cute.arch.elect_one():
                    cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def wait_for_turn(self, team: cutlass.Int32, needed: cutlass.Boolean):
        """The first tile of a block needs no turn; every other one follows the MMAs of the tile before."""
        if needed:
            cute.arch.barrier(barrier_id=self.turn_barrier + team, number_of_threads=256)
