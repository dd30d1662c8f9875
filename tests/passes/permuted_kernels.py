# SPDX-License-Identifier: Apache-2.0
"""A GEMM whose epilogue asks an opaque function which thread it is, with its host code, in many ways of writing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from porter.cli.porting import boxes_of
from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources

PTX = """\
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
__device__ uint32_t window(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ uint64_t tile_of(const void* p) {
    return (uint64_t)(window(p) >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void multiply(float (&d)[8], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, @MAJOR@;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b)@MORE@);
}
__device__ void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(window(bar)), "r"(bytes) : "memory");
}
__device__ void fetch(void* to, const CUtensorMap& map, uint64_t* bar, int depth, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 ::"r"(window(to)), "l"(&map), "r"(window(bar)), "r"(depth), "r"(row) : "memory");
}
__device__ void await(uint64_t* bar, int parity) {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 ::"r"(window(bar)), "r"(parity) : "memory");
}
"""
TOP = """\
__device__ int physical() {
    int found;
    asm("mov.u32 %0, %%tid.x;" : "=r"(found));
    return found;
}
struct Block {
    alignas(1024) __half left[128 * 64];
    alignas(1024) __half right[16 * 64];
    uint64_t ready;
};
"""
JOINED = """\
@TOP@
@HEAD@
__global__ void __launch_bounds__(256)
product(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y, float* out, int depth, int wide) {
    extern __shared__ char bytes[];
    Block& block = *reinterpret_cast<Block*>(bytes);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(window(&block.ready)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    const int half = threadIdx.x / 128;
    const int top = blockIdx.y * 128;
    float sum[8] = {};
    for (int k = 0; k < depth / 64; ++k) {
        if (threadIdx.x == 0) {
            expect(&block.ready, 128 * 128 + 16 * 128);
            @LOADS@
            fetch(block.right, y, &block.ready, k * 64, blockIdx.x * 16);
        }
        await(&block.ready, k % 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        @MMAS@
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    @END@
    const int at = @THREAD@;
    float* to = out + (top + at / 32 * 16 + at % 32 / 4) * wide + blockIdx.x * 16 + at % 4 * 2;
    for (int i = 0; i < 8; ++i) to[i / 4 * 8 + i / 2 % 2 * 8 * wide + i % 2] = sum[i];
}
@HOST@
"""
STACKED = """\
@TOP@
@HEAD@
__global__ void __launch_bounds__(128)
product(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y, float* out, int depth, int wide) {
    extern __shared__ char bytes[];
    Block& block = *reinterpret_cast<Block*>(bytes);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(window(&block.ready)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    const int top = blockIdx.y * 128;
    float sum[2][8] = {};
    for (int k = 0; k < depth / 64; ++k) {
        if (threadIdx.x == 0) {
            expect(&block.ready, 128 * 128 + 16 * 128);
            @LOADS@
            fetch(block.right, y, &block.ready, k * 64, blockIdx.x * 16);
        }
        await(&block.ready, k % 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int m = 0; m < 2; ++m)
            for (int i = 0; i < 4; ++i)
                multiply(sum[m], tile_of(block.left + m * 4096 + i * 16), tile_of(block.right + i * 16));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    @END@
    const int at = @THREAD@;
    for (int m = 0; m < 2; ++m) {
        float* to = out + (top + @ROW@ + at / 32 * 16 + at % 32 / 4) * wide + blockIdx.x * 16 + at % 4 * 2;
        for (int i = 0; i < 8; ++i) to[i / 4 * 8 + i / 2 % 2 * 8 * wide + i % 2] = sum[m][i];
    }
}
@HOST@
"""
HOST = """\
void describe(CUtensorMap& map, void* data, uint64_t rows, uint64_t columns, uint32_t box_rows) {
    cuuint64_t extents[2] = {columns, rows}, pitch[1] = {columns * 2};
    cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, data, extents, pitch, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
void launch(__half* a, __half* b, float* out, int m, int n, int depth) {
    CUtensorMap x, y;
    describe(x, a, m, depth, @BOX@);
    describe(y, b, n, depth, 16);
    product<<<dim3(n / 16, (m + 127) / 128), @THREADS@, sizeof(Block)>>>(x, y, out, depth, n);
}
"""
LOADS = "fetch(block.left, x, &block.ready, k * 64, top);"
DEFAULTS = {
    "TOP": TOP,
    "HEAD": "",
    "LOADS": LOADS,
    "MMAS": "for (int i = 0; i < 4; ++i) multiply(sum, tile_of(block.left + half * 4096 + i * 16), "
            "tile_of(block.right + i * 16));",
    "END": "",
    "THREAD": "physical()",
    "ROW": "m * 64",
    "HOST": HOST,
    "BOX": "128",
    "MAJOR": "0, 0",
    "MORE": "",
}  # fmt: skip
CASE = """\
version: 1
kernel: product.cu
entry: product
sizes: {M: 256, N: 32, K: 128}
other_sizes:
  - {M: 128, N: 16, K: 64}
  - {M: 384, N: 48, K: 192}
multiples: {M: 128, N: 16, K: 64}
tensors:
  A: {dtype: f16, shape: [M, K], role: input}
  B: {dtype: f16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
tensor_maps:
  a_map: {tensor: A, box: [@BOX@, 64], swizzle: 128B}
  b_map: {tensor: B, box: [16, 64], swizzle: 128B}
launch:
  grid: [N / 16, M / 128, 1]
  block: [@THREADS@, 1, 1]
  dynamic_smem: 128 * 128 + 16 * 128 + 1024
params: [a_map, b_map, C, K, N]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""


def write(folder: Path, kernel: str = JOINED, **parts: str) -> Path:
    """The kernel with its case, in a folder."""
    values = {**DEFAULTS, "THREADS": "256" if kernel is JOINED else "128", **parts}
    text, case = PTX + kernel, CASE
    for name, value in values.items():
        text, case = text.replace(f"@{name}@", value), case.replace(f"@{name}@", value)
    (folder / "case.yaml").write_text(case)
    path = folder / "product.cu"
    path.write_text(text)
    return path


def ported(folder: Path, kernel: str = JOINED, keep_hopper: bool = False, **parts: str) -> PortResult:
    options = PortOptions(full_rate=True, boxes=partial(boxes_of, ()), keep_hopper=keep_hopper or None)
    return port_sources(load_sources(write(folder, kernel, **parts)), options)


def missing(result: PortResult) -> list[str]:
    return [str(d.values["what"]) for d in result.diagnostics if d.code is Code.FULL_RATE_LEFT]


def why(result: PortResult) -> list[str]:
    """What keeps threads from other rows, where rows of A change places for that."""
    return [str(d.values["what"]) for d in result.diagnostics if d.code is Code.FULL_RATE_PERMUTED]


def texts(result: PortResult) -> tuple[str, str]:
    """The kernel's file, and the helpers."""
    kernel = next(t for p, t in result.files.items() if p.endswith("product.cu"))
    return kernel.decode(), next((t for p, t in result.files.items() if p.endswith("tcgen05.cuh")), b"").decode()
