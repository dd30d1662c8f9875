# SPDX-License-Identifier: Apache-2.0
"""MMAs that have a part of an array's registers, or one of several arrays of an object: a tile is all of its array."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import kernel, ported, refused, wrapper

PAIR = "struct Pair { float d[8], e[8]; };\n"
POINTER = wrapper(16, parameter="float* d", name="mma_of")
WIDER = wrapper(32, parameter="float* d", name="mma_wide")
ROW = "__device__ void row(float (*d)[8], uint64_t a, uint64_t b) { mma(d[0], a, b); }\n"
CHOSEN = "template <int N> __device__ void any(float* d, uint64_t a, uint64_t b) {\n\
    if constexpr (N == 32) mma_wide(d, a, b); else mma_of(d, a, b);\n}\n"


def around(declared: str, call: str, element: str) -> str:
    loop = f"for (int k = 0; k < steps; ++k) {{ arrive(); {call} commit(); wait<0>(); }}"
    return f"{declared} {loop} for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = {element};"


REFUSED = {
    "middle of an array": (POINTER, "float acc[16] = {0};", "mma_of(&acc[4], a, b);", "acc[i]"),
    "halves of an array": (
        POINTER, "float acc[16] = {0};", "for (int h = 0; h < 2; ++h) mma_of(&acc[8 * h], a, b);", "acc[i]"
    ),
    "first half": (POINTER, "float acc[16] = {0};", "mma_of(acc, a, b);", "acc[i + 8]"),
    "array with a tail": (POINTER, "float acc[12] = {0};", "mma_of(acc, a, b); acc[9] += 1.f;", "acc[i] + acc[9]"),
    "rows with a tail": (POINTER, "float acc[2][10] = {};", "mma_of(acc[0], a, b);", "acc[0][i]"),
    "vectors": (POINTER, "float4 acc[4] = {};", "mma_of((float*)acc, a, b);", "acc[i / 4].x"),
    "N at run time": (
        POINTER + WIDER, "float acc[16] = {0};", "if (steps > 4) mma_wide(acc, a, b); else mma_of(acc, a, b);", "acc[i]"
    ),
    "smaller N of a template": (POINTER + WIDER + CHOSEN, "float acc[16] = {0};", "any<16>(acc, a, b);", "acc[i + 8]"),
    "another row": (ROW, "float acc[2][8] = {};", "row(&acc[1], a, b); row(&acc[0], b, a);", "acc[1][i]"),
    "member that is longer": (
        POINTER + "struct One { float d[12]; };\n", "One acc = {};", "mma_of(acc.d, a, b);", "acc.d[i]"
    ),
    "both members": (PAIR, "Pair acc = {};", "mma(acc.d, a, b); mma(acc.e, a, b);", "acc.d[i] + acc.e[i]"),
    "both members in a function": (
        PAIR + "__device__ void both(Pair& p, uint64_t a, uint64_t b) { mma(p.d, a, b); mma(p.e, b, a); }\n",
        "Pair acc = {};", "both(acc, a, b);", "acc.d[i] + acc.e[i]",
    ),
    "members of members": (
        PAIR + "struct Two { Pair p[2]; };\n", "Two acc = {};", "mma(acc.p[1].d, a, b);", "acc.p[1].d[i]"
    ),
}  # fmt: skip

PORTED = {
    "one of a template": (POINTER + WIDER + CHOSEN, "float acc[8] = {0};", "any<16>(acc, a, b);", "acc[i]"),
    "each its own": (
        POINTER + WIDER + CHOSEN,
        "float acc[8] = {0}, wide[16] = {0};",
        "any<16>(acc, a, b); any<32>(wide, a, b);",
        "acc[i] + wide[i]",
    ),
    "rows": (ROW, "float acc[2][8] = {};", "row(acc, a, b);", "acc[0][i]"),
    "one member": (PAIR, "Pair acc = {};", "mma(acc.e, a, b);", "acc.e[i] + acc.d[i]"),
    "member of a member": (PAIR + "struct Two { Pair p; };\n", "Two acc = {};", "mma(acc.p.d, a, b);", "acc.p.d[i]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_part_is_refused(tmp_path: Path, name: str) -> None:
    before, declared, call, element = REFUSED[name]
    found = refused(tmp_path, kernel(around(declared, call, element), before=before))
    code = "PT2002" if name == "members of members" else "PT2022"
    assert any(code in text for text in found), found


@pytest.mark.parametrize(("before", "declared", "call", "element"), PORTED.values(), ids=PORTED)
def test_a_whole_array_is_ported(tmp_path: Path, before: str, declared: str, call: str, element: str) -> None:
    assert "tcgen05" in ported(tmp_path, kernel(around(declared, call, element), before=before))
