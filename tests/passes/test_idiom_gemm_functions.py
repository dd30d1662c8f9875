# SPDX-License-Identifier: Apache-2.0
"""Functions that open a batch, multiply and may wait, waits that leave batches pending, and arms of which the compiler
makes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from idiom_kernels import idiomatic, left
from test_idiom_kept import LOAD_O, LOAD_S, MEETS, OUTPUT, SCORES, SOFTMAX, STORE_O, STORE_P, WAITS, order
from test_idiom_places import DESCRIPTORS, HEAD, KERNEL, MADE, REGISTERS, collective

MULTIPLY = """template <bool kClear = false, int kPending = 0, class Mma, class A, class B, class C>
CUTE_DEVICE void multiply(Mma& mma, A const& tCrA, B const& tCrB, C& tCrC) {
    constexpr bool kRegisters = !is_base_of<GMMA::DescriptorIterator, typename Mma::FrgTypeA>::value;
    if constexpr (kRegisters) {
        warpgroup_fence_operand(const_cast<A&>(tCrA));
    } else {
        warpgroup_fence_operand(tCrC);
    }
    warpgroup_arrive();
    if constexpr (kClear) { mma.accumulate_ = GMMA::ScaleOut::Zero; }
    for (int k = 0; k < size<2>(tCrA); ++k) {
        gemm(mma, tCrA(_, _, k), tCrB(_, _, k), tCrC);
        mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    if constexpr (kPending >= 0) { warpgroup_wait<kPending>(); }
    warpgroup_fence_operand(tCrC);
}
"""
QK = "        multiply<true, -1>(mma_qk, tSrQ, tSrK(_, _, _, block), tSrS);\n"
PV = "        multiply(mma_pv, tOrP, tOrV(_, _, _, block), tOrO);\n"
WAIT = "        warpgroup_wait<0>();\n"
CONVERT = "        for (int i = 0; i < size(tSrS); ++i) tOrP(i) = half_t(tSrS(i));\n"
RESCALE = "        for (int i = 0; i < size(tOrO); ++i) tOrO(i) *= most;\n"
STEP = f"{MADE}{QK}{WAIT}{SOFTMAX}{CONVERT}{RESCALE}{PV}"
TYPES = (SCORES, OUTPUT, DESCRIPTORS, REGISTERS, (2,), (1,))


def text_of(
    step: str = STEP, multiply: str = MULTIPLY, around: str = "for (int block = 0; block < blocks; ++block)"
) -> str:
    loop = f"        {around} {{\n{step}        }}\n"
    return f"{HEAD}{multiply}{collective(loop)}{KERNEL}"


def test_calls_are_batches_of_who_calls(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, text_of(), TYPES)
    clears = "    if constexpr (kClear) { mma.accumulate_ = UMMA::ScaleOut::Zero; }\n    for ("
    order(text, "void multiply(Mma& mma,", "    constexpr bool kRegisters", clears, "UMMA::ScaleOut::One;\n    }\n}")
    scores, output = "multiply<true, -1>(umma_qk, tSrQ, tSrK(_, _, _, block), tStS);", "multiply(umma_pv, tOtP,"
    order(text, MEETS, "if (issues) {\n", scores, "umma_arrive(", WAITS, LOAD_S, SOFTMAX)
    order(text, SOFTMAX, STORE_O, STORE_P, MEETS, output, "umma_arrive(", WAITS, LOAD_O, "__global__")
    assert "copy(store_S" not in text
    assert "warpgroup_" not in text
    assert text.count(LOAD_O) == text.count(STORE_O) == 1


@pytest.mark.parametrize(
    ("old", "new", "stored"),
    [
        ("multiply<true, -1>(mma_qk", "multiply</*clear=*/false, /*pending=*/-1>(mma_qk", True),
        ("multiply<true, -1>(mma_qk", "multiply<Qk::kClear, -1>(mma_qk", True),
        ("    if constexpr (kClear) { mma.accumulate_ = GMMA::ScaleOut::Zero; }\n", "", True),
        ("    if constexpr (kClear) { mma", "    { mma", False),
        ("if constexpr (kClear) {", "if constexpr (!kClear) {", True),
    ],
)
def test_what_registers_hold_is_stored_where_the_first_mma_may_add(
    tmp_path: Path, old: str, new: str, stored: bool
) -> None:
    step = STEP.replace(MADE, f"{MADE}        fill(tSrS, 1.0f);\n") if stored else STEP
    text = text_of(step)
    assert old in text
    assert ("copy(store_S" in idiomatic(tmp_path, text.replace(old, new), TYPES)) is stored


@pytest.mark.parametrize(
    "call",
    [
        "multiply<false, 0>",
        "multiply<false>",
        "multiply",
        "multiply<false, /*pending=*/0>",
        "multiply<false, Pv::kWait>",
    ],
)
def test_calls_that_may_wait_bring_sums_to_registers(tmp_path: Path, call: str) -> None:
    text = idiomatic(tmp_path, text_of(STEP.replace("multiply(mma_pv", f"{call}(mma_pv")), TYPES)
    order(text, f"{call}(umma_pv", WAITS, LOAD_O)


def test_a_call_that_does_not_wait_has_a_wait_behind_it(tmp_path: Path) -> None:
    step = STEP.replace("multiply(mma_pv", "multiply<false, -1>(mma_pv")
    assert "a wait for the MMAs of `tOrO`" in left(tmp_path, text_of(step), TYPES)


def test_a_wait_that_leaves_batches_pending_waits_for_all(tmp_path: Path) -> None:
    """The next one, behind which nothing was issued, goes: an mbarrier's next phase needs all to have seen this one."""
    pv = PV.replace("multiply(", "multiply<false, -1>(")
    step = f"{MADE}{QK}{pv}        warpgroup_wait<1>();\n{SOFTMAX}{WAIT}{CONVERT}{RESCALE}"
    text = idiomatic(tmp_path, text_of(step), TYPES)
    order(text, "(umma_qk", STORE_O, STORE_P, MEETS, "(umma_pv", "umma_arrive(", WAITS, LOAD_S, LOAD_O, SOFTMAX)
    assert text.count(WAITS) == text.count("umma_arrive(") == 1


def test_threads_meet_in_front_of_a_wait_that_may_be_the_second(tmp_path: Path) -> None:
    step = STEP.replace(MADE, f"        if (block == 3) {{\n    {PV}        }}\n{WAIT}{MADE}")
    text = idiomatic(tmp_path, text_of(step), TYPES)
    order(
        text, "if (block == 3) {", WAITS, LOAD_O, "        }\n", MEETS, "if (issues) cutlass::arch::umma_arrive", WAITS
    )


@pytest.mark.parametrize(
    ("new", "missing"),
    [
        ("    if (size(tCrC) > 0) warpgroup_arrive();\n", "as a statement"),
        ("    if (tCrC(0) > 0) {\n        warpgroup_arrive();\n    }\n", "which calls it"),
        ("    warpgroup_arrive();\n    fill(tCrC, 1.0f);\n", "which calls it"),
        ("    warpgroup_arrive();\n    tCrC(0) = 0;\n", "which calls it"),
        ("    warpgroup_arrive();\n    float* r = &tCrC(0);\n", "which calls it"),
    ],
)
def test_functions_that_do_more_are_left(tmp_path: Path, new: str, missing: str) -> None:
    assert missing in left(tmp_path, text_of().replace("    warpgroup_arrive();\n", new), TYPES)


DEAD = """        if constexpr (Qk::kMore) {
            warpgroup_wait<1>();
            multiply<false, 0>(mma_more, tSrQ, tSrK(_, _, _, block), tSrS);
        }
"""


def test_arms_of_which_the_compiler_makes_nothing_stay(tmp_path: Path) -> None:
    step = STEP.replace(SOFTMAX, f"{DEAD}{SOFTMAX}")
    text = text_of(step).replace("        Pv mma_pv;\n", "        Pv mma_pv;\n        Qk mma_more;\n", 1)
    # sums of both MMAs, operands, warpgroups, the loop's function, the arm
    types = (SCORES, SCORES, OUTPUT, DESCRIPTORS, REGISTERS, (2,), (1,))
    text = idiomatic(tmp_path, text, types)
    assert DEAD in text
    assert "umma_more" not in text
    assert "one tiled MMA that adds to `tSrS`" in left(tmp_path, _live(step), (*types, (1,)))


def _live(step: str) -> str:
    return text_of(step).replace("        Pv mma_pv;\n", "        Pv mma_pv;\n        Qk mma_more;\n", 1)


@pytest.mark.parametrize(("chosen", "tensor"), [(1, "tOtP"), (0, "tOrP")])
def test_one_of_two_operands_is_read(tmp_path: Path, chosen: int, tensor: str) -> None:
    step = STEP.replace("mma_pv, tOrP,", "mma_pv, conditional_return<Pv::kRegisters>(tOrP, tOsP),")
    fragments = "        Tensor tOsP = thread_pv.partition_fragment_A(sQ);\n"
    text = text_of(step).replace("        float most", f"{fragments}        float most", 1)
    output = OUTPUT if chosen else (*OUTPUT[:10], 1, 2)
    types = (SCORES, output, DESCRIPTORS, REGISTERS, DESCRIPTORS, (chosen,), (2,), (1,))
    text = idiomatic(tmp_path, text, types)
    assert f"conditional_return<Pv::kRegisters>({tensor}, tOsP)" in text
    assert ("tOsP = cta_pv.partition_fragment_A(sQ);" in text) is not bool(chosen)


def test_sums_that_are_not_alive_together_share_columns(tmp_path: Path) -> None:
    first = f"        {{\n{MADE}{QK.replace('block', '0')}{WAIT}{SOFTMAX}{CONVERT}        }}\n"
    text = text_of().replace("        for (int block", f"{first}        for (int block", 1)
    text = idiomatic(tmp_path, text, (SCORES, SCORES, OUTPUT, DESCRIPTORS, REGISTERS, (2,), (1,)))
    assert text.count("Tensor tStS = ") == 1
    assert text.count("tStS);\n") == 3  # the copy, and MMAs of two calls
    assert "tOtO.data() = tmem_own + 64;" in text


def test_mmas_along_n_are_one(tmp_path: Path) -> None:
    """The library's selector takes the widest of Hopper's MMAs that divides a tile."""
    scores = (1, 11, 16, *SCORES[3:])
    text = idiomatic(tmp_path, text_of(), (scores, OUTPUT, DESCRIPTORS, (88, 3, 1, 1, 1), (2,), (1,)))
    assert "SM100_MMA_F16BF16_SS<half_t, half_t, float, 64, 176," in text
    assert "tOtO.data() = tmem_own + 176;" in text
    assert "SM100_TMEM_LOAD_16dp256b2x" in text
