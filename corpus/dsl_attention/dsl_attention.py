# SPDX-License-Identifier: Apache-2.0
"""O = softmax(scale Q K^T) V in CuTe DSL for Hopper: flash attention forward, with the row's log-sum-exp.

Q, K and O are (S, D, H), V is (D, S, H), L is (S, H). A block takes 64 queries a consumer warpgroup; one warp of
another warpgroup loads keys and values by TMA. Scores stay in registers: the online softmax turns the accumulator of
Q K^T into the register operand of the second WGMMA and rescales the accumulator of O between two of them.
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


class AttentionForward:
    """Heads of `head_dim` columns, `block_n` keys at a time."""

    def __init__(self, head_dim: int, block_n: int = 64, causal: bool = False, stages: int = 2):
        self.head_dim = head_dim
        self.block_n = block_n
        self.causal = causal
        self.stages = stages
        self.acc_dtype = cutlass.Float32
        self.consumers = 2
        self.threads_per_cta = 128 * (1 + self.consumers)
        self.load_registers = 40
        self.mma_registers = 232

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
        q_layout = utils.LayoutEnum.from_tensor(q)
        k_layout = utils.LayoutEnum.from_tensor(k)
        v_layout = utils.LayoutEnum.from_tensor(v)
        self.o_layout = utils.LayoutEnum.from_tensor(o)
        self.qk_tile = (64, self.block_n, self.head_dim)
        self.pv_tile = (64, self.head_dim, self.block_n)
        qk_mma = sm90_utils.make_trivial_tiled_mma(
            self.dtype,
            self.dtype,
            q_layout.sm90_mma_major_mode(),
            k_layout.sm90_mma_major_mode(),
            self.acc_dtype,
            (1, 1, 1),
            tiler_mn=(64, self.block_n),
        )
        pv_mma = sm90_utils.make_trivial_tiled_mma(
            self.dtype,
            self.dtype,
            warpgroup.OperandMajorMode.K,
            v_layout.sm90_mma_major_mode(),
            self.acc_dtype,
            (1, 1, 1),
            tiler_mn=(64, self.head_dim),
            a_source=warpgroup.OperandSource.RMEM,
        )

        # Queries are loaded once: one buffer for each consumer, which later takes its rows of O.
        q_smem_layout = sm90_utils.make_smem_layout_a(q_layout, self.qk_tile, self.dtype, self.consumers)
        k_smem_layout = sm90_utils.make_smem_layout_b(k_layout, self.qk_tile, self.dtype, self.stages)
        v_smem_layout = sm90_utils.make_smem_layout_b(v_layout, self.pv_tile, self.dtype, self.stages)
        o_tile = (64, self.head_dim)
        o_smem_layout = sm90_utils.make_smem_layout_epi(self.dtype, self.o_layout, o_tile, self.consumers)

        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        one_stage = (None, None, 0)
        tma_q, q_tma = cpasync.make_tiled_tma_atom(load, q, cute.slice_(q_smem_layout, one_stage), o_tile)
        tma_k, k_tma = cpasync.make_tiled_tma_atom(
            load, k, cute.slice_(k_smem_layout, one_stage), (self.block_n, self.head_dim)
        )
        tma_v, v_tma = cpasync.make_tiled_tma_atom(
            load, v, cute.slice_(v_smem_layout, one_stage), (self.head_dim, self.block_n)
        )
        tma_o, o_tma = cpasync.make_tiled_tma_atom(store, o, cute.slice_(o_smem_layout, one_stage), o_tile)

        @cute.struct
        class SharedStorage:
            q_barriers: cute.struct.MemRange[cutlass.Int64, 2]
            k_barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            v_barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            q: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(q_smem_layout)], 1024]
            k: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(k_smem_layout)], 1024]
            v: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(v_smem_layout)], 1024]
            o: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(o_smem_layout)], 1024]

        self.shared_storage = SharedStorage
        self.q_bytes = cute.size_in_bytes(self.dtype, q_smem_layout)
        self.k_bytes = cute.size_in_bytes(self.dtype, cute.slice_(k_smem_layout, one_stage))
        self.v_bytes = cute.size_in_bytes(self.dtype, cute.slice_(v_smem_layout, one_stage))
        queries, _, heads = q.shape
        self.kernel(
            tma_q,
            q_tma,
            tma_k,
            k_tma,
            tma_v,
            v_tma,
            tma_o,
            o_tma,
            lse,
            scale,
            qk_mma,
            pv_mma,
            q_smem_layout,
            k_smem_layout,
            v_smem_layout,
            o_smem_layout,
        ).launch(
            grid=[cute.ceil_div(queries, 64 * self.consumers), heads, 1],
            block=[self.threads_per_cta, 1, 1],
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        tma_q: cute.CopyAtom,
        mQ: cute.Tensor,
        tma_k: cute.CopyAtom,
        mK: cute.Tensor,
        tma_v: cute.CopyAtom,
        mV: cute.Tensor,
        tma_o: cute.CopyAtom,
        mO: cute.Tensor,
        mL: cute.Tensor,
        scale: cutlass.Float32,
        qk_mma: cute.TiledMma,
        pv_mma: cute.TiledMma,
        q_smem_layout: cute.ComposedLayout,
        k_smem_layout: cute.ComposedLayout,
        v_smem_layout: cute.ComposedLayout,
        o_smem_layout: cute.ComposedLayout,
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        warpgroup_idx = cute.arch.make_warp_uniform(warp_idx // 4)
        tidx, _, _ = cute.arch.thread_idx()
        block, head, _ = cute.arch.block_idx()
        if warp_idx == 0:
            cpasync.prefetch_descriptor(tma_q)
            cpasync.prefetch_descriptor(tma_k)
            cpasync.prefetch_descriptor(tma_v)

        smem = utils.SmemAllocator()
        storage = smem.allocate(self.shared_storage)
        sQ = storage.q.get_tensor(q_smem_layout.outer, swizzle=q_smem_layout.inner)
        sK = storage.k.get_tensor(k_smem_layout.outer, swizzle=k_smem_layout.inner)
        sV = storage.v.get_tensor(v_smem_layout.outer, swizzle=v_smem_layout.inner)
        sO = storage.o.get_tensor(o_smem_layout.outer, swizzle=o_smem_layout.inner)

        producer = pipeline.CooperativeGroup(pipeline.Agent.Thread)
        # Every consumer warp gives a buffer back.
        consumer = pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * self.consumers)
        one_cta = cute.make_layout((1, 1, 1, 1))
        q_loads = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.q_barriers.data_ptr(),
            num_stages=1,
            producer_group=producer,
            consumer_group=consumer,
            tx_count=self.q_bytes,
            cta_layout_vmnk=one_cta,
        )
        k_loads = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.k_barriers.data_ptr(),
            num_stages=self.stages,
            producer_group=producer,
            consumer_group=consumer,
            tx_count=self.k_bytes,
            cta_layout_vmnk=one_cta,
        )
        v_loads = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.v_barriers.data_ptr(),
            num_stages=self.stages,
            producer_group=producer,
            consumer_group=consumer,
            tx_count=self.v_bytes,
            cta_layout_vmnk=one_cta,
        )

        queries, keys = cute.size(mQ, mode=[0]), cute.size(mK, mode=[0])
        # (tile, columns, tiles, 1), (tile, columns, key tiles, 1), (columns, tile, 1, key tiles)
        gQ = cute.local_tile(mQ[(None, None, head)], (64, self.head_dim), (None, None))
        gK = cute.local_tile(mK[(None, None, head)], (self.block_n, self.head_dim), (None, None))
        gV = cute.local_tile(mV[(None, None, head)], (self.head_dim, self.block_n), (None, None))
        gO = cute.local_tile(mO[(None, None, head)], (64, self.head_dim), (None, None))
        one = cute.make_layout(1)
        tQsQ, tQgQ = cpasync.tma_partition(tma_q, 0, one, cute.group_modes(sQ, 0, 2), cute.group_modes(gQ, 0, 2))
        tKsK, tKgK = cpasync.tma_partition(tma_k, 0, one, cute.group_modes(sK, 0, 2), cute.group_modes(gK, 0, 2))
        tVsV, tVgV = cpasync.tma_partition(tma_v, 0, one, cute.group_modes(sV, 0, 2), cute.group_modes(gV, 0, 2))
        tOsO, tOgO = cpasync.tma_partition(tma_o, 0, one, cute.group_modes(sO, 0, 2), cute.group_modes(gO, 0, 2))

        key_tiles = cute.ceil_div(keys, self.block_n)
        if cutlass.const_expr(self.causal):
            last_query = cutlass.min((block + 1) * 64 * self.consumers, queries)
            key_tiles = cutlass.min(key_tiles, cute.ceil_div(last_query, self.block_n))

        if warpgroup_idx == 0:
            cute.arch.setmaxregister_decrease(self.load_registers)
            if warp_idx == 0:
                q_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
                k_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
                v_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
                q_loads.producer_acquire(q_state)
                barrier = q_loads.producer_get_barrier(q_state)
                for part in cutlass.range_constexpr(self.consumers):
                    tile = block * self.consumers + part
                    cute.copy(tma_q, tQgQ[(None, tile, 0)], tQsQ[(None, part)], tma_bar_ptr=barrier)
                q_loads.producer_commit(q_state)
                for tile in cutlass.range(key_tiles, unroll=1):
                    k_loads.producer_acquire(k_state)
                    barrier = k_loads.producer_get_barrier(k_state)
                    cute.copy(tma_k, tKgK[(None, tile, 0)], tKsK[(None, k_state.index)], tma_bar_ptr=barrier)
                    k_loads.producer_commit(k_state)
                    k_state.advance()
                    v_loads.producer_acquire(v_state)
                    barrier = v_loads.producer_get_barrier(v_state)
                    cute.copy(tma_v, tVgV[(None, 0, tile)], tVsV[(None, v_state.index)], tma_bar_ptr=barrier)
                    v_loads.producer_commit(v_state)
                    v_state.advance()
                k_loads.producer_tail(k_state)
                v_loads.producer_tail(v_state)

        if warpgroup_idx > 0:
            cute.arch.setmaxregister_increase(self.mma_registers)
            part = warpgroup_idx - 1
            first_query = (block * self.consumers + part) * 64
            qk_thr = qk_mma.get_slice(tidx % 128)
            pv_thr = pv_mma.get_slice(tidx % 128)
            tSrQ = qk_mma.make_fragment_A(qk_thr.partition_A(sQ))
            tSrK = qk_mma.make_fragment_B(qk_thr.partition_B(sK))
            tOrV = pv_mma.make_fragment_B(pv_thr.partition_B(sV))
            acc_s = qk_thr.make_fragment_C(qk_thr.partition_shape_C(self.qk_tile[:2]))
            acc_o = pv_thr.make_fragment_C(pv_thr.partition_shape_C(self.pv_tile[:2]))
            tScS = self.by_rows(qk_thr.partition_C(cute.make_identity_tensor(self.qk_tile[:2])))
            tOcO = self.by_rows(pv_thr.partition_C(cute.make_identity_tensor(self.pv_tile[:2])))
            tSrS = self.by_rows(acc_s)
            tOrO = self.by_rows(acc_o)
            tOrP = cute.make_rmem_tensor(self.operand_layout(acc_s.layout), self.dtype)
            rows = cute.size(tSrS, mode=[0])
            largest = cute.make_rmem_tensor(rows, cutlass.Float32)
            total = cute.make_rmem_tensor(rows, cutlass.Float32)
            largest.fill(-cutlass.Float32.inf)
            total.fill(0.0)
            acc_o.fill(0.0)
            scale_log2 = scale * math.log2(math.e)

            q_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
            k_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            v_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            q_loads.consumer_wait(q_state)
            pv_mma.set(warpgroup.Field.ACCUMULATE, True)
            for tile in cutlass.range(key_tiles, unroll=1):
                # S = Q K^T
                k_loads.consumer_wait(k_state)
                warpgroup.fence()
                qk_mma.set(warpgroup.Field.ACCUMULATE, False)
                for k_block in cutlass.range_constexpr(cute.size(tSrQ, mode=[2])):
                    cute.gemm(
                        qk_mma,
                        acc_s,
                        tSrQ[(None, None, k_block, part)],
                        tSrK[(None, None, k_block, k_state.index)],
                        acc_s,
                    )
                    qk_mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                k_loads.consumer_release(k_state)
                k_state.advance()

                # Probabilities, and what the sums so far have to be multiplied by
                first_key = tile * self.block_n
                for i in cutlass.range_constexpr(rows):
                    query = first_query + tScS[i, 0][0]
                    for j in cutlass.range_constexpr(cute.size(tSrS, mode=[1])):
                        key = first_key + tScS[i, j][1]
                        hidden = key >= keys
                        if cutlass.const_expr(self.causal):
                            hidden = hidden or key > query
                        if hidden:
                            tSrS[i, j] = -cutlass.Float32.inf
                    before = largest[i]
                    now = tSrS[i, None].load().reduce(cute.ReductionOp.MAX, before, 0)
                    now = cute.arch.warp_reduction_max(now, threads_in_group=4)
                    largest[i] = now
                    # Rows without any key so far
                    base = now if now != -cutlass.Float32.inf else cutlass.Float32(0.0)
                    rescale = cute.math.exp2((before - base) * scale_log2, fastmath=True)
                    for j in cutlass.range_constexpr(cute.size(tSrS, mode=[1])):
                        tSrS[i, j] = cute.math.exp2((tSrS[i, j] - base) * scale_log2, fastmath=True)
                    total[i] = fma(total[i], rescale, tSrS[i, None].load().reduce(cute.ReductionOp.ADD, 0.0, 0))
                    for j in cutlass.range_constexpr(cute.size(tOrO, mode=[1])):
                        tOrO[i, j] = tOrO[i, j] * rescale
                # The accumulator's registers are in the order of the operand's.
                tOrP_acc = cute.make_tensor(tOrP.iterator, acc_s.layout)
                tOrP_acc.store(acc_s.load().to(self.dtype))

                # O += P V
                v_loads.consumer_wait(v_state)
                warpgroup.fence()
                for k_block in cutlass.range_constexpr(cute.size(tOrP, mode=[2])):
                    cute.gemm(
                        pv_mma,
                        acc_o,
                        tOrP[(None, None, k_block)],
                        tOrV[(None, None, k_block, v_state.index)],
                        acc_o,
                    )
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                v_loads.consumer_release(v_state)
                v_state.advance()

            # Rows of O are divided by the sum of their probabilities.
            for i in cutlass.range_constexpr(rows):
                sum_ = cute.arch.warp_reduction_sum(total[i], threads_in_group=4)
                inverse = 1.0 / sum_
                for j in cutlass.range_constexpr(cute.size(tOrO, mode=[1])):
                    tOrO[i, j] = tOrO[i, j] * inverse
                query = first_query + tOcO[i, 0][0]
                if tOcO[i, 0][1] == 0 and query < queries:
                    mL[query, head] = fma(largest[i], scale, cute.math.log(sum_))

            # Registers to shared memory to global memory
            store_atom = sm90_utils.sm90_get_smem_store_op(
                self.o_layout, elem_ty_d=self.dtype, elem_ty_acc=self.acc_dtype
            )
            matrix_atom = cute.make_copy_atom(
                cute.nvgpu.warp.StMatrix8x8x16bOp(self.o_layout.is_m_major_c(), 4), self.dtype
            )
            tiled_store = cute.make_tiled_copy_S(store_atom, cute.make_tiled_copy_C_atom(matrix_atom, pv_mma))
            thr_store = tiled_store.get_slice(tidx % 128)
            tRS_sO = thr_store.partition_D(sO)
            tRS_rAcc = tiled_store.retile(acc_o)
            fragment = cute.shape(thr_store.partition_S(sO))[:3]
            tRS_rO = cute.make_rmem_tensor(fragment, self.acc_dtype)
            for v in cutlass.range_constexpr(cute.size(tRS_rO)):
                tRS_rO[v] = tRS_rAcc[v]
            tRS_rOut = cute.make_rmem_tensor(fragment, self.dtype)
            tRS_rOut.store(tRS_rO.load().to(self.dtype))
            cute.copy(tiled_store, tRS_rOut, tRS_sO[(None, None, None, part)])
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=1 + part, number_of_threads=128)
            if warp_idx % 4 == 0:
                cute.copy(tma_o, tOsO[(None, part)], tOgO[(None, block * self.consumers + part, 0)])
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(0, read=True)

    @staticmethod
    def by_rows(acc: cute.Tensor) -> cute.Tensor:
        """An accumulator ((2, 2, N / 8), 1, 1) as (rows, columns)."""
        (pair, halves, blocks), m, n = acc.layout.shape
        (d_pair, d_halves, d_blocks), d_m, d_n = acc.layout.stride
        layout = cute.make_layout(
            ((halves, m), (pair, blocks, n)), stride=((d_halves, d_m), (d_pair, d_blocks, d_n))
        )
        return cute.make_tensor(acc.iterator, layout)

    @staticmethod
    def operand_layout(acc: cute.Layout) -> cute.Layout:
        """The registers of an accumulator as those of an operand A: ((2, 2, 2), 1, K / 16)."""
        (pair, halves, blocks), _, _ = acc.shape
        return cute.make_layout(((pair, halves, 2), 1, blocks // 2), stride=((1, 2, 4), 0, 8))
