# SPDX-License-Identifier: Apache-2.0
"""A kernel whose two warpgroups can share an MMA, and its case. HEAD stands for what is in front of the kernel, ENTRY
for its name in the case."""

from __future__ import annotations

KERNEL = """\
#include <cstdint>
HEAD__global__ void __launch_bounds__(256) gemm(float* out, uint64_t a, uint64_t b, int steps) {
    const int consumer = threadIdx.x / 128;
    float d[8] = {};
    for (int k = 0; k < steps; ++k) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                     : "l"(a + consumer * 512), "l"(b));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = d[i];
}
"""
CASE = """\
version: 1
kernel: gemm.cu
entry: ENTRY
sizes: {M: 128, N: 16, K: 16}
tensors:
  A: {dtype: f16, shape: [M, K], role: input}
  B: {dtype: f16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
launch: {grid: [1, 1, 1], block: [256, 1, 1]}
params: [C, A, B, K]
reduction: K
reference: "A @ B.T"
"""
