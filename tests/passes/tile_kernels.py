# SPDX-License-Identifier: Apache-2.0
"""A warp-specialized GEMM whose blocks have one tile each, with its host code, in many ways of writing, for the steps
that change which block does which tile."""

from __future__ import annotations

from pathlib import Path

import persistent_kernels
from persistent_kernels import SOURCE as PERSISTENT

from porter.lang.sources import load_sources
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions, PortResult, port_sources

HEAD = PERSISTENT[: PERSISTENT.index("@HEAD@")].replace(
    "uint64_t full[kStages], empty[kStages]; };", "uint64_t full[kStages], empty[kStages]; @STAGING@ };"
)
KERNEL = """\
@HEAD@
__global__ void __launch_bounds__(384)
kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* out, int M, int N,
       int K) {
    extern __shared__ char memory[];
    Ring& ring = *reinterpret_cast<Ring*>(memory);
    @PLACE@
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init(&ring.full[i], @FULL@);
            init(&ring.empty[i], 256);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    @COMMON@
    if (threadIdx.x / 128 == 0) {
        @PRODUCER@ {
            @STATE@
            for (int k = @FIRST@; @BOUND@; @NEXT@) {
                @STAGE@
                @ACQUIRE@
                @LOADS@
                @ADVANCE@
            }
        }
        @BESIDE@
    } else {
        const int consumer = threadIdx.x / 128 - 1;
        const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        @AHEAD@
        float acc[8] = {};
        @STATE@
        for (int k = @FIRST@; @BOUND@; @NEXT@) {
            @STAGE@
            @WAIT@
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            for (int i = 0; i < 4; ++i) {
                wgmma_m64n16k16(acc, descriptor(ring.a[@AT@] + consumer * 8192 + i * 32),
                                descriptor(ring.b[@AT@] + i * 32));
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            arrive(&ring.empty[@AT@]);
            @ADVANCE@
        }
        @STORE@
    }
    @END@
}
"""
HOST = PERSISTENT[PERSISTENT.index("void encode(") :].replace(", int K, int blocks)", ", int K)")
SOURCE = HEAD + KERNEL + HOST
DEFAULTS = {
    "HEAD": "",
    "STAGING": "",
    "PLACE": "const int row = blockIdx.y, column = blockIdx.x;",
    "FULL": "1",
    "COMMON": "",
    "PRODUCER": "if (threadIdx.x == 0)",
    "STATE": "",
    "FIRST": "0",
    "BOUND": "k < K / 64",
    "NEXT": "++k",
    "STAGE": "",
    "ACQUIRE": "wait(&ring.empty[@AT@], @PHASE@ ^ 1);",
    "LOADS": "expect(&ring.full[@AT@], 16384 + 2048);\n"
             "load(ring.a[@AT@], &map_a, &ring.full[@AT@], k * 64, row * 128);\n"
             "load(ring.b[@AT@], &map_b, &ring.full[@AT@], k * 64, column * 16);",
    "ADVANCE": "",
    "BESIDE": "",
    "AHEAD": "",
    "WAIT": "wait(&ring.full[@AT@], @PHASE@);",
    "AT": "k % kStages",
    "PHASE": "k / kStages % 2",
    "STORE": "float* to = out + (row * 128 + consumer * 64 + warp * 16 + lane / 4) * N + column * 16 + lane % 4 * 2;\n"
             "for (int i = 0; i < 8; ++i) to[i / 4 * 8 + i / 2 % 2 * 8 * N + i % 2] = acc[i];",
    "END": "",
    "LAUNCH": "kernel<<<dim3(N / 16, M / 128), 384, sizeof(Ring)>>>(map_a, map_b, out, M, N, K);",
}  # fmt: skip
LOADS, STORE = DEFAULTS["LOADS"], DEFAULTS["STORE"]
TURNING = {
    "AT": "stage", "PHASE": "phase", "STATE": "int stage = 0, phase = 0;",
    "ADVANCE": "if (++stage == kStages) { stage = 0; phase ^= 1; }",
}  # fmt: skip
STAGED = {
    "STAGING": "float out[2][64][16];",
    "STORE": "float* mine = &ring.out[consumer][warp * 16 + lane / 4][lane % 4 * 2];\n"
             "for (int i = 0; i < 8; ++i) mine[i / 4 * 8 + i / 2 % 2 * 128 + i % 2] = acc[i];\n"
             'asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");\n'
             "for (int e = threadIdx.x % 128; e < 1024; e += 128) {\n"
             "    out[(row * 128 + consumer * 64 + e / 16) * N + column * 16 + e % 16] = "
             "ring.out[consumer][e / 16][e % 16];\n"
             "}",
}  # fmt: skip
"""Sums leave through shared memory, each row by threads of other warps."""
TOKENS = {
    "HEAD": """\
__device__ uint64_t token(uint64_t* bar) {
    uint64_t t;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : "r"(at(bar)) : "memory");
    return t;
}
__device__ void until(uint64_t* bar, uint64_t t) {
    asm volatile("{ .reg .pred p; W: mbarrier.test_wait.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 ::"r"(at(bar)), "l"(t) : "memory");
}
""",
    "FULL": "257",
    "WAIT": "until(&ring.full[@AT@], token(&ring.full[@AT@]));",
}
LINEAR = {
    "PLACE": "const int tile = blockIdx.x;\nconst int row = tile / (N / 16), column = tile % (N / 16);",
    "LAUNCH": "kernel<<<M / 128 * (N / 16), 384, sizeof(Ring)>>>(map_a, map_b, out, M, N, K);",
}
JUDGED: dict[str, dict[str, str]] = {
    "stages from 1": {
        "FIRST": "1",
        "BOUND": "k <= K / 64",
        "LOADS": LOADS.replace("k * 64", "(k - 1) * 64"),
        "AT": "(k - 1) % kStages",
        "PHASE": "(k - 1) / kStages % 2",
    },
    "every other stage": {"NEXT": "k += 2", "BOUND": "k < K / 32", "LOADS": LOADS.replace("k * 64", "k * 32")},
    "a function that asks for the block": {
        "HEAD": "__device__ int row_of() { return blockIdx.y; }",
        "PLACE": "const int row = row_of(), column = blockIdx.x;",
    },
    "a macro that asks for the block": {
        "HEAD": "#define ROW blockIdx.y",
        "PLACE": "const int row = ROW, column = blockIdx.x;",
    },
    "an object that asks for the block": {
        "HEAD": "struct Place { int row, column; __device__ Place() : row(blockIdx.y), column(blockIdx.x) {} };",
        "PLACE": "Place place;\nconst int row = place.row, column = place.column;",
    },
    "an object that tells others": {
        "HEAD": "struct Done { int* at; __device__ ~Done() { atomicAdd(at, 1); } };",
        "AHEAD": "Done done{(int*)out};",
    },
    "a register that says the block": {
        "PLACE": 'int row; asm("mov.u32 %0, %%ctaid.y;" : "=r"(row));\nconst int column = blockIdx.x;'
    },
    "a place that changes": {"PLACE": "int row = blockIdx.y, column = blockIdx.x;", "STORE": "row += 0;\n" + STORE},
    "sums of several blocks": {
        "STORE": STORE.replace(
            "to[i / 4 * 8 + i / 2 % 2 * 8 * N + i % 2] = acc[i];",
            "atomicAdd(to + i / 4 * 8 + i / 2 % 2 * 8 * N + i % 2, acc[i]);",
        )
    },
    "blocks that wait for others": {
        "HEAD": "__device__ int flag(const int* p) {"
        ' int v; asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p)); return v; }',
        "AHEAD": "while (flag((const int*)out) < 0) {}",
    },
    "a fence for others": {"STORE": STORE + "\n__threadfence();"},
    "a stage that is set for each tile": {**TURNING, "STATE": "stage = 0; phase = 0;", "COMMON": "int stage, phase;"},
    "coordinates that go on": {
        "STATE": "int n = 0;",
        "NEXT": "++k, ++n",
        "AT": "n % kStages",
        "PHASE": "n / kStages % 2",
        "LOADS": LOADS.replace("k * 64, row", "n * 64, row"),
    },
    "as many stages as went on": {
        "STATE": "int n = 0;",
        "NEXT": "++k, ++n",
        "AT": "n % kStages",
        "PHASE": "n / kStages % 2",
        "BOUND": "n < K / 64",
    },
    "a sum over the tiles of a thread": {
        "AHEAD": "float most = 0;",
        "STORE": STORE + "\nfor (int i = 0; i < 8; ++i) most += acc[i];",
    },
    "blocks that have nothing to do": {"COMMON": "if (row * 128 >= M) return;"},
    "an mbarrier of one phase": {"ACQUIRE": "wait(&ring.empty[@AT@], @PHASE@ ^ 1); wait(&ring.full[0], 1);"},
    "a stage that the tile has a part in": {
        "STATE": "int n = 0;",
        "NEXT": "++k, ++n",
        "AT": "(n + row) % kStages",
        "PHASE": "n / kStages % 2",
    },
    "a loop that ends early": {"ADVANCE": "if (k > 1000) break;"},
    "a coordinate that is no count": {"LOADS": LOADS.replace("k * 64, row", "k % 4 * 64, row")},
    "a parameter that changes": {"STORE": STORE + "\nout += 1;"},
    "consumers that wait for all": {"STORE": "__syncthreads();\n" + STORE, "BESIDE": "__syncthreads();"},
}
"""What takes part in a tile and goes on with others, or is told by a block: for the judge."""
NUMBERED: dict[str, dict[str, str]] = {
    "a number that is something else, too": {
        **LINEAR,
        "STORE": STORE + "\nif (threadIdx.x == 128 && tile > 1000) to[0] += 1;",
    },
    "blocks with nothing to do": {**LINEAR, "COMMON": "if (tile > 1000) return;"},
}
"""Tiles that are numbered: for the judge of their order."""


CASE = (
    persistent_kernels.CASE.replace(", CTAS: 2}", "}").replace(", CTAS: 3}", "}").replace(", CTAS: 1}", "}")
    .replace("sizes: {M: 256, N: 32, K: 64}", "sizes: {M: 256, N: 64, K: 192}")
    .replace("@PARAMS@", "M, N, K")
    .replace("+ 1024", "+ 1024 + 8192")
)  # fmt: skip


def write(folder: Path, linear: bool = False, **parts: str) -> Path:
    """The kernel with its case, in a folder; `linear`: in a grid of one dimension."""
    text = SOURCE
    for name, value in {**DEFAULTS, **parts}.items():
        text = text.replace(f"@{name}@", value)
    grid = "[M // 128 * (N // 16), 1, 1]" if linear else "[N // 16, M // 128, 1]"
    (folder / "case.yaml").write_text(CASE.replace("[CTAS, 1, 1]", grid))
    path = folder / "kernel.cu"
    path.write_text(text)
    return path


def ported(folder: Path, steps: tuple[str, ...] = STEPS, **parts: str) -> PortResult:
    return port_sources(load_sources(write(folder, **parts)), PortOptions(full_rate=True, native=steps))
