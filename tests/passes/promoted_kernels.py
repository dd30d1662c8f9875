# SPDX-License-Identifier: Apache-2.0
"""A kernel of FP8 that adds partial sums to others after each step, in many ways of writing."""

from __future__ import annotations

from pathlib import Path

from porter.lang.sources import load_sources
from porter.passes.native.promotion import NAME
from porter.passes.port import PortOptions, PortResult, port_sources

HEAD = """\
#include <cstdint>
#include <cstring>
__device__ void mma(float (&d)[8], uint64_t a, uint64_t b, int scale) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;"
                 "wgmma.mma_async.sync.aligned.@TYPES@ "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1@MORE@; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b), "r"(scale));
}
template <int kScale> __device__ void mma_of(float (&d)[8], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, %10, 1, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b), "n"(kScale));
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void drain() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
@HEAD@
"""
KERNEL = """\
__global__ void __launch_bounds__(128) kernel(float* out, const float* scales, uint64_t a, uint64_t b, int steps) {
    @DECLARED@
    for (int s = 0; s < steps; ++s) {
        @AHEAD@
        fence();
        @BATCH@
        commit();
        drain();
        @ADD@
        @BEHIND@
    }
    @AFTER@
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = sum[i];
}
"""
DEFAULTS = {
    "HEAD": "",
    "DECLARED": "float part[8]; float sum[8] = {};",
    "AHEAD": "",
    "BATCH": "for (int k = 0; k < 4; ++k) mma(part, a + s * 8 + k * 2, b + k * 2, k);",
    "ADD": "for (int i = 0; i < 8; ++i) sum[i] += part[i];",
    "BEHIND": "",
    "AFTER": "",
}


def ported(folder: Path, steps: tuple[str, ...] = (NAME,), **parts: str) -> PortResult:
    text = HEAD + KERNEL
    half = parts.get("TYPE") == "half"
    types = "m64n16k16.f32.f16.f16" if half else f"m64n16k32.f32.{parts.get('TYPE', 'e4m3')}.e4m3"
    for name, value in {**DEFAULTS, "TYPES": types, "MORE": ", 0, 0" if half else "", **parts}.items():
        text = text.replace(f"@{name}@", value)
    path = folder / "kernel.cu"
    path.write_text(text)
    return port_sources(load_sources(path), PortOptions(native=steps))
