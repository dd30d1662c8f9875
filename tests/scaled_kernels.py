# SPDX-License-Identifier: Apache-2.0
"""A kernel of FP8 that multiplies partial sums by scales before it adds them to others, in many ways of writing."""

from __future__ import annotations

import re
from pathlib import Path

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.native.scales import NAME
from porter.passes.port import PortOptions, PortResult, port_sources

TEXT = """\
#include <cstdint>
#include <cuda_fp8.h>
__device__ void mma(float (&d)[8], uint64_t a, uint64_t b, int scale) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;"
                 "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b), "r"(scale));
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void drain() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
@HEAD@
__global__ void __launch_bounds__(256) kernel(float* out, const uint8_t* bytes, const float* floats, const int* ints,
                                              const uint32_t* words, uint64_t a, uint64_t b, int steps) {
    const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    a += threadIdx.x / 128 * 128;
    float part[8];
    float sum[8] = {};
    @DECLARED@
    for (int s = 0; s < steps; ++s) {
        @AHEAD@
        @FENCE@
        for (int k = 0; k < 4; ++k) mma(part, a + s * 8 + k * 2, b + k * 2, k);
        commit();
        drain();
        @ADD@
    }
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = sum[i];
}
"""
DEFAULTS = {
    "HEAD": "",
    "DECLARED": "",
    "FENCE": "fence();",
    "AHEAD": "const float upper = __uint_as_float(uint32_t(bytes[row * steps + s]) << 23); "
             "const float lower = __uint_as_float(uint32_t(bytes[(row + 8) * steps + s]) << 23);",
    "ADD": "for (int i = 0; i < 8; ++i) sum[i] += part[i] * (i % 4 < 2 ? upper : lower);",
}  # fmt: skip


def scaled(upper: str, lower: str = "1.f") -> str:
    """Declarations of the scales of a thread's two rows."""
    return f"const float upper = {upper}; const float lower = {lower};"


def kernel_text(**parts: str) -> str:
    """The kernel with these parts in place of those that it has else."""
    text = TEXT
    for name, value in {**DEFAULTS, **parts}.items():
        text = text.replace(f"@{name}@", value)
    return text


def one_after_another(count: int) -> str:
    """The kernel with as many such sums, each of 16 columns in Tensor Memory."""
    text = kernel_text()
    first, last = text.index("    float part[8]"), text.index("    for (int i = 0; i < 8; ++i) out")
    sums = (re.sub(r"\b(part|sum)\b", rf"\g<1>{i}", text[first:last]) for i in range(count))
    return text[:first] + "".join(sums) + text[last:].replace("sum[i]", "sum0[i]")


def ported(folder: Path, steps: tuple[str, ...] = (NAME,), full_rate: bool = True, **parts: str) -> PortResult:
    path = folder / "kernel.cu"
    path.write_text(kernel_text(**parts))
    return port_sources(load_sources(path), PortOptions(native=steps, full_rate=full_rate))


def lacking(result: PortResult) -> str:
    """What is missing of the step, empty if it is taken."""
    return "; ".join(str(d.values["what"]) for d in result.diagnostics if d.code is Code.NATIVE_LEFT)


def text_of(result: PortResult) -> str:
    return " ".join(next(t for p, t in result.files.items() if p.endswith("kernel.cu")).decode().split())
