# SPDX-License-Identifier: Apache-2.0
"""Kernels whose registers keep the layout of Hopper's MMAs, each construct written in several ways: sums come to
registers behind waits, and go back in front of MMAs that add to what registers hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from idiom_kernels import idiomatic, left, port

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, port_sources

SCORES = (1, 1, 64, 256, 2, 1, 1, 1, 1, 6, 1, 1)
OUTPUT = (1, 1, 64, 256, 2, 1, 1, 1, 1, 6, 0, 2)
TYPES = (SCORES, OUTPUT, (4, 3, 1, 0, 1), (32, 3, 1, 1, 1), (2,))
QK = """        warpgroup_arrive();
        gemm(mma_qk, tSrQ, tSrK(_, _, _, block), tSrS);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
"""
SOFTMAX = """        for (int i = 0; i < size(tSrS); ++i) most = max(most, tSrS(i));
        most = max(most, __shfl_xor_sync(~0u, most, 1));
"""
RESCALE = "        for (int i = 0; i < size(tOrO); ++i) tOrO(i) *= most;\n"
CONVERT = "        for (int i = 0; i < size(tSrS); ++i) tOrP(i) = half_t(tSrS(i));\n"
PV = """        warpgroup_arrive();
        gemm(mma_pv, tOrP, tOrV(_, _, _, block), tOrO);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
"""
CLEAR, FIRST = "    clear(tOrO);\n", "        clear(tSrS);\n"
TEXT = f"""#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
using namespace cute;
struct Storage {{ uint64_t full; }};
template <class Qk, class Pv, class Q, class K, class V, class O>
__global__ void __launch_bounds__(256) k(Qk mma_qk, Pv mma_pv, Q sQ, K sK, V sV, O gO, int blocks) {{
    extern __shared__ char memory[];
    Storage& storage = *reinterpret_cast<Storage*>(memory);
    __syncthreads();
    auto thread_qk = mma_qk.get_slice(threadIdx.x);
    auto thread_pv = mma_pv.get_slice(threadIdx.x);
    Tensor tSrQ = thread_qk.partition_fragment_A(sQ);
    Tensor tSrK = thread_qk.partition_fragment_B(sK);
    Tensor tOrV = thread_pv.partition_fragment_B(sV);
    Tensor tOrO = partition_fragment_C(mma_pv, Shape<_128, _64>{{}});
    Tensor tOrP = thread_pv.partition_fragment_A(make_tensor((half_t*)nullptr, Shape<_128, _64>{{}}));
{CLEAR}    float most = -INFINITY;
    for (int block = 0; block < blocks; ++block) {{
        Tensor tSrS = partition_fragment_C(mma_qk, Shape<_128, _64>{{}});
{FIRST}{QK}{SOFTMAX}{RESCALE}{CONVERT}{PV}    }}
    copy(tOrO, thread_pv.partition_C(gO));
}}
"""
LOAD_S, LOAD_O, STORE_O, STORE_P = "copy(load_S,", "copy(load_O,", "copy(store_O,", "copy(store_P,"
MEETS = "arrive_barrier(accumulator_storage.registers_stored[warpgroup]);"
WAITS = "wait_barrier(accumulator_storage.accumulator_full[warpgroup], accumulator_phase);"


def changed(*pairs: tuple[str, str]) -> str:
    text = TEXT
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def order(text: str, *parts: str) -> None:
    """Raises AssertionError if parts of a text do not follow each other."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} behind {text[max(0, at - 200) : at]!r}"
        at = found + len(part)


def test_sums_that_registers_change_go_back_in_front_of_the_next_mmas(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, TEXT, TYPES)
    order(
        text, "clear(tOrO);", "for (int block", MEETS, "umma_qk.accumulate_ = UMMA::ScaleOut::Zero;", WAITS, LOAD_S,
        SOFTMAX, STORE_O, STORE_P, "fence_view_async_tmem_store", MEETS, "gemm(umma_pv, tOtP,", WAITS, LOAD_O,
        "    }\n", "tmem.free(", "copy(tOrO, thread_pv.partition_C(gO));",
    )  # fmt: skip
    assert text.count(LOAD_O) == text.count(STORE_O) == text.count(LOAD_S) == 1
    assert "copy(store_S" not in text


def test_sums_that_a_loop_leaves_alone_stay_in_tensor_memory(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, changed((RESCALE, "")), TYPES)
    order(text, "clear(tOrO);", STORE_O, "for (int block", STORE_P, "gemm(umma_pv, tOtP,", WAITS, "    }\n", LOAD_O)
    assert text.count(LOAD_O) == text.count(STORE_O) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (FIRST, "        mma_qk.accumulate_ = GMMA::ScaleOut::Zero;\n"),
        (FIRST, ""),
    ],
)
def test_registers_that_nobody_wrote_are_not_stored(tmp_path: Path, old: str, new: str) -> None:
    assert "copy(store_S" not in idiomatic(tmp_path, changed((old, new)), TYPES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (FIRST, "        fill(tSrS, 1.0f);\n"),
        (FIRST, "        for (int i = 0; i < size(tSrS); ++i) tSrS(i) = -most;\n"),
        (FIRST, "        auto bias = [&] { tSrS(0) = most; };\n        bias();\n"),
        (FIRST, FIRST + "        mma_qk.accumulate_ = GMMA::ScaleOut::One;\n"),
        (FIRST, "        copy(thread_qk.partition_C(gO), tSrS);\n"),
        (QK, QK.replace("tSrS);\n", "tSrS);\n        mma_qk.accumulate_ = GMMA::ScaleOut::One;\n")),
        (QK, QK.replace("        gemm", "        if (block > 0) gemm")),
        ("gemm(mma_qk, tSrQ, tSrK(_, _, _, block), tSrS);", "gemm(mma_qk, tSrQ, tSrK(_, _, _, block), tSrS(_, _, _));"),
    ],
)
def test_what_registers_hold_is_stored_where_mmas_add_to_it(tmp_path: Path, old: str, new: str) -> None:
    text = idiomatic(tmp_path, changed((old, new)), TYPES)
    order(text, "copy(store_S,", "fence_view_async_tmem_store", MEETS, "gemm(umma_qk,", WAITS, LOAD_S)
    assert "k_block" not in text


def test_a_zero_that_another_sum_takes_is_no_zero_of_this_one(tmp_path: Path) -> None:
    second = "        Tensor tSrT = partition_fragment_C(mma_qk, Shape<_128, _64>{});\n"
    told = "        mma_qk.accumulate_ = GMMA::ScaleOut::Zero;\n"
    both = QK.replace(
        "tSrS);\n",
        "tSrS);\n        mma_qk.accumulate_ = GMMA::ScaleOut::One;\n"
        "        gemm(mma_qk, tSrQ, tSrK(_, _, _, block), tSrT);\n",
    )
    use = "        for (int i = 0; i < size(tSrT); ++i) most += tSrT(i);\n"
    text = changed(
        (FIRST, f"{second}        for (int i = 0; i < size(tSrT); ++i) tSrT(i) = 1.0f;\n{told}"), (QK, both + use)
    )
    text = idiomatic(tmp_path, text, (SCORES, SCORES, OUTPUT, (4, 3, 1, 0, 1), (32, 3, 1, 1, 1), (2,)))
    order(text, "copy(store_T,", "copy(load_T,")
    assert "copy(store_S" not in text


def test_several_commits_are_one_where_one_wait_covers_them(tmp_path: Path) -> None:
    waits = "        warpgroup_commit_batch();\n        warpgroup_wait<0>();\n"
    text = changed(
        (
            QK,
            QK.replace(
                waits,
                "        warpgroup_commit_batch();\n        warpgroup_commit_batch();\n        warpgroup_wait<0>();\n",
            ),
        )
    )
    text = idiomatic(tmp_path, text, TYPES)
    assert text.count("umma_arrive(") == text.count(WAITS) == 2


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("warpgroup_wait<0>();\n        for", "warpgroup_wait<1>();\n        for", ""),
        (SOFTMAX, "", ""),
        (
            QK,
            QK.replace("        warpgroup_wait<0>();\n", ""),
            "a wait for the MMAs of `tSrS` in front of what uses it",
        ),
        (QK, QK.replace("warpgroup_wait<0>();", "if (most) warpgroup_wait<0>();"), "as a statement in braces"),
        (QK, QK.replace("warpgroup_wait<0>();", "if (most) { warpgroup_wait<0>(); }"), "a wait for the MMAs of"),
        (QK, QK.replace("warpgroup_commit", "if (most)\n            warpgroup_commit"), "as a statement in braces"),
        (QK, QK.replace("warpgroup_arrive", "if (most) warpgroup_arrive"), "as a statement in braces"),
        (
            RESCALE + CONVERT + PV,
            CONVERT + PV.replace("        gemm", "        if (most) for (;;) { gemm").replace("tOrO);", "tOrO); }"),
            "",
        ),
        ("float most = -INFINITY;", "float most = gO(0);\n    if (most > 0) return;", "one end of the part"),
        (
            "    Tensor tSrQ = thread_qk.partition_fragment_A(sQ);\n",
            "    Tensor tSrQ = make_tensor(sQ.data(), sQ.layout());\n",
            "describes shared memory",
        ),
    ],
)
def test_what_is_left(tmp_path: Path, old: str, new: str, missing: str) -> None:
    text = changed((old, new))
    if missing:
        assert missing in left(tmp_path, text, TYPES)
    else:
        idiomatic(tmp_path, text, TYPES)


@pytest.mark.parametrize(
    ("index", "answer", "missing"),
    [
        (1, (2, 1, 64, 256, 2, 1, 1, 1, 1, 6, 0, 2), "one tile of 64 rows"),
        (0, (1, 1, 64, 256, 2, 1, 0, 1, 1, 6, 1, 1), "without a permutation"),
        (0, (1, 1, 64, 256, 2, 1, 1, 1, 1, 1, 1, 1), "sums of 32 bits"),
        (0, (1, 1, 64, 256, 2, 1, 1, 0, 1, 6, 1, 1), "of 8, 16 or 32 bits"),
        (0, (1, 1, 64, 256, 2, 1, 1, 4, 4, 6, 1, 2), "with k first"),
        (1, (1, 1, 64, 256, 2, 1, 1, 4, 4, 6, 0, 2), "with k first"),
        (4, (3,), "3 warpgroups as `mma_qk` has"),
        (0, (1, 1, 512, 256, 2, 1, 1, 1, 1, 6, 1, 1), "512 columns of Tensor Memory"),
        (3, (32, 3, 1, 0, 1), "as the registers of one tile"),
        (3, (32, 4, 1, 1, 1), "as the registers of one tile"),
    ],
)
def test_types_that_are_left(tmp_path: Path, index: int, answer: tuple[int, ...], missing: str) -> None:
    types = tuple(answer if i == index else one for i, one in enumerate(TYPES))
    assert missing in left(tmp_path, TEXT, types)


def test_two_tiles_of_a_warpgroup_have_all_lanes_of_its_columns(tmp_path: Path) -> None:
    """Scores of 256 rows are two tiles of 64 for each of two warpgroups, beside columns of other sums and of P."""
    text = idiomatic(tmp_path, TEXT, ((2, *SCORES[1:]), *TYPES[1:]))
    assert "const uint32_t tmem_own = accumulator_storage.tmem_base + warpgroup * 160;\n" in text
    assert "tmem.allocate(512, &accumulator_storage.tmem_base);" in text
    assert "% 2 << 20" not in text


def test_registers_of_8_bits_are_a_of_an_mma_of_such_types(tmp_path: Path) -> None:
    """A quarter of a column for each element of k, two of which a thread has in a register's place."""
    text = idiomatic(tmp_path, TEXT, (SCORES, (*OUTPUT[:7], 4, 5, 6, 0, 1), TYPES[2], (64, 3, 1, 1, 1), (2,)))
    assert "SM100_MMA_F8F6F4_TS<float_e4m3_t, float_e5m2_t, float, 64, 64, UMMA::Major::K, UMMA::Major::K>{}" in text
    assert "partition_shape_A(umma_pv, Shape<Int<128>, Int<128>>{})" in text
    assert "SM100_TMEM_STORE_16dp128b8x" in text


def test_three_warpgroups_have_columns_by_pairs(tmp_path: Path) -> None:
    types = tuple((*one[:3], 384, 3, *one[5:]) if len(one) > 5 else one for one in (*TYPES[:4], (3,)))
    text = idiomatic(tmp_path, TEXT.replace("(256)", "(384)").replace("_128", "_192"), types)
    assert "uint64_t accumulator_full[3], registers_stored[3];" in text
    assert "(warpgroup % 2 << 20) + warpgroup / 2 * 160;" in text
    assert "Layout<Shape<_3, _1, _1>>{}" in text
    assert "tmem.allocate(512," in text


def test_a_run_or_ptx_has_to_show_it(tmp_path: Path) -> None:
    (plan,) = port(tmp_path, TEXT, TYPES).plans
    assert (plan.mma_rows, plan.mode, plan.steps) == (64, "P", ("own words",))
    assert plan.of_compat().steps == ()


PRODUCER = """    if (threadIdx.x < 128) {
        if (threadIdx.x == 0) most = 1;
        return;
    }
"""


def of_consumers(extra: str = "") -> str:
    """The kernel with a warpgroup in front that does not multiply."""
    text = changed(("    auto thread_qk", f"    float most = -INFINITY;\n{PRODUCER}{extra}    auto thread_qk"))
    text = text.replace("    float most = -INFINITY;\n    for", "    for").replace("(256)", "(384)")
    return text.replace("get_slice(threadIdx.x)", "get_slice(threadIdx.x - 128)")


def test_consumers_meet_without_the_warpgroup_that_loads(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, of_consumers(), TYPES)
    assert "umma_qk.get_slice(cutlass::canonical_warp_group_idx() - 1);" in text
    assert "const int warpgroup = int(threadIdx.x) / 128 - 1;" in text
    order(
        text,
        "if (warp == 4) {",
        "tmem.allocate(256,",
        "__syncthreads();",
        PRODUCER,
        "NamedBarrier::sync(256,",
        "tmem.free(",
    )
    assert "if (warp == 4) {\n        tmem.release_allocation_lock();" in text


def test_a_tile_by_a_name_of_a_loop_stands_in_numbers_in_front_of_it(tmp_path: Path) -> None:
    made = "Tensor tSrS = partition_fragment_C(mma_qk, "
    local = f"using Tile = Shape<_128, _64>;\n        {made}Tile{{}})"
    text = idiomatic(tmp_path, TEXT.replace(f"{made}Shape<_128, _64>{{}})", local), TYPES)
    assert "Tensor tStS = partition_fragment_C(umma_qk, Shape<Int<128>, Int<64>>{});" in text


@pytest.mark.parametrize("extra", ["    if (blocks == 0) return;\n", "    for (;;) { if (most > 0) return; }\n"])
def test_consumers_that_leave_elsewhere_are_left(tmp_path: Path, extra: str) -> None:
    assert "one end of the part" in left(tmp_path, of_consumers(extra), TYPES)


def said(*answers: tuple[tuple[int, ...], ...]) -> PortOptions:
    """What the compiler answers to each question, of several instantiations."""
    kinds = {12: "fragment", 5: "operand", 1: "number"}
    lines = [f"// types of MMA question_of_{kinds[len(one)]} {i} {' '.join(map(str, one))}\n"
             for i, every in enumerate(answers) for one in every]  # fmt: skip
    return PortOptions(types=lambda *_: lines)


def test_instantiations_of_several_widths_and_types_have_one_text(tmp_path: Path) -> None:
    """Columns are those of the widest."""
    wide = (1, 1, 128, *SCORES[3:7], 2, 2, *SCORES[9:])
    path = tmp_path / "kernel.cu"
    made = "Tensor tSrS = partition_fragment_C(mma_qk, "
    path.write_text(
        TEXT.replace(f"{made}Shape<_128, _64>{{}})", f"auto tile = tile_shape(mma_qk);\n        {made}tile)")
    )
    sums = (SCORES, wide), (OUTPUT, (*OUTPUT[:7], 2, 2, *OUTPUT[9:]))
    options = said(*sums, (TYPES[2],), (TYPES[3],), ((2,),))
    text = port_sources(load_sources(path), options).files[str(path)].decode()
    assert (
        "SM100_MMA_F16BF16_SS<typename decltype(mma_qk)::ValTypeA, typename decltype(mma_qk)::ValTypeB, float, 64,"
        in text
    )
    assert "tile_size<1>(mma_qk), UMMA::Major::K" in text
    assert "partition_fragment_C(umma_qk, make_shape(tile_size<0>(umma_qk), tile_size<1>(umma_qk)));" in text
    assert "tOtO.data() = tmem_own + 128;" in text


@pytest.mark.parametrize("has_steps", [True, False])
def test_instantiations_of_several_depths_have_the_steps_of_what_a_is_multiplied_by(
    tmp_path: Path, has_steps: bool
) -> None:
    """Scores of 176 columns are two MMAs of Hopper and one of SM100; P has as many elements of k."""
    path = tmp_path / "kernel.cu"
    path.write_text(TEXT)
    joined = (1, 2, 88, *SCORES[3:])
    depths = (32, 3, 1, 1, 1), (88, 3, 1, 1, int(has_steps))
    port = port_sources(load_sources(path), said((SCORES, joined), (OUTPUT,), (TYPES[2],), depths, ((2,),)))
    text = port.files[str(path)].decode()
    shape = "partition_shape_A(umma_pv, make_shape(tile_size<0>(umma_pv), tile_size<2>(umma_pv) * size<2>(tOrV)))"
    assert (shape in text) == has_steps
    assert ("float, 64, size<1>(Shape<_128, _64>{}), UMMA" in text) == has_steps
    assert ("tOtP.data() = tmem_own + 240;" in text) == has_steps
    left = [str(d.values["what"]) for d in port.diagnostics if d.code is Code.IDIOM_LEFT]
    assert has_steps or left[0].endswith("a tile of `tOrP` that all instantiations have")


def test_a_second_port_changes_nothing_and_has_nothing_to_say(tmp_path: Path) -> None:
    traits = "using Op = SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;\n"
    once = idiomatic(tmp_path, TEXT.replace("struct Storage", f"{traits}struct Storage"), TYPES)
    assert traits in once
    again = port(tmp_path, once, TYPES)
    assert again.files[str(tmp_path / "kernel.cu")].decode() == once
    assert (int(again.exit_code), again.diagnostics) == (0, [])
