# SPDX-License-Identifier: Apache-2.0
"""A kernel whose CTAs meet as a grid: three of the original's share an SM by registers, two of the port's by their
columns of Tensor Memory, which a cooperative launch does not count."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes_cli import porter, porter_json
from test_cli_spills import _HEAD

from porter.build.toolchain import find_toolkit
from porter.diagnostics import PorterError

KERNEL = """
extern "C" __global__ void __launch_bounds__(128, 3) meet(float* C, unsigned* count, int K, uint64_t a, uint64_t b) {
    __shared__ alignas(1024) __nv_bfloat16 operands[64 * 64 + 256 * 64];
    float d[16][8] = {};
    if (a == 0) operands[threadIdx.x] = C[threadIdx.x];
    for (int k = 0; k < K; k += 16) mma(d, a + k, b + k);
    __syncthreads();
    WAIT
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j) C[((blockIdx.x * 16 + i) * 8 + j) * 128 + threadIdx.x] = d[i][j];
}
"""
WAIT = """if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(count, 1u);
        while (*(volatile unsigned*)count < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();"""
HOST = "void run(void** args) { cudaLaunchCooperativeKernel((const void*)meet, 297, 128, args, 0, 0); }\n"
GRID = "cooperative_groups::this_grid().sync();"


@pytest.mark.parametrize(
    ("ahead", "wait", "behind", "why"),
    [
        ("", WAIT, "", "they wait for each other (meet.cu:"),
        pytest.param("", "", HOST, "the program calls cudaLaunchCooperativeKernel", marks=pytest.mark.slow),
        pytest.param(
            "#include <cooperative_groups.h>\n", GRID, "", "they meet at a barrier of the grid", marks=pytest.mark.slow
        ),
        pytest.param("", "", "", "", marks=pytest.mark.slow),
    ],
)
def test_fewer_ctas_share_an_sm(tmp_path: Path, ahead: str, wait: str, behind: str, why: str) -> None:
    try:
        find_toolkit()
    except PorterError as error:
        pytest.skip(str(error))
    source = tmp_path / "meet.cu"
    source.write_text(ahead + _HEAD + KERNEL.replace("WAIT", wait) + behind)
    port = porter_json("port", source, "-o", tmp_path / "out")
    build = porter_json("build", source, "--port", tmp_path / "out" / "meet.cu")
    for kernels, said in (
        (port["compiled"][0]["kernels"], port["diagnostics"]),
        (build["kernels"], build["diagnostics"]),
    ):
        assert kernels[0]["blocks_per_sm"] == {
            "before": {"blocks": 3, "by": "registers"},
            "after": {"blocks": 2, "by": "Tensor Memory"},
            "at_most": False,
        }
        found = [d["message"] for d in said if d["id"] == "PT3055"]
        assert len(found) == bool(why)
        assert all(why in text for text in found)
    assert "3 → 2 (Tensor Memory)" in porter("port", source, "-o", tmp_path / "again").output
    assert "CTAs an SM, by registers → Tensor Memory" in porter("build", "--style", "compat", source).output
