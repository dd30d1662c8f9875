# SPDX-License-Identifier: Apache-2.0
"""Steps of the native style in SM100's own words of CuTe C++, compiled and run: ports are verified, and mistakes that
are planted in them are found."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from cute_pair_kernels import BY_ROWS, GRID, GRIDS, KERNEL, WRITINGS, Change, source

from porter.cli.building import make_builder
from porter.cli.porting import boxes_of, launches_of, look
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune.verifying import Proofs
from porter.verify.builder import PORT_ARCH
from porter.verify.gate import GateOptions
from porter.verify.types import types_of

pytestmark = [pytest.mark.external, pytest.mark.slow]

STEPS = ("mma-thread", "double-buffer", "pair", "stages")
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
    path = folder / kernel.name
    path.write_text(source(changes, kernel))
    text = kernel.with_name("case.yaml").read_text()
    for before, after in case:
        assert before in text
        text = text.replace(before, after)
    (folder / "case.yaml").write_text(text)
    options = PortOptions(
        full_rate=True, native=steps, launches=partial(launches_of, ()), boxes=partial(boxes_of, ()),
        types=partial(types_of, GateOptions()), stages=frozenset({(str(path), 6)}),
    )  # fmt: skip
    found = port_paths([path], options, (), look)
    assert found.roots[0].native == steps
    assert not found.roots[0].added
    return found


def failure(found: Ported) -> str:
    """What is wrong with a port, as its runs say; empty if nothing is."""
    return Proofs(make_builder(None, PORT_ARCH)).of(found, found.roots[0]).missing


@pytest.mark.parametrize("name", ["", *(n for n in WRITINGS if WRITINGS[n] is not BY_ROWS)])
def test_a_way_of_writing_is_verified(tmp_path: Path, name: str) -> None:
    assert failure(made(tmp_path, WRITINGS.get(name, []), CASES.get(name, []))) == ""


@pytest.mark.parametrize("name", ["", *GRIDS])
def test_blocks_with_one_tile_each_are_verified(tmp_path: Path, name: str) -> None:
    case = GRID_CASES.get(name, GRID_CASE)
    assert failure(made(tmp_path, GRIDS.get(name, []), case, ("mma-thread", "pair", "stages"), GRID)) == ""


@pytest.mark.parametrize("steps", [STEPS[:1], STEPS[:2], ("mma-thread", "pair")], ids=" ".join)
def test_fewer_steps_are_verified(tmp_path: Path, steps: tuple[str, ...]) -> None:
    assert failure(made(tmp_path, [], [], steps)) == ""


PLANTED: dict[str, tuple[str, str]] = {
    "both CTAs take one half of B": (r" \+ int\(block_rank_in_cluster\(\)\) \* size<0>\(sB\)", ""),
    "both CTAs take the rows of one": (r"(\(2 \* tiles\.row\(\)) \+ int\(block_rank_in_cluster\(\)\)(\) \*)", r"\1\2"),
    "tiles outside of the product are stored": (r"if \(tile_row[^;]*continue;", ""),
    "bytes of one CTA": (r"= 2 \* \(kM", "= (kM"),
    "both CTAs expect the bytes": (r"(threadIdx\.x == 0) && block_rank_in_cluster\(\) == 0", r"\1"),
    "MMAs of both CTAs": (r"(warp == 3) && block_rank_in_cluster\(\) == 0", r"\1"),
    "sums that one CTA gives back": (r"= 2 \* \(kThreads - 128\)", "= kThreads - 128"),
    "sums that are given back by the letter to nobody": (r"\.release\.cluster\.shared", ".shared"),
    "no wait until the accumulator has been read": (r"uint32_t empty = 0; empty", "uint32_t empty = 1; empty"),
    "no wait for the sums": (r"accumulators\.consumer_wait\(full_accumulator\);", ""),
    "one accumulator for both turns": (r"next_accumulator\.index\(\) \* kN", "0"),
    "no meeting of both at the end": (r"cute::cluster_sync\(\);(\s*asm[^;]*;[^;]*;\s*if \(warp == 4)", r"\1"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(tmp_path: Path, name: str) -> None:
    found = made(tmp_path, [], [])
    (path,) = (p for p in found.new if p.endswith(".cu"))
    text, count = re.subn(PLANTED[name][0], PLANTED[name][1], found.new[path].decode(), flags=re.DOTALL)
    assert count == 1
    found.new[path] = text.encode()
    what = failure(found)
    assert what
    assert "nvcc" not in what, what
