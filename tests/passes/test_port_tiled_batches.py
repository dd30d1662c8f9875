# SPDX-License-Identifier: Apache-2.0
"""A from registers leaves them where a batch opens: batches whose MMAs stand in functions that are called inside, and
operands that are used there for something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from ported_text import ported, refused

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>{}));
"""
GEMM = "gemm(mma, tA(_, _, k), tB(_, _, k), acc);"
KERNEL = """template <class A, class B>
__global__ void __launch_bounds__(128) kernel(A tA, B tB, float* out, int k) {{
  Mma mma;
  Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{{}});
  clear(acc);
  {batch}
  for (int i = 0; i < size(acc); ++i) out[i] = acc(i);
}}
"""
OPEN, CLOSE = "warpgroup_arrive(); ", " warpgroup_commit_batch(); warpgroup_wait<0>();"
STEP = "step(mma, tA, tB, acc, k);"


def batch(calls: str, body: str = "", params: str = "", before: str = "") -> str:
    """A kernel with one batch, and a function that is called in it."""
    head = f"template <{params}class M, class A, class B, class C>\n__device__ void step(M& mma, A& tA, B const& tB, "
    step = f"{head}C& acc, int k) {{ {body} }}\n" if body else ""
    return HEAD + before + step + KERNEL.format(batch=OPEN + calls + CLOSE)


@pytest.mark.parametrize(
    "text",
    [
        batch(f"{STEP} {STEP}", GEMM),
        batch("step<0>(mma, tA, tB, acc, k); step<1>(mma, tA, tB, acc, k);", GEMM, "int kW, "),
        batch("if (k == 0) step<0>(mma, tA, tB, acc, k); else step<1>(mma, tA, tB, acc, k);", GEMM, "int kW, "),
        batch("int i = k > 2 ? step<0>(mma, tA, tB, acc, k) : step<1>(mma, tA, tB, acc, k);", GEMM, "int kW, "),
        batch(
            "step<0>(mma, tA, tB, acc, k);",
            GEMM + " if constexpr (kW < 3) step<kW + 1>(mma, tA, tB, acc, k);",
            "int kW, ",
        ),
        batch(STEP, f"for (int j = 0; j < size<2>(tA); ++j) {GEMM}"),
        batch(STEP, f"CUTE_STATIC_ASSERT_V(size<1>(tA) == Int<1>{{}}); warpgroup_fence_operand(tA); {GEMM}"),
        batch(STEP, "auto a = tA(_, _, k); gemm(mma, a, tB(_, _, k), acc);"),
        batch(STEP, f"for_each(make_int_sequence<4>{{}}, [&](auto k) {{ {GEMM} }});"),
    ],
)
def test_a_batch_of_calls_stores_the_whole_operand_once(tmp_path: Path, text: str) -> None:
    made = ported(tmp_path, text)
    assert made.count("porter::arrive(acc, tA)") == 1
    assert made.count("arrive(") == 1


MADE = "gemm(mma, mma.get_slice(threadIdx.x).partition_fragment_A(tA), tB, acc);"
SHARED = HEAD.replace("_RS", "_SS")


def test_descriptors_may_be_made_where_they_are_used(tmp_path: Path) -> None:
    made = ported(tmp_path, batch(MADE).replace(HEAD, SHARED))
    assert f"porter::arrive(acc); {MADE}" in made


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        SHARED.replace("using Mma", "using Other") + "using Mma = Unknown;\n",
        SHARED.replace("using Mma", "using Other")
        + HEAD.splitlines()[2].replace("using Mma", "using More")
        + "\nusing Mma = conditional_t<1 < 2, Other, More>;\n",
    ],
    ids=["registers", "a type that is not seen", "one of two"],
)
def test_registers_that_have_no_name_where_a_batch_opens_are_refused(tmp_path: Path, head: str) -> None:
    what = "operand `mma.get_slice(threadIdx.x).partition_fragment_A(tA)` is not in sight where its batch opens"
    assert f"a batch of MMAs is not followed: {what}" in refused(tmp_path, batch(MADE).replace(HEAD, head))


USED = "is used between the call that opens a batch and the batch's end"
PASSED = "template <class A>\n__device__ void convert(A& a) { a(0) = half_t(2); }\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (batch(STEP, f"tA(0) = half_t(2); {GEMM}"), "tA"),
        (batch(STEP, f"{GEMM} tA(0) = half_t(2);"), "tA"),
        (batch(STEP, f"for (int i = 0; i < size(tA); ++i) tA(i) = half_t(2); {GEMM}"), "tA"),
        (batch(STEP, f"clear(tA); {GEMM}"), "tA"),
        (batch(f"clear(tA); {GEMM}"), "tA"),
        (batch(STEP, f"auto a = tA(_, _, k); a(0) = half_t(2); {GEMM}"), "a"),
        (batch(STEP, f"auto& a = tA; a(0) = half_t(2); {GEMM}"), "a"),
        (batch(f"auto a = tA(_, _, k); a(0) = half_t(2); {GEMM}"), "a"),
        (batch(STEP, f"convert(tA); {GEMM}", before=PASSED), "tA"),
        (batch(STEP, f"for_each(make_int_sequence<4>{{}}, [&](auto k) {{ tA(k) = half_t(2); {GEMM} }});"), "tA"),
        (
            HEAD + KERNEL.format(batch=f"auto go = [&](int k) {{ tA(0) = half_t(2); {GEMM} }}; {OPEN}go(k);{CLOSE}"),
            "tA",
        ),
        (batch(f"{STEP} tA(0) = half_t(2); {STEP}", GEMM), "tA"),
        (
            batch("outer(mma, tA, tB, acc, k);", GEMM).replace(
                "template <class A, class B>\n__global__",
                "template <class M, class A, class B, class C>\n__device__ void outer(M& mma, A& tA, B const& tB, "
                f"C& acc, int k) {{ tA(0) = half_t(2); {STEP} }}\ntemplate <class A, class B>\n__global__",
            ),
            "tA",
        ),
    ],
)
def test_an_operand_that_may_change_in_its_batch_is_refused(tmp_path: Path, text: str, name: str) -> None:
    assert f"operand `{name}` {USED}" in refused(tmp_path, text)


PACK = "template <int kW, class... X>\n__device__ void all(X&&... x) { step(static_cast<X&&>(x)...); }\n"


def test_an_accumulator_in_a_pack_is_refused(tmp_path: Path) -> None:
    text = batch("all<1>(mma, tA, tB, acc, k);", GEMM).replace(
        "template <class A, class B>\n__g", PACK + "template <class A, class B>\n__g"
    )
    assert "accumulator `acc` is handed to `step` in a pack: name it there" in refused(tmp_path, text)


def test_a_call_that_fits_no_function_with_mmas_is_refused(tmp_path: Path) -> None:
    text = batch("step(mma, tA, tB, acc, k, 1);", OPEN + GEMM + CLOSE)
    text = text.replace(f"  {OPEN}step", "  step").replace(f"1);{CLOSE}", "1);")
    assert "`step` is handed accumulators, and this call fits no function of that name" in refused(tmp_path, text)


UNUSED = """template <class M, class A, class B, class C>
__device__ void gemm(M& mma, A const& tA, B const& tB, C& acc, int k) {{
  {open}cute::gemm(mma, tA(_, _, k), tB(_, _, k), acc);{close}
}}
"""


@pytest.mark.parametrize("space", ["", "helpers"])
@pytest.mark.parametrize("call", ["cute::gemm(mma, tA(_, _, k), tB(_, _, k), acc);", "cute::gemm(mma, tA, tB, acc);"])
def test_calls_of_a_library_are_not_those_of_an_unused_function(tmp_path: Path, call: str, space: str) -> None:
    unused = UNUSED.format(open=OPEN, close=CLOSE)
    unused = f"namespace {space} {{\n{unused}}}\n" if space else unused
    text = batch(call).replace("template <class A, class B>\n__g", unused + "template <class A, class B>\n__g")
    assert "porter::arrive(acc, tA" in ported(tmp_path, text)


TILES = "gemm(mma, tA(_, {a}, k), tB(_, 0, k), acc(_, {d}, 0));"
STEPS = "tA(_, _, k)"
REQUIRED = f"porter::require_own_tiles<decltype({STEPS})>(), porter::arrive(acc, {STEPS})"


def tiles(a: str, d: str, threads: int = 128) -> str:
    text = batch(TILES.format(a=a, d=d)).replace("Shape<_64, _64>", "Shape<_128, _64>")
    return text.replace("(128)", f"({threads})")


@pytest.mark.parametrize(("a", "d"), [("1", "0"), ("0", "1"), ("2", "1"), ("kUp", "0"), ("1 - 1", "1")])
def test_a_tile_of_a_for_another_tile_of_the_accumulator_is_asked_of_its_types(tmp_path: Path, a: str, d: str) -> None:
    made = ported(tmp_path, tiles(a, d).replace("  Mma mma;", "  constexpr int kUp = 1;\n  Mma mma;"))
    assert f"  {REQUIRED}; gemm(" in made


@pytest.mark.parametrize(
    "text",
    [
        tiles("0", "0"),
        tiles("1", "1"),
        tiles("2", "0"),  # the same half of the lanes
        tiles("k", "k"),
        tiles("1", "0", threads=256),  # each of two warpgroups has one half
        tiles("k", "0"),  # not known here: the port traps where they are of different halves
        tiles("_", "_"),
    ],
)
def test_tiles_that_fit_or_are_not_known_are_not_asked(tmp_path: Path, text: str) -> None:
    assert "require_own_tiles" not in ported(tmp_path, text)
