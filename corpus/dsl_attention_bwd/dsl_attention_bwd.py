# SPDX-License-Identifier: Apache-2.0
"""The backward pass of attention in CuTe DSL for Hopper: dQ, dK and dV from dO and the forward's log-sum-exp.

Q, K, V, dO, dQ, dK and dV are (S, D, H); the log-sum-exp L and Delta, the row sums of dO * O, are (S, H). A block has
one head: for each tile of keys it goes through the tiles of queries. Scores are kept transposed, keys by queries, so
that P^T and dS^T are register operands of dV += P^T dO and dK += dS^T Q; for dQ += dS K they pass through shared
memory, where each of two warpgroups computes half of the columns. dQ is summed in global memory by the threads that
own its elements, in the order of the keys.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cutlass_dsl import T, dsl_user_op


@dsl_user_op
def fma(a: cutlass.Float32, b: cutlass.Float32, c: cutlass.Float32, *, loc=None, ip=None) -> cutlass.Float32:
    """a * b + c, rounded once; of `*` and `+` ptxas decides."""
    values = [cutlass.Float32(x).ir_value(loc=loc, ip=ip) for x in (a, b, c)]
    return cutlass.Float32(
        llvm.inline_asm(T.f32(), values, "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", loc=loc, ip=ip)
    )


def transposed(tensor: cute.Tensor) -> cute.Tensor:
    """(rows, columns, stages) as (columns, rows, stages)."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, [1, 0, 2]))


def by_rows(acc: cute.Tensor) -> cute.Tensor:
    """An accumulator ((2, 2, N / 8), 1, 1) as (rows, columns)."""
    (pair, halves, blocks), m, n = acc.layout.shape
    (d_pair, d_halves, d_blocks), d_m, d_n = acc.layout.stride
    layout = cute.make_layout(((halves, m), (pair, blocks, n)), stride=((d_halves, d_m), (d_pair, d_blocks, d_n)))
    return cute.make_tensor(acc.iterator, layout)


class AttentionBackward:
    """Heads of `head_dim` columns, 64 queries against 128 keys at a time."""

    def __init__(self, head_dim: int, causal: bool = False):
        self.head_dim = head_dim
        self.causal = causal
        self.block_m = 64
        self.block_n = 128
        self.stages = 2
        self.mma_threads = 256
        # All have read dS of the queries before; all have written that of these.
        self.free_barrier = pipeline.NamedBarrier(barrier_id=1, num_threads=self.mma_threads)
        self.full_barrier = pipeline.NamedBarrier(barrier_id=2, num_threads=self.mma_threads)

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        do: cute.Tensor,
        lse: cute.Tensor,
        delta: cute.Tensor,
        dq: cute.Tensor,
        dk: cute.Tensor,
        dv: cute.Tensor,
        scale: cutlass.Float32,
        stream: cuda.CUstream,
    ):
        self.dtype = q.element_type
        rows = utils.LayoutEnum.ROW_MAJOR
        sources, majors, d = warpgroup.OperandSource, OperandMajorMode, self.head_dim

        def tiled(atoms: tuple[int, int, int], n: int, a_source: warpgroup.OperandSource, a: OperandMajorMode, b):
            op = warpgroup.MmaF16BF16Op(self.dtype, cutlass.Float32, (64, n, 16), a_source, a, b)
            return cute.make_tiled_mma(cute.make_mma_atom(op), atoms)

        mmas = (
            tiled((2, 1, 1), self.block_m, sources.SMEM, majors.K, majors.K),  # S^T = K Q^T, dP^T = V dO^T
            tiled((2, 1, 1), d, sources.RMEM, majors.K, majors.MN),  # dV += P^T dO, dK += dS^T Q
            tiled((1, 2, 1), d // 2, sources.SMEM, majors.MN, majors.MN),  # dQ = dS K
        )
        scores_tile = (self.block_n, self.block_m, d)
        kv_smem_layout = sm90_utils.make_smem_layout_a(rows, scores_tile, self.dtype, 1)
        q_smem_layout = sm90_utils.make_smem_layout_b(rows, scores_tile, self.dtype, self.stages)
        ds_smem_layout = sm90_utils.make_smem_layout_epi(self.dtype, rows, (self.block_n, self.block_m), 1)
        load = cpasync.CopyBulkTensorTileG2SOp()
        kv_one, q_one = cute.slice_(kv_smem_layout, (None, None, 0)), cute.slice_(q_smem_layout, (None, None, 0))
        tma_q, q_tma = cpasync.make_tiled_tma_atom(load, q, q_one, (self.block_m, d))
        tma_do, do_tma = cpasync.make_tiled_tma_atom(load, do, q_one, (self.block_m, d))
        tma_k, k_tma = cpasync.make_tiled_tma_atom(load, k, kv_one, (self.block_n, d))
        tma_v, v_tma = cpasync.make_tiled_tma_atom(load, v, kv_one, (self.block_n, d))

        @cute.struct
        class SharedStorage:
            kv_barriers: cute.struct.MemRange[cutlass.Int64, 2]
            q_barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            k: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(kv_smem_layout)], 1024]
            v: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(kv_smem_layout)], 1024]
            q: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(q_smem_layout)], 1024]
            do: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(q_smem_layout)], 1024]
            ds: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(ds_smem_layout)], 1024]

        self.shared_storage = SharedStorage
        self.kv_bytes = 2 * cute.size_in_bytes(self.dtype, kv_one)
        self.q_bytes = 2 * cute.size_in_bytes(self.dtype, q_one)
        self.kernel(
            (tma_q, tma_do, tma_k, tma_v),
            (q_tma, do_tma, k_tma, v_tma),
            (lse, delta, dq, dk, dv),
            scale,
            mmas,
            kv_smem_layout,
            q_smem_layout,
            ds_smem_layout,
        ).launch(
            grid=[q.shape[2], 1, 1], block=[128 + self.mma_threads, 1, 1], min_blocks_per_mp=1, stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        atoms: tuple[cute.CopyAtom, ...],
        loaded: tuple[cute.Tensor, ...],
        others: tuple[cute.Tensor, ...],
        scale: cutlass.Float32,
        mmas: tuple[cute.TiledMma, ...],
        kv_smem_layout: cute.ComposedLayout,
        q_smem_layout: cute.ComposedLayout,
        ds_smem_layout: cute.ComposedLayout,
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tidx, _, _ = cute.arch.thread_idx()
        head, _, _ = cute.arch.block_idx()
        smem = utils.SmemAllocator()
        storage = smem.allocate(self.shared_storage)
        sK, sV = [x.get_tensor(kv_smem_layout.outer, swizzle=kv_smem_layout.inner) for x in (storage.k, storage.v)]
        sQ, sdO = [x.get_tensor(q_smem_layout.outer, swizzle=q_smem_layout.inner) for x in (storage.q, storage.do)]
        sdS = storage.ds.get_tensor(ds_smem_layout.outer, swizzle=ds_smem_layout.inner)
        kv_loads, q_loads = [
            pipeline.PipelineTmaAsync.create(
                barrier_storage=barriers.data_ptr(),
                num_stages=stages,
                producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
                consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.mma_threads // 32),
                tx_count=count,
                cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
            )
            for barriers, stages, count in (
                (storage.kv_barriers, 1, self.kv_bytes),
                (storage.q_barriers, self.stages, self.q_bytes),
            )
        ]

        length = cute.size(loaded[0], mode=[0])
        m_tiles, n_tiles = cute.ceil_div(length, self.block_m), cute.ceil_div(length, self.block_n)
        if warp_idx < 4:
            cute.arch.setmaxregister_decrease(40)
            if warp_idx == 0:
                one = cute.make_layout(1)
                heights = (self.block_m, self.block_m, self.block_n, self.block_n)
                to_q, to_do, to_k, to_v = [
                    cpasync.tma_partition(
                        atom,
                        0,
                        one,
                        cute.group_modes(s, 0, 2),
                        cute.group_modes(
                            cute.local_tile(g[(None, None, head)], (height, self.head_dim), (None, 0)), 0, 2
                        ),
                    )
                    for atom, s, g, height in zip(atoms, (sQ, sdO, sK, sV), loaded, heights, strict=True)
                ]
                tma_q, tma_do, tma_k, tma_v = atoms
                kv_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
                q_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
                for n in cutlass.range(n_tiles, unroll=1):
                    kv_loads.producer_acquire(kv_state)
                    barrier = kv_loads.producer_get_barrier(kv_state)
                    cute.copy(tma_k, to_k[1][(None, n)], to_k[0][(None, 0)], tma_bar_ptr=barrier)
                    cute.copy(tma_v, to_v[1][(None, n)], to_v[0][(None, 0)], tma_bar_ptr=barrier)
                    kv_loads.producer_commit(kv_state)
                    kv_state.advance()
                    for m in cutlass.range(self.first_m(n), m_tiles, unroll=1):
                        q_loads.producer_acquire(q_state)
                        barrier, index = q_loads.producer_get_barrier(q_state), q_state.index
                        cute.copy(tma_q, to_q[1][(None, m)], to_q[0][(None, index)], tma_bar_ptr=barrier)
                        cute.copy(tma_do, to_do[1][(None, m)], to_do[0][(None, index)], tma_bar_ptr=barrier)
                        q_loads.producer_commit(q_state)
                        q_state.advance()
                kv_loads.producer_tail(kv_state)
                q_loads.producer_tail(q_state)
        else:
            cute.arch.setmaxregister_increase(232)
            buffers, tiles = (sK, sV, sQ, sdO, sdS), (m_tiles, n_tiles)
            self.consume(kv_loads, q_loads, buffers, others, mmas, scale, head, tidx - 128, length, tiles)

    def first_m(self, n: cutlass.Int32) -> cutlass.Int32:
        """The first tile of queries that sees keys of tile `n`."""
        return n * self.block_n // self.block_m if self.causal else 0

    @cute.jit
    def consume(
        self,
        kv_loads: pipeline.PipelineTmaAsync,
        q_loads: pipeline.PipelineTmaAsync,
        buffers: tuple,
        others: tuple,
        mmas: tuple,
        scale: cutlass.Float32,
        head: cutlass.Int32,
        thread: cutlass.Int32,
        length: cutlass.Int32,
        tiles: tuple,
    ):
        m_tiles, n_tiles = tiles
        sK, sV, sQ, sdO, sdS = buffers
        mL, mDelta, mdQ, mdK, mdV = others
        scores_mma, kv_mma, q_mma = mmas
        scores_thr, kv_thr, q_thr = [mma.get_slice(thread) for mma in mmas]
        tSrK, tSrV = [scores_mma.make_fragment_A(scores_thr.partition_A(x)) for x in (sK, sV)]
        tSrQ, tSrdO = [scores_mma.make_fragment_B(scores_thr.partition_B(x)) for x in (sQ, sdO)]
        tKrQ, tKrdO = [kv_mma.make_fragment_B(kv_thr.partition_B(transposed(x))) for x in (sQ, sdO)]
        tQrdS = q_mma.make_fragment_A(q_thr.partition_A(transposed(sdS)))
        tQrK = q_mma.make_fragment_B(q_thr.partition_B(transposed(sK)))

        scores_tile, q_tile = (self.block_n, self.block_m), (self.block_m, self.head_dim)
        kv_tile = (self.block_n, self.head_dim)
        acc_s, acc_dp = [scores_mma.make_fragment_C(scores_mma.partition_shape_C(scores_tile)) for _ in range(2)]
        acc_dk, acc_dv = [kv_mma.make_fragment_C(kv_mma.partition_shape_C(kv_tile)) for _ in range(2)]
        acc_dq = q_mma.make_fragment_C(q_mma.partition_shape_C(q_tile))
        (pair, halves, blocks), _, _ = acc_s.shape
        operand = cute.make_layout(((pair, halves, 2), 1, blocks // 2), stride=((1, 2, 4), 0, 8))
        tKrP, tKrdS = [cute.make_rmem_tensor(operand, self.dtype) for _ in range(2)]
        tPrP, tPrdS = [cute.make_tensor(x.iterator, acc_s.layout) for x in (tKrP, tKrdS)]
        scores, gradients = by_rows(acc_s), by_rows(acc_dp)
        tScS = by_rows(scores_thr.partition_C(cute.make_identity_tensor(scores_tile)))
        tQcQ = q_thr.partition_C(cute.make_identity_tensor(q_tile))
        tKcK = kv_thr.partition_C(cute.make_identity_tensor(kv_tile))
        store_atom = cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), self.dtype)
        store_ds = cute.make_tiled_copy_C(store_atom, scores_mma)
        tPsdS = store_ds.get_slice(thread).partition_D(sdS)

        kv_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
        q_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
        for n in cutlass.range(n_tiles, unroll=1):
            kv_loads.consumer_wait(kv_state)
            for m in cutlass.range(self.first_m(n), m_tiles, unroll=1):
                q_loads.consumer_wait(q_state)
                stage = q_state.index
                warpgroup.fence()
                self.multiply(scores_mma, acc_s, tSrK[(None, None, None, 0)], tSrQ[(None, None, None, stage)], False)
                self.multiply(scores_mma, acc_dp, tSrV[(None, None, None, 0)], tSrdO[(None, None, None, stage)], False)
                warpgroup.wait_group(1)

                # P^T, then dS^T = P^T * (dP^T - Delta)
                for j in cutlass.range_constexpr(cute.size(scores, mode=[1])):
                    query = m * self.block_m + tScS[0, j][1]
                    row_lse = mL[query, head] if query < length else cutlass.Float32(0.0)
                    for i in cutlass.range_constexpr(cute.size(scores, mode=[0])):
                        key = n * self.block_n + tScS[i, j][0]
                        hidden = key >= length or query >= length
                        if cutlass.const_expr(self.causal):
                            hidden = hidden or key > query
                        exponent = fma(scores[i, j], scale * math.log2(math.e), -row_lse * math.log2(math.e))
                        scores[i, j] = cutlass.Float32(0.0) if hidden else cute.math.exp2(exponent, fastmath=True)
                tPrP.store(acc_s.load().to(self.dtype))
                warpgroup.wait_group(0)
                for j in cutlass.range_constexpr(cute.size(scores, mode=[1])):
                    query = m * self.block_m + tScS[0, j][1]
                    row_delta = mDelta[query, head] if query < length else cutlass.Float32(0.0)
                    for i in cutlass.range_constexpr(cute.size(scores, mode=[0])):
                        gradients[i, j] = scores[i, j] * (gradients[i, j] - row_delta)
                tPrdS.store(acc_dp.load().to(self.dtype))
                self.free_barrier.arrive_and_wait()
                cute.copy(store_ds, store_ds.retile(tPrdS), tPsdS[(None, None, None, 0)])
                cute.arch.fence_proxy("async.shared", space="cta")
                self.full_barrier.arrive_and_wait()

                warpgroup.fence()
                more = m != self.first_m(n)
                self.multiply(kv_mma, acc_dv, tKrP, tKrdO[(None, None, None, stage)], more)
                self.multiply(kv_mma, acc_dk, tKrdS, tKrQ[(None, None, None, stage)], more)
                self.multiply(q_mma, acc_dq, tQrdS[(None, None, None, 0)], tQrK[(None, None, None, 0)], False)
                warpgroup.wait_group(0)
                q_loads.consumer_release(q_state)
                q_state.advance()

                tQgdQ = q_thr.partition_C(cute.local_tile(mdQ[(None, None, head)], q_tile, (m, 0)))
                for i in cutlass.range_constexpr(cute.size(acc_dq)):
                    if m * self.block_m + tQcQ[i][0] < length:
                        before = tQgdQ[i] if n > 0 else cutlass.Float32(0.0)
                        tQgdQ[i] = fma(acc_dq[i], scale, before)

            kv_loads.consumer_release(kv_state)
            kv_state.advance()
            tKgdK, tKgdV = [
                kv_thr.partition_C(cute.local_tile(x[(None, None, head)], kv_tile, (n, 0))) for x in (mdK, mdV)
            ]
            for i in cutlass.range_constexpr(cute.size(acc_dk)):
                if n * self.block_n + tKcK[i][0] < length:
                    tKgdK[i] = (acc_dk[i] * scale).to(mdK.element_type)
                    tKgdV[i] = acc_dv[i].to(mdV.element_type)

    @cute.jit
    def multiply(self, mma: cute.TiledMma, acc: cute.Tensor, a: cute.Tensor, b: cute.Tensor, more: cutlass.Boolean):
        """One WGMMA group: acc = a b, or acc += a b if there is `more` than this."""
        mma.set(warpgroup.Field.ACCUMULATE, more)
        for k_block in cutlass.range_constexpr(cute.size(a, mode=[2])):
            cute.gemm(mma, acc, a[(None, None, k_block)], b[(None, None, k_block)], acc)
            mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.commit_group()
