# SPDX-License-Identifier: Apache-2.0
"""Code with MMAs among the arguments of macros: refused where the macro repeats it or makes it conditional."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import STORE, kernel, ported, refused
from test_port_tiled_written import ACC, batch
from test_port_tiled_written import kernel as tiled_kernel

BATCH = "arrive(); mma(acc, a, b); commit(); wait<0>();"
START = "    float acc[8] = {0};\n"
STEP = f"__device__ __forceinline__ void step(float (&acc)[8], uint64_t a, uint64_t b) {{ {BATCH} acc[2] += 1.f; }}\n"
LOOP = "#define LOOP(n, body) for (int i = 0; i < (n); ++i) { body }\n"
WRAPPED = "#define LOOP(n, body) do { for (int i = 0; i < (n); ++i) { body } } while (0)\n"
WHILE = "#define LOOP(n, body) while (n--) { body; }\n"
OUTER = LOOP + "#define TIMES(n, body) LOOP(n, body)\n"

TURNED = {
    "loop of statements": (LOOP, f"LOOP(steps, {BATCH} acc[2] += 1.f;);"),
    "loop in a statement macro": (WRAPPED, f"LOOP(steps, {BATCH} acc[2] += 1.f;);"),
    "loop of a call": (LOOP + STEP, "LOOP(steps, step(acc, a, b););"),
    "while": (WHILE + STEP, "LOOP(steps, step(acc, a, b));"),
    "twice": ("#define TWICE(x) do { x; x; } while (0)\n" + STEP, "TWICE(step(acc, a, b));"),
    "condition": ("#define WHEN(c, x) if (c) { x; }\n" + STEP, "WHEN(steps > 1, step(acc, a, b));"),
    "chosen": ("#define WHEN(c, x) ((c) ? (x) : void())\n" + STEP, "WHEN(steps > 1, step(acc, a, b));"),
    "the rest of the arguments": ("#define EACH(n, ...) for (int i = 0; i < n; ++i) { __VA_ARGS__ }\n" + STEP,
                                  "EACH(steps, step(acc, a, b);)"),
    "by another macro": (OUTER + STEP, "TIMES(steps, step(acc, a, b););"),
    "an accumulator is set": ("#define WHEN(c, x) do { if (c) x; } while (0)\n",
                              f"{BATCH} WHEN(steps > 1, acc[1] = 0.f);"),
    "a read behind a statement": ("#define WHEN(c, x) if (c) { x }\n",
                                  f"{BATCH} WHEN(steps > 1, out[9] = 0; out[0] = acc[0];)"),
    "a lambda": ("#define LATER(x) auto later = [&] { x; }\n" + STEP, "LATER(step(acc, a, b)); later(); later();"),
}  # fmt: skip
IN_LINE = {
    "once": ("#define DO(x) do { x; } while (0)\n" + STEP, "DO(step(acc, a, b));"),
    "its name is a string": ('#define DO(x) do { const char* s = #x; x; } while (0)\n' + STEP, "DO(step(acc, a, b));"),
    "others are in the loop": (LOOP, f"{BATCH} LOOP(steps, out[i] = 0.f;);"),
    "a read": ("#define PUT(x) do { if ((x) > 0) out[0] = (x); } while (0)\n", f"{BATCH} PUT(acc[1]);"),
    "not used": (LOOP, BATCH),
}  # fmt: skip


@pytest.mark.parametrize(("macro", "body"), TURNED.values(), ids=TURNED.keys())
def test_arguments_that_a_macro_repeats_or_makes_conditional_are_refused(macro: str, body: str, tmp_path: Path) -> None:
    said = refused(tmp_path, kernel(f"{START}    {body}\n{STORE}", before=macro))
    assert any("repeats its argument or makes it conditional" in one for one in said), said


@pytest.mark.parametrize(("macro", "body"), IN_LINE.values(), ids=IN_LINE.keys())
def test_arguments_that_stand_in_line_are_ported(macro: str, body: str, tmp_path: Path) -> None:
    assert "tcgen05::mma_f16" in ported(tmp_path, kernel(f"{START}    {body}\n{STORE}", before=macro))


HOST = """
#define CHECK(x) do { if (auto e = (x); e != 0) return; } while (0)
#define SWITCH(c, N, ...) if (c) { constexpr int N = 1; __VA_ARGS__; } else { constexpr int N = 0; __VA_ARGS__; }
#define LAUNCH(n, x) do { for (int i = 0; i < n; ++i) { x; } } while (0)
void launch(float* out, int steps) {
    CHECK((kernel<<<1, 128>>>(out, 0, 0, steps), cudaGetLastError()));
    LAUNCH(3, (kernel<<<1, 128>>>(out, 0, 0, steps)));
    SWITCH(steps > 1, N, [&] { kernel<<<N + 1, 128>>>(out, 0, 0, steps); }());
}
void choose(float* out, int steps) { SWITCH(steps > 1, N, launch(out, N)); }
"""


def test_launches_among_arguments_are_left_alone(tmp_path: Path) -> None:
    assert HOST in ported(tmp_path, kernel(f"{START}    {BATCH}\n{STORE}") + HOST)


@pytest.mark.parametrize(("use", "is_ported"), [("n = 1; out(0) = acc(0);", False), ("out(0) = acc(0);", True)])
def test_loads_of_a_tiled_mma_are_not_the_macros_to_run(use: str, is_ported: bool, tmp_path: Path) -> None:
    macro = "#define WHEN(c, x) if (c) { x }\n"
    text = tiled_kernel(f"{ACC}{batch()}  WHEN(n > 1, {use});\n  out(n) = acc(1);\n", macro)
    if is_ported:
        assert "porter::load(acc);" in ported(tmp_path, text)
    else:
        assert any("repeats its argument" in one for one in refused(tmp_path, text))
