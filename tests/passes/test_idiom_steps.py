# SPDX-License-Identifier: Apache-2.0
"""Steps of the native style as text in SM100's own words of CuTe C++: kernels written in several ways, and what keeps a
step from one."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cute_pair_kernels import BY_ROWS, GRID, GRIDS, KERNEL, WRITINGS, Change, source

from porter.build.port_plan import Relaunch
from porter.cli.porting import boxes_of, launches_of, look
from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.idiom.types import answering
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.ported import port_paths
from porter.tune.staging import port_plan
from porter.tune.verifying import unsaid

STEPS = ("mma-thread", "double-buffer", "pair", "stages")
WIDE_WRITINGS, WIDE_GRIDS = ("tiles at the edges", "tiles that are numbered"), ("tiles at the edges of a grid",)
"""Ways of writing that the ports with all steps have."""
PRODUCER = "if (threadIdx.x == 0) produce(pipeline, storage, map_a, map_b, M, N, steps);"


def ported(
    folder: Path,
    changes: list[Change],
    kernel: Path = KERNEL,
    columns: int = 128,
    stages: int = 6,
    steps: tuple[str, ...] = STEPS,
) -> tuple[str, PortResult]:
    path = folder / kernel.name
    path.write_text(source(changes, kernel))
    options = PortOptions(
        full_rate=True, native=steps, types=answering(128, columns, 256, 4, 16), boxes=partial(boxes_of, ()),
        stages=frozenset({(str(path), stages)}),
    )  # fmt: skip
    result = port_sources(load_sources(path), options)
    assert set(result.files) == {str(path)}, "nothing stands beside the kernel"
    return result.files[str(path)].decode(), result


def left(result: PortResult) -> dict[str, str]:
    return {str(d.values["step"]): str(d.values["what"]) for d in result.diagnostics if d.code is Code.NATIVE_LEFT}


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", [*sorted(set(WRITINGS) - {"places in rows and columns", *WIDE_WRITINGS}), ""])
def test_tiles_of_a_loop_are_those_of_pairs(tmp_path: Path, name: str) -> None:
    narrow = "64 columns" in name
    text, result = ported(tmp_path, WRITINGS.get(name, []), columns=64 if narrow else 128)
    assert result.plans[0].native == STEPS
    assert "porter" not in text
    for expected in (
        "SM100_MMA_F16BF16_2x1SM_SS<Element, Element, float, 2 * kM, kN,", "Int<kN / 2>{}",
        "constexpr int kStages = 6;", "cute::TMEM::Allocator2Sm tmem;", "__cluster_dims__(2, 1, 1)",
        "kN / 2, kK) != CUDA_SUCCESS",
        "if (warp == 3 && block_rank_in_cluster() == 0) {", "tmem.allocate(2 * kN, &storage.tmem_base)",
        "if (tile_row * kM >= size<0>(mD)) continue;", "<<<(blocks + 1) / 2 * 2,",
    ):  # fmt: skip
        assert expected in text
    assert text.count("SM100_TMA_2SM_LOAD::copy") == 2, "of a function that is called"
    issuing = text[
        text.index("if (warp == 3") : text.index("        return;\n    }\n    cutlass::arch::warpgroup_reg_a")
    ]
    assert issuing.count("gemm(mma, ") == 1
    behind = text[text.index("warpgroup_reg_alloc<232>") :]
    assert not re.search(r"\bgemm\(|tCr[AB]\b|\bread\b", behind)
    assert len(re.findall(r"blockIdx\.x / 2|gridDim\.x / 2", text)) >= 2


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", ["", *sorted(set(GRIDS) - set(WIDE_GRIDS))])
def test_blocks_below_each_other_are_a_pair(tmp_path: Path, name: str) -> None:
    text, result = ported(tmp_path, GRIDS.get(name, []), GRID)
    assert result.plans[0].native == ("mma-thread", "pair", "stages")
    assert result.plans[0].pair_axis == (0 if name == "rows first" else 1)
    assert left(result) == {"double-buffer": "a next tile: a block has one"}
    axis = "x" if name == "rows first" else "y"
    assert f"__cluster_dims__({'2, 1, 1' if axis == 'x' else '1, 2, 1'})" in text
    assert f"if (int(blockIdx.{axis}) * BM >= size<0>(mC)) return;" in text
    assert "umma_arrive_multicast_2x1SM(&storage.accumulator_full, 3);" in text
    assert "((M / BM) + 1) / 2 * 2" in text


WIDE = (*STEPS[:-1], "wide-pair", STEPS[-1])
COLUMN = "2 * int(blockIdx.x) + warpgroup - 1"


@pytest.mark.parametrize("name", ["", *WIDE_WRITINGS])
def test_pairs_have_two_tiles_beside_each_other(tmp_path: Path, name: str) -> None:
    text, result = ported(tmp_path, WRITINGS.get(name, []), steps=WIDE)
    assert result.plans[0].native == WIDE
    column = "column" if name == "tiles that are numbered" else "tiles.column()"
    for expected in (
        "SM100_MMA_F16BF16_2x1SM_SS<Element, Element, float, 2 * kM, 2 * kN,", "make_shape(Int<kN>{}, Int<kK>{}",
        "2 * (kM + kN) * kK", "B, N, K, kN, kK) != CUDA_SUCCESS", "tmem.allocate(4 * kN, &storage.tmem_base)",
        f"(2 * {column} + int(block_rank_in_cluster()))", "next_accumulator.index() * 2 * kN",
        f"const int tile_column = 2 * {column} + warpgroup - 1;", "using Part = Shape<Int<kM>, Int<kN>>;",
        "if (tile_row * kM >= size<0>(mD) || tile_column * kN >= size<1>(mD)) continue;",
    ):  # fmt: skip
        assert expected in text
    behind = text[text.index("const int tile_column") :].partition(";")[2]
    assert not re.search(r"\btiles\.column\(\)|, column\)", behind), "which of two tiles threads have"
    assert text.count("ceil_div(N, 2 * ") == 3, "of loops that load, multiply and store"


@pytest.mark.parametrize("name", ["", *WIDE_GRIDS])
def test_a_grid_of_pairs_with_two_tiles_has_half_the_columns(tmp_path: Path, name: str) -> None:
    text, result = ported(tmp_path, GRIDS.get(name, []), GRID, steps=WIDE)
    assert result.plans[0].native == ("mma-thread", "pair", "wide-pair", "stages")
    assert (result.plans[0].pair_axis, result.plans[0].halved) == (1, 0)
    rows, columns = ("(M + BM - 1) / BM", "(N + BN - 1) / BN") if name else ("M / BM", "N / BN")
    assert f"dim3((({columns}) + 1) / 2, (({rows}) + 1) / 2 * 2)" in text
    assert f"|| ({COLUMN}) * BN >= size<1>(mC)) return;" in text
    assert text.count(f"make_coord(blockIdx.y, {COLUMN})") == (2 if name else 1)
    assert "(2 * int(blockIdx.x) + int(block_rank_in_cluster())) * BN" in text


def test_host_code_of_pairs_with_two_tiles_is_held_against_the_originals(tmp_path: Path) -> None:
    path = tmp_path / GRID.name
    path.write_text(GRID.read_text())
    options = PortOptions(
        full_rate=True, native=WIDE, types=answering(128, 128, 256, 4, 16), boxes=partial(boxes_of, ()),
        launches=partial(launches_of, ()),
    )  # fmt: skip
    found = port_paths([path], options, (), look)
    plan = port_plan(None, found, found.roots[0])
    assert plan.relaunch == Relaunch(None, pairs=True, halved=0, axis=1)
    assert unsaid(None, plan, found.roots[0]) == ""
    for old, new, said in (
        ("B, N, K, BN, BK", "B, N, K, BN / 2, BK", "the box of `map_b` as it was"),
        ("((N / BN) + 1) / 2", "N / BN", "in place of half of"),
        ("((M / BM) + 1) / 2 * 2", "M / BM", "in place of half of"),
    ):
        assert old in found.new[str(path)].decode()
        wrong = replace(plan, files={p: t.replace(old.encode(), new.encode()) for p, t in plan.files.items()})
        assert said in unsaid(None, wrong, found.roots[0])


NOT_WIDE: dict[str, tuple[list[Change], Path, str]] = {
    "a barrier behind MMAs": (
        [("        copy(results,", "        cutlass::arch::NamedBarrier::sync(256, 5);\n        copy(results,")],
        KERNEL, "warpgroups that do not meet behind MMAs: there is `NamedBarrier::sync`",
    ),
    "columns that count something else": (
        [("steps = K / kK;", "steps = K / kK, other = N * 2;")], KERNEL, "`N` that alone says how many tiles there are",
    ),
    "a column that loads ask for elsewhere": (
        [("    pipeline.producer_tail(state);", "    if (blockIdx.x) pipeline.producer_tail(state);")],
        GRID, "`blockIdx.x` where results leave alone",
    ),
    "places of tiles in variables": (
        GRIDS["places in variables"], GRID, "rows of B as a tile's index times `BN`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_WIDE)
def test_a_fact_that_is_missing_keeps_pairs_narrow(tmp_path: Path, name: str) -> None:
    changes, kernel, what = NOT_WIDE[name]
    text, result = ported(tmp_path, changes, kernel, steps=WIDE)
    assert left(result)["wide-pair"] == what
    assert "pair" in result.plans[0].native
    assert "N / 2" in text


LEFT: dict[str, tuple[list[Change], str, str]] = {
    "places in rows": (BY_ROWS, "pair", "rows of A as a tile's index times `kM`"),
    "one layout for both operands": (
        [("LayoutB{}", "LayoutA{}")], "pair", "layouts of A and B with names of their own",
    ),
    "bytes that do not name a side": (
        [("(kM + kN) * kK * sizeof(Element)", "32768")], "pair", "who leads a pipeline, and its bytes with `kN`",
    ),
    "a launch in brackets": (
        [("cute_gemm_persistent<<<blocks, kThreads, bytes, stream>>>(map_a, map_b, D, M, N, K);",
          "void* given[] = {&map_a, &map_b, &D, &M, &N, &K};\n"
          "    cudaLaunchKernel((void*)cute_gemm_persistent, blocks, kThreads, given, bytes, stream);")],
        "pair", "a launch in brackets: a cluster is the kernel's own here",
    ),
    "a warpgroup that loads as a whole": (
        [(PRODUCER, PRODUCER.removeprefix("if (threadIdx.x == 0) "))], "mma-thread", "a branch of a thread that loads",
    ),
    "a number of stages with two meanings": (
        [("constexpr int kStages = 3;", "constexpr int kStages = 1 + 2;")], "stages", "that `kStages` is a number",
    ),
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", LEFT)
def test_a_fact_that_is_missing_keeps_a_step_away(tmp_path: Path, name: str) -> None:
    changes, step, what = LEFT[name]
    _, result = ported(tmp_path, changes)
    assert step not in result.plans[0].native
    assert what in left(result)[step]


def test_those_that_load_may_stand_behind_those_that_multiply(tmp_path: Path) -> None:
    text = KERNEL.read_text()
    branch = text[text.index("    if (warpgroup == 0) {") : text.index("    cutlass::arch::warpgroup_reg_alloc")]
    rest = text[text.index("    cutlass::arch::warpgroup_reg_alloc") : text.index("\nstatic CUresult")]
    inner = rest.rstrip().removesuffix("}").rstrip()
    other = f"    if (warpgroup != 0) {{\n{inner}\n    }} else {{\n        {PRODUCER}\n    }}\n}}\n"
    ported_text, result = ported(tmp_path, [(branch, ""), (rest, other)])
    assert result.plans[0].native[:2] == ("mma-thread", "double-buffer")
    issuing = ported_text[ported_text.index("} else {") :]
    assert "gemm(mma, " in issuing
    assert "accumulators.producer_commit(next_accumulator);" in issuing
