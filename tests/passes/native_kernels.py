# SPDX-License-Identifier: Apache-2.0
"""A warp-specialized kernel in many ways of writing, for the steps of `--style native`."""

from __future__ import annotations

from pathlib import Path

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions, PortResult, port_sources

BATCHES = """\
#include <cstdint>
__device__ void wgmma_m64n16k16(float (&d)[8], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b));
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
"""
HEAD = (
    BATCHES
    + """\
template <int N> __device__ void drain() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
__device__ uint32_t shared(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(bar)), "r"(count));
}
__device__ void arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(bar)) : "memory");
}
__device__ void expect(uint64_t* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(bar)), "r"(bytes) : "memory");
}
__device__ void load(void* to, const void* map, uint64_t* bar, int x) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %3}], [%2];" ::"r"(shared(to)), "l"(map), "r"(shared(bar)), "r"(x) : "memory");
}
__device__ void wait(uint64_t* bar, int parity) {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 ::"r"(shared(bar)), "r"(parity) : "memory");
}
"""
)
KERNEL = """\
@HEAD@
__global__ void __launch_bounds__(384) kernel(float* out, const void* map, uint64_t a, uint64_t b, int steps) {
    __shared__ char tiles[2][4096];
    __shared__ @BARRIERS@;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) {
            @INIT_FULL@
            @INIT@
        }
    }
    __syncthreads();
    if (threadIdx.x / 128 == 0) {
        if (threadIdx.x == 0) {
            for (int k = 0; k < steps; ++k) {
                @ACQUIRE@
                expect(@FULL@, 4096);
                load(tiles[k % 2], map, @FULL@, k);
            }
        }
    } else {
        const int consumer = threadIdx.x / 128 - 1;
        @AHEAD@
        float acc[8] = {};
        @LAMBDA@
        for (int k = 0; k < steps; ++k) {
            wait(@FULL@, k / 2 % 2);
            @BATCH@
            @RELEASE@
        }
        @AFTER@
        for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc[i];
    }
}
"""
BATCH = "fence(); wgmma_m64n16k16(acc, a + consumer * 512, b); commit(); drain<0>();"
DEFAULTS = {
    "HEAD": "",
    "BARRIERS": "uint64_t full[2], empty[2]",
    "INIT_FULL": "init(&full[i], 1);",
    "INIT": "init(&empty[i], 256);",
    "ACQUIRE": "wait(&empty[k % 2], k / 2 % 2 ^ 1);",
    "FULL": "&full[k % 2]",
    "AHEAD": "",
    "LAMBDA": "",
    "BATCH": BATCH,
    "RELEASE": "arrive(&empty[k % 2]);",
    "AFTER": "",
}
ARRIVE_AT = """\
__device__ void arrive_at(uint64_t* bar, uint32_t cta) {
    asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];}"
                 ::"r"(shared(bar)), "r"(cta) : "memory");
}
"""
LANE = "threadIdx.x % 32"
OF_WARPS = {
    "HEAD": ARRIVE_AT, "INIT": "init(&empty[i], 16);",
    "RELEASE": f"if ({LANE} < 2) arrive_at(&empty[k % 2], {LANE});",
}  # fmt: skip
"""Of clusters: warps give stages back to both CTAs."""


def source(**parts: str) -> str:
    text = HEAD + KERNEL
    for name, value in {**DEFAULTS, **parts}.items():
        text = text.replace(f"@{name}@", value)
    return text


def ported(folder: Path, steps: tuple[str, ...] = STEPS, full_rate: bool = True, **parts: str) -> PortResult:
    path = folder / "kernel.cu"
    path.write_text(source(**parts))
    return port_sources(load_sources(path), PortOptions(full_rate=full_rate, native=steps))


def missing(result: PortResult) -> list[str]:
    """What steps lack, and what M=128 does."""
    codes = (Code.NATIVE_LEFT, Code.FULL_RATE_LEFT)
    return [str(d.values["what"]) for d in result.diagnostics if d.code in codes]


def taken(result: PortResult, *steps: str) -> str:
    """The text of a port that takes these steps and no other, with nothing missing."""
    assert missing(result) == []
    assert result.plans[0].native == steps
    return text_of(result)


def left(result: PortResult, what: str) -> str:
    """The text of a port that takes no step, for want of what is named."""
    assert result.plans[0].native == ()
    assert any(what in said for said in missing(result)), missing(result)
    return text_of(result)


def text_of(result: PortResult) -> str:
    """The kernel's file, each run of white space one space."""
    return " ".join(next(t for p, t in result.files.items() if p.endswith("kernel.cu")).decode().split())
