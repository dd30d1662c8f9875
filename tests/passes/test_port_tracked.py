# SPDX-License-Identifier: Apache-2.0
"""Registers that are kept true: where they move, and that nothing moves that need not. That such ports compute the
right values is what tests/variants shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import LOOP, STORE, kernel, port_text, ported

from porter.diagnostics import Code, ExitCode

BATCH = """
        arrive();
        mma(acc, a + k * 2, b + k * 2);
        commit();
        wait<0>();
"""
TO = "tcgen05::to_tensor_memory(acc, acc_tmem);"
FROM = "tcgen05::to_registers(acc, acc_tmem);"


def loop(body: str) -> str:
    return f"    for (int k = 0; k < steps; ++k) {{\n{body}\n    }}\n"


def lines(text: str) -> list[str]:
    """The kernel's lines."""
    return text[text.index("__global__") :].splitlines()


def place(text: str, wanted: str) -> int:
    found = [i for i, line in enumerate(lines(text)) if line.strip() == wanted]
    assert len(found) == 1, text
    return found[0]


ALIASES = [
    "float* p = acc;|p[k % 8] *= 2.f;",
    "float (&r)[8] = acc;|r[k % 8] *= 2.f;",
    "auto& r = acc;|r[0] += 1.f;",
    "Holder f{acc};|f.r[0] += 1.f;",
    "|*(acc + 1) += 1.f;",
    "|const_cast<float&>(acc[0]) += 1.f;",
    "|0[acc] += 1.f;",
    "|(k ? acc[0] : acc[1]) += 1.f;",
    "|float& x = first(acc); x += 1.f;",
    "auto touch = [&] { acc[0] += 1.f; };|touch();",
]
BEFORE = """
struct Holder { float (&r)[8]; };
__device__ float& first(float (&x)[8]) { return x[0]; }
"""


@pytest.mark.parametrize("alias", ALIASES)
def test_registers_move_at_each_wait_and_mma_of_a_loop_that_may_use_them(tmp_path: Path, alias: str) -> None:
    early, use = alias.split("|")
    whole = f"    float acc[8] = {{0}};\n    {early}\n" + loop(BATCH + use) + STORE
    text = ported(tmp_path, kernel(whole, before=BEFORE))
    body = lines(text)
    start = next(i for i, line in enumerate(body) if line.lstrip().startswith("for (int k"))
    multiply = next(i for i, line in enumerate(body) if "mma(acc_tmem" in line)
    wait = next(i for i, line in enumerate(body) if "wait<0>(tc)" in line)
    assert start < place(text, TO) == multiply - 1
    assert place(text, FROM) == wait + 1


@pytest.mark.parametrize("use", ["float* p = acc; p[0] += 1.f;", "Holder f{acc}; f.r[0] += 1.f;", "*(acc + 1) += 1.f;"])
def test_a_loop_that_cannot_name_the_registers_has_no_moves(tmp_path: Path, use: str) -> None:
    """The use comes between two loops, so that it is not the last thing that happens to the registers."""
    text = ported(tmp_path, kernel("    float acc[8] = {0};\n" + LOOP + f"    {use}\n" + LOOP + STORE, before=BEFORE))
    inside = [line for line in lines(text) if line.startswith("        ") and "tcgen05::to_" in line]
    assert inside == []
    assert text.count(TO) == 2
    assert text.count(FROM) == 2


@pytest.mark.parametrize(
    "use", ["float* p = acc; out[1] = p[0];", "float (&r)[8] = acc; r[1] = 2.f;", "*(acc + 1) = 1.f;"]
)
def test_what_happens_behind_the_last_mma_needs_one_load(tmp_path: Path, use: str) -> None:
    text = ported(tmp_path, kernel("    float acc[8] = {0};\n" + LOOP + f"    {use}\n" + STORE, before=BEFORE))
    assert "to_registers" not in text
    assert text.count("tcgen05::load(acc, acc_tmem);") == 1


def test_the_note_says_what_was_not_understood(tmp_path: Path) -> None:
    body = "    float acc[8] = {0};\n" + loop(BATCH + "*(acc + 1) += 1.f;") + STORE
    result = port_text(tmp_path, kernel(body))
    notes = [str(d) for d in result.diagnostics if d.code.name == "REGISTERS_KEPT_TRUE"]
    assert len(notes) == 1
    assert "`acc`" in notes[0]
    assert "line" in notes[0]


def test_a_body_without_braces_gets_them(tmp_path: Path) -> None:
    body = "    float acc[8] = {0};\n    float* p = acc;\n" + loop(
        "arrive();\nif (steps > 1)\n    mma(acc, a, b);\ncommit();\nif (k >= 0)\n    wait<0>();\np[0] += 1.f;"
    )
    text = ported(tmp_path, kernel(body + STORE))
    flat = " ".join(text.split())
    assert f"if (steps > 1) {{ {TO} mma(acc_tmem, a, b); }}" in flat
    assert f"if (k >= 0) {{ wait<0>(tc); {FROM} }}" in flat


def test_a_function_that_uses_the_registers_is_handed_both(tmp_path: Path) -> None:
    step = """
__device__ void step(float (&d)[8], uint64_t a, uint64_t b) {
    arrive();
    mma(d, a, b);
    commit();
    wait<0>();
    d[0] += 1.f;
}
"""
    text = ported(tmp_path, kernel("    float acc[8] = {0};\n" + loop("step(acc, a + k, b + k);") + STORE, before=step))
    assert "step(tcgen05::Warpgroup& tc, float (&d)[8], tcgen05::Accumulator& d_tmem, uint64_t a" in text
    assert "step(tc, acc, acc_tmem, a + k, b + k);" in text
    assert "tcgen05::to_tensor_memory(d, d_tmem);\n    mma(d_tmem, a, b);" in text
    assert "wait<0>(tc);\n    tcgen05::to_registers(d, d_tmem);" in text


STEP = """
{before}
__device__ void step({param}, uint64_t a, uint64_t b) {{
    arrive();
    mma({name}, a, b);
    commit();
    wait<0>();
    {name}[0] += 1.f;
}}
"""


@pytest.mark.parametrize(
    ("param", "before"),
    [
        ("float* d", ""),
        ("float d[8]", ""),
        ("float d[]", ""),
        ("float *const d", ""),
        ("float* __restrict__ d", ""),
        ("T* d", "template <class T>"),
        ("T d", "template <class T>"),
        ("Row d", "using Row = float[8];"),
        ("Pointer d", "using Pointer = float*;"),
        ("auto* d", ""),
        ("float d[kN]", "constexpr int kN = 8;"),
    ],
)
def test_a_pointer_does_not_say_how_many_registers_move(tmp_path: Path, param: str, before: str) -> None:
    """What has the size of a pointer would move none of them."""
    step = STEP.format(param=param, before=before, name="d")
    text = kernel("    float acc[8] = {0};\n" + loop("step(acc, a + k, b + k);") + STORE, before=step)
    result = port_text(tmp_path, text)
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.changed


@pytest.mark.parametrize(
    ("param", "before"),
    [
        ("float (&d)[8]", ""),
        ("float (&d)[kN]", "template <int kN>"),
        ("T& d", "template <class T>"),
        ("Row& d", "using Row = float[8];"),
    ],
)
def test_a_reference_moves_all_registers(tmp_path: Path, param: str, before: str) -> None:
    step = STEP.format(param=param, before=before, name="d")
    text = kernel("    float acc[8] = {0};\n" + loop("step(acc, a + k, b + k);") + STORE, before=step)
    result = port_text(tmp_path, text)
    if result.exit_code is ExitCode.OK:
        made = result.files[str(tmp_path / "kernel.cu")].decode()
        assert "tcgen05::to_tensor_memory(d, d_tmem);" in made
        assert "tcgen05::to_registers(d, d_tmem);" in made
    else:
        assert not result.changed


@pytest.mark.parametrize(
    ("macros", "use"),
    [
        ("#define ACC d", "ACC[0] += 1.f;"),
        ("#define ACC d\n#define OUT(i) ACC[i]", "OUT(0) += 1.f;"),
        ("#define BUMP d[0] += 1.f", "BUMP;"),
        ("#define CAT(x, y) x##y\n#define ACC CAT(, d)", "ACC[0] += 1.f;"),
    ],
)
def test_a_function_whose_macros_use_the_registers_is_handed_both(tmp_path: Path, macros: str, use: str) -> None:
    step = f"""
{macros}
__device__ void step(float (&d)[8], uint64_t a, uint64_t b) {{
    arrive();
    mma(d, a, b);
    commit();
    wait<0>();
    {use}
}}
"""
    text = ported(tmp_path, kernel("    float acc[8] = {0};\n" + loop("step(acc, a + k, b + k);") + STORE, before=step))
    assert "float (&d)[8], tcgen05::Accumulator& d_tmem, uint64_t a" in text
    assert "step(tc, acc, acc_tmem, a + k, b + k);" in text


@pytest.mark.parametrize(
    "statement",
    ["while (wait_and_test()) { }", "for (; wait_and_test();) { }", "do { } while (wait_and_test());"],
)
def test_a_wait_in_the_head_of_a_loop_is_refused_where_registers_are_kept_true(tmp_path: Path, statement: str) -> None:
    before = "__device__ bool wait_and_test() { wait<0>(); return false; }\n"
    body = "    float acc[8] = {0};\n    float* p = acc;\n" + loop(
        f"arrive();\nmma(acc, a, b);\ncommit();\n{statement}\np[0] += 1.f;"
    )
    result = port_text(tmp_path, kernel(body + STORE, before=before))
    assert int(result.exit_code) == 3
    assert any("head of a loop" in str(d) for d in result.diagnostics)


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("threadIdx.x % 32 == 3", True),
        ("out[threadIdx.x] > 0.f", True),
        ("int(threadIdx.x) >= steps", True),
        ("lane > 4", True),
        ("tid / 32 == steps", False),
        ("threadIdx.x / 32 == 1", False),
        ("threadIdx.x >> 5 == 2", False),
        ("threadIdx.x >= 64", False),
        ("warp == 2", False),
        ("__shfl_sync(~0u, lane, 0) == 3", False),
        ("steps == 3", False),
    ],
)
def test_lanes_that_return_apart_meet_first(tmp_path: Path, condition: str, parts: bool) -> None:
    body = f"""
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int tid = threadIdx.x;
    float acc[8] = {{0}};
{LOOP}
    if ({condition}) return;
{STORE}"""
    text = ported(tmp_path, kernel(body))
    assert ("    [&] {" in text) is parts
    assert ("    }();\n}" in text) is parts


CASTS = [
    "(elem)(d[m][i])", "(elem) (d[m][i])", "elem(d[m][i])", "(ELEM)(d[m][i])", "ELEM(d[m][i])", "TO_ELEM(d[m][i])",
    "((elem))(d[m][i])", "(const elem)(d[m][i])", "(T)(d[m][i])", "T(d[m][i])", "(typename Of::elem)(d[m][i])",
    "typename Of::elem(d[m][i])", "give((elem)(d[m][i]))",
]  # fmt: skip
"""Of an element type that the file which includes the kernel's defines."""
CAST_BEFORE = """
#define ELEM elem
#define TO_ELEM(x) (elem)(x)
__device__ elem give(elem x) { return x; }
"""


@pytest.mark.parametrize("cast", CASTS)
def test_a_cast_by_a_name_of_the_including_file_is_no_call(tmp_path: Path, cast: str) -> None:
    """Without a call there are the moves that `static_cast` has: one load for what is read."""
    body = """
    float d[2][8];
    for (int t = 0; t < steps; ++t) {
        round(d, a, b);
        for (int k = 1; k < steps; ++k) round(d, a, b);
        elem e[8];
        for (int m = 0; m < 2; ++m) for (int i = 0; i < 8; ++i) e[i] = <cast>;
        store(out, e);
    }"""
    rounds = (
        "__device__ void round(float (&d)[2][8], uint64_t a, uint64_t b) "
        "{ arrive(); for (int m = 0; m < 2; ++m) mma(d[m], a, b); commit(); wait<0>(); }\n"
    )

    def of(written: str) -> str:
        text = kernel(body.replace("<cast>", written), before=CAST_BEFORE + rounds)
        text = text.replace("__global__", "template <class T, class Of>\n__global__")
        result = port_text(tmp_path, text)
        assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
        assert not any(d.code is Code.REGISTERS_KEPT_TRUE for d in result.diagnostics)
        return result.files[result.sources.root].decode()

    assert of(cast) == of("static_cast<elem>(d[m][i])").replace("static_cast<elem>(d[m][i])", cast)


@pytest.mark.parametrize("name", ["seen_nowhere", "apart::seen_nowhere"])
def test_what_is_called_by_an_unknown_name_holds_no_address(tmp_path: Path, name: str) -> None:
    """It may be a function that takes a reference, so registers are kept true; the name is no variable of the kernel,
    so statements that name it, too, do not use registers."""
    body = "\n    float acc[8] = {0};\n" + loop(f"round(acc, a + ({name})(k), b);\nout[k] = ({name})(acc[0]);")
    steps = "{ arrive(); mma(d, a, b); commit(); wait<0>(); }\n"
    rounds = f"__device__ void round(float (&d)[8], uint64_t a, uint64_t b) {steps}"
    result = port_text(tmp_path, kernel(body, before=rounds))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    assert any(d.code is Code.REGISTERS_KEPT_TRUE for d in result.diagnostics)
