# SPDX-License-Identifier: Apache-2.0
"""A persistent warp-specialized GEMM with its host code in many ways of writing, for the steps of `--style native` that
change who multiplies which tile."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from porter.cli.porting import launches_of
from porter.lang.sources import load_sources
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions, PortResult, port_sources

SOURCE = """\
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>
constexpr int kStages = 2;
struct Ring { alignas(1024) char a[kStages][16384], b[kStages][2048]; uint64_t full[kStages], empty[kStages]; };
__device__ uint32_t at(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ uint64_t descriptor(const void* p) {
    return (uint64_t)(at(p) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void wgmma_m64n16k16(float (&d)[8], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b));
}
__device__ void init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(count));
}
__device__ void arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory");
}
__device__ void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes) : "memory");
}
__device__ void load(void* to, const CUtensorMap* map, uint64_t* bar, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(at(to)), "l"(map), "r"(at(bar)), "r"(x), "r"(y) : "memory");
}
__device__ void wait(uint64_t* bar, int parity) {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 ::"r"(at(bar)), "r"(parity) : "memory");
}
@HEAD@
__global__ void __launch_bounds__(384)
kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* out, @SIZES@) {
    extern __shared__ char memory[];
    Ring& ring = *reinterpret_cast<Ring*>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init(&ring.full[i], @FULL@);
            init(&ring.empty[i], 256);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    @COUNT@
    int n = 0;
    if (threadIdx.x / 128 == 0) {
        @PRODUCER@ {
            @LOOP@ {
                @TILE@
                for (int k = 0; k < @STEPS@; ++k, ++n) {
                    wait(&ring.empty[n % kStages], n / kStages % 2 ^ 1);
                    @LOADS@
                }
            }
        }
    } else {
        const int consumer = threadIdx.x / 128 - 1;
        const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        @LOOP@ {
            @TILE@
            @EARLY@
            float acc[8] = {};
            for (int k = 0; k < @STEPS@; ++k, ++n) {
                wait(&ring.full[n % kStages], n / kStages % 2);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                for (int i = 0; i < 4; ++i) {
                    wgmma_m64n16k16(acc, descriptor(ring.a[n % kStages] + consumer * 8192 + i * 32),
                                    descriptor(ring.b[n % kStages] + i * 32));
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                arrive(&ring.empty[n % kStages]);
            }
            @STORE@
        }
    }
}
void encode(CUtensorMap* map, void* data, uint64_t rows, uint64_t columns, uint32_t box_rows) {
    cuuint64_t dims[2] = {columns, rows}, strides[1] = {columns * 2};
    cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
    cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, data, dims, strides, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
void run(void* a, void* b, float* out, int M, int N, int K, int blocks) {
    CUtensorMap map_a, map_b;
    encode(&map_a, a, M, K, 128);
    encode(&map_b, b, N, K, 16);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    @LAUNCH@
}
"""
DEFAULTS = {
    "HEAD": "",
    "SIZES": "int M, int N, int K",
    "FULL": "1",
    "COUNT": "const int tiles = M / 128 * (N / 16);",
    "PRODUCER": "if (threadIdx.x == 0)",
    "LOOP": "for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)",
    "TILE": "const int row = tile / (N / 16), column = tile % (N / 16);",
    "LOADS": "expect(&ring.full[n % kStages], 16384 + 2048);\n"
             "load(ring.a[n % kStages], &map_a, &ring.full[n % kStages], k * 64, row * 128);\n"
             "load(ring.b[n % kStages], &map_b, &ring.full[n % kStages], k * 64, column * 16);",
    "EARLY": "",
    "STEPS": "K / 64",
    "STORE": "float* to = out + (row * 128 + consumer * 64 + warp * 16 + lane / 4) * N + column * 16 + lane % 4 * 2;\n"
             "for (int i = 0; i < 8; ++i) to[i / 4 * 8 + i / 2 % 2 * 8 * N + i % 2] = acc[i];",
    "LAUNCH": "kernel<<<blocks, 384, sizeof(Ring)>>>(map_a, map_b, out, M, N, K);",
}  # fmt: skip
LOADS, STORE = DEFAULTS["LOADS"], DEFAULTS["STORE"]
SCHEDULE = """\
struct Tiles {
    int next, step, total, across;
    __device__ Tiles(int rows, int columns) : next(blockIdx.x), step(gridDim.x), across(columns / 16) {
        total = rows / 128 * across;
    }
    __device__ bool pop(int& row, int& column) {
        if (next >= total) return false;
        row = next / across;
        column = next % across;
        next += step;
        return true;
    }
};
"""
TILE = DEFAULTS["TILE"]
OF_A_TILE: dict[str, dict[str, str]] = {
    "as many as memory says": {"TILE": f"{TILE}\nconst int steps = int(out[row]);"},
    "as many as the row says": {"TILE": f"{TILE}\nconst int steps = min(K / 64, row + 1);"},
    "as many as the column says": {"TILE": f"{TILE}\nconst int last = column * 2, steps = last < K / 64 ? last : 1;"},
    "as many as the number says": {"TILE": f"{TILE}\nconst int steps = tile % 2 + 1;"},
    "as many as a branch says": {"TILE": f"{TILE}\nint steps = K / 64; if (row == 1) {{ steps = 1; }}"},
    "as many as a function says": {
        "HEAD": "__device__ int counted(int row, int k) { return row < 2 ? 1 : k; }\n",
        "TILE": f"{TILE}\nconst int steps = counted(row, K / 64);",
    },
    "a tile that is left out": {"TILE": f"{TILE}\nconst int steps = K / 64;\nif (row % 3 == 2) continue;"},
    "a tile that memory leaves out": {"TILE": f"{TILE}\nconst int steps = K / 64;\nif (out[tile] > 3) continue;"},
    "another part of the sum": {
        "TILE": f"{TILE}\nconst int steps = K / 128, first = tile % 2 * steps;",
        "LOADS": LOADS.replace("k * 64", "(first + k) * 64"),
    },
}
"""Steps that are others for some tiles: both CTAs of a pair do not take them together."""
LISTED = {"LOOP": "for (int it = blockIdx.x; it < tiles; it += gridDim.x)"}
PLACED: dict[str, dict[str, str]] = {
    "a list of tiles": {**LISTED, "TILE": f"const int tile = int(out[it]);\n{TILE}"},
    "a list of rows": {"TILE": "const int row = int(out[tile / (N / 16)]), column = tile % (N / 16);"},
    "a list in shared memory": {
        **LISTED,
        "COUNT": DEFAULTS["COUNT"] + " __shared__ int list[64]; list[threadIdx.x % 64] = 63 - threadIdx.x % 64;"
        " __syncthreads();",
        "TILE": f"const int tile = list[it];\n{TILE}",
    },
    "groups of tiles": {
        "COUNT": DEFAULTS["COUNT"] + " int group = 0, start = 0, end = M;",
        "TILE": "while (tile >= end) { ++group; start = end; end += int(out[group]); }\n"
        "const int local = tile - start;\nconst int row = local / (N / 16), column = local % (N / 16);",
    },
}
"""Memory tells the place of a tile, which is that of the whole product."""
JUDGED: dict[str, dict[str, str]] = {
    "an index that changes where sums are stored": {
        "TILE": "int row = tile / (N / 16), column = tile % (N / 16);",
        "STORE": "row += 0;\n" + STORE,
    },
    "an index of the tile where sums are stored": {"STORE": STORE + "\nif (threadIdx.x == 128) to[0] += tile;"},
    "a number of tiles where sums are stored": {
        "COUNT": DEFAULTS["COUNT"] + "\nconst int across = N / 16;",
        "STORE": STORE + "\nif (threadIdx.x == 128) to[0] += row * across + column;",
    },
    "the block where sums are stored": {"STORE": STORE + "\nif (threadIdx.x == 128) to[0] += blockIdx.x;"},
    "what follows from the tile's number ahead of it": {
        "EARLY": "const int number = tile + 1;",
        "STORE": STORE + "\nif (threadIdx.x == 128) to[0] += number;",
    },
    "another arrival on full stages": {"FULL": "2", "LOADS": LOADS + "\narrive(&ring.full[n % kStages]);"},
    "something that is done for a tile ahead of it": {"EARLY": "if (column == 0) out[row * 128 * N] = 0;"},
    "a tile that is not stored": {"STORE": "if (row == 3) continue;\n" + STORE},
    **{n: {"STEPS": "steps", **parts} for n, parts in OF_A_TILE.items()},
    **PLACED,
}
"""For the judge of pairs."""


CASE = """\
version: 1
kernel: kernel.cu
entry: kernel
sizes: {M: 256, N: 32, K: 64, CTAS: 2}
other_sizes:
  - {M: 384, N: 48, K: 128, CTAS: 3}
  - {M: 128, N: 16, K: 192, CTAS: 1}
multiples: {M: 128, N: 16, K: 64}
tensors:
  A: {dtype: f16, shape: [M, K], role: input}
  B: {dtype: f16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
tensor_maps:
  map_a: {tensor: A, box: [128, 64], swizzle: 128B}
  map_b: {tensor: B, box: [16, 64], swizzle: 128B}
launch:
  grid: [CTAS, 1, 1]
  block: [384, 1, 1]
  dynamic_smem: 2 * (16384 + 2048) + 1024
tile: [128, 16]
params: [map_a, map_b, C, @PARAMS@]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""


def write(folder: Path, params: str = "M, N, K", **parts: str) -> Path:
    """The kernel with its case, in a folder."""
    text = SOURCE
    for name, value in {**DEFAULTS, **parts}.items():
        text = text.replace(f"@{name}@", value)
    (folder / "case.yaml").write_text(CASE.replace("@PARAMS@", params))
    path = folder / "kernel.cu"
    path.write_text(text)
    return path


def options(steps: tuple[str, ...] = STEPS) -> PortOptions:
    return PortOptions(full_rate=True, native=steps, launches=partial(launches_of, ()))


def ported(folder: Path, steps: tuple[str, ...] = STEPS, **parts: str) -> PortResult:
    return port_sources(load_sources(write(folder, **parts)), options(steps))
