# SPDX-License-Identifier: Apache-2.0
"""The port of CuTe DSL kernels: what becomes of each part, and what is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from porter.diagnostics import Code, ExitCode
from porter.lang.cute_dsl import parse_dsl
from porter.model.dsl.names import hopper_only
from porter.passes.dsl.mirrored import KEPT
from porter.passes.dsl.port import DslPortResult, port_python

CORPUS = Path(__file__).parents[2] / "corpus"
KERNELS = sorted(CORPUS.glob("dsl_*/dsl_*.py"))
PLAIN = CORPUS / "dsl_gemm" / "dsl_gemm.py"
CLUSTER = CORPUS / "dsl_gemm_cluster" / "dsl_gemm_cluster.py"
PERSISTENT = CORPUS / "dsl_gemm_persistent" / "dsl_gemm_persistent.py"
ATTENTION = CORPUS / "dsl_attention" / "dsl_attention.py"


def ported(path: Path) -> str:
    result = port_python(path)
    assert result.exit_code is ExitCode.OK, [d.message for d in result.diagnostics]
    return result.files[str(path)].decode()


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., DslPortResult]:
    """The port of a corpus kernel with some text replaced."""

    def port(path: Path, *changes: tuple[str, str]) -> DslPortResult:
        text = path.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        copy = tmp_path / path.name
        copy.write_text(text)
        return port_python(copy)

    return port


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_nothing_hopper_only_is_left(path: Path) -> None:
    text = ported(path)
    kept = KEPT if path == ATTENTION else frozenset()
    left = [n for _, n in parse_dsl("x.py", text.encode()).references() if hopper_only(n) and n not in kept]
    assert not left
    assert not re.search(r"\b(Hopper|WGMMA|sm_90)\b", text)


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_a_second_run_changes_nothing(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(ported(path))
    again = port_python(copy)
    assert not again.groups
    assert again.exit_code is ExitCode.OK


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_no_blank_lines_pile_up_and_no_indentation_breaks(path: Path) -> None:
    before, after = path.read_text(), ported(path)
    assert "\n\n\n\n" not in after
    # A port may bring classes along.
    assert len(re.findall(r"\n\n\n(?!class )", after)) == len(re.findall(r"\n\n\n(?!class )", before))
    compile(after, str(path), "exec")


def test_prologue_and_main_loop_become_one() -> None:
    text = ported(CLUSTER)
    assert text.count("cute.gemm(") == 1
    assert "in cutlass.range(k_tiles, unroll=1):" in text
    assert "release_state" not in text
    assert "in_flight" not in text


def test_a_loop_that_waits_for_each_group_gets_a_wait_behind_it() -> None:
    text = ported(PLAIN)
    assert text.index("loads.consumer_release(mma_state)") < text.index("acc_pipeline.consumer_wait")
    assert text.count("acc_pipeline.consumer_wait(acc_consumer_state)") == 1


def test_release_under_a_condition_moves_behind_the_mma() -> None:
    text = ported(PERSISTENT)
    assert text.count("loads.consumer_release(") == 1
    assert "if k_tile > 0" not in text


def test_a_persistent_kernel_releases_the_accumulator() -> None:
    text = ported(PERSISTENT)
    acquire, commit = text.index("acc_pipeline.producer_acquire"), text.index("acc_pipeline.producer_commit")
    wait, release = text.index("acc_pipeline.consumer_wait"), text.index("acc_pipeline.consumer_release")
    assert acquire < commit < wait < release
    assert "allocator_warp_id=self.store_warp" in text


def test_whole_stage_mma_becomes_a_loop_over_k_blocks() -> None:
    text = ported(CORPUS / "dsl_gemm_fp8" / "dsl_gemm_fp8.py")
    assert "accumulators.fill" not in text
    assert "k_block_coord = (None, None, k_block_idx, mma_state.index)" in text


def test_the_epilogue_tile_spans_all_rows() -> None:
    text = ported(CORPUS / "dsl_gemm_narrow" / "dsl_gemm_narrow.py")
    assert "self.epi_tile = (self.tile_shape_mnk[0], 32)" in text


REFUSED = {
    "two accumulators": (PLAIN, ("tCrA[part], tCrB[part], accumulators)", "tCrA[part], tCrB[part], other)"),
                         "more than one accumulator"),
    "accumulator read between MMAs": (PLAIN, ("            loads.consumer_release(mma_state)",
                                              "            total = accumulators.load()\n"
                                              "            loads.consumer_release(mma_state)"), "this use of"),
    "tile columns without a shape": (PLAIN, ("tiler_mn=(64, self.tile_shape_mnk[1])", "tiler_mn=(64, 128)"),
                                     "element 1 of the tile shape"),
    "a tile shape of the module": (PLAIN, ("tiler_mn=(64, self.tile_shape_mnk[1])", "tiler_mn=(64, TILE[1])"),
                                   "the tile shape `TILE` is no attribute of a class"),
    "result read too early": (PERSISTENT, ("warpgroup.wait_group(0)", "warpgroup.wait_group(1)"),
                              "still running"),
    "nothing waits": (PLAIN, ("            warpgroup.wait_group(0)\n", ""), "nothing waits"),
    "accumulating onto what was there": (PLAIN, ("Field.ACCUMULATE, False", "Field.ACCUMULATE, True"),
                                         "first MMA of a tile"),
    "zeroing with another value": (CORPUS / "dsl_gemm_fp8" / "dsl_gemm_fp8.py", ("fill(0.0)", "fill(1.0)"),
                                   "begin with zero"),
    "a barrier between the MMAs": (PLAIN, ("            mma_state.advance()\n",
                                           "            mma_state.advance()\n            cute.arch.sync_threads()\n"),
                                   "threads meet"),
    "another warp's work between the MMAs": (PLAIN, ("            mma_state.advance()\n",
                                                     "            mma_state.advance()\n"
                                                     "            if warp_idx == 1:\n"
                                                     "                cpasync.prefetch_descriptor(tma_c)\n"),
                                             "warp 1 has work"),
    "another thread count": (PLAIN, ("128 * math.prod(self.atom_layout_mnk)", "256"), "no count of threads"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_by_name_and_changes_nothing(name: str, edited: Callable[..., DslPortResult]) -> None:
    path, change, why = REFUSED[name]
    result = edited(path, change)
    assert result.exit_code is ExitCode.UNPORTED
    assert result.files == result.sources.sources()
    assert not result.groups
    refused = [d for d in result.diagnostics if d.code is Code.DSL_STRUCTURE]
    assert why in refused[0].message
    assert refused[0].where is not None
    assert refused[0].where.line > 0


def test_a_hopper_only_name_in_another_place_is_named(edited: Callable[..., DslPortResult]) -> None:
    result = edited(PLAIN, ("class Gemm:", "FENCE = warpgroup.MmaF16BF16Op\n\n\nclass Gemm:"))
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.groups
    assert "cutlass.cute.nvgpu.warpgroup.MmaF16BF16Op" in result.diagnostics[-1].message


def test_a_file_without_warpgroup_mma_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "copy.py"
    path.write_text("import cutlass.cute as cute\n\n\n@cute.kernel\ndef copy(x: cute.Tensor):\n    pass\n")
    result = port_python(path)
    assert result.files[str(path)] == path.read_bytes()
    assert not result.diagnostics


def test_switching_one_rule_off_switches_all_off() -> None:
    result = port_python(PLAIN, ignore=("PTR505",))
    assert not result.groups
    assert any(d.code is Code.RULE_IGNORED for d in result.diagnostics)
