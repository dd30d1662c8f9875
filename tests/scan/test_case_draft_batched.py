# SPDX-License-Identifier: Apache-2.0
"""Drafts of kernels that multiply a batch of matrices: their indices say the shapes, and what they do not is marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.scan.draft.draft import Draft
from porter.scan.draft.indices import Levels, levels
from porter.scan.draft.new import draft_case

KERNEL = """#include <cuda_fp16.h>
#include <cstdint>
MORE
__global__ void __launch_bounds__(128) k(PARAMS) {
  const int b = blockIdx.z, r0 = blockIdx.y * 64, c0 = blockIdx.x * 16;
  float acc[8] = {};
  FIRST
  for (int k0 = 0; k0 < K; k0 += 64) {
    __half x = LEFT;
    __half y = RIGHT;
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, 1, 0, 0;"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7])
      : "l"(uint64_t(x)), "l"(uint64_t(y)));
  }
  for (int r = 0; r < 8; ++r) OUT = acc[r];
}
void run(const __half* A, const __half* B, float* C, int M, int N, int K, int batch, int lda) {
  if (M % 64 || N % 16 || K % 64) return;
  HOST
  k<<<dim3(N / 16, M / 64, batch), 128>>>(ARGS);
}
"""
PLAIN = {
    "MORE": "", "PARAMS": "const __half* A, const __half* B, float* C, int M, int N, int K", "FIRST": "", "HOST": "",
    "ARGS": "A, B, C, M, N, K", "LEFT": "A[((size_t)b * M + r0 + threadIdx.x) * K + k0]",
    "RIGHT": "B[((size_t)b * N + c0 + threadIdx.x) * K + k0]", "OUT": "C[((size_t)b * M + r0 + r) * N + c0]",
}  # fmt: skip
STRUCT = "struct Args { const __half* A; const __half* B; float* C; int M, N, K; };"
SAME = {
    "indices": {},
    "products written out": {"LEFT": "A[(size_t)b * M * K + (r0 + threadIdx.x) * K + k0]"},
    "casts in C++": {"LEFT": "A[(static_cast<size_t>(b) * M + r0 + threadIdx.x) * static_cast<size_t>(K) + k0]"},
    "the axis itself": {"LEFT": "A[((size_t)blockIdx.z * M + r0 + threadIdx.x) * K + k0]"},
    "pointers to a matrix": {
        "FIRST": "const __half* a = A + (size_t)b * M * K; const __half* bb = B + (size_t)b * N * K;",
        "LEFT": "a[(r0 + threadIdx.x) * K + k0]", "RIGHT": "bb[(c0 + threadIdx.x) * K + k0]",
    },
    "a struct": {
        "MORE": STRUCT, "PARAMS": "Args p", "HOST": "Args p{A, B, C, M, N, K};", "ARGS": "p",
        "FIRST": "const int K = p.K;", "LEFT": "p.A[((size_t)b * p.M + r0 + threadIdx.x) * p.K + k0]",
        "RIGHT": "p.B[((size_t)b * p.N + c0 + threadIdx.x) * p.K + k0]",
        "OUT": "p.C[((size_t)b * p.M + r0 + r) * p.N + c0]",
    },
}  # fmt: skip


def drafted(folder: Path, changes: dict[str, str], text: str = KERNEL) -> Draft:
    for name, value in (PLAIN | changes).items():
        text = text.replace(name, value)
    (folder / "k.cu").write_text(text)
    return draft_case(folder / "k.cu", None)


@pytest.mark.parametrize("name", SAME)
def test_a_batch_is_the_outermost_dimension(name: str, tmp_path: Path) -> None:
    draft = drafted(tmp_path, SAME[name])
    shapes = {n: t["shape"] for n, t in draft.fields["tensors"].items()}
    assert shapes == {"A": ["batch", "M", "K"], "B": ["batch", "N", "K"], "C": ["batch", "M", "N"]}
    assert draft.fields["reference"] == "A @ np.swapaxes(B, -1, -2)"
    assert set(draft.guesses) == {"reference"}


def test_operands_by_columns(tmp_path: Path) -> None:
    draft = drafted(tmp_path, {"RIGHT": "B[((size_t)b * K + k0 + threadIdx.x) * N + c0]"})
    assert draft.fields["tensors"]["B"]["shape"] == ["batch", "K", "N"]
    assert draft.fields["reference"] == "A @ B"


def test_an_output_for_each_part_of_the_sum(tmp_path: Path) -> None:
    one = {"LEFT": "A[(size_t)(r0 + threadIdx.x) * K + k0]", "RIGHT": "B[(size_t)(c0 + threadIdx.x) * K + k0]"}
    draft = drafted(tmp_path, one | {"OUT": "C[((size_t)b * M + r0 + r) * N + c0]"})
    shapes = {n: t["shape"] for n, t in draft.fields["tensors"].items()}
    assert shapes == {"A": ["M", "K"], "B": ["N", "K"], "C": ["batch", "M", "N"]}
    assert set(draft.guesses) == {"reference"}
    assert "C has batch of them" in draft.guesses["reference"]


@pytest.mark.parametrize("depth", ["depth", "hidden", "channels", "ck"])
def test_the_length_of_the_sum_is_what_both_rows_are_long(depth: str, tmp_path: Path) -> None:
    kernel = KERNEL.replace("K", depth).replace(", batch), 128", "), 128")
    values = {n: v.replace("K", depth) for n, v in PLAIN.items()}
    one = {"LEFT": f"A[(size_t)(r0 + threadIdx.x) * {depth} + k0]", "OUT": "C[(size_t)(r0 + r) * N + c0]",
           "RIGHT": f"B[(size_t)(c0 + threadIdx.x) * {depth} + k0]"}  # fmt: skip
    draft = drafted(tmp_path, values | one, kernel)
    shapes = {n: t["shape"] for n, t in draft.fields["tensors"].items()}
    assert shapes == {"A": ["M", depth], "B": ["N", depth], "C": ["M", "N"]}
    assert set(draft.guesses) == {"reference"}


DOUBTED = {
    "a row that has the batch in it": {
        "FIRST": "const int row = b * M + r0; const int col = b * N + c0;",
        "LEFT": "A[(size_t)row * K + k0]", "RIGHT": "B[(size_t)col * K + k0]", "OUT": "C[(size_t)row * N + c0]",
    },
    "a stride of its own": {
        "PARAMS": PLAIN["PARAMS"] + ", int lda", "ARGS": PLAIN["ARGS"] + ", lda",
        "LEFT": "A[(size_t)b * lda + (r0 + threadIdx.x) * K + k0]",
    },
    "indices in a function": {"MORE": "__device__ int at(int, int, int);", "LEFT": "A[at(b, r0, k0)]",
                              "RIGHT": "B[at(b, c0, k0)]", "OUT": "C[at(b, r0, c0)]"},
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBTED)
def test_shapes_that_indices_do_not_show_are_marked(name: str, tmp_path: Path) -> None:
    draft = drafted(tmp_path, DOUBTED[name])
    right = {"A": ["batch", "M", "K"], "B": ["batch", "N", "K"], "C": ["batch", "M", "N"]}
    wrong = {n for n, t in draft.fields["tensors"].items() if t["shape"] != right[n]}
    assert "A" in wrong
    assert {f"tensors.{n}" for n in wrong} <= {*draft.guesses, *draft.notes}
    assert "# guess" in next(line for line in draft.text().splitlines() if line.startswith("  A:"))


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("(b * M + r) * K + c", Levels(("K", "M"), frozenset({"b"}))),
        ("r * K + c", Levels(("K",), frozenset({"r"}))),
        ("b * (M * K) + K * r - 1", Levels(("K", "M"), frozenset({"b"}))),
        ("b * M + c * K", None),
        ("b * M * K + c", None),
        ("r * K", None),
        ("c", None),
        ("", None),
        ("f(b, M)", None),
    ],
)
def test_levels_of_an_index(index: str, expected: Levels | None) -> None:
    assert levels([index], {"M", "K"}) == expected


def test_the_shape_of_an_output_that_nothing_tells_is_marked_with_its_reference(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(
        "__global__ void k(const float* a, float* out, int n) { out[threadIdx.x] = a[threadIdx.x]; }\n"
        "void run(const float* a, float* out, int n) { k<<<n / 64, 128>>>(a, out, n); }\n"
    )
    draft = draft_case(tmp_path / "k.cu", None)
    (line,) = (line for line in draft.text().splitlines() if line.startswith("  out:"))
    assert "# a guess with `reference`" in line
    assert len(draft.guesses) <= 3
