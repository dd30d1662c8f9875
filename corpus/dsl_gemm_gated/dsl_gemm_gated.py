# SPDX-License-Identifier: Apache-2.0
"""C = silu(A G^T) * (A U^T) in CuTe DSL for Hopper: two products of one A, gated in registers.

A is (M, K), G and U are (N, K), C is (M, N). Two warpgroups multiply; one more warp loads. Each thread holds two
accumulators, and a tile is wider than an MMA, so every `cute.gemm` stands for several. The groups of two k tiles are in
flight. C is written from registers.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cutlass_dsl import T, dsl_user_op


@dsl_user_op
def settled(value: cutlass.Int32, *, loc=None, ip=None) -> cutlass.Int32:
    """The value, taken apart into halves no earlier than here: a wait does not keep the compiler from that."""
    asm = llvm.inline_asm(
        T.i32(), [value.ir_value(loc=loc, ip=ip)], "mov.b32 $0, $1;", "=r,r", has_side_effects=True, loc=loc, ip=ip
    )
    return cutlass.Int32(asm)


class GatedGemm:
    """One tile of `tile_shape_mn` per block, by MMAs of `mma_n` columns."""

    def __init__(self, acc_dtype: type[cutlass.Numeric], tile_shape_mn: tuple[int, int], mma_n: int):
        self.acc_dtype = acc_dtype
        self.tile_shape_mnk = (*tile_shape_mn, 64)
        self.mma_n = mma_n
        self.mma_warps = 8
        self.stages = 3
        # Two sums in half precision share a register, and a loop over k tiles would take them apart in each round.
        self.unroll = acc_dtype.width == 16

    @cute.jit
    def __call__(self, a: cute.Tensor, g: cute.Tensor, u: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        self.dtype = a.element_type
        a_layout, b_layout = utils.LayoutEnum.from_tensor(a), utils.LayoutEnum.from_tensor(g)
        tiled_mma = sm90_utils.make_trivial_tiled_mma(
            self.dtype,
            self.dtype,
            a_layout.sm90_mma_major_mode(),
            b_layout.sm90_mma_major_mode(),
            self.acc_dtype,
            (self.mma_warps // 4, 1, 1),
            tiler_mn=(64, self.mma_n),
        )
        tile_m, tile_n, tile_k = self.tile_shape_mnk
        a_smem_layout = sm90_utils.make_smem_layout_a(a_layout, self.tile_shape_mnk, self.dtype, self.stages)
        b_smem_layout = sm90_utils.make_smem_layout_b(b_layout, self.tile_shape_mnk, self.dtype, self.stages)
        a_one, b_one = [cute.slice_(x, (None, None, 0)) for x in (a_smem_layout, b_smem_layout)]
        load = cpasync.CopyBulkTensorTileG2SOp()
        tma_a, a_tma = cpasync.make_tiled_tma_atom(load, a, a_one, (tile_m, tile_k))
        tma_g, g_tma = cpasync.make_tiled_tma_atom(load, g, b_one, (tile_n, tile_k))
        tma_u, u_tma = cpasync.make_tiled_tma_atom(load, u, b_one, (tile_n, tile_k))

        @cute.struct
        class SharedStorage:
            barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            a: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(a_smem_layout)], 1024]
            g: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(b_smem_layout)], 1024]
            u: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(b_smem_layout)], 1024]

        self.shared_storage = SharedStorage
        self.bytes = cute.size_in_bytes(self.dtype, a_one) + 2 * cute.size_in_bytes(self.dtype, b_one)
        self.kernel(
            tma_a, a_tma, tma_g, g_tma, tma_u, u_tma, c, tiled_mma, a_smem_layout, b_smem_layout
        ).launch(
            grid=(*cute.ceil_div(c.shape, (tile_m, tile_n)), 1),
            block=[32 * (self.mma_warps + 1), 1, 1],
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        tma_a: cute.CopyAtom,
        mA: cute.Tensor,
        tma_g: cute.CopyAtom,
        mG: cute.Tensor,
        tma_u: cute.CopyAtom,
        mU: cute.Tensor,
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
        sG = storage.g.get_tensor(b_smem_layout.outer, swizzle=b_smem_layout.inner)
        sU = storage.u.get_tensor(b_smem_layout.outer, swizzle=b_smem_layout.inner)
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
        gG = cute.local_tile(mG, self.tile_shape_mnk, coord, proj=(None, 1, 1))
        gU = cute.local_tile(mU, self.tile_shape_mnk, coord, proj=(None, 1, 1))
        k_tiles = cute.size(gA, mode=[2])

        if warp_idx == self.mma_warps:
            one = cute.make_layout(1)
            parts = [
                (atom, *cpasync.tma_partition(atom, 0, one, cute.group_modes(s, 0, 2), cute.group_modes(g, 0, 2)))
                for atom, s, g in ((tma_a, sA, gA), (tma_g, sG, gG), (tma_u, sU, gU))
            ]
            load_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
            for k_tile in cutlass.range(k_tiles, unroll=1):
                loads.producer_acquire(load_state)
                barrier = loads.producer_get_barrier(load_state)
                for atom, to, source in parts:
                    cute.copy(atom, source[(None, k_tile)], to[(None, load_state.index)], tma_bar_ptr=barrier)
                loads.producer_commit(load_state)
                load_state.advance()
            loads.producer_tail(load_state)

        if warp_idx < self.mma_warps:
            thr_mma = tiled_mma.get_slice(tidx)
            tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
            tCrG = tiled_mma.make_fragment_B(thr_mma.partition_B(sG))
            tCrU = tiled_mma.make_fragment_B(thr_mma.partition_B(sU))
            shape = tiled_mma.partition_shape_C(self.tile_shape_mnk[:2])
            gate, up = tiled_mma.make_fragment_C(shape), tiled_mma.make_fragment_C(shape)

            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            for k_tile in cutlass.range(k_tiles, unroll_full=self.unroll):
                loads.consumer_wait(state)
                warpgroup.fence()
                for acc, tCrB in ((gate, tCrG), (up, tCrU)):
                    tiled_mma.set(warpgroup.Field.ACCUMULATE, k_tile != 0)
                    for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                        part = (None, None, k_block, state.index)
                        cute.gemm(tiled_mma, acc, tCrA[part], tCrB[part], acc)
                        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
                    warpgroup.commit_group()
                # Both groups of the k tile before are done.
                warpgroup.wait_group(2)
                if k_tile > 0:
                    loads.consumer_release(done)
                    done.advance()
                state.advance()
            warpgroup.wait_group(0)
            loads.consumer_release(done)

            if cutlass.const_expr(self.acc_dtype.width == 16):
                for acc in (gate, up):
                    packed = cute.recast_tensor(acc, cutlass.Int32)
                    for i in cutlass.range_constexpr(cute.size(packed)):
                        packed[i] = settled(packed[i])
            tile = (self.tile_shape_mnk[0], self.tile_shape_mnk[1])
            tCgC = thr_mma.partition_C(cute.local_tile(mC, tile, (bidx, bidy)))
            tCcC = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mC.shape), tile, (bidx, bidy)))
            for i in cutlass.range_constexpr(cute.size(gate)):
                if cute.elem_less(tCcC[i], mC.shape):
                    tCgC[i] = self.gated(gate[i].to(cutlass.Float32), up[i].to(cutlass.Float32)).to(tCgC.element_type)

    @staticmethod
    def gated(gate: cutlass.Float32, up: cutlass.Float32) -> cutlass.Float32:
        """silu(gate) * up"""
        return gate / (1.0 + cute.math.exp(-gate)) * up
