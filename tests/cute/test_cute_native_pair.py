# SPDX-License-Identifier: Apache-2.0
"""CTAs of CuTe C++ kernels that multiply in pairs, compiled and run: ports are verified, and mistakes that are planted
in them are found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cute_pair_kernels import GRID, GRIDS, KERNEL, WRITINGS, Change, source
from test_cute_native import errors, failure, planted

from porter.build.port_plan import Relaunch
from porter.cli.porting import launches_of, look
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune.staging import port_plan

pytestmark = [pytest.mark.external, pytest.mark.slow]

STEPS = ("release", "mma-thread", "double-buffer", "pair")
RAGGED = [
    ("sizes: {M: 384, N: 256, K: 256}", "sizes: {M: 200, N: 456, K: 256}"),
    ("{M: 128, N: 128, K: 64}", "{M: 8, N: 136, K: 64}"),
    ("{M: 128, N: 384, K: 128}", "{M: 264, N: 72, K: 128}"),
    ("multiples: {M: BM, N: BN, K: BK}", "multiples: {N: 8, K: BK}"),
]
GRID_CASE = [("sizes: {M: 256, N: 128, K: 320}", "sizes: {M: 384, N: 640, K: 192}")]
GRID_CASES: dict[str, list[Change]] = {
    "rows first": [*GRID_CASE, ('["N / BN", "M / BM", 1]', '["M / BM", "N / BN", 1]')],
    "tiles at the edges of a grid": [
        ("sizes: {M: 256, N: 128, K: 320}", "sizes: {M: 264, N: 600, K: 192}"),
        ("{M: 128, N: 128, K: 64}", "{M: 8, N: 136, K: 64}"),
        ("multiples: {M: BM, N: BN, K: BK}", "multiples: {N: 4, K: BK}"),
        ('["N / BN", "M / BM", 1]', '["(N + BN - 1) // BN", "(M + BM - 1) // BM", 1]'),
    ],
}
CASES: dict[str, list[Change]] = {"tiles at the edges": RAGGED, "tiles of 64 columns": [("BN: 128", "BN: 64")]}


def made(
    folder: Path, changes: list[Change], case: list[Change], steps: tuple[str, ...] = STEPS, kernel: Path = KERNEL
) -> Ported:
    name = kernel.name
    (folder / name).write_text(source(changes, kernel))
    text = kernel.with_name("case.yaml").read_text()
    for before, after in case:
        assert before in text
        text = text.replace(before, after)
    (folder / "case.yaml").write_text(text)
    options = PortOptions(full_rate=True, native=steps, launches=partial(launches_of, ()))
    found = port_paths([folder / name], options, (), look)
    assert found.roots[0].native == steps
    return found


def of_grid(folder: Path, name: str = "") -> Ported:
    case = GRID_CASES.get(name, GRID_CASE)
    found = made(folder, GRIDS.get(name, []), case, ("release", "mma-thread", "pair"), GRID)
    plan = replace(port_plan(None, found, found.roots[0]), section=None)
    assert plan.relaunch == Relaunch(None, pairs=True, tiles=True)
    return found


@pytest.mark.parametrize("name", ["", *WRITINGS])
def test_a_way_of_writing_is_verified(tmp_path: Path, name: str) -> None:
    assert failure(made(tmp_path, WRITINGS.get(name, []), CASES.get(name, []))) == ""


@pytest.mark.parametrize("name", ["", *GRIDS])
def test_blocks_with_one_tile_each_are_verified(tmp_path: Path, name: str) -> None:
    assert failure(of_grid(tmp_path, name)) == ""


def test_one_accumulator_is_verified(tmp_path: Path) -> None:
    assert failure(made(tmp_path, [], [], ("release", "mma-thread", "pair"))) == ""


PLANTED: dict[str, tuple[str, str, str]] = {
    "both CTAs take one half of B": (".cu", r"(kN \+ porter::pair_rank\(\)) \* N", r"\1 * 0 * N"),
    "both CTAs take one half of A": (".cu", r"(kM \+ porter::pair_rank\(\)) \* M", r"\1 * 0 * M"),
    "one part for both": (".hpp", r" \+ part \* columns;", ";"),
    "tiles outside of the product are stored": (".cu", r"if \(pair_row[^;]*continue;", ""),
    "bytes of one CTA": (".hpp", r"params\.transaction_bytes \*= 2;", ""),
    "both CTAs expect the bytes": (".hpp", r"is_leader && pair_rank\(\) == 0", "is_leader"),
    "bytes that count in each CTA": (".hpp", r'"r"\(of_first\(mbarrier\)\), "r"\(x\)',
                                     '"r"(cast_smem_ptr_to_uint(mbarrier)), "r"(x)'),
    "MMAs of both CTAs": (".hpp", r"kMmaWarp && pair_rank\(\) == 0;", "kMmaWarp;"),
    "sums that one CTA gives back": (".hpp", r"2 \* 4 \* kWarpgroups", "4 * kWarpgroups"),
    "sums that are given back to one's own CTA": (
        ".hpp", r"arrive_at_first\(sums\.read", "cutlass::arch::ClusterBarrier::arrive(&sums.read",
    ),
    "no wait until the accumulator has been read": (".hpp", r"wait_of_pair\(sums\.read\[[^;]*;", ""),
    "no wait for the sums": (".hpp", r"wait_of_pair\(sums\.there\[[^;]*;", ""),
    "sums that are complete in one CTA": (
        ".hpp", r"(cast_smem_ptr_to_uint\(sums\.there \+ turn % kBuffers\)\), \"h\"\()kBothOfPair", r"\1uint16_t(1)",
    ),
    "stages that one CTA gets back": (
        ".cu", r"cute::Shape<cute::_2, cute::_1, cute::_1>>;", "cute::Shape<cute::_1, cute::_1, cute::_1>>;",
    ),
    "no meeting of both at the end": (".hpp", r"(~Tmem\(\) \{\s*fence_before_sync\(\);\s*)sync_pair\(\);", r"\1"),
    "no meeting of both ahead of the first load": (
        ".hpp", r"(fence_before_sync\(\);\s*)sync_pair\(\);(\s*fence_after_sync\(\);\s*\}\s*Tmem)",
        r"\1__syncthreads();\2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ending, pattern, instead = PLANTED[name]
    what, _ = errors(planted(made(tmp_path, [], []), ending, pattern, instead), monkeypatch)
    assert what
    assert "nvcc" not in what, what


PLANTED_IN_GRIDS: dict[str, tuple[str, str]] = {
    "both CTAs take one half of A": (r"int\(gridDim\.y\) \* 128", "0"),
    "both CTAs take one half of B": (r"int\(porter::pair_count\(\)\) \* 128", "0"),
    "one column of tiles for both parts": (r"part \* porter::pair_count\(\)", "part * 0"),
    "the block's own row in both CTAs": (r"porter::pair_rank\(\) \* gridDim\.y;", "porter::pair_rank() * 0;"),
    "the block's column as it was": (r"= porter::pair_index\(\)", "= blockIdx.x"),
}


@pytest.mark.parametrize("name", PLANTED_IN_GRIDS)
def test_a_planted_mistake_of_a_grid_is_found(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what, _ = errors(planted(of_grid(tmp_path), ".cu", *PLANTED_IN_GRIDS[name]), monkeypatch)
    assert what
    assert "nvcc" not in what, what
