# SPDX-License-Identifier: Apache-2.0
"""The Python file of a variant."""

from __future__ import annotations

import textwrap

from dsl_variant_types import KINDS, TILES, Variant

HEAD = '''# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import warp, warpgroup

M, N, TILE_K, TILES = {m}, {n}, {depth}, {tiles}
THREADS = {threads}
ACC = cutlass.{accumulator}


@cute.jit
def load(source: cute.Tensor, to: cute.Tensor, thread: cutlass.Int32):
    rows, depth = source.shape
    for i in cutlass.range(thread, rows * depth, THREADS, unroll=1):
        row, k = i // depth, i % depth
        to[row, k % TILE_K, k // TILE_K] = source[row, k]


@cute.jit
def store(mma: cute.TiledMma, acc: cute.Tensor, mC: cute.Tensor, thread: cutlass.Int32):
    tCgC = mma.get_slice(thread).partition_C(mC)
    for i in cutlass.range_constexpr(cute.size(acc)):
        tCgC[i] = acc[i].to(mC.element_type)


@cute.jit
def product(mma: cute.TiledMma, sA: cute.Tensor, sB: cute.Tensor, mC: cute.Tensor, tiles: cutlass.Int32,
            thread: cutlass.Int32):
    """All of C by the threads of one tiled MMA."""
    thr = mma.get_slice(thread)
    tCrA = mma.make_fragment_A(thr.partition_A(sA))
    tCrB = mma.make_fragment_B(thr.partition_B(sB))
    acc = mma.make_fragment_C(mma.partition_shape_C(mC.shape))
    acc.fill(0)
    mma.set(warpgroup.Field.ACCUMULATE, True)
    for t in cutlass.range(tiles, unroll=1):
        warpgroup.fence()
        part = (None, None, None, t)
        cute.gemm(mma, acc, tCrA[part], tCrB[part], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
    store(mma, acc, mC, thread)


'''
KERNEL = """
@cute.kernel
def kernel(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, tiles: cutlass.Int32,
           {declared},
           a_layout: cute.ComposedLayout, b_layout: cute.ComposedLayout):
    tidx, tidy, tidz = cute.arch.thread_idx()
    thread = tidx + {x} * (tidy + {y} * tidz)
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = utils.SmemAllocator()
    sA = smem.allocate_tensor(mA.element_type, a_layout.outer, 1024, a_layout.inner)
    sB = smem.allocate_tensor(mB.element_type, b_layout.outer, 1024, b_layout.inner)
    load(mA, sA, thread)
    load(mB, sB, thread)
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
{body}

@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, tiles: cutlass.Int32, stream: cuda.CUstream):
    a_major, b_major = utils.LayoutEnum.from_tensor(a), utils.LayoutEnum.from_tensor(b)
    modes = (a_major.sm90_mma_major_mode(), b_major.sm90_mma_major_mode())
{made}
    a_layout = sm90_utils.make_smem_layout_a(a_major, (M, N, TILE_K), a.element_type, TILES)
    b_layout = sm90_utils.make_smem_layout_b(b_major, (M, N, TILE_K), b.element_type, TILES)
    kernel(a, b, c, tiles, {names}, a_layout, b_layout).launch(grid=[1, 1, 1], block={block}, stream=stream)
"""
MADE = """    {name} = sm90_utils.make_trivial_tiled_mma(
        a.element_type, b.element_type, *modes, ACC, ({m}, {n}, 1), tiler_mn=(64, {columns}),
        a_source=warpgroup.OperandSource.{source},
    )
"""


def source(variant: Variant) -> str:
    kind = KINDS[variant.kind]
    x, y, z = variant.block
    made = "".join(
        MADE.format(name=name, m=one.atoms[0], n=one.atoms[1], columns=one.n or variant.n // one.atoms[1],
                    source="RMEM" if one.registers else "SMEM")
        for name, one in variant.mmas.items()
    )  # fmt: skip
    head = HEAD.format(m=variant.m, n=variant.n, depth=kind.depth, tiles=TILES, threads=x * y * z,
                       accumulator=kind.accumulator)  # fmt: skip
    kernel = KERNEL.format(
        declared=", ".join(f"{n}: cute.TiledMma" for n in variant.mmas), x=x, y=y, made=made.rstrip(),
        body=textwrap.indent(variant.body, "    "), names=", ".join(variant.mmas), block=list(variant.block),
    )  # fmt: skip
    return head + variant.helpers + kernel
