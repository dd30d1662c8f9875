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


def runnable(parts: dict[str, str]) -> str:
    """A kernel with operands in shared memory and, behind 8192 numbers of its block that it may write by itself, its
    results; what it reads from the output is an input."""
    text = KERNEL
    for name, value in {**DEFAULTS, "THREADS": "256", **parts}.items():
        text = text.replace(f"@{name}@", re.sub(r"using Tiles = [^;]*;\s*", "", value))
    kernel = text.index("kernel(half_t*")
    text = text[:kernel] + "".join(_pieces(text[kernel:]))
    text = text.replace("using Mma", "using Tiles = Layout<Shape<_2, _1, _1>>;\nusing Mma", 1)
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
