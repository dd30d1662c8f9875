# SPDX-License-Identifier: Apache-2.0
"""Addresses as sums of products of what threads have alike and of numbers that each has of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.lang.cuda import find
from porter.lang.sources import load_sources
from porter.model.affine import Address, Affine, Scope
from porter.model.program import build_program
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary

TEXT = """\
#include <cuda_bf16.h>
#define AT(i, j) ((i) * ld + (j))
#define PLACE(c) out[(row) + (c)]
__device__ int twice(int x) { return 2 * x; }
__device__ int odd(int x) { if (x & 1) return x; return x + 1; }
template <int BM>
__global__ void __launch_bounds__(64)
kernel(float* out, __nv_bfloat16* half, int ld, int m, short few, const int* order) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.y * BM + threadIdx.x / 32 * 16 + lane / 4;
    int moved = 0, chosen = 5, kept = 5, turns = 0, sent = 1, stage = 0;
    if (m > 3) moved += lane;
    if (lane % 4 == 0) chosen = 0;
    if (m > 3) kept = 0;
    while (true) { turns += 1; if (turns > lane) break; }
    for (int i = 0; i < lane; ++i) sent *= 2;
    for (int i = 0; i < m; ++i) { if (i == few) continue; stage ^= 1; }
    int of_role = 0, of_all = 0;
    if (threadIdx.x / 32 == 1) { for (int i = 0; i < m; ++i) ++of_role; }
    if (threadIdx.x < 64) { for (int i = 0; i < m; ++i) ++of_all; }
    float* line = out + size_t(row) * ld;
    @LEFT@ = 0;
}
"""
LANES = tuple(t % 32 // 4 for t in range(64))
ROWS = tuple(t // 32 * 16 + t % 32 // 4 for t in range(64))
EACH = (1,) * 64


def times(number: int, vector: tuple[int, ...] = EACH) -> tuple[int, ...]:
    return tuple(number * v for v in vector)


def lvalue(folder: Path, left: str, who: range = range(64)) -> Address | None:
    path = folder / "kernel.cu"
    path.write_text(TEXT.replace("@LEFT@", left))
    program = build_program(load_sources(path), vocabulary(load_rules(())))
    (kernel,) = program.kernels
    *_, last = find(kernel.body, "assignment_expression")
    target = last.child_by_field_name("left")
    assert target is not None
    return Affine(program, 64, who).lvalue(Scope(kernel), target)


OUT = {("&out",): EACH}
KNOWN = {
    "an index": ("out[lane / 4]", 4, {**OUT, (): times(4, LANES)}),
    "a pitch": ("out[lane / 4 * ld + 2]", 4, {**OUT, ("ld@-1",): times(4, LANES), (): times(8)}),
    "a pointer to a row": (
        "line[1]", 4, {**OUT, ("ld@-1",): times(4, ROWS), ("BM", "blockIdx.y", "ld@-1"): times(4), (): times(4)},
    ),
    "another type": ("*reinterpret_cast<float2*>(out + 2 * ld)", 8, {**OUT, ("ld@-1",): times(8)}),
    "two bytes": ("half[m]", 2, {("&half",): EACH, ("m@-1",): times(2)}),
    "a macro": ("out[AT(lane / 4, m)]", 4, {**OUT, ("ld@-1",): times(4, LANES), ("m@-1",): times(4)}),
    "a macro for all of it": (
        "PLACE(3)", 4, {**OUT, ("BM", "blockIdx.y"): times(4), (): tuple(4 * r + 12 for r in ROWS)},
    ),
    "a function": ("out[twice(m)]", 4, {**OUT, ("m@-1",): times(8)}),
    "what falls away": ("out[ld + 8 - ld]", 4, {**OUT, (): times(32)}),
    "shifts": ("out[(m << 3) + (threadIdx.x & 3)]", 4,
               {**OUT, ("m@-1",): times(32), (): tuple(4 * (t % 4) for t in range(64))}),
    "a part of what all have alike": ("out[m / 3]", 4, {**OUT, ("(1*m@-1/3*1)",): times(4)}),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_an_address_is_read(tmp_path: Path, name: str) -> None:
    left, size, at = KNOWN[name]
    assert lvalue(tmp_path, left) == Address(at, size)


UNKNOWN = {
    "memory": "out[order[m]]",
    "a variable that changes": "out[moved]",
    "an integer that loses something": "out[(unsigned char)m]",
    "a narrow integer": "out[few]",
    "a function that chooses": "out[odd(m)]",
    "a part of what differs": "out[(m + lane) / 3]",
    "an element of no pointer": "kernel.x[3]",
    "a variable that some lanes set": "out[chosen]",
    "a variable that some lanes set oftener": "out[turns]",
    "a variable of a loop of each thread": "out[sent]",
}


@pytest.mark.parametrize("name", ["kept", "stage"])
def test_a_variable_that_all_threads_set_is_a_name(tmp_path: Path, name: str) -> None:
    found = lvalue(tmp_path, f"out[{name}]")
    assert found is not None
    assert {n.partition("@")[0]: v for names, v in found.at.items() for n in names} == {"&out": EACH, name: times(4)}


@pytest.mark.parametrize(("name", "who", "known"), [
    ("of_role", range(64), False), ("of_role", range(32, 64), True), ("of_role", range(32), True),
    ("of_all", range(64), True),
])  # fmt: skip
def test_a_variable_that_one_role_sets(tmp_path: Path, name: str, who: range, known: bool) -> None:
    assert (lvalue(tmp_path, f"out[{name}]", who) is not None) is known


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_not_guessed(tmp_path: Path, name: str) -> None:
    assert lvalue(tmp_path, UNKNOWN[name]) is None


def test_threads_that_do_not_come_decide_nothing(tmp_path: Path) -> None:
    """The first warp has a negative index."""
    assert lvalue(tmp_path, "out[(threadIdx.x - 32) / 4]") is None
    found = lvalue(tmp_path, "out[(threadIdx.x - 32) / 4]", range(32, 64))
    assert found == Address({("&out",): (1,) * 32, (): tuple(t // 4 * 4 for t in range(32))}, 4)
