# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL for Hopper without classes: three kernels of one file, each a function with a function that launches it.

`gemm` is C = A B^T and `gemm_halves` the same with tiles twice as wide, each half with an accumulator that is a part of
one register tensor. `scale` has no MMA: C = factor A. A is (M, K), B is (N, K), C is (M, N). One warpgroup loads,
multiplies and stores; its mbarriers are used without a pipeline class.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import cpasync, warpgroup

TILE_M, TILE_N, TILE_K = 128, 64, 64
THREADS = 128
STAGES = 2


@cute.jit
def load_k_tile(
    tma_a: cute.CopyAtom,
    from_a: cute.Tensor,
    to_a: cute.Tensor,
    tma_b: cute.CopyAtom,
    from_b: cute.Tensor,
    to_b: cute.Tensor,
    barriers: cute.Pointer,
    k_tile: cutlass.Int32,
    count: cutlass.Constexpr[int],
):
    """Called by one warp."""
    stage = k_tile % STAGES
    barrier = barriers + stage
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, count)
    cute.copy(tma_a, from_a[(None, k_tile)], to_a[(None, stage)], tma_bar_ptr=barrier)
    cute.copy(tma_b, from_b[(None, k_tile)], to_b[(None, stage)], tma_bar_ptr=barrier)


@cute.jit
def init_barriers(warp_idx: cutlass.Int32, barriers: cute.Pointer):
    """One mbarrier for each stage, on which its loads are waited for."""
    if warp_idx == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(barriers + stage, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()


@cute.jit
def store(tiled_mma: cute.TiledMma, acc: cute.Tensor, mC: cute.Tensor, tile: cutlass.Constexpr, coord: cute.Coord):
    """What of the accumulator lies inside C."""
    thr_mma = tiled_mma.get_slice(cute.arch.thread_idx()[0])
    tCgC = thr_mma.partition_C(cute.local_tile(mC, tile, coord))
    tCcC = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mC.shape), tile, coord))
    for i in cutlass.range_constexpr(cute.size(acc)):
        if cute.elem_less(tCcC[i], mC.shape):
            tCgC[i] = acc[i].to(tCgC.element_type)


@cute.kernel
def gemm_kernel(
    tma_a: cute.CopyAtom,
    mA: cute.Tensor,
    tma_b: cute.CopyAtom,
    mB: cute.Tensor,
    mC: cute.Tensor,
    tiled_mma: cute.TiledMma,
    a_smem_layout: cute.ComposedLayout,
    b_smem_layout: cute.ComposedLayout,
    dtype: cutlass.Constexpr,
):
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tidx, _, _ = cute.arch.thread_idx()
    bidx, bidy, _ = cute.arch.block_idx()
    smem = utils.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, STAGES)
    sA = smem.allocate_tensor(dtype, a_smem_layout.outer, 1024, a_smem_layout.inner)
    sB = smem.allocate_tensor(dtype, b_smem_layout.outer, 1024, b_smem_layout.inner)
    init_barriers(warp_idx, barriers)

    gA = cute.local_tile(mA, (TILE_M, TILE_K), (bidx, None))
    gB = cute.local_tile(mB, (TILE_N, TILE_K), (bidy, None))
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
    tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
    count = (TILE_M + TILE_N) * TILE_K * dtype.width // 8
    k_tiles = cute.size(gA, mode=[2])
    if warp_idx == 0:
        load_k_tile(tma_a, tAgA, tAsA, tma_b, tBgB, tBsB, barriers, 0, count)

    thr_mma = tiled_mma.get_slice(tidx)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
    acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((TILE_M, TILE_N)))
    acc.fill(0.0)
    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    for k_tile in cutlass.range(k_tiles, unroll=1):
        # The MMAs that read the other stage are done in all warps.
        cute.arch.sync_threads()
        if warp_idx == 0 and k_tile + 1 < k_tiles:
            load_k_tile(tma_a, tAgA, tAsA, tma_b, tBgB, tBsB, barriers, k_tile + 1, count)
        cute.arch.mbarrier_wait(barriers + k_tile % STAGES, k_tile // STAGES % 2)
        warpgroup.fence()
        part = (None, None, None, k_tile % STAGES)
        cute.gemm(tiled_mma, acc, tCrA[part], tCrB[part], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
    store(tiled_mma, acc, mC, (TILE_M, TILE_N), (bidx, bidy))


@cute.kernel
def halves_kernel(
    tma_a: cute.CopyAtom,
    mA: cute.Tensor,
    tma_b: cute.CopyAtom,
    mB: cute.Tensor,
    mC: cute.Tensor,
    tiled_mma: cute.TiledMma,
    a_smem_layout: cute.ComposedLayout,
    b_smem_layout: cute.ComposedLayout,
    dtype: cutlass.Constexpr,
):
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tidx, _, _ = cute.arch.thread_idx()
    bidx, bidy, _ = cute.arch.block_idx()
    smem = utils.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, STAGES)
    sA = smem.allocate_tensor(dtype, a_smem_layout.outer, 1024, a_smem_layout.inner)
    sB = smem.allocate_tensor(dtype, b_smem_layout.outer, 1024, b_smem_layout.inner)
    init_barriers(warp_idx, barriers)

    gA = cute.local_tile(mA, (64, TILE_K), (bidx, None))
    gB = cute.local_tile(mB, (2 * TILE_N, TILE_K), (bidy, None))
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(tma_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
    tBsB, tBgB = cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
    count = (64 + 2 * TILE_N) * TILE_K * dtype.width // 8
    k_tiles = cute.size(gA, mode=[2])
    if warp_idx == 0:
        load_k_tile(tma_a, tAgA, tAsA, tma_b, tBgB, tBsB, barriers, 0, count)

    thr_mma = tiled_mma.get_slice(tidx)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    # ((2, 2, N / 8), 1, 2): the last mode says which half, the registers of one follow those of the other.
    acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((64, 2 * TILE_N)))
    parts = []
    for half in cutlass.range_constexpr(2):
        sB_half = cute.local_tile(sB, (TILE_N, TILE_K), (half, 0, None))
        layout = cute.append_ones(cute.select(acc.layout, [0, 1]), up_to_rank=3)
        view = cute.make_tensor(acc.iterator + half * cute.size(layout), layout)
        parts.append((view, tiled_mma.make_fragment_B(thr_mma.partition_B(sB_half))))
    k_tile = cutlass.Int32(0)
    while k_tile < k_tiles:
        cute.arch.sync_threads()
        if warp_idx == 0 and k_tile + 1 < k_tiles:
            load_k_tile(tma_a, tAgA, tAsA, tma_b, tBgB, tBsB, barriers, k_tile + 1, count)
        stage = k_tile % STAGES
        cute.arch.mbarrier_wait(barriers + stage, k_tile // STAGES % 2)
        for view, tCrB in parts:
            warpgroup.fence()
            tiled_mma.set(warpgroup.Field.ACCUMULATE, k_tile != 0)
            for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                part = (None, None, k_block, stage)
                cute.gemm(tiled_mma, view, tCrA[part], tCrB[part], view)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
        warpgroup.wait_group(0)
        k_tile += 1
    store(tiled_mma, acc, mC, (64, 2 * TILE_N), (bidx, bidy))


@cute.kernel
def scale_kernel(mA: cute.Tensor, mC: cute.Tensor, factor: cutlass.Float32):
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rows, columns = mA.shape
    i = block * THREADS + tidx
    if i < rows * columns:
        at = (i // columns, i % columns)
        mC[at] = (mA[at].to(cutlass.Float32) * factor).to(mC.element_type)


def prepare(a: cute.Tensor, b: cute.Tensor, tile_m: int, tile_n: int) -> tuple:
    """The TMA atoms with their tensors, the MMA, and the layouts in shared memory."""
    a_layout, b_layout = utils.LayoutEnum.from_tensor(a), utils.LayoutEnum.from_tensor(b)
    tiled_mma = sm90_utils.make_trivial_tiled_mma(
        a.element_type,
        b.element_type,
        a_layout.sm90_mma_major_mode(),
        b_layout.sm90_mma_major_mode(),
        cutlass.Float32,
        (1, 1, 1),
        tiler_mn=(64, TILE_N),
    )
    tile = (tile_m, tile_n, TILE_K)
    a_smem_layout = sm90_utils.make_smem_layout_a(a_layout, tile, a.element_type, STAGES)
    b_smem_layout = sm90_utils.make_smem_layout_b(b_layout, tile, b.element_type, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp()
    one_stage = (None, None, 0)
    tma_a = cpasync.make_tiled_tma_atom(load, a, cute.slice_(a_smem_layout, one_stage), (tile_m, TILE_K))
    tma_b = cpasync.make_tiled_tma_atom(load, b, cute.slice_(b_smem_layout, one_stage), (tile_n, TILE_K))
    return tma_a, tma_b, tiled_mma, a_smem_layout, b_smem_layout


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
    """C = A B^T"""
    tma_a, tma_b, tiled_mma, a_smem_layout, b_smem_layout = prepare(a, b, TILE_M, TILE_N)
    grid = (*cute.ceil_div(c.shape, (TILE_M, TILE_N)), 1)
    gemm_kernel(*tma_a, *tma_b, c, tiled_mma, a_smem_layout, b_smem_layout, a.element_type).launch(
        grid=grid, block=[THREADS, 1, 1], stream=stream
    )


@cute.jit
def gemm_halves(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
    """C = A B^T"""
    tma_a, tma_b, tiled_mma, a_smem_layout, b_smem_layout = prepare(a, b, 64, 2 * TILE_N)
    grid = (*cute.ceil_div(c.shape, (64, 2 * TILE_N)), 1)
    halves_kernel(*tma_a, *tma_b, c, tiled_mma, a_smem_layout, b_smem_layout, a.element_type).launch(
        grid=grid, block=[THREADS, 1, 1], stream=stream
    )


@cute.jit
def scale(a: cute.Tensor, c: cute.Tensor, factor: cutlass.Float32, stream: cuda.CUstream):
    """C = factor A"""
    blocks = cute.ceil_div(cute.size(a), THREADS)
    scale_kernel(a, c, factor).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)
