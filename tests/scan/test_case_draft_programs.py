# SPDX-License-Identifier: Apache-2.0
"""Drafts from programs: constants of the file, arms that the preprocessor leaves, macros, loops that fill memory, and
what the host reads back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from porter.scan.draft.draft import Draft
from porter.scan.draft.new import draft_case

MMA = (
    'asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"'
    ' : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "l"(0ull), "l"(0ull));'
)
SOURCE = f"""
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;
struct Product {{
    __device__ void run(bf16* a, bf16* b, float* c, int N) {{ float r[4]; {MMA} BODY c[threadIdx.x * N] = r[0]; }}
}};
__global__ void __launch_bounds__(128) gemm(bf16* A, bf16* B, float* C, int M, int N, int K) {{
    Product product; product.run(A, B, C, N);
}}
FILE
int main(int argc, char** argv) {{
    HOST
    float* hC = (float*)malloc(M * N * 4); bf16 *hA = (bf16*)malloc(M * K * 2), *hB = (bf16*)malloc(N * K * 2);
    for (int i = 0; i < M; ++i) for (int k = 0; k < K; ++k) hA[i * K + k] = 1;
    bf16 *dA, *dB; float* dC;
    cudaMalloc(&dA, M * K * sizeof(bf16)); cudaMalloc((void**)&dB, BYTES_OF_B); cudaMalloc(&dC, M * N * sizeof(float));
    COPIES
    gemm<<<GRID, 128>>>(dA, dB, dC, M, N, K);
    BACK
}}
"""
FILE = "const int M = 512, N = 256, K = 320;"
PARTS = {
    "BODY": "", "FILE": FILE, "HOST": "", "GRID": "dim3(N / 64, M / 128)", "BYTES_OF_B": "N * K * sizeof(bf16)",
    "COPIES": "cudaMemcpy(dA, hA, M * K * 2, cudaMemcpyHostToDevice); cudaMemcpy(dB, hB, N * K * 2,"
              " cudaMemcpyHostToDevice); cudaMemset(dC, 0, M * N * 4);",
    "BACK": "cudaMemcpy(hC, dC, M * N * 4, cudaMemcpyDeviceToHost);",
}  # fmt: skip


def drafted(folder: Path, **parts: str) -> Draft:
    text = SOURCE
    for name, value in {**PARTS, **parts}.items():
        text = text.replace(name, value)
    path = folder / "gemm.cu"
    path.write_text(text)
    return draft_case(path)


CONSTANTS: dict[str, tuple[dict[str, str], list[Any]]] = {
    "of the file": ({}, ["N // 64", "M // 128", 1]),
    "of main": ({"FILE": "", "HOST": FILE}, ["N // 64", "M // 128", 1]),
    "an arm that is compiled": (
        {"FILE": "#ifdef SMALL\nconst int M = 128, N = 64, K = 64;\n#else\n" + FILE + "\n#endif"},
        ["N // 64", "M // 128", 1],
    ),
    "an arm by a macro that is there": (
        {"FILE": "#define LARGE 1\n#if LARGE\n" + FILE + "\n#else\nconst int M = 128, N = 64, K = 64;\n#endif"},
        ["N // 64", "M // 128", 1],
    ),
    "an arm by a value": (
        {"FILE": "#define LEVEL 3\n#if defined(LEVEL) && LEVEL > 2\n" + FILE + "\n#else\nconst int M = 128, N = 64,"
                 " K = 64;\n#endif"},
        ["N // 64", "M // 128", 1],
    ),
    "a tile that main names": ({"HOST": "constexpr int T = 64; dim3 grid(N / T, M / 128);", "GRID": "grid"},
                                ["N // T", "M // 128", 1]),
    "a macro with parameters": (
        {"FILE": FILE + "\n#define BLOCKS(n, t) ((n) + (t) - 1) / (t)", "GRID": "dim3(BLOCKS(N, 64), BLOCKS(M, 128))"},
        ["ceil_div(N, 64)", "ceil_div(M, 128)", 1],
    ),
    "an arm in main": (
        {"HOST": "dim3 grid;\n#ifndef NARROW\ngrid = dim3(1, M / 128);\n#else\ngrid = dim3(1, M);\n#endif\n",
         "GRID": "grid"},
        [1, "M // 128", 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", CONSTANTS)
def test_sizes_of_a_program(how: str, tmp_path: Path) -> None:
    parts, grid = CONSTANTS[how]
    draft = drafted(tmp_path, **parts)
    assert draft.fields["launch"]["grid"] == grid
    assert {n: draft.fields["sizes"][n] for n in "MNK"} == {"M": 512, "N": 256, "K": 320}
    assert draft.fields["params"] == ["dA", "dB", "dC", "M", "N", "K"]
    assert set(draft.guesses) == {"reference"}
    assert [t["role"] for t in draft.fields["tensors"].values()] == ["input", "input", "output"]
    assert [t["shape"] for t in draft.fields["tensors"].values()] == [["M", "K"], ["N", "K"], ["M", "N"]]
    assert draft.fields["reference"] == "dA @ dB.T"


UNKNOWN = {
    "a macro of the compiler": "#if CUDA_VERSION > 12080\nconst int M = 512;\n#else\nconst int M = 256;\n#endif\n"
                               "const int N = 256, K = 320;",
    "a macro that may be there": "#ifdef A\n#define SMALL\n#endif\n#ifdef SMALL\nconst int M = 512;\n#else\n"
                                 "const int M = 256;\n#endif\nconst int N = 256, K = 320;",
}  # fmt: skip


@pytest.mark.parametrize("how", UNKNOWN)
def test_an_arm_that_nothing_tells_is_not_chosen(how: str, tmp_path: Path) -> None:
    draft = drafted(tmp_path, FILE=UNKNOWN[how])
    assert {"params[3]", "launch.grid"} <= set(draft.guesses)


def test_a_constant_that_the_kernel_has_is_no_size(tmp_path: Path) -> None:
    draft = drafted(tmp_path, BODY="if (threadIdx.x > M) return;")
    assert draft.fields["params"][3:] == [512, "N", "K"]


def test_a_number_that_is_computed_elsewhere_is_no_size(tmp_path: Path) -> None:
    launch = "gemm<<<dim3(N / 64, M / 128), 128, bytes>>>(dA, dB, dC, M, N, K);"
    draft = drafted(tmp_path, HOST="int bytes = needed(7);", COPIES=PARTS["COPIES"] + launch)
    assert "bytes" not in draft.fields["sizes"]
    assert draft.fields["launch"]["dynamic_smem"] == 200 * 1024


BACK = {
    "nothing": ({"BACK": ""}, ["output", "output", "output"]),
    "all": ({"BACK": PARTS["BACK"] + " cudaMemcpy(hA, dA, 8, cudaMemcpyDeviceToHost); cudaMemcpy(hB, dB, 8,"
             " cudaMemcpyDeviceToHost);"}, ["output", "output", "output"]),
    "one that nobody fills": ({"COPIES": "cudaMemcpy(dA, hA, 8, cudaMemcpyHostToDevice);"},
                              ["input", "output", "output"]),
    "one that is stored to": ({"BODY": "A[threadIdx.x] = 0;"}, ["output", "input", "output"]),
    "on a stream": ({"BACK": "cudaMemcpyAsync(hC, (void*)dC, 8, cudaMemcpyDeviceToHost, 0);"},
                    ["input", "input", "output"]),
}  # fmt: skip


@pytest.mark.parametrize("how", BACK)
def test_what_the_host_reads_back_is_written(how: str, tmp_path: Path) -> None:
    parts, roles = BACK[how]
    draft = drafted(tmp_path, **parts)
    assert [t["role"] for t in draft.fields["tensors"].values()] == roles


def test_memory_of_another_size_leaves_the_shape_a_guess(tmp_path: Path) -> None:
    assert "tensors.dB" in drafted(tmp_path, BYTES_OF_B="2 * N * K * sizeof(bf16)").guesses
