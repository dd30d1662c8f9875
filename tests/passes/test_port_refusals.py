# SPDX-License-Identifier: Apache-2.0
"""What the port cannot do is named with a place, and the file is left whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import GEMM, LOOP, STORE, kernel, port_text, refused, wrapper

from porter.diagnostics import Code, Severity

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
        "PT2023",
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
        "PT2024",
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


ACC = "    float acc[8] = {0};\n"
OPENS = "#define BEGIN for (int k = 0; k < steps; ++k) {\n"
TWICE = "#define TWICE(x) for (int t = 0; t < 2; ++t) { x; }\n"
BATCH = "arrive(); mma(acc, a, b); commit(); wait<0>();"
PART = wrapper(16, parameter="float* d", name="part")
OBJECT = "struct Acc {\n    float d[8];\n" + wrapper(16).replace("(float (&d)[8], ", "(") + "};\n"
LAST = "__device__ void last(Acc x, float* out) { out[threadIdx.x] = x.d[0]; }\n"
LATE = "struct Late { __device__ ~Late() { wait<0>(); } };\n"
ISSUE = "    auto issue = [acc](uint64_t a, uint64_t b) mutable { mma(acc, a, b); };\n"
TURNS = "    for (int k = 0; k < steps; wait<0>()) { arrive(); mma(acc, a, b); commit(); p[0] += 1.f; ++k; }\n"
STOP = '__device__ void stop(int n) { if (n) asm volatile("exit;"); }\n'
UNFENCED = "    arrive();\n" + LOOP.replace("arrive();", "").replace("wait<0>();", "wait<0>();" + STORE) + STORE


def multiplied(what: str, declared: str = ACC, behind: str = STORE, before: str = "") -> str:
    """A kernel that multiplies with `what` in place of `mma(acc`."""
    return kernel(declared + LOOP.replace("mma(acc", what) + behind, before=before)


CAUSES = {
    "ACCUMULATOR_DECLARED": {
        "acc": multiplied("mma(acc", "", before="__device__ float acc[8];\n"),
        "some(acc)": multiplied("mma(some(acc)"),
    },
    "ACCUMULATOR_REFERENCE": {"r": multiplied("mma(r", ACC + "    float (&r)[8] = acc;\n")},
    "ACCUMULATOR_COPIED": {"[acc]": kernel(ACC + ISSUE + "    arrive(); issue(a, b); commit(); wait<0>();\n" + STORE)},
    "ACCUMULATOR_SHAPE": {
        "part(acc, a + k * 2, b + k * 2)": multiplied("part(acc", "    float acc[16] = {0};\n", before=PART),
    },
    "ACCUMULATOR_IN_FLIGHT": {STORE.strip(): kernel(ACC + LOOP.replace("wait<0>", "wait<1>") + STORE)},
    "ACCUMULATOR_UNFENCED": {"mma(acc, a + k * 2, b + k * 2)": kernel(ACC + UNFENCED)},
    "ACCUMULATOR_MOVES": {"wait<0>()": kernel(ACC + "    float* p = acc;\n" + TURNS + STORE)},
    "CALL_NOT_FOLLOWED": {
        "~Late": multiplied("mma(acc", ACC + "    { Late late; }\n", before=LATE),
        "mma(one, a + k * 2, b + k * 2)": multiplied("mma(one", "    float one;\n", ""),
    },
    "MACRO_NOT_FOLLOWED": {
        "BEGIN": kernel(ACC + f"    BEGIN {BATCH} }}\n" + STORE, before=OPENS),
        BATCH: kernel(ACC + f"    TWICE({BATCH})\n" + STORE, before=TWICE),
    },
    "THREADS_LEAVE": {'asm volatile("exit;");': multiplied("mma(acc", ACC + "    stop(steps);\n", before=STOP)},
    "OBJECT_NOT_FOLLOWED": {
        "Acc x": multiplied("x.mma(", "    Acc x;\n", "    last(x, out);\n", OBJECT + LAST).replace("mma(, ", "mma("),
    },
}  # fmt: skip
PLACES = [(name, underlined, text) for name, places in CAUSES.items() for underlined, text in places.items()]


@pytest.mark.parametrize(("name", "underlined", "text"), PLACES, ids=[f"{n}: {u[:20]}" for n, u, _ in PLACES])
def test_each_cause_is_named_where_it_stands(tmp_path: Path, name: str, underlined: str, text: str) -> None:
    result = port_text(tmp_path, text)
    assert int(result.exit_code) == 3
    found = [d for d in result.diagnostics if d.code is Code[name]]
    assert found, [str(d) for d in result.diagnostics]
    places = [d.where for d in result.diagnostics if d.severity is Severity.ERROR]
    assert all(w is not None and w.line and w.column and w.end > w.start for w in places), places
    shown = [text.encode()[d.where.start : d.where.end].decode() for d in found if d.where is not None]
    assert underlined in shown, shown
