# SPDX-License-Identifier: Apache-2.0
"""Two-level accumulation: partial sums leave Tensor Memory between the MMAs and are added up in registers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from porter.diagnostics import Code, ExitCode
from porter.passes.dsl.port import DslPortResult, port_python

SCALED = Path(__file__).parents[2] / "corpus" / "dsl_gemm_fp8_scaled" / "dsl_gemm_fp8_scaled.py"
LOOP = """                    for i in cutlass.range_constexpr(cute.size(block_sum)):
                        scale = mSA[(first_row + tCcC[i][0], k_tile, batch)] * scale_of_b
                        accumulators[i] = accumulators[i] + scale * block_sum[i]
"""
WAIT = "                    warpgroup.wait_group(0)\n"

Edited = Callable[..., DslPortResult]


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """The port of the kernel with block scales, some text replaced."""

    def port(*changes: tuple[str, str]) -> DslPortResult:
        text = SCALED.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        copy = tmp_path / SCALED.name
        copy.write_text(text)
        return port_python(copy)

    return port


def text_of(result: DslPortResult) -> str:
    assert result.exit_code is ExitCode.OK, [d.message for d in result.diagnostics]
    (text,) = result.files.values()
    return text.decode()


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    return places == sorted(places)


def test_the_sums_are_complete_when_loaded_and_loaded_when_overwritten(edited: Edited) -> None:
    loop = text_of(edited()).split("for k_tile in cutlass.range(k_tiles, unroll=1):")[2]
    assert in_order(
        loop,
        "acc_pipeline.producer_acquire(acc_producer_state)",
        "loads.consumer_wait(mma_state)",
        "cute.gemm(",
        "loads.consumer_release(mma_state)",
        "acc_pipeline.producer_commit(acc_producer_state)",
        "acc_pipeline.consumer_wait(acc_consumer_state)",
        "cute.copy(tiled_copy_t2r,",
        "cute.arch.fence_view_async_tmem_load()",
        "accumulators_part[i] = accumulators_part[i] + scale * tTR_rAcc[i]",
        "acc_pipeline.consumer_release(acc_consumer_state)",
    )
    assert loop.count("if warp_idx == self.store_warp:") == 2  # MMAs; the TMA store


def test_what_was_divided_by_partition_c_follows_the_loads(edited: Edited) -> None:
    text = text_of(edited())
    assert "partition_C" not in text
    assert "thr_copy_t2r.partition_D(\n" in text
    assert "mSA[(first_row + tCcC_part[i][0], k_tile, batch)]" in text


def test_the_epilogue_stores_the_registers(edited: Edited) -> None:
    text = text_of(edited())
    assert "tTR_rAcc.store(accumulators[(None, None, (None, epi_idx))].load())" in text
    assert text.count("cute.copy(tiled_copy_t2r") == 1
    assert text.count("acc_pipeline.consumer_release") == 1


def test_scaled_sums_need_the_registers_and_plain_ones_do_not(edited: Edited) -> None:
    assert Code.DSL_PROMOTION not in {d.code for d in edited().diagnostics}
    plain = edited((LOOP, """                    for i in cutlass.range_constexpr(cute.size(block_sum)):
                        accumulators[i] = accumulators[i] + block_sum[i]
"""))
    (note,) = [d for d in plain.diagnostics if d.code is Code.DSL_PROMOTION]
    assert "`accumulators`" in note.message
    assert plain.groups


def test_vectors_are_added_subtile_by_subtile(edited: Edited) -> None:
    vectors = "accumulators.store(accumulators.load() + scale_of_b * block_sum.load())\n"
    text = text_of(edited((LOOP, " " * 20 + vectors)))
    assert "accumulators_part.store(accumulators_part.load() + scale_of_b * tTR_rAcc.load())" in text


def test_sums_cleared_by_the_threads_are_overwritten_by_the_mma(edited: Edited) -> None:
    text = text_of(edited(
        ("tiled_mma.set(warpgroup.Field.ACCUMULATE, False)", "block_sum.fill(0.0)"),
        ("                        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)\n", ""),
        ("                accumulators.fill(0.0)\n",
         "                accumulators.fill(0.0)\n"
         "                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)\n"),
    ))  # fmt: skip
    assert "block_sum.fill" not in text
    assert text.count("Field.ACCUMULATE, True") == 1
    assert in_order(text, "Field.ACCUMULATE, False", "cute.gemm(", "Field.ACCUMULATE, True")


def test_sums_of_several_k_tiles_are_committed_where_they_are_read(edited: Edited) -> None:
    indented = re.sub(r"^", "    ", LOOP, flags=re.M).rstrip(" ")
    text = text_of(edited(
        (WAIT, ""),
        (LOOP, f"                    if k_tile % 2 == 1:\n    {WAIT}{indented}"),
    ))  # fmt: skip
    inside = text.split("if k_tile % 2 == 1:\n")[1]
    assert inside.split("\n")[:2] == [
        "                        if warp_idx == self.store_warp:",
        "                            acc_pipeline.producer_commit(acc_producer_state)",
    ]
    assert text.count("acc_pipeline.producer_commit") == 1


REFUSED = {
    "sums read while MMAs run": ((WAIT, ""), "still running"),
    "a wait that leaves a group": ((WAIT, WAIT.replace("0", "1")), "still running"),
    "rows by the thread's number": (("first_row + tCcC[i][0]", "first_row + tidx % 128 // 4"), "number of the thread"),
    "rows by a name made of it": (
        ("scale_of_b = mSB", "row = first_row + tidx // 4\n                    scale_of_b = mSB[(row, 0, 0)] * mSB"),
        "number of the thread",
    ),
    "elements by their place": (("scale * block_sum[i]", "scale * block_sum[i // 2 * 2]"), "place in the fragment"),
    "a loop over a number of elements": (
        ("range_constexpr(cute.size(block_sum))", "range_constexpr(64)"), "no loop over the accumulator's elements"),
    "other registers by the same index": (("* scale_of_b\n", "* scale_of_b * tRS_rC[i]\n"), "`tRS_rC` is no tensor"),
    "factors in the buffer": (
        ("scale_of_b = mSB[(scale_n, k_tile, batch)]", "scale_of_b = sA[(0, 0, mma_state.index)]"),
        "lies in the buffer",
    ),
    "threads write the sums": (("                    mma_state.advance()\n",
                                "                    block_sum.fill(1.0)\n                    mma_state.advance()\n"),
                               "threads write `block_sum`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_by_name_and_changes_nothing(name: str, edited: Edited) -> None:
    change, why = REFUSED[name]
    result = edited(change)
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.groups
    (refused,) = [d for d in result.diagnostics if d.code is Code.DSL_STRUCTURE]
    assert why in refused.message
    assert refused.where is not None
    assert refused.where.line > 100
