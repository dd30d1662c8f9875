# SPDX-License-Identifier: Apache-2.0
"""What the port cannot do is named with a place, and the file is left whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import GEMM, LOOP, STORE, kernel, port_text, refused

CASES = [
    pytest.param(
        GEMM.replace("mma_async.sync", "mma_async.sp.sync")
        .replace("k16", "k32")
        .replace("%8, %9, 1,", "%8, %9, %9, 0, 1,"),
        "PT2011",
        "sparse wgmma",
        id="sparse",
    ),
    pytest.param(
        GEMM.replace("k16.f32.bf16.bf16", "k256.s32.b1.b1.and.popc")
        .replace("float (&d)", "int (&d)")
        .replace("float acc", "int acc")
        .replace('"+f"', '"+r"')
        .replace("%9, 1, 1, 1, 0, 0;", "%9, 1;"),
        "PT2012",
        "b1 operands",
        id="single bits",
    ),
    pytest.param(
        kernel("    float acc[8] = {0};\n" + LOOP.replace("wait<0>", "wait<1>") + STORE),
        "PT2002",
        "no wait covers",
        id="read while in flight",
    ),
    pytest.param(
        GEMM.replace("float acc[8] = {0};", "").replace("__global__", "__device__ float acc[8];\n__global__"),
        "PT2002",
        "not a local variable",
        id="global accumulator",
    ),
    pytest.param(
        kernel(
            "    float acc[8] = {0};\n    arrive();\n"
            + LOOP.replace("arrive();", "").replace("wait<0>();", "wait<0>();" + STORE)
            + STORE
        ),
        "PT2002",
        "without a wgmma.fence in between",
        id="read and added to without a fence",
    ),
    pytest.param(
        'const char* source = "asm(\\"wgmma.fence.sync.aligned;\\");";\n',
        "PT2006",
        "wgmma.fence",
        id="source in a string",
    ),
    pytest.param(GEMM.replace("(d[0])", "(d[1])", 1), "PT2001", "not one array in order", id="registers out of order"),
    pytest.param("__device__ void f() { cute::warpgroup_arrive(); }\n", "PT2003", "CuTe C++", id="CuTe"),
    pytest.param(GEMM.replace('"wgmma.mma', '"@p wgmma.mma'), "PT2001", "predicated", id="predicated"),
    pytest.param(
        kernel("    float acc[128][8] = {0};\n    mma(acc[0], a, b); commit(); wait<0>();\n    out[0] = acc[0][0];"),
        "PT2005",
        "2048 Tensor Memory columns",
        id="too large",
    ),
]


@pytest.mark.parametrize(("text", "code", "words"), CASES)
def test_refused_by_name(tmp_path: Path, text: str, code: str, words: str) -> None:
    found = refused(tmp_path, text)
    assert any(f"[{code}]" in d and words in d for d in found), found
    assert all("kernel.cu:" in d for d in found)


def test_one_rule_switched_off_leaves_the_kernel_whole(tmp_path: Path) -> None:
    result = port_text(tmp_path, GEMM, ignore=("PTR130",))
    assert int(result.exit_code) == 3
    assert not result.changed
    assert any(d.code.id == "PT2010" for d in result.diagnostics)


def test_own_function_named_like_a_library_one(tmp_path: Path) -> None:
    text = (
        GEMM.replace("arrive(", "warpgroup_arrive(")
        .replace("wait<", "warpgroup_wait<")
        .replace("void wait(", "void warpgroup_wait(")
    )
    assert int(port_text(tmp_path, text).exit_code) == 0
