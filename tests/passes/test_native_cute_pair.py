# SPDX-License-Identifier: Apache-2.0
"""CTAs of CuTe C++ kernels multiply in pairs: ways of writing that are understood, and what is refused with which
missing fact. Values and order are shown by the slow tests of `tests/cute/test_cute_native_pair.py`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from cute_pair_kernels import BY_NUMBER, COORD, EDGES, GRID, GRIDS, KERNEL, WRITINGS, Change, source

from porter.build.port_plan import Relaunch
from porter.cli.porting import launches_of
from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.tiled.port import header_text

STEPS = ("release", "mma-thread", "double-buffer", "pair")
OPTIONS = PortOptions(full_rate=True, native=STEPS, launches=partial(launches_of, ()))


def ported(folder: Path, changes: list[Change], kernel: Path = KERNEL) -> PortResult:
    path = folder / "kernel.cu"
    path.write_text(source(changes, kernel))
    result = port_sources(load_sources(path), OPTIONS)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return result


def text_of(result: PortResult) -> str:
    return " ".join(result.files[next(p for p in result.files if p.endswith("kernel.cu"))].decode().split())


def missing(result: PortResult) -> list[str]:
    found = [d for d in result.diagnostics if d.code is Code.NATIVE_LEFT and d.values["step"] == "pair"]
    return [str(d.values["what"]) for d in found]


SLOW = {
    "tiles of 64 columns", "places in rows and columns", "edges of both kinds", "tiles of 256 columns",
    "a grid of something else", "a tile beside the block's", "one tile of a block", "CTAs that know of each other",
}  # fmt: skip
"""Each takes a second; these are for the long run."""


def few(names: Iterable[str]) -> list[str | ParameterSet]:
    return [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in names]


SAID = {
    "tiles that are numbered": [
        "const int rows = half_m / config::kM, count = rows * (half_n / config::kN);",
        "tile = porter::pair_index(); tile < count; tile += porter::pair_count()",
        "config::kN * column + porter::pair_rank() * N",
        "const auto pair_row = row + porter::pair_rank() * (half_m / 128);",
        "make_coord(pair_row, pair_column)",
    ],
    "loads in the kernel itself": [
        "porter::load_of_pair(&map_a, pipeline.producer_get_barrier(write), 0, &sA(0, 0, write.index()), k * kK,"
        " tiles.row() * kM + porter::pair_rank() * half_m);",
    ],
    "places in rows and columns": [
        "const auto pair_column = tiles.column() + part * half_n;",
        "if (pair_row + 128 > M || pair_column + 128 > N) continue;",
        "make_coord(pair_row / kM, pair_column / kN)",
    ],
    "tiles at the edges": [
        "if (pair_row * 128 >= M || pair_column * 128 >= N) continue;",
        "make_identity_tensor(make_shape(M, N))",
    ],
    "places that are made ahead": [
        "porter::take_part<128>(tc, part, sums); const auto place = make_coord(pair_row, pair_column);"
        " Tensor gD = local_tile(mD, Shape<Int<kM>, Int<kN>>{}, place);",
        "mma.accumulate_ = GMMA::ScaleOut::Zero; porter::take_sums(tc, sums);",
    ],
    "tiles of 64 columns": ["porter::half_of(N, 64);", "porter::take_part<64>(tc, part, sums);"],
}


@pytest.mark.parametrize("name", few(SAID))
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, WRITINGS[name])
    assert missing(result) == []
    text = text_of(result)
    for line in SAID[name]:
        assert line in text


def test_the_kernel_is_one_of_pairs(tmp_path: Path) -> None:
    text = text_of(ported(tmp_path, []))
    for line in (
        "cutlass::PipelineTmaUmmaAsync<kStages, cute::Shape<cute::_2, cute::_1, cute::_1>,",
        "Pipeline pipeline(storage.pipeline, porter::of_pair(params), cute::Shape<cute::_2, cute::_1, cute::_1>{});",
        "__global__ __cluster_dims__(2, 1, 1) void",
        "next(porter::pair_index())",
        "for (Tiles tiles(half_m, half_n);",
        "Tensor mD = make_tensor(make_gmem_ptr(D), make_shape(M, N), make_stride(N, _1{}));",
        "<<<(blocks + 1) / 2 * 2, kThreads, bytes, stream>>>",
    ):
        assert line in text


REFUSED: dict[str, tuple[list[Change], str]] = {
    "a tile beside the one that is loaded": (
        [("tiles.row() * config::kM", "(tiles.row() + 1) * config::kM")], "as a multiple of the tile's place",
    ),
    "a place that is changed": (
        [("        mma.accumulate_ = GMMA::ScaleOut::Zero;",
          "        int place = tiles.row();\n        place += 0;\n"
          "        mma.accumulate_ = GMMA::ScaleOut::Zero;"), (COORD, "make_coord(place, tiles.column())")],
        "that sums are stored by `tiles.row()`",
    ),
    "edges of both kinds": (
        [*EDGES[:1], ("make_shape(M, N), make_stride", "make_shape(M / 1, N), make_stride")],
        "whether tiles that are not whole are counted, of `M` in tiles",
    ),
    "tiles of 256 columns": ([("kN = 128", "kN = 256")], "boxes of 128 rows of A, and of at most 128 of B"),
    "one tile of a block": (
        [*BY_NUMBER, ("tile += gridDim.x", "tile += count")],
        "blocks that take one tile after another, as far apart as there are blocks",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", few(REFUSED))
def test_a_missing_fact_is_named(tmp_path: Path, name: str) -> None:
    changes, what = REFUSED[name]
    result = ported(tmp_path, changes)
    said = missing(result)
    assert len(said) == 1
    assert what in said[0]
    assert "cluster_dims" not in text_of(result)
    assert "pair_" not in text_of(result)


SAID_OF_GRIDS = {
    "": [
        "int(blockIdx.y) * BM + porter::pair_rank() * int(gridDim.y) * 128",
        "int(porter::pair_index()) * BN + porter::pair_rank() * int(porter::pair_count()) * 128",
        "const auto pair_row = blockIdx.y + porter::pair_rank() * gridDim.y;",
        "porter::take_part<128>(tc, part, tCrC); Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{},"
        " make_coord(pair_row, pair_column)); porter::load(tCrC);",
        "dim3(((N / BN) + 1) / 2 * 2, ((M / BM) + 1) / 2)",
    ],
    "rows first": ["const auto pair_row = porter::pair_index() + porter::pair_rank() * porter::pair_count();"],
    "places in variables": [
        "const int row = blockIdx.y * BM, column = BN * static_cast<int>(porter::pair_index());",
        "row + porter::pair_rank() * int(gridDim.y) * 128",
        "const int m = pair_row, n = pair_column;",
    ],
    "tiles at the edges of a grid": ["if (int(pair_row) * 128 >= M || int(pair_column) * 128 >= N) continue;"],
}


@pytest.mark.parametrize("name", SAID_OF_GRIDS)
def test_blocks_with_one_tile_each_are_paired(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, GRIDS.get(name, []), GRID)
    assert missing(result) == []
    text = text_of(result)
    for line in SAID_OF_GRIDS[name]:
        assert line in text


REFUSED_OF_GRIDS: dict[str, tuple[list[Change], str]] = {
    "a grid of something else": (
        [("dim3(N / BN, M / BM)", "dim3(N / BN + 1, M / BM)")], "as many blocks as there are tiles of 128 in `N`",
    ),
    "a tile beside the block's": (
        [("int(blockIdx.x) * BN", "int(blockIdx.x + 1) * BN")], "as 128 times the block's index",
    ),
    "a macro for the block's index": (
        [("template <int BM, int BN, int BK, int STAGES>\nstruct", "#define COLUMN blockIdx.x\n"
          "template <int BM, int BN, int BK, int STAGES>\nstruct"),
         ("make_coord(blockIdx.y, blockIdx.x)", "make_coord(blockIdx.y, COLUMN)")],
        "which block this is, outside of macros",
    ),
    "two launches": (
        [("    return cudaGetLastError();\n}",
          "    kernel<<<dim3(M / BM, N / BN), 384, bytes, stream>>>(map_b, map_a, C, N, M, K);\n"
          "    return cudaGetLastError();\n}")],
        "one launch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", few(REFUSED_OF_GRIDS))
def test_a_missing_fact_of_a_grid_is_named(tmp_path: Path, name: str) -> None:
    changes, what = REFUSED_OF_GRIDS[name]
    result = ported(tmp_path, changes, GRID)
    said = missing(result)
    assert len(said) == 1
    assert what in said[0]
    assert "cluster_dims" not in text_of(result)


def test_a_case_launches_half_the_rows_of_a_grid_of_tiles() -> None:
    pairs = Relaunch(None, pairs=True, tiles=True)
    assert pairs.section((), [5, 3, 1]) == {"launch": {"grid": [6, 2, 1], "cluster": [2, 1, 1]}}
    assert pairs.section((), ["N / BN", "M / BM"])["launch"]["grid"] == ["(N / BN + 1) // 2 * 2", "(M / BM + 1) // 2"]
    assert Relaunch(None, pairs=True).section((), [5, 1, 1])["launch"]["grid"] == [6, 1, 1]


def test_headers_without_pairs_know_nothing_of_them() -> None:
    alone = header_text(4, releases=True, pipelines=True, mma_warp=1, buffers=2)
    assert "pair" not in alone.replace("pair of warpgroups", "")
    assert "cta_group::2" not in alone
    assert "cta_group::1" not in header_text(4, True, True, 1, 2, paired=True)
