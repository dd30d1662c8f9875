# SPDX-License-Identifier: Apache-2.0
"""O = softmax(scale Q K^T) V in CuTe DSL for Hopper, one tile of queries for three warpgroups.

Q, K and O are (S, D, H), V is (D, S, H), L is (S, H). One tiled MMA spans all consumer warpgroups; a fourth warpgroup
loads. The scores of the next keys are multiplied while the output takes up the keys before, so two WGMMA groups are in
flight, and the probabilities stay in registers. O leaves through the memory that the queries came in.
"""

import math

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
def fma(a: cutlass.Float32, b: cutlass.Float32, c: cutlass.Float32, *, loc=None, ip=None) -> cutlass.Float32:
    """a * b + c, rounded once; of `*` and `+` ptxas decides."""
    values = [cutlass.Float32(x).ir_value(loc=loc, ip=ip) for x in (a, b, c)]
    return cutlass.Float32(
        llvm.inline_asm(T.f32(), values, "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", loc=loc, ip=ip)
    )


def by_rows(acc: cute.Tensor) -> cute.Tensor:
    """An accumulator ((2, 2, N / 8), M, 1) as (rows, columns)."""
    (pair, halves, blocks), m, n = acc.layout.shape
    (d_pair, d_halves, d_blocks), d_m, d_n = acc.layout.stride
    layout = cute.make_layout(((halves, m), (pair, blocks, n)), stride=((d_halves, d_m), (d_pair, d_blocks, d_n)))
    return cute.make_tensor(acc.iterator, layout)


class WideAttention:
    """Heads of `head_dim` columns; `block_n` keys at a time against 64 queries of each of `consumers` warpgroups."""

    def __init__(self, head_dim: int, block_n: int = 64, consumers: int = 3, causal: bool = False):
        self.head_dim = head_dim
        self.block_n = block_n
        self.block_m = 64 * consumers
        self.consumers = consumers
        self.causal = causal
        self.stages = 2
        self.load_registers = 32
        self.mma_registers = 160
        self.mma_threads = 128 * consumers
        self.output_barrier = pipeline.NamedBarrier(barrier_id=1, num_threads=self.mma_threads)

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale: cutlass.Float32,
        stream: cuda.CUstream,
    ):
        self.dtype = q.element_type
        q_layout, k_layout, v_layout, o_layout = [utils.LayoutEnum.from_tensor(x) for x in (q, k, v, o)]
        self.o_layout = o_layout
        warpgroups = (self.consumers, 1, 1)
        qk_tile = (self.block_m, self.block_n, self.head_dim)
        pv_tile = (self.block_m, self.head_dim, self.block_n)
        qk_op = warpgroup.MmaF16BF16Op(
            self.dtype,
            cutlass.Float32,
            (64, self.block_n, 16),
            warpgroup.OperandSource.SMEM,
            q_layout.sm90_mma_major_mode(),
            k_layout.sm90_mma_major_mode(),
        )
        pv_op = warpgroup.MmaF16BF16Op(
            self.dtype,
            cutlass.Float32,
            (64, self.head_dim, 16),
            warpgroup.OperandSource.RMEM,
            cute.nvgpu.OperandMajorMode.K,
            v_layout.sm90_mma_major_mode(),
        )
        qk_mma = cute.make_tiled_mma(cute.make_mma_atom(qk_op), warpgroups)
        pv_mma = cute.make_tiled_mma(cute.make_mma_atom(pv_op), warpgroups)

        q_smem_layout = sm90_utils.make_smem_layout_a(q_layout, qk_tile, self.dtype, 1)
        k_smem_layout = sm90_utils.make_smem_layout_b(k_layout, qk_tile, self.dtype, self.stages)
        v_smem_layout = sm90_utils.make_smem_layout_b(v_layout, pv_tile, self.dtype, self.stages)
        q_tile, k_tile, v_tile = pv_tile[:2], (self.block_n, self.head_dim), (self.head_dim, self.block_n)
        o_smem_layout = sm90_utils.make_smem_layout_epi(self.dtype, o_layout, q_tile, 1)
        assert cute.cosize(o_smem_layout) == cute.cosize(q_smem_layout)

        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        q_one, k_one, v_one, o_one = [
            cute.slice_(x, (None, None, 0)) for x in (q_smem_layout, k_smem_layout, v_smem_layout, o_smem_layout)
        ]
        tma_q, q_tma = cpasync.make_tiled_tma_atom(load, q, q_one, q_tile)
        tma_k, k_tma = cpasync.make_tiled_tma_atom(load, k, k_one, k_tile)
        tma_v, v_tma = cpasync.make_tiled_tma_atom(load, v, v_one, v_tile)
        tma_o, o_tma = cpasync.make_tiled_tma_atom(store, o, o_one, q_tile)

        @cute.struct
        class SharedStorage:
            q_barriers: cute.struct.MemRange[cutlass.Int64, 2]
            k_barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            v_barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            q: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(q_smem_layout)], 1024]
            k: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(k_smem_layout)], 1024]
            v: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(v_smem_layout)], 1024]

        self.shared_storage = SharedStorage
        self.bytes = [cute.size_in_bytes(self.dtype, x) for x in (q_one, k_one, v_one)]
        self.kernel(
            (tma_q, tma_k, tma_v, tma_o),
            (q_tma, k_tma, v_tma, o_tma),
            lse,
            scale,
            qk_mma,
            pv_mma,
            (q_smem_layout, k_smem_layout, v_smem_layout, o_smem_layout),
        ).launch(
            grid=[cute.ceil_div(q.shape[0], self.block_m), q.shape[2], 1],
            block=[128 + self.mma_threads, 1, 1],
            min_blocks_per_mp=1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        atoms: tuple[cute.CopyAtom, ...],
        tensors: tuple[cute.Tensor, ...],
        mL: cute.Tensor,
        scale: cutlass.Float32,
        qk_mma: cute.TiledMma,
        pv_mma: cute.TiledMma,
        smem_layouts: tuple[cute.ComposedLayout, ...],
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tidx, _, _ = cute.arch.thread_idx()
        block, head, _ = cute.arch.block_idx()
        tma_q, tma_k, tma_v, tma_o = atoms
        mQ, mK, mV, mO = tensors
        q_smem_layout, k_smem_layout, v_smem_layout, o_smem_layout = smem_layouts

        smem = utils.SmemAllocator()
        storage = smem.allocate(self.shared_storage)
        sQ = storage.q.get_tensor(q_smem_layout.outer, swizzle=q_smem_layout.inner)
        sK = storage.k.get_tensor(k_smem_layout.outer, swizzle=k_smem_layout.inner)
        sV = storage.v.get_tensor(v_smem_layout.outer, swizzle=v_smem_layout.inner)
        sO = storage.q.get_tensor(o_smem_layout.outer, swizzle=o_smem_layout.inner)

        producer = pipeline.CooperativeGroup(pipeline.Agent.Thread)
        consumer = pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * self.consumers)
        rings = [(storage.q_barriers, 1), (storage.k_barriers, self.stages), (storage.v_barriers, self.stages)]
        q_loads, k_loads, v_loads = [
            pipeline.PipelineTmaAsync.create(
                barrier_storage=barriers.data_ptr(),
                num_stages=stages,
                producer_group=producer,
                consumer_group=consumer,
                tx_count=count,
                cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
            )
            for (barriers, stages), count in zip(rings, self.bytes, strict=True)
        ]

        queries, keys = cute.size(mQ, mode=[0]), cute.size(mK, mode=[0])
        gQ = cute.local_tile(mQ[(None, None, head)], (self.block_m, self.head_dim), (block, 0))
        gK = cute.local_tile(mK[(None, None, head)], (self.block_n, self.head_dim), (None, 0))
        gV = cute.local_tile(mV[(None, None, head)], (self.head_dim, self.block_n), (0, None))
        gO = cute.local_tile(mO[(None, None, head)], (self.block_m, self.head_dim), (block, 0))
        one = cute.make_layout(1)
        tQsQ, tQgQ = cpasync.tma_partition(tma_q, 0, one, cute.group_modes(sQ, 0, 2), cute.group_modes(gQ, 0, 2))
        tKsK, tKgK = cpasync.tma_partition(tma_k, 0, one, cute.group_modes(sK, 0, 2), cute.group_modes(gK, 0, 2))
        tVsV, tVgV = cpasync.tma_partition(tma_v, 0, one, cute.group_modes(sV, 0, 2), cute.group_modes(gV, 0, 2))
        tOsO, tOgO = cpasync.tma_partition(tma_o, 0, one, cute.group_modes(sO, 0, 2), cute.group_modes(gO, 0, 2))

        key_tiles = cute.ceil_div(keys, self.block_n)
        if cutlass.const_expr(self.causal):
            last_query = cutlass.min((block + 1) * self.block_m, queries)
            key_tiles = cutlass.min(key_tiles, cute.ceil_div(last_query, self.block_n))

        if warp_idx < 4:
            cute.arch.setmaxregister_decrease(self.load_registers)
            if warp_idx == 0:
                q_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
                state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
                q_loads.producer_acquire(q_state)
                cute.copy(tma_q, tQgQ, tQsQ[(None, 0)], tma_bar_ptr=q_loads.producer_get_barrier(q_state))
                q_loads.producer_commit(q_state)
                for tile in cutlass.range(key_tiles, unroll=1):
                    k_loads.producer_acquire(state)
                    barrier = k_loads.producer_get_barrier(state)
                    cute.copy(tma_k, tKgK[(None, tile)], tKsK[(None, state.index)], tma_bar_ptr=barrier)
                    k_loads.producer_commit(state)
                    v_loads.producer_acquire(state)
                    barrier = v_loads.producer_get_barrier(state)
                    cute.copy(tma_v, tVgV[(None, tile)], tVsV[(None, state.index)], tma_bar_ptr=barrier)
                    v_loads.producer_commit(state)
                    state.advance()
                k_loads.producer_tail(state.clone())  # which the call moves on
                v_loads.producer_tail(state)
        else:
            cute.arch.setmaxregister_increase(self.mma_registers)
            thread = tidx - 128
            qk_thr = qk_mma.get_slice(thread)
            pv_thr = pv_mma.get_slice(thread)
            tSrQ = qk_mma.make_fragment_A(qk_thr.partition_A(sQ))
            tSrK = qk_mma.make_fragment_B(qk_thr.partition_B(sK))
            tOrV = pv_mma.make_fragment_B(pv_thr.partition_B(sV))
            acc_s = qk_mma.make_fragment_C(qk_mma.partition_shape_C((self.block_m, self.block_n)))
            acc_o = pv_mma.make_fragment_C(pv_mma.partition_shape_C((self.block_m, self.head_dim)))
            # The registers of the scores' accumulator are, in their order, those of an operand A of 16 columns each.
            (pair, halves, blocks), _, _ = acc_s.shape
            operand = cute.make_layout(((pair, halves, 2), 1, blocks // 2), stride=((1, 2, 4), 0, 8))
            tOrP = cute.make_rmem_tensor(operand, self.dtype)
            tOrP_acc = cute.make_tensor(tOrP.iterator, acc_s.layout)
            tScS = by_rows(qk_thr.partition_C(cute.make_identity_tensor((self.block_m, self.block_n))))
            tOcO = by_rows(pv_thr.partition_C(cute.make_identity_tensor((self.block_m, self.head_dim))))
            tSrS, tOrO = by_rows(acc_s), by_rows(acc_o)
            rows = cute.size(tSrS, mode=[0])
            largest, total, rescale = [cute.make_rmem_tensor(rows, cutlass.Float32) for _ in range(3)]
            largest.fill(-cutlass.Float32.inf)
            total.fill(0.0)
            limits = (block * self.block_m, keys, scale * math.log2(math.e))

            q_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
            k_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            v_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            q_loads.consumer_wait(q_state)
            k_loads.consumer_wait(k_state)
            warpgroup.fence()
            qk_mma.set(warpgroup.Field.ACCUMULATE, False)
            self.multiply(qk_mma, acc_s, tSrQ[(None, None, None, 0)], tSrK[(None, None, None, k_state.index)])
            warpgroup.wait_group(0)
            k_loads.consumer_release(k_state)
            k_state.advance()
            self.softmax(tSrS, tScS, largest, total, rescale, 0, limits)
            tOrP_acc.store(acc_s.load().to(self.dtype))

            for tile in cutlass.range(1, key_tiles, unroll=1):
                k_loads.consumer_wait(k_state)
                warpgroup.fence()
                qk_mma.set(warpgroup.Field.ACCUMULATE, False)
                self.multiply(qk_mma, acc_s, tSrQ[(None, None, None, 0)], tSrK[(None, None, None, k_state.index)])
                v_loads.consumer_wait(v_state)
                pv_mma.set(warpgroup.Field.ACCUMULATE, tile > 1)
                self.multiply(pv_mma, acc_o, tOrP, tOrV[(None, None, None, v_state.index)])
                warpgroup.wait_group(1)
                k_loads.consumer_release(k_state)
                k_state.advance()
                self.softmax(tSrS, tScS, largest, total, rescale, tile * self.block_n, limits)
                warpgroup.wait_group(0)
                v_loads.consumer_release(v_state)
                v_state.advance()
                for i in cutlass.range_constexpr(rows):
                    for j in cutlass.range_constexpr(cute.size(tOrO, mode=[1])):
                        tOrO[i, j] = tOrO[i, j] * rescale[i]
                tOrP_acc.store(acc_s.load().to(self.dtype))

            v_loads.consumer_wait(v_state)
            warpgroup.fence()
            pv_mma.set(warpgroup.Field.ACCUMULATE, key_tiles > 1)
            self.multiply(pv_mma, acc_o, tOrP, tOrV[(None, None, None, v_state.index)])
            warpgroup.wait_group(0)
            v_loads.consumer_release(v_state)

            for i in cutlass.range_constexpr(rows):
                sum_ = cute.arch.warp_reduction_sum(total[i], threads_in_group=4)
                inverse = 1.0 / sum_
                for j in cutlass.range_constexpr(cute.size(tOrO, mode=[1])):
                    tOrO[i, j] = tOrO[i, j] * inverse
                query = block * self.block_m + tOcO[i, 0][0]
                if tOcO[i, 0][1] == 0 and query < queries:
                    mL[query, head] = fma(largest[i], scale, cute.math.log(sum_))

            # Each warpgroup has read its own queries only, and writes there its own rows of O.
            store_atom = sm90_utils.get_smem_store_op(self.o_layout, self.dtype, cutlass.Float32)
            tiled_store = cute.make_tiled_copy_C(store_atom, pv_mma)
            thr_store = tiled_store.get_slice(thread)
            tOrOut = cute.make_rmem_tensor(acc_o.layout, self.dtype)
            tOrOut.store(acc_o.load().to(self.dtype))
            cute.copy(tiled_store, tiled_store.retile(tOrOut), thr_store.partition_D(sO)[(None, None, None, 0)])
            cute.arch.fence_proxy("async.shared", space="cta")
            self.output_barrier.arrive_and_wait()
            if warp_idx == 4:
                with cute.arch.elect_one():
                    cute.copy(tma_o, tOsO[(None, 0)], tOgO)
                    cute.arch.cp_async_bulk_commit_group()
                    cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def multiply(self, mma: cute.TiledMma, acc: cute.Tensor, a: cute.Tensor, b: cute.Tensor):
        """One WGMMA group: acc = a b, or acc += a b as `mma` says for the first of it."""
        for k_block in cutlass.range_constexpr(cute.size(a, mode=[2])):
            cute.gemm(mma, acc, a[(None, None, k_block)], b[(None, None, k_block)], acc)
            mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.commit_group()

    @cute.jit
    def softmax(
        self,
        scores: cute.Tensor,
        coordinates: cute.Tensor,
        largest: cute.Tensor,
        total: cute.Tensor,
        rescale: cute.Tensor,
        first_key: cutlass.Int32,
        limits: tuple,
    ):
        """Scores to probabilities in place; what the sums so far have to be multiplied by goes to `rescale`."""
        first_query, keys, scale_log2 = limits
        columns = cute.size(scores, mode=[1])
        for i in cutlass.range_constexpr(cute.size(scores, mode=[0])):
            query = first_query + coordinates[i, 0][0]
            for j in cutlass.range_constexpr(columns):
                key = first_key + coordinates[i, j][1]
                hidden = key >= keys
                if cutlass.const_expr(self.causal):
                    hidden = hidden or key > query
                if hidden:
                    scores[i, j] = -cutlass.Float32.inf
            now = scores[i, None].load().reduce(cute.ReductionOp.MAX, largest[i], 0)
            now = cute.arch.warp_reduction_max(now, threads_in_group=4)
            rescale[i] = cute.math.exp2((largest[i] - now) * scale_log2, fastmath=True)
            largest[i] = now
            for j in cutlass.range_constexpr(columns):
                scores[i, j] = cute.math.exp2((scores[i, j] - now) * scale_log2, fastmath=True)
            total[i] = fma(total[i], rescale[i], scores[i, None].load().reduce(cute.ReductionOp.ADD, 0.0, 0))
