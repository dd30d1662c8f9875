# SPDX-License-Identifier: Apache-2.0
"""128 accumulators that go straight to global memory take no local memory as a port, as they take none on Hopper."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes_cli import porter_json

from porter.build.toolchain import find_toolkit
from porter.diagnostics import PorterError

_REGISTERS = 128
_OUTPUTS = ", ".join(f'"+f"(d[{i // 8}][{i % 8}])' for i in range(_REGISTERS))
_NAMES = ", ".join(f"%{i}" for i in range(_REGISTERS))
_HEAD = f"""\
#include <cstdint>
#include <cuda_bf16.h>
__device__ __forceinline__ void mma(float (&d)[16][8], uint64_t a, uint64_t b) {{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{_NAMES}}}, %128, %129, 1, 1, 1, 0, 0;"
                 : {_OUTPUTS} : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}}
"""
_KERNEL = """
__global__ void __launch_bounds__(THREADS) store_THREADS(__nv_bfloat16* C, int ldc, int K, uint64_t a, uint64_t b) {
    float d[16][8] = {};
    for (int k = 0; k < K; k += 16) mma(d, a + k, b + k);
    const int thread = threadIdx.x % 128;
    const uint32_t row = thread / 32 * 16 + thread % 32 / 4;
    __nv_bfloat16* to = C + blockIdx.x * 256 * ldc + blockIdx.y * 64;
    for (int w = 0; w < 16; ++w) {
        const int column = 16 * w + 2 * (thread % 4);
        to[column * ldc + row] = d[w][0];
        to[(column + 1) * ldc + row] = d[w][1];
        to[column * ldc + row + 8] = d[w][2];
        to[(column + 1) * ldc + row + 8] = d[w][3];
        to[(column + 8) * ldc + row] = d[w][4];
        to[(column + 9) * ldc + row] = d[w][5];
        to[(column + 8) * ldc + row + 8] = d[w][6];
        to[(column + 9) * ldc + row + 8] = d[w][7];
    }
}
"""


_OTHER = """
__global__ void __launch_bounds__(128) other(__nv_bfloat16* C, int ldc, int K, uint64_t a, uint64_t b) {
    const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;
    float d[16][8] = {};
    for (int k = 0; k < K; k += 16) mma(d, a + k, b + k);
    const uint32_t row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    __nv_bfloat16* to = C + blockIdx.x * 256 * ldc + (blockIdx.y * 2 + warpgroup) * 64;
#pragma unroll
    for (int w = 0; w < 16; ++w) {
        const int column = 16 * w + 2 * (lane % 4);
        for (int i = 0; i < 8; ++i) {
            to[(column + i % 2 + i / 4 * 8) * ldc + (row + i / 2 % 2 * 8)] = d[w][i];
        }
    }
}
"""


def _kernels() -> str:
    """One for each number of threads, and one whose places are computed in another way: ptxas spills in it for the
    sake of a third CTA."""
    kernels = "".join(_KERNEL.replace("THREADS", str(threads)) for threads in (128, 384))
    return _HEAD + kernels + _OTHER


@pytest.mark.slow
def test_accumulators_stored_straight_to_global_memory(tmp_path: Path) -> None:
    try:
        find_toolkit()
    except PorterError as error:
        pytest.skip(str(error))
    source = tmp_path / "stores.cu"
    source.write_text(_kernels())
    (said,) = porter_json("port", source)["compiled"]
    assert said["status"] == "compiled", said["reason"]
    spilled = {
        k["kernel"].split("(")[0]: (k["metrics"]["spill_stores"]["before"], k["metrics"]["spill_stores"]["after"])
        for k in said["kernels"]
    }
    assert [after for _, after in spilled.values()] == [0, 0, 0], spilled
