# SPDX-License-Identifier: Apache-2.0
"""Two warpgroups that multiply one tile of A with tiles of B of their own: each waits for its own MMAs, and nothing
keeps the other one from writing the next tile of A before."""

from __future__ import annotations

CASE = """\
version: 1
kernel: k.cu
entry: two_groups
sizes: {K: 64}
tensors:
  A: {dtype: bf16, shape: [64, K], role: input}
  B: {dtype: bf16, shape: [128, K], role: input}
  C: {dtype: f32, shape: [64, 128], role: output}
launch: {grid: [1, 1, 1], block: [256, 1, 1]}
params: [A, B, C, K]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""

_REGISTERS = ", ".join(f"%{i}" for i in range(32))
_OUTPUTS = ", ".join(f'"+f"(d[{i}])' for i in range(32))
MEET = "        __syncthreads();\n"

_KERNEL = """\
#include <cstdint>
#include <cuda_bf16.h>

using Element = __nv_bfloat16;

__device__ inline uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ inline uint64_t tile(const void* p) {
    return uint64_t(at(p) >> 4) | (uint64_t(1024 >> 4) << 16) | (uint64_t(128 >> 4) << 32);
}
__device__ inline int place(int row, int k) { return (k / 8) * 512 + (row / 8) * 64 + (row % 8) * 8 + k % 8; }

extern "C" __global__ void __launch_bounds__(256) two_groups(const Element* A, const Element* B, float* C, int K) {
    __shared__ alignas(128) Element a[64 * 16], b[2][64 * 16];
    const int t = threadIdx.x, group = t / 128, u = t % 128;
    float d[32];
    for (int i = 0; i < 32; ++i) d[i] = 0;
    for (int k0 = 0; k0 < K; k0 += 16) {
        for (int i = t; i < 64 * 16; i += 256) a[place(i / 16, i % 16)] = A[i / 16 * K + k0 + i % 16];
        const Element* own = B + group * 64 * K + k0;
        for (int i = u; i < 64 * 16; i += 128) b[group][place(i / 16, i % 16)] = own[i / 16 * K + i % 16];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {REGISTERS}, %32, %33, 1, 1, 1, 0, 0;"
                     : OUTPUTS
                     : "l"(tile(a)), "l"(tile(b[group])) : "memory");
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
MEETS    }
    const int row = u / 32 * 16 + u % 32 / 4, column = group * 64 + u % 4 * 2;
    for (int n = 0; n < 8; ++n) {
        for (int i = 0; i < 4; ++i) C[(row + i / 2 * 8) * 128 + column + n * 8 + i % 2] = d[n * 4 + i];
    }
}
"""


def files(meets: bool = False) -> dict[str, str]:
    """The case and the kernel, with a barrier at the end of its loop or without."""
    text = _KERNEL.replace("REGISTERS", _REGISTERS).replace("OUTPUTS", _OUTPUTS)
    return {"case.yaml": CASE, "k.cu": text.replace("MEETS", MEET if meets else "")}
