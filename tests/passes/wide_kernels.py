# SPDX-License-Identifier: Apache-2.0
"""A GEMM whose tiles are as wide as one constant says, in many ways of writing, with its host code and a case."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from porter.cli.porting import boxes_of, launches_of
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources

KERNEL = """\
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_bf16.h>
@CONST@
constexpr int BM = 64, BK = 64;
using T = __nv_bfloat16;

__device__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void load(void* to, const CUtensorMap& map, uint64_t* bar, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(smem(to)), "l"(&map), "r"(x), "r"(y), "r"(smem(bar)) : "memory");
}
__device__ void store(const CUtensorMap& map, const void* from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(&map), "r"(x), "r"(y), "r"(smem(from)) : "memory");
}
__device__ uint64_t desc(const T* tile) { return 0x4000004000010000ull | ((smem(tile) & 0x3FFFF) >> 4); }
__device__ void wait(uint64_t* bar, uint32_t parity) {
    asm volatile("{ .reg .pred p; W%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W%=; }"
                 :: "r"(smem(bar)), "r"(parity) : "memory");
}
@MMA@
@TEMPLATE@
__global__ void __launch_bounds__(128)
product(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, @PARAMS@) {
    __shared__ alignas(1024) T a[BM * BK], b[@BN@ * BK];
    @SHARED@
    __shared__ uint64_t ready;
    @PLACE@
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(smem(&ready)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    @SUMS@
    for (int k = 0; k < K / BK; ++k) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                         :: "r"(smem(&ready)), "r"(@BYTES@) : "memory");
            load(a, map_a, &ready, k * BK, blockIdx.y * BM);
            load(b, map_b, &ready, k * BK, @COLUMN@);
        }
        wait(&ready, k & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        @LOOP@
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    const int row = blockIdx.y * BM + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    @STORE@
}

void encode(CUtensorMap* map, CUtensorMapDataType type, int bytes, void* data, uint64_t rows, uint64_t columns,
            uint32_t box_rows, uint32_t box_columns) {
    cuuint64_t extents[2] = {columns, rows}, pitch[1] = {columns * bytes};
    cuuint32_t box[2] = {box_columns, box_rows}, steps[2] = {1, 1};
    if (cuTensorMapEncodeTiled(map, type, 2, data, extents, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) std::abort();
}
@HELP@
void launch(T* A, T* B, float* C, int M, int N, int K) {
    @HOST@
    CUtensorMap map_a, map_b;
    @CHECK@
    encode(&map_a, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, A, M, K, BM, BK);
    encode(&map_b, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, B, N, K, @BOX@, BK);
    @MAP@
    product@GIVEN@<<<dim3(@GRID@, M / BM), 128>>>(map_a, map_b, @ARGUMENTS@);
}
"""


def mma(n: int, name: str = "multiply", array: str = "float (&d)[@R@]", element: str = "d[{i}]", head: str = "") -> str:
    """A wrapper of one instruction of `n` columns."""
    count = n // 2
    places = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"({element.format(i=i, q=i // 4, r=i % 4)})' for i in range(count))
    return (
        f"{head}__device__ void {name}({array.replace('@R@', str(count)).replace('@Q@', str(count // 4))}, "
        "uint64_t left, uint64_t right) {\n"
        f'    asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{places}}}, '
        f'%{count}, %{count + 1}, 1, 1, 1, 0, 0;"\n'
        f'                 : {outputs} : "l"(left), "l"(right));\n}}\n'
    )


STORE = """\
float* to = C + size_t(row) * N + column0 + threadIdx.x % 4 * 2;
    for (int w = 0; w < @BN@ / 8; ++w) {
        to[w * 8] = d[w * 4];
        to[w * 8 + 1] = d[w * 4 + 1];
        to[w * 8 + N * 8] = d[w * 4 + 2];
        to[w * 8 + N * 8 + 1] = d[w * 4 + 3];
    }"""
PAIRS = """\
for (int w = 0; w < @BN@ / 8; ++w)
        for (int j = 0; j < 2; ++j)
            *reinterpret_cast<float2*>(&C[size_t(row + j * 8) * N + tile * @BN@ + w * 8 + threadIdx.x % 4 * 2]) =
                make_float2(d[w][2 * j], d[w][2 * j + 1]);"""
DEFAULTS = {
    "CONST": "constexpr int BN = 16;",
    "MMA": mma(16),
    "TEMPLATE": "",
    "PARAMS": "float* C, int N, int K",
    "SHARED": "",
    "PLACE": "const int column0 = blockIdx.x * @BN@;",
    "SUMS": "float d[@BN@ / 2] = {};",
    "BYTES": "(BM + @BN@) * BK * int(sizeof(T))",
    "COLUMN": "column0",
    "CALL": "multiply",
    "LOOP": "for (int i = 0; i < BK / 16; ++i) @CALL@(d, desc(a + i * 16), desc(b + i * 16));",
    "STORE": STORE,
    "HELP": "",
    "HOST": "",
    "CHECK": "if (N % @BN@ || M % BM) { std::printf(\"whole tiles of %d x %d\\n\", BM, @BN@); std::abort(); }",
    "BOX": "@BN@",
    "MAP": "",
    "GIVEN": "",
    "GRID": "N / @BN@",
    "ARGUMENTS": "C, N, K",
    "BN": "BN",
}  # fmt: skip

BY_TILE = {"PLACE": "const int tile = blockIdx.x;", "COLUMN": "tile * @BN@",
           "STORE": STORE.replace("column0", "tile * @BN@")}  # fmt: skip
CHOICE = (
    mma(16, "multiply16")
    + mma(32, "multiply32")
    + """\
template <int WIDTH>
__device__ void multiply(float (&d)[WIDTH / 2], uint64_t left, uint64_t right) {
    if constexpr (WIDTH == 32) multiply32(d, left, right);
    else multiply16(d, left, right);
}"""
)
BY_TMA = {
    "PARAMS": "const __grid_constant__ CUtensorMap map_c, int K",
    "ARGUMENTS": "map_c, K",
    "MAP": "CUtensorMap map_c; encode(&map_c, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, C, M, N, 64, 16);",
    "SHARED": "__shared__ alignas(1024) float staged[64 * 16];",
    "STORE": """\
for (int part = 0; part < @BN@ / 16; ++part) {
        for (int w = 0; w < 2; ++w)
            for (int j = 0; j < 4; ++j)
                staged[(row % 64 + j / 2 * 8) * 16 + w * 8 + threadIdx.x % 4 * 2 + j % 2] = d[part * 8 + w * 4 + j];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
            store(map_c, staged, column0 + part * 16, blockIdx.y * BM);
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        }
        __syncthreads();
    }""",
}

CASE = """\
version: 1
kernel: kernel.cu
entry: product
constants: {BM: 64, BN: 16, BK: 64}
sizes: {M: 64, N: 32, K: 128}
other_sizes:
  - {M: 128, N: 16, K: 64}
multiples: {M: BM, N: BN}
tensors:
  A: {dtype: bf16, shape: [M, K], role: input}
  B: {dtype: bf16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
tensor_maps:
  map_a: {tensor: A, box: [BM, BK], swizzle: 128B}
  map_b: {tensor: B, box: [BN, BK], swizzle: 128B}
launch:
  grid: ["N / BN", "M / BM", 1]
  block: [128, 1, 1]
params: [map_a, map_b, C, N, K]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""


def text(**parts: str) -> str:
    found = KERNEL
    for _ in range(3):
        for name, value in {**DEFAULTS, **parts}.items():
            found = found.replace(f"@{name}@", value)
    return found


def write(folder: Path, **parts: str) -> Path:
    """The kernel, and a case beside it."""
    path = folder / "kernel.cu"
    path.write_text(text(**parts))
    template = "template: [BN]\n" if parts.get("TEMPLATE") else ""
    (folder / "case.yaml").write_text(CASE.replace("constants:", template + "constants:"))
    return path


def options(root: Path, steps: tuple[str, ...] = ("wide",)) -> PortOptions:
    wide = frozenset({(root.as_posix(), "wide")})
    return PortOptions(
        full_rate=True, native=steps, chosen=wide, launches=partial(launches_of, ()), boxes=partial(boxes_of, ())
    )


def ported(folder: Path, steps: tuple[str, ...] = ("wide",), **parts: str) -> PortResult:
    path = write(folder, **parts)
    return port_sources(load_sources(path), options(path, steps))


JUDGED: dict[str, dict[str, str]] = {
    "tiles of twice the width": {},
    "a tile's number for something else": {
        **BY_TILE,
        "PLACE": "const int tile = blockIdx.x; if (tile == 100) return;",
    },
    "columns that change, late": {"PLACE": "int column0 = blockIdx.x * BN; if (K > 3000) column0 += 16;"},
    "a block of columns in the kernel": {
        "STORE": STORE.replace("d[w * 4];", "d[w * 4] * (column0 / BN == 90 ? 2 : 1);")
    },
    "blocks that ask how many there are": {
        "PLACE": "const int column0 = blockIdx.x * BN; if (gridDim.x > 90) return;",
    },
    "another loop by the width, late": {
        "STORE": "if (blockIdx.x == 90) for (int i = 0; i < BN; ++i) d[i / 8] += i;\n" + STORE,
    },
}
"""What goes by the width of a tile, or by its number, beside the place of the tile: for the judge."""
