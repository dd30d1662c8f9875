# SPDX-License-Identifier: Apache-2.0
"""The step in which scales that are powers of two move into the tensor core: ways of writing that are understood, and
what is refused with which missing fact. Values and order are shown by `tests/cli/test_cli_scales.py`, which is slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from scaled_kernels import lacking, ported, scaled, text_of

from porter.diagnostics import Code

FROM_BYTE = "__device__ float from(uint8_t e) { return __uint_as_float(uint32_t(e) << 23); }"
EXACT = ("__device__ __forceinline__ float from(uint8_t e) {"
         " return __uint_as_float(e == 0 ? 0x00400000u : e == 255 ? 0x7fffffffu : uint32_t(e) << 23); }")  # fmt: skip
BYTE = "bytes[row * steps + s]"
ROWS = "tcgen05::scale(tc, part_tmem, upper, lower); for (int k"
ADDED = "tcgen05::load(part, part_tmem); #pragma unroll for (int i = 0; i < 8; ++i) sum[i] += part[i];"
EACH = "for (int i = 0; i < 8; ++i) {}"
IN_FOURS = "for (int i = 0; i < 2; ++i) {{ {} }}"
FOURS = IN_FOURS.format(" ".join(
    f"sum[i * 4 + {j}] += {'upper' if j < 2 else 'lower'} * part[i * 4 + {j}];" for j in range(4)))  # fmt: skip

UNDERSTOOD = {
    "bytes that are exponents": ({}, ROWS),
    "a function": ({"HEAD": FROM_BYTE, "AHEAD": scaled(f"from({BYTE})")}, ROWS),
    "zero and NaN of ue8m0": ({"HEAD": EXACT, "AHEAD": scaled("from(__ldg(bytes + row * steps + s))")}, ROWS),
    "a product of two": ({"HEAD": FROM_BYTE, "AHEAD": scaled(f"from({BYTE}) * from(bytes[s])")}, ROWS),
    "by variables": (
        {"AHEAD": f"const uint32_t e = {BYTE}; const float other = __uint_as_float(uint32_t(bytes[s]) << 23); "
                  + scaled("__uint_as_float((e & 0xff) << 23) * other")}, ROWS,
    ),
    "a byte of a word": ({"AHEAD": scaled("__uint_as_float((words[row] >> 8 * (s & 3) & 0xffu) << 23)")}, ROWS),
    "the last byte of a word": ({"AHEAD": scaled("__int_as_float(int(words[row + s] >> 24) << 23)")}, ROWS),
    "an exponent by exp2f": ({"AHEAD": scaled("exp2f(float(ints[row * steps + s]))")}, ROWS),
    "an exponent less its bias": ({"AHEAD": scaled(f"exp2f(float({BYTE}) - 127.f)")}, ROWS),
    "a rounded exponent": ({"AHEAD": scaled("exp2f(ceilf(floats[row]))")}, ROWS),
    "ldexpf": ({"AHEAD": scaled(f"ldexpf(1.f, int({BYTE}) - 127)")}, ROWS),
    "scalbnf": ({"AHEAD": scaled("scalbnf(0.5f, ints[row])")}, ROWS),
    "the exponent of a float": (
        {"AHEAD": scaled("__uint_as_float(__float_as_uint(floats[row * steps + s]) & 0x7f800000u)")}, ROWS),
    "e8m0 of the toolkit": (
        {"AHEAD": scaled(f"__bfloat162float(__nv_bfloat16(__nv_cvt_e8m0_to_bf16raw({BYTE})))")}, ROWS),
    "set later": ({"AHEAD": "float upper = exp2f(float(ints[row])), lower; lower = 1.f; upper *= 0.25f;"}, ROWS),
    "of the turn before": (
        {"DECLARED": "float upper = exp2f(float(ints[row])), lower = 1.f;", "AHEAD": "",
         "ADD": "for (int i = 0; i < 8; ++i) sum[i] += part[i] * (i % 4 < 2 ? upper : lower);"
                " upper = exp2f(float(ints[row * steps + s + 1]));"}, ROWS,
    ),
    "loaded a turn ahead": (
        {"DECLARED": "uint8_t next = bytes[row * steps];",
         "AHEAD": scaled("__uint_as_float(uint32_t(next) << 23)"),
         "ADD": "for (int i = 0; i < 8; ++i) sum[i] += part[i] * (i % 4 < 2 ? upper : lower);"
                " if (s + 1 < steps) next = bytes[row * steps + s + 1];"}, ROWS,
    ),
    "a fraction": ({"AHEAD": scaled("1.f / exp2f(float(ints[row]))")}, ROWS),
    "one scale for all": (
        {"AHEAD": "const float upper = exp2f(float(ints[s]));", "ADD": EACH.format("sum[i] += upper * part[i];")},
        "tcgen05::scale(tc, part_tmem, upper, upper);",
    ),
    "two factors in the addition": (
        {"AHEAD": "const float one = exp2f(float(ints[s])); " + scaled("exp2f(float(ints[row]))"),
         "ADD": EACH.format("sum[i] += part[i] * one * (i & 2 ? lower : upper);")},
        "tcgen05::scale(tc, part_tmem, one * upper, one * lower);",
    ),
    "an array of two": (
        {"AHEAD": "const float scale[2] = {exp2f(float(ints[row])), exp2f(float(ints[row + 8]))};",
         "ADD": EACH.format("sum[i] += part[i] * scale[i % 4 / 2];")},
        "tcgen05::scale(tc, part_tmem, scale[0], scale[1]);",
    ),
    "blocks of columns": (
        {"AHEAD": scaled("exp2f(float(ints[s]))", "exp2f(float(ints[s + steps]))"),
         "ADD": EACH.format("sum[i] += part[i] * (i < 4 ? upper : lower);")},
        "tcgen05::scale(tc, part_tmem, 1.f, 1.f, 16, [&](uint32_t column) { return column < 8 ? upper : lower; });",
    ),
    "rows and blocks of columns": (
        {"AHEAD": scaled("exp2f(float(ints[row]))", "exp2f(float(ints[row + 8]))")
                  + " const float of[2] = {exp2f(float(ints[s])), exp2f(float(ints[s + steps]))};",
         "ADD": EACH.format("sum[i] += part[i] * (i & 2 ? lower : upper) * of[i / 4];")},
        "tcgen05::scale(tc, part_tmem, upper, lower, 16, [&](uint32_t column) { return column < 8 ? of[0] : of[1]; });",
    ),
    "the same factor twice": (
        {"ADD": EACH.format("sum[i] += part[i] * upper * upper;")},
        "tcgen05::scale(tc, part_tmem, upper * upper, upper * upper);",
    ),
    "statement by statement": ({"ADD": FOURS}, ROWS),
    "fmaf": ({"ADD": EACH.format("sum[i] = fmaf(part[i], i / 2 % 2 ? lower : upper, sum[i]);")}, ROWS),
    "written out": ({"ADD": EACH.format("sum[i] = sum[i] + (i % 4 < 2 ? upper : lower) * part[i];")}, ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_it_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    result = ported(tmp_path, **parts)
    assert lacking(result) == ""
    text = text_of(result)
    assert expected in text
    assert ADDED in text
    assert "mma(part_tmem, a + s * 8 + k * 2, b + k * 2, 1);" in text
    assert any(d.code is Code.NATIVE_SCALES for d in result.diagnostics)
    assert result.plans[0].native == ("scales",)
    assert result.plans[0].scales == ""


def test_a_fence_beside_something_else_stays(tmp_path: Path) -> None:
    """Scales are handed over ahead of a helper that does more than meet."""
    head = "__device__ void begin(int* seen) { *seen += 1; fence(); }"
    result = ported(tmp_path, HEAD=head, DECLARED="int seen = 0;", FENCE="begin(&seen);")
    assert lacking(result) == ""
    assert "tcgen05::scale(tc, part_tmem, upper, lower); begin(&seen); for (int k" in text_of(result)


FLOATS = "floats[row * steps + s]"
REFUSED = {
    "a float that is read": ({"AHEAD": scaled(FLOATS)}, f"`{FLOATS}` is read as a float"),
    "a float that __ldg reads": ({"AHEAD": scaled("__ldg(floats + row)")}, "is read as a float"),
    "a float in a product": ({"AHEAD": scaled(f"exp2f(float(ints[row])) * {FLOATS}")}, "is read as a float"),
    "a float in the addition": ({"ADD": EACH.format("sum[i] += part[i] * floats[row];")}, "is read as a float"),
    "a word of nine bits": (
        {"AHEAD": scaled("__uint_as_float(words[row] << 23)")}, "`words[row]` is an exponent of eight bits"),
    "a signed exponent": (
        {"AHEAD": scaled("__int_as_float((ints[row] + 127) << 23)")}, "is an exponent of eight bits: a ninth"),
    "other bits": ({"AHEAD": scaled(f"__uint_as_float(uint32_t({BYTE}) << 22)")}, "is the exponent of a float"),
    "a mantissa": ({"AHEAD": scaled("__uint_as_float(words[row] & 0x7fc00000u)")}, "is the exponent of a float"),
    "a fraction as exponent": ({"AHEAD": scaled("exp2f(floats[row])")}, "the exponent `floats[row]` is a whole number"),
    "half an exponent": ({"AHEAD": scaled("exp2f(float(ints[row]) * 0.5f)")}, "0.5f is none"),
    "three": ({"AHEAD": scaled("3.f")}, "3.f is none"),
    "a sum of powers": ({"AHEAD": scaled("exp2f(float(ints[row])) + 1.f")}, "may be something else"),
    "a sign": ({"AHEAD": scaled("-exp2f(float(ints[row]))")}, "may be something else"),
    "a function that is not known": (
        {"HEAD": "extern __device__ float other(int e);", "AHEAD": scaled("other(ints[row])")}, "what `other` gives"),
    "a function of the sources named exp2f": (
        {"HEAD": "__device__ float exp2f(int e) { return float(e); }", "AHEAD": scaled("exp2f(ints[row])")},
        "scales are powers of two"),
    "a variable that counts": (
        {"AHEAD": "float upper = 1.f; upper += 1.f; const float lower = 1.f;"}, "what `upper` is set to"),
    "a variable that a function may write": (
        {"HEAD": "__device__ void change(float& x) { x = 3.f; }",
         "AHEAD": "float upper = 1.f; change(upper); const float lower = 1.f;"},
        "`upper` is the same where sums are added"),
    "a scale of the lane": (
        {"AHEAD": scaled("exp2f(float(ints[threadIdx.x]))")}, "that all lanes of a row have one `upper`"),
    "a scale of a column": (
        {"AHEAD": scaled("exp2f(float(ints[row + threadIdx.x % 4]))")}, "that all lanes of a row have one `upper`"),
    "a scale of some lanes": (
        {"AHEAD": "float upper = 1.f; if (threadIdx.x % 4 == 0) upper = 2.f; const float lower = 1.f;"},
        "that all lanes of a row have one `upper`"),
    "a scale by shuffles": (
        {"AHEAD": "const int e = __shfl_up_sync(~0u, ints[row], 1); " + scaled("exp2f(float(e))")},
        "that all lanes of a row have one"),
    "a scale of some lanes, by its exponent": (
        {"AHEAD": "int e = 1; if (threadIdx.x % 4 == 0) e = 2; const int f = e * 2; " + scaled("exp2f(float(f))")},
        "that all lanes of a row have one"),
    "a scale that lanes count": (
        {"AHEAD": "float upper = 1.f; for (uint32_t i = 0; i < threadIdx.x % 4; ++i) upper *= 2.f; "
                  "const float lower = 1.f;"}, "that all lanes of a row have one"),
    "an element that only some lanes keep": (
        {"AHEAD": "int e[2] = {1, 2}; e[0] = threadIdx.x; " + scaled("exp2f(float(e[0]))")},
        "that all lanes of a row have one"),
    "an array that a function may write": (
        {"HEAD": "__device__ void fill(int* x) { x[0] = threadIdx.x; }",
         "AHEAD": "int e[2] = {1, 2}; fill(e); " + scaled("exp2f(float(e[0]))")}, "that all lanes of a row have one"),
    "an exponent that a function may write": (
        {"HEAD": "__device__ void change(int& x) { x = threadIdx.x; }",
         "AHEAD": "int e = 1; change(e); " + scaled("exp2f(float(e))")}, "that all lanes of a row have one"),
    "scales of columns in turn": (
        {"ADD": EACH.format("sum[i] += part[i] * (i % 2 ? upper : lower);")}, "those of eight columns and more"),
    "scales of columns in one row": (
        {"ADD": EACH.format("sum[i] += part[i] * (i < 6 ? upper : lower);")}, "those of eight columns and more"),
    "scales of columns that are those of a thread": (
        {"ADD": EACH.format("sum[i] += part[i] * (i < 4 ? upper : lower);")}, "that all threads have one `upper`"),
    "scales by the element": (
        {"ADD": EACH.format("sum[i] += part[i] * exp2f(float(i));")}, "a scale in a variable, or in an array"),
    "scales that are read behind the MMAs": (
        {"AHEAD": "", "ADD": "const float upper = exp2f(float(ints[row])); "
         "for (int i = 0; i < 8; ++i) sum[i] += part[i] * upper;"}, "`upper` ahead of the MMAs of its turn"),
    "scales that change meanwhile": (
        {"AHEAD": "float upper = 1.f, lower = 2.f;",
         "ADD": "upper = 4.f; for (int i = 0; i < 8; ++i) sum[i] += part[i] * (i % 4 < 2 ? upper : lower);"},
        "`upper` is the same where sums are added"),
    "an exponent that changes meanwhile": (
        {"HEAD": "__device__ void change(int& x) { ++x; }", "AHEAD": "int e = 1;",
         "ADD": "change(e); for (int i = 0; i < 8; ++i) sum[i] += part[i] * exp2f(float(e));"},
        "`e` is the same where sums are added"),
    "an array that changes": (
        {"AHEAD": "float scale[2] = {1.f, 2.f}; scale[0] = floats[row];",
         "ADD": EACH.format("sum[i] += part[i] * scale[i % 4 / 2];")}, "`scale` keeps what it is declared with"),
    "half of the elements": (
        {"ADD": "for (int i = 0; i < 4; ++i) sum[i] += part[i] * upper;"}, "each to one of its own"),
    "other elements": ({"ADD": EACH.format("sum[i] += part[7 - i] * upper;")}, "each to one of its own"),
    "an element twice": (
        {"ADD": EACH.format("{ sum[i] += part[i] * upper; sum[i] += part[i] * upper; }")}, "each element, once"),
    "the sum of a product": ({"ADD": EACH.format("sum[i] += (part[i] + 1.f) * upper;")}, "and does nothing else"),
    "a square": ({"ADD": EACH.format("sum[i] += part[i] * part[i] * upper;")}, "and does nothing else"),
    "a difference": ({"ADD": EACH.format("sum[i] -= part[i] * upper;")}, "and does nothing else"),
    "no scales": ({"ADD": EACH.format("sum[i] += part[i];")}, "partial sums that are multiplied by scales"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    result = ported(tmp_path, **parts)
    assert what in lacking(result)
    assert result.plans[0].native == ()


def test_what_is_refused_stays_as_it_is(tmp_path: Path) -> None:
    parts = REFUSED["a float that is read"][0]
    assert ported(tmp_path, (), **parts).files == ported(tmp_path, **parts).files


def test_it_wants_m128(tmp_path: Path) -> None:
    assert "block-scaled ones have no 64 rows" in lacking(ported(tmp_path, full_rate=False))


def test_consumers_issue_its_mmas(tmp_path: Path) -> None:
    """A thread of its own has no scales of rows."""
    result = ported(tmp_path, ("scales", "mma-thread", "tiles", "pair"))
    assert result.plans[0].native == ("scales",)
    assert "hand the tensor core the scales of their rows" in lacking(result)


def test_a_plan_says_what_is_missing(tmp_path: Path) -> None:
    assert ported(tmp_path, ()).plans[0].scales == ""
    assert "is read as a float" in (ported(tmp_path, (), AHEAD=scaled(FLOATS)).plans[0].scales or "")
    plain = ported(tmp_path, (), ADD=REFUSED["no scales"][0]["ADD"]).plans[0]
    assert (plain.promotion, plain.scales) == ("", None)


ADDENDS = {
    "beside the product": "sum[i] += fmaf(part[i], upper, 1.f);",
    "beside another sum": "sum[i] = sum[i] + __fmaf_rn(upper, part[i], float(i));",
    "beside the product, in a scale": "sum[i] += part[i] * fmaf(upper, upper, 1.f);",
    "beside a scale, of the sum itself": "sum[i] = fmaf(part[i], fmaf(upper, upper, 1.f), sum[i]);",
}


@pytest.mark.parametrize("name", ADDENDS)
def test_what_an_fma_adds_beside_a_product_is_not_lost(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, ADD=EACH.format(ADDENDS[name]))
    assert lacking(result)
    assert result.plans[0].native == ()


def test_a_fused_product_is_no_scale(tmp_path: Path) -> None:
    """Who multiplies once more by what an fma gives is told which part of it is meant."""
    lacks = lacking(ported(tmp_path, ADD=EACH.format("sum[i] += part[i] * fmaf(upper, upper, 1.f);")))
    assert "what `fmaf` gives may be something else" in lacks
