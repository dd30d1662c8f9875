# SPDX-License-Identifier: Apache-2.0
"""The step in which sums of FP8 stay in the accumulator: ways of writing that are understood, and what is refused with
which missing fact. Values and order are shown by the slow tests of `tests/cli/test_cli_promotion.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from promoted_kernels import DEFAULTS, ported

from porter.diagnostics import Code

ADD = "tcgen05::load(part, part_tmem);"
MOVED = f"{ADD} for (int i = 0; i < 8; ++i) sum[i] += part[i];"
ZERO = "for (int i = 0; i < 8; ++i) part[i] = 0.f;"
EACH = "for (int k = 0; k < 4; ++k) mma(part, a + s * 8 + k * 2, b + k * 2, {});"
ADDS_UP = "mma(part_tmem, a + s * 8 + k * 2, b + k * 2, 1);"
TWO = "float part[2][8]; float sum[2][8] = {};"
OUT = "for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = sum[0][i] + sum[1][i];"


def text_of(folder: Path, **parts: str) -> str:
    result = ported(folder, **parts)
    assert [d.values["what"] for d in result.diagnostics if d.code is Code.NATIVE_LEFT] == []
    assert result.plans[0].native == ("promotion",)
    return " ".join(next(t for p, t in result.files.items() if p.endswith("kernel.cu")).decode().split())


UNDERSTOOD = {
    "scale-d by the step": ({}, ADDS_UP),
    "scale-d by a comparison": ({"BATCH": EACH.format("k != 0")}, ADDS_UP),
    "scale-d by a greater one": ({"BATCH": EACH.format("k > 0 ? 1 : 0")}, ADDS_UP),
    "other steps": (
        {"BATCH": "for (int k = 0; k < 128; k += 32) mma(part, a + s + k, b + k, k);"},
        "mma(part_tmem, a + s + k, b + k, 1);",
    ),
    "unrolled": (
        {"BATCH": "mma(part, a + s, b, 0); mma(part, a + s + 2, b + 2, 1);"},
        "mma(part_tmem, a + s, b, 1); mma(part_tmem, a + s + 2, b + 2, 1);",
    ),
    "zero ahead of the MMAs": ({"AHEAD": ZERO, "BATCH": EACH.format("1")}, ADDS_UP),
    "zero behind the addition": (
        {"DECLARED": "float part[8] = {}; float sum[8] = {};", "BEHIND": ZERO, "BATCH": EACH.format("1")}, ADDS_UP,
    ),
    "zero, and scale-d of a template": (
        {"AHEAD": "memset(part, 0, sizeof(part));", "BATCH": "mma_of<1>(part, a + s, b);"},
        "mma_of<1>(part_tmem, a + s, b);",
    ),
    "a helper with the steps": (
        {"HEAD": "__device__ void batch(float (&d)[8], uint64_t a, uint64_t b) {"
                 " for (int k = 0; k < 4; ++k) mma(d, a + k * 2, b + k * 2, k); }",
         "BATCH": "batch(part, a + s * 8, b);"},
        "mma(d, a + k * 2, b + k * 2, 1); }",
    ),
    "a sum that is not zero at first": (
        {"DECLARED": "float part[8]; float sum[8]; for (int i = 0; i < 8; ++i) sum[i] = scales[i];"}, ADDS_UP,
    ),
    "written out": ({"ADD": "for (int i = 0; i < 8; ++i) sum[i] = sum[i] + part[i];"}, ADDS_UP),
    "the other way round": ({"ADD": "for (int i = 0; i < 8; ++i) { sum[i] = part[i] + sum[i]; }"}, ADDS_UP),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    text = text_of(tmp_path, **parts)
    kernel = text[text.index("__global__") :]
    loop = kernel[kernel.index("for (int s") : kernel.index(ADD)]
    assert expected in text
    assert kernel.count(ADD) == 1
    assert "part_tmem.clear(); for (int s = 0;" in kernel
    assert "sum[" not in loop
    assert "clear" not in loop
    assert loop.count("{") == loop.count("}"), "the addition stands behind the loop"
    behind = kernel[kernel.index(ADD) + len(ADD) :]
    assert behind.index("part[i]") < behind.index("out[")


def test_two_tiles_are_added_each_to_its_own(tmp_path: Path) -> None:
    text = text_of(
        tmp_path, DECLARED=TWO,
        BATCH="for (int m = 0; m < 2; ++m) for (int k = 0; k < 4; ++k) mma(part[m], a + k, b, k);",
        ADD="for (int m = 0; m < 2; ++m) for (int i = 0; i < 8; ++i) sum[m][i] += part[m][i];",
        AFTER=f"{OUT} if (steps < 0)",
    )  # fmt: skip
    assert "mma(part_tmem[m], a + k, b, 1);" in text
    assert text.index("sum[m][i] += part[m][i]") > text.index("drain(tc); }")


def test_pragmas_go_with_the_addition(tmp_path: Path) -> None:
    text = text_of(tmp_path, ADD="\n#pragma unroll\n        for (int i = 0; i < 8; ++i) sum[i] += part[i];\n")
    assert text.count("#pragma unroll") == 1
    assert f"{ADD} #pragma unroll for (int i = 0; i < 8; ++i) sum[i] += part[i];" in text


SCALED = "sums without scales"
REFUSED = {
    "a scale": ({"ADD": "for (int i = 0; i < 8; ++i) sum[i] += scales[s] * part[i];"}, SCALED),
    "a scale by fma": ({"ADD": "for (int i = 0; i < 8; ++i) sum[i] = fmaf(scales[s], part[i], sum[i]);"}, SCALED),
    "a quotient": ({"ADD": "for (int i = 0; i < 8; ++i) sum[i] += part[i] / scales[s];"}, SCALED),
    "half": ({"TYPE": "e5m2", "ADD": "for (int i = 0; i < 4; ++i) sum[i] += part[i];"}, "an addition of all elements"),
    "four at a time": (
        {"ADD": "for (int i = 0; i < 2; ++i) { sum[i * 4] += part[i * 4]; sum[i * 4 + 1] += part[i * 4 + 1];"
                " sum[i * 4 + 2] += part[i * 4 + 2]; sum[i * 4 + 3] += part[i * 4 + 3]; }"}, "adds all of `part`",
    ),
    "four at a time, scaled": (
        {"ADD": "for (int i = 0; i < 4; ++i) { sum[i * 2] += scales[0] * part[i * 2];"
                " sum[i * 2 + 1] += scales[1] * part[i * 2 + 1]; }"}, SCALED,
    ),
    "elements in another order": ({"ADD": "for (int i = 0; i < 8; ++i) sum[7 - i] += part[i];"},
                                  "each to one of its own"),
    "a difference": ({"ADD": "for (int i = 0; i < 8; ++i) sum[i] -= part[i];"}, "adds all of `part`"),
    "an addition of something else, too": ({"ADD": "for (int i = 0; i < 8; ++i) sum[i] += part[i] + 1;"},
                                           "adds all of"),
    "a maximum": ({"ADD": "for (int i = 0; i < 8; ++i) sum[i] = max(sum[i], part[i]);"}, "adds all of `part`"),
    "some steps alone": ({"ADD": "if (s % 2) for (int i = 0; i < 8; ++i) sum[i] += part[i];"},
                         "a condition is around it"),
    "turns that go on": ({"AHEAD": "if (s == 3) continue;"}, "every turn of the loop comes to its addition"),
    "a loop that is left": ({"BATCH": EACH.format("k") + " if (s == 9) break;"}, "every turn of the loop"),
    "sums that go on": ({"BATCH": EACH.format("1")}, "each turn of the loop begins its sums at zero"),
    "sums that go on by the loop": ({"BATCH": EACH.format("s")}, "when an MMA with scale-d `s` begins a sum"),
    "sums that begin twice": ({"BATCH": EACH.format("k") + EACH.format("k")}, "only the first MMA of each turn"),
    "sums that begin in each half": (
        {"BATCH": "for (int h = 0; h < 2; ++h) " + EACH.format("k")}, "when an MMA with scale-d `k` begins a sum",
    ),
    "steps that fall": (
        {"BATCH": "for (int k = 0; k < 4; --k) mma(part, a, b, k);"}, "when an MMA with scale-d `k` begins a sum",
    ),
    "an unknown scale-d": ({"BATCH": EACH.format("scales[0] > 0")}, "when an MMA with scale-d"),
    "zero between MMAs": (
        {"BATCH": EACH.format("1") + " commit(); drain(); " + ZERO + " fence(); " + EACH.format("1")},
        "made zero ahead of the MMAs",
    ),
    "zero under a condition": ({"AHEAD": "if (s % 2) { " + ZERO + " }", "BATCH": EACH.format("1")},
                               "begins its sums at zero"),
    "a sum that is read": ({"BEHIND": "out[s] = sum[0];"}, "nothing else in the loop uses `sum`"),
    "a pointer to the sum": (
        {"DECLARED": "float part[8]; float sum[8] = {}; float* p = sum;", "BEHIND": "out[s] = p[0];"},
        "no pointer to `sum`",
    ),
    "a pointer to an element": (
        {"DECLARED": "float part[8]; float sum[8] = {}; float* p = &sum[1];", "BEHIND": "p[0] = 1;"},
        "no pointer to `sum`",
    ),
    "partial sums that are read behind it": ({"AFTER": "out[7] = part[0];"}, "one place where `part` is read"),
    "partial sums of a turn": (
        {"DECLARED": "float sum[8] = {};", "AHEAD": "float part[8];"}, "declared outside of the loop",
    ),
    "a sum behind a pointer": (
        {"HEAD": "struct S { float v[8]; };", "DECLARED": "float part[8]; S t = {}; float* sum = t.v;"},
        "no pointer to",
    ),
    "a helper that others call, too": (
        {"HEAD": "__device__ void batch(float (&d)[8], uint64_t a, uint64_t b) {"
                 " for (int k = 0; k < 4; ++k) mma(d, a + k * 2, b + k * 2, k); }",
         "DECLARED": "float part[8]; float sum[8] = {}; float first[8]; fence(); batch(first, a, b); commit(); drain();"
                     " for (int i = 0; i < 8; ++i) sum[i] = first[i];",
         "BATCH": "batch(part, a + s * 8, b);"},
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    result = ported(tmp_path, **parts)
    (said,) = (str(d.values["what"]) for d in result.diagnostics if d.code is Code.NATIVE_LEFT)
    assert what in said
    assert result.plans[0].native == ()
    before = ported(tmp_path, (), **parts)
    assert before.files == result.files


@pytest.mark.parametrize("kind", ["half", "behind the loop"])
def test_sums_that_are_not_promoted(tmp_path: Path, kind: str) -> None:
    """Other types lose no bits on Hopper, and a sum that nobody reads in the loop is one already."""
    parts = {"half": {"TYPE": "half"}, "behind the loop": {
        "BATCH": EACH.format("s + k"), "ADD": "", "AFTER": DEFAULTS["ADD"]}}[kind]  # fmt: skip
    result = ported(tmp_path, **parts)
    assert result.plans[0].native == ()
    assert result.plans[0].promotion is None
    assert any("sums of FP8 that are promoted" in str(d.values.get("what")) for d in result.diagnostics)


def test_a_plan_says_whether_sums_are_promoted(tmp_path: Path) -> None:
    assert ported(tmp_path, ()).plans[0].promotion == ""
    assert SCALED in (ported(tmp_path, (), **REFUSED["a scale"][0]).plans[0].promotion or "")


def test_nobody_asked_for_it(tmp_path: Path) -> None:
    assert ported(tmp_path, ("release", "stages")).plans[0].native == ()


def test_loads_of_a_plan_are_where_they_are_in_the_port(tmp_path: Path) -> None:
    lines = (tmp_path / "kernel.cu", ported(tmp_path))
    behind = 1 + next(i for i, line in enumerate(lines[0].read_text().splitlines()) if "out[threadIdx.x" in line)
    assert lines[1].plans[0].accumulators[0].loaded == (behind,)


@pytest.mark.parametrize("sign", ["-=", "*="])
def test_a_sum_that_is_taken_from_itself_is_no_addition(tmp_path: Path, sign: str) -> None:
    result = ported(tmp_path, ADD=f"for (int i = 0; i < 8; ++i) sum[i] {sign} sum[i] + part[i];")
    (said,) = (str(d.values["what"]) for d in result.diagnostics if d.code is Code.NATIVE_LEFT)
    assert "adds all of `part`" in said or "without scales" in said
    assert result.plans[0].native == ()
