# SPDX-License-Identifier: Apache-2.0
"""Kernels whose MMAs a library issues and that M=128 MMAs are wrong for, or not known to be right for: for the
compiler, PTX and runs to refuse (`scripts/shadow_steps.py`)."""

from __future__ import annotations

import re

KERNEL = """#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
using namespace cute;
using Memory = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_128, _64, _3>{}));
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}, Tiles{}));
@HEAD@
__global__ void __launch_bounds__(@THREADS@) kernel(half_t* a, half_t* b, float* out, int n, int rows) {
  extern __shared__ half_t shared[];
  @ROLE@
  Tensor sA = make_tensor(make_smem_ptr(shared), Memory{});
  Tensor sB = make_tensor(make_smem_ptr(@SHARED_B@), Memory{});
  Tensor mC = make_tensor(make_gmem_ptr(out), make_shape(rows, n), make_stride(n, _1{}));
  Mma mma;
  auto thr = mma.get_slice(@SLICE@);
  Tensor tA = thr.partition_fragment_A(sA);
  Tensor tB = thr.make_fragment_B(thr.partition_B(sB));
  Tensor acc = partition_fragment_C(mma, Shape<_128, _64>{});
  mma.accumulate_ = @SCALE@;
  @CLEAR@
  for (int tile = 0; tile < @TILES@; ++tile) {
    @BEFORE@
    warpgroup_arrive();
    for (int k = 0; k < size<2>(tA); ++k) {
      gemm(@MMA@, @A@, @B@, acc);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
  }
  @AFTER@
  copy(acc, thr.partition_C(mC));
}
"""
DEFAULTS = {
    "HEAD": "",
    "THREADS": "256",
    "ROLE": "",
    "SHARED_B": "shared + 128 * 64 * 3",
    "SLICE": "threadIdx.x",
    "SCALE": "GMMA::ScaleOut::Zero",
    "CLEAR": "",
    "TILES": "n / 64",
    "BEFORE": "",
    "MMA": "mma",
    "A": "tA(_, _, k, tile % 3)",
    "B": "tB(_, _, k, tile % 3)",
    "AFTER": "",
}


WRONG = {
    "tiles": {"TILES": "n / 64 + threadIdx.x / 128"},
    "rows": {"BEFORE": "if (threadIdx.x / 128 * 64 >= rows) break;"},
    "more": {"BEFORE": "if (threadIdx.x / 128 == 0) { warpgroup_arrive(); warpgroup_commit_batch(); }"},
    "by the library": {"BEFORE": "if (cutlass::canonical_warp_group_idx() * 64 >= rows) break;"},
    "part of B": {"B": "tB(_, _, k, threadIdx.x / 128)"},
    "B": {"SHARED_B": "shared + threadIdx.x / 128 * 4096"},
    "part of A": {"A": "tA(_, _, k, threadIdx.x / 128)"},
    "scale": {"SCALE": "threadIdx.x / 128 ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero"},
    "scale sometimes": {"BEFORE": "if (threadIdx.x / 128) mma.accumulate_ = GMMA::ScaleOut::Zero;"},
    "scale in a helper": {
        "HEAD": ("template <class M> __device__ void begin(M& m) { m.accumulate_ = GMMA::ScaleOut::Zero; }"),
        "BEFORE": "if (threadIdx.x / 128) begin(mma);",
    },
    "MMA": {"ROLE": "Mma mma2;", "MMA": "threadIdx.x / 128 ? mma : mma2"},
    "cleared": {"BEFORE": "if (threadIdx.x / 128) clear(acc);"},
    "content": {
        "ROLE": "Tensor t = make_tensor<int>(Shape<_1>{}); t(0) = threadIdx.x;",
        "BEFORE": "if (t(0) > 128) break;",
    },
    "content by a pointer": {
        "ROLE": "Tensor t = make_tensor<int>(Shape<_2>{}); t.data()[0] = threadIdx.x / 128;",
        "B": "tB(_, _, k, t(0))",
    },
    "content by a view": {
        "ROLE": ("Tensor t = make_tensor<int>(Shape<_2>{}); Tensor v = recast<int>(t); v(0) = threadIdx.x / 128;"),
        "B": "tB(_, _, k, t[0])",
    },
    "content of a pointer": {
        "ROLE": (
            "Tensor t = make_tensor<int>(Shape<_2>{}); auto p = t.data(), q = t.data(); q[0] = threadIdx.x / 128;"
        ),
        "BEFORE": "if (*p > 0) break;",
    },
    "shape": {
        "ROLE": "Tensor t = make_tensor(make_gmem_ptr(a), make_shape(threadIdx.x / 128, n));",
        "TILES": "size<0>(t)",
    },
    "registers": {"ROLE": "if (threadIdx.x / 128) cutlass::arch::warpgroup_reg_alloc<232>();"},
    "polling": {
        "ROLE": "__shared__ volatile int flag; if (threadIdx.x == 0) flag = 0; __syncthreads();",
        "BEFORE": (
            "if (tile == 0) { while (flag != threadIdx.x / 128) {} __syncwarp(); if (threadIdx.x == 127) flag = 1; }"
        ),
    },
}
"""Two consumers, below each other."""
STACKED = {
    "a tile that is written for many rows": {"AFTER": "if (rows > 1000) acc(0, 1, 0) = 2;"},
    "row of a thread": {"AFTER": "for (int i = 0; i < size(acc); ++i) acc(i) *= out[threadIdx.x / 4];"},
    "row of a variable": {
        "ROLE": "const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;",
        "AFTER": "acc(0) *= out[row];",
    },
    "in a helper": {
        "HEAD": "using Tiles = Layout<_1>; __device__ int own(int i) { return i / 32 * 16; }",
        "AFTER": "acc(0) *= out[own(threadIdx.x)];",
    },
    "of a warp": {"AFTER": "if (threadIdx.x / 32 == 1) acc(0) = 0;"},
    "of a warp, named": {"ROLE": "const bool second = threadIdx.x / 32 == 1;", "AFTER": "if (second) acc(0) = 0;"},
    "of a warp, by the library": {"AFTER": "if (cutlass::canonical_warp_idx() == 1) acc(0) = 0;"},
    "rows that there are": {"BEFORE": "if (threadIdx.x < rows) acc(0) = 1;"},
    "chosen value": {"AFTER": "const float s = threadIdx.x < 32 ? 2 : 1; acc(0) *= s;"},
    "by a copy": {
        "AFTER": (
            "Tensor other = make_fragment_like(acc); copy(acc, other); for (int i = "
            "threadIdx.x; i < n; i += 128) out[i] = other(0);"
        )
    },
    "part of a thread": {"AFTER": "Tensor part = thr.partition_C(mC); out[threadIdx.x] = part(0);"},
    "place of a part": {"AFTER": "out[threadIdx.x] = thr.partition_C(mC)(0);"},
    "number of its own": {
        "ROLE": "int own = 0; for (int i = threadIdx.x; i < n; i += 128) own += i;",
        "AFTER": "acc(0) *= own;",
    },
    "set by chosen threads": {"ROLE": "float s = 1; if (threadIdx.x < 32) s = 2;", "AFTER": "acc(0) *= s;"},
    "warp by warp": {"AFTER": "__syncwarp();"},
    "some warps": {"AFTER": "cutlass::arch::NamedBarrier::sync(64, 1);"},
    "some warps in asm": {"AFTER": 'asm volatile("bar.sync 1, 64;" ::: "memory");'},
    "warps in asm": {"AFTER": 'asm volatile("bar.warp.sync 0xffffffff;");'},
    "threads by a number": {"AFTER": 'asm volatile("bar.sync 1, %0;" ::"r"(n));'},
    "address": {"ROLE": "auto& t = threadIdx;"},
    "scale of a tile": {
        "AFTER": (
            "for (int m = 0; m < size<1>(acc); ++m) for (int i = 0; i < size<0>(acc); ++i) "
            "for (int n = 0; n < size<2>(acc); ++n) acc(i, m, n) *= out[m];"
        )
    },
    "rows by hand": {
        "AFTER": (
            "Tensor cC = thr.partition_C(make_identity_tensor(Shape<_128, _64>{})); for (int "
            "m = 0; m < size<1>(acc); ++m) for (int i = 0; i < size<0>(acc); ++i) for (int n "
            "= 0; n < size<2>(acc); ++n) acc(i, m, n) *= out[get<0>(cC(i, 0, n)) + 64 * m];"
        )
    },
    "rows of the other tile": {
        "AFTER": (
            "Tensor cC = thr.partition_C(make_identity_tensor(Shape<_128, _64>{})); for (int "
            "m = 0; m < size<1>(acc); ++m) for (int i = 0; i < size<0>(acc); ++i) for (int n "
            "= 0; n < size<2>(acc); ++n) acc(i, m, n) *= out[get<0>(cC(i, 1, n))];"
        )
    },
    "second tile if there are rows": {
        "AFTER": ("Tensor tC = thr.partition_C(mC); if (rows > 64) copy(acc(_, _1{}, _), tC(_, _1{}, _));")
    },
    "one element": {"AFTER": "acc(0, 1, 0) = 2;"},
    "half of them": {"AFTER": "for (int i = 0; i < size(acc) / 2; ++i) acc(i) *= 2;"},
    "half, by number": {"AFTER": "for (int i = 0; i < 32; ++i) acc(i) *= 2;"},
    "from the middle": {"AFTER": "for (int i = 32; i < size(acc); ++i) acc(i) *= 2;"},
    "half, by a branch": {"AFTER": "for (int i = 0; i < size(acc); ++i) if (i < 32) acc(i) *= 2;"},
    "tiles with each other": {"AFTER": "for (int i = 0; i < size(acc) / 2; ++i) acc(i) += acc(i + 32);"},
    "sum of a tile": {
        "AFTER": (
            "for (int m = 0; m < size<1>(acc); ++m) { float sum = 0; for (int i = 0; i < "
            "size<0>(acc); ++i) sum += acc(i, m, 0); atomicAdd(&out[m], sum); }"
        )
    },
    "helper": {
        "HEAD": (
            "using Tiles = Layout<Shape<_1, _1, _1>>; template <class T> __device__ void "
            "by(T& t, float s, int m) { t(0, m, 0) *= s; }"
        ),
        "AFTER": "by(acc, out[0], 0); by(acc, out[64], 1);",
    },
    "lambda": {"AFTER": "auto by = [&](int m) { acc(0, m, 0) *= out[m]; }; by(0); by(1);"},
    "slots that are loaded": {
        "AFTER": (
            "float s[2]; for (int m = 0; m < 2; ++m) s[m] = out[64 * m]; for (int m = 0; m < "
            "size<1>(acc); ++m) for (int i = 0; i < size<0>(acc); ++i) for (int n = 0; n < "
            "size<2>(acc); ++n) acc(i, m, n) *= s[m];"
        )
    },
    "slots one by one": {
        "AFTER": (
            "float s[2]; s[0] = out[0]; s[1] = out[64]; for (int m = 0; m < size<1>(acc); "
            "++m) for (int i = 0; i < size<0>(acc); ++i) for (int n = 0; n < size<2>(acc); "
            "++n) acc(i, m, n) *= s[m];"
        )
    },
    "slots in a list": {
        "AFTER": (
            "float s[2] = {out[0], out[64]}; for (int m = 0; m < size<1>(acc); ++m) for (int "
            "i = 0; i < size<0>(acc); ++i) for (int n = 0; n < size<2>(acc); ++n) acc(i, m, "
            "n) *= s[m];"
        )
    },
    "slots by a copy": {
        "AFTER": (
            "Tensor s = make_tensor<float>(Shape<_2>{}); Tensor g = "
            "make_tensor(make_gmem_ptr(out), Layout<_2>{}); copy(g, s); for (int m = 0; m < "
            "size<1>(acc); ++m) for (int i = 0; i < size<0>(acc); ++i) for (int n = 0; n < "
            "size<2>(acc); ++n) acc(i, m, n) *= s(m);"
        )
    },
    "slots of an object": {
        "HEAD": "using Tiles = Layout<Shape<_1, _1, _1>>; struct Scale { float s[2]; };",
        "ROLE": "Scale own;",
        "AFTER": (
            "for (int m = 0; m < size<1>(acc); ++m) for (int i = 0; i < size<0>(acc); ++i) "
            "for (int n = 0; n < size<2>(acc); ++n) acc(i, m, n) *= own.s[m];"
        ),
    },
    "place that moves": {
        "AFTER": (
            "int at = 0; for (int m = 0; m < size<1>(acc); ++m) { for (int i = 0; i < "
            "size<0>(acc); ++i) acc(i, m, 0) *= out[at]; at += 64; }"
        )
    },
    "sums so far": {"AFTER": ("float sum = 0; for (int i = 0; i < size(acc); ++i) { sum += acc(i); acc(i) = sum; }")},
    "last one": {"AFTER": ("float last = 0; for (int i = 0; i < size(acc); ++i) last = acc(i); out[0] = last;")},
    "first ones": {"AFTER": "for (int i = 0; i < size(acc); ++i) { if (acc(i) > 3) break; acc(i) = 0; }"},
    "view of a tile": {"AFTER": "Tensor low = acc(_, 0, _); for (int i = 0; i < size(low); ++i) low(i) *= 2;"},
    "rows of the result by tiles": {
        "AFTER": (
            "for (int m = 0; m < size<1>(acc); ++m) copy(acc(_, m, _), "
            "thr.partition_C(local_tile(mC, Shape<_64, _64>{}, make_coord(m, 0))));"
        )
    },
    "pointer": {"AFTER": "float* p = acc.data(); p += 32; for (int i = 0; i < size(acc); ++i) p[i] *= 2;"},
    "layout of its own": {
        "AFTER": (
            "Tensor low = make_tensor(acc.data(), Layout<_32>{}); for (int i = 0; i < size(low); ++i) low(i) *= 2;"
        )
    },
    "part": {"AFTER": "auto low = local_tile(acc, Shape<_4, _1, _8>{}, make_coord(0, 1, 0));"},
    "unknown function": {"AFTER": "auto low = composition(acc, Layout<_32>{});"},
    "macro": {"HEAD": "using Tiles = Layout<Shape<_1, _1, _1>>; \n#define UPPER acc(33)\n", "AFTER": "UPPER = 2;"},
    "macro that is handed them": {
        "HEAD": "using Tiles = Layout<Shape<_1, _1, _1>>; \n#define UPPER(t) t(33)\n",
        "AFTER": "UPPER(acc) = 2;",
    },
    "copy with rows of its own": {
        "AFTER": (
            "Tensor half = make_fragment_like<half_t>(acc); for (int i = 0; i < size(half); "
            "++i) half(i) = half_t(acc(i)); auto copy_c = "
            "make_tiled_copy(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}, Layout<_128>{}, "
            "Layout<_4>{}); auto threads = copy_c.get_slice(threadIdx.x); copy(copy_c, "
            "threads.retile_S(half), threads.partition_D(sA));"
        )
    },
    "copy to memory": {"AFTER": "copy(acc, mC);"},
    "thread of a number": {"AFTER": "if (cute::thread(64)) out[0] = 1;"},
    "thread of a block": {"AFTER": "if (thread(64, 0)) out[0] = 1;"},
    "own index by initializer": {
        "HEAD": "struct Own { int w; __device__ Own() : w(threadIdx.x / 32 * 16) {} };",
        "ROLE": "Own own;",
        "AFTER": "for (int i = 0; i < size(acc); ++i) acc(i) *= out[own.w % 64];",
    },
    "own index by constructor": {
        "HEAD": "struct Own { int w; __device__ Own() { w = threadIdx.x / 32 * 16; } };",
        "ROLE": "Own own;",
        "AFTER": "for (int i = 0; i < size(acc); ++i) acc(i) *= out[own.w % 64];",
    },
    "own index by member": {
        "HEAD": "struct Own { int w = threadIdx.x / 32 * 16; };",
        "ROLE": "Own own;",
        "AFTER": "for (int i = 0; i < size(acc); ++i) acc(i) *= out[own.w % 64];",
    },
    "own index by conversion": {
        "HEAD": ("struct Row { __device__ operator int() const { return threadIdx.x; } }; struct Own { Row w; };"),
        "ROLE": "Own own;",
        "AFTER": "for (int i = 0; i < size(acc); ++i) acc(i) *= out[own.w % 64];",
    },
    "own index by library": {
        "HEAD": "struct Own { int w; __device__ Own() : w(cutlass::canonical_warp_idx()) {} };",
        "ROLE": "Own own;",
        "AFTER": "for (int i = 0; i < size(acc); ++i) acc(i) *= out[own.w % 64];",
    },
}
"""Two tiles of one consumer."""

_FILLED = """  extern __shared__ __align__(1024) half_t shared[];
  for (int i = threadIdx.x; i < 9216; i += blockDim.x) reinterpret_cast<uint4*>(shared)[i] = in[i % 1408];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const half_t* a = reinterpret_cast<const half_t*>(in);
  const float* given = reinterpret_cast<const float*>(in);
  const int n = steps * 64;
  out += (blockIdx.y * gridDim.x + blockIdx.x) * 16384;
"""
_INCLUDES = """#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>"""
SHARED = 9216 * 16
"""Bytes of shared memory of a block."""
_STORED = re.compile(r"\s*(?:=(?!=)|\+=)")


def runnable(parts: dict[str, str], tiles: int) -> str:
    """A kernel with operands in shared memory and, behind 8192 numbers of its block that it may write by itself, its
    results; what it reads from the output is an input. `tiles`: of 64 rows that one consumer has."""
    text = KERNEL
    for name, value in {**DEFAULTS, "THREADS": str(256 // tiles), **parts}.items():
        text = text.replace(f"@{name}@", re.sub(r"using Tiles = [^;]*;\s*", "", value))
    kernel = text.index("kernel(half_t*")
    text = text[:kernel] + "".join(_pieces(text[kernel:]))
    text = text.replace("using Mma", f"using Tiles = Layout<Shape<_{2 // tiles}, _1, _1>>;\nusing Mma", 1)
    text = text.replace("#include <cutlass/cutlass.h>", _INCLUDES)
    text = text.replace("half_t* a, half_t* b, float* out, int n,", "float* out, const uint4* in, int steps,")
    text = text.replace("  extern __shared__ half_t shared[];\n", _FILLED)
    text = text.replace("make_gmem_ptr(out), make_shape(rows, n), make_stride(n, _1{})",
                        "make_gmem_ptr(out + 8192), make_shape(_128{}, _64{}), make_stride(_64{}, _1{})")  # fmt: skip
    rows_of_b = text.replace("Shape<_128, _64, _3>{}));", "Shape<_128, _64, _3>{}));\n" + _LAYOUT_OF_B, 1)
    at = rows_of_b.index("Tensor sB")
    return rows_of_b[:at] + rows_of_b[at:].replace("Memory{}", "MemoryOfB{}", 1)


_LAYOUT_OF_B = (
    "using MemoryOfB = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_64, _64, _3>{}));\n"
)


def _pieces(text: str) -> list[str]:
    """A text in which what is read of `out` is an input."""
    found, at = [], 0
    for match in re.finditer(r"\bout\[", text):
        end, depth = match.end(), 1
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        if text[match.start() - 1] != "&" and _STORED.match(text, end) is None:
            found += [text[at : match.start()], "given["]
            at = match.end()
    return [*found, text[at:]]
