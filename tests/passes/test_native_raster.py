# SPDX-License-Identifier: Apache-2.0
"""The step that gives tiles another order: each tile is done once, whatever their number; ways of writing that are
understood, what is refused with which missing fact, and mistakes that the gate finds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import persistent_kernels
import pytest
import tile_kernels
from native_kernels import missing, text_of
from persistent_kernels import SCHEDULE
from persistent_kernels import options as options_of
from test_native_tiles import failure, made, planted
from tile_kernels import LINEAR, STORE

from porter.cli.porting import look
from porter.passes.helpers import Helpers
from porter.passes.native.raster import GROUP, NAME
from porter.passes.port import PortResult
from porter.passes.ported import port_paths

STEPS = ("release", NAME, "mma-thread")
TILES = (*STEPS, "tiles", "double-buffer")
PAIRS = (*STEPS, "double-buffer", "pair")


def header_of(result: PortResult) -> str:
    return " ".join(next(t for p, t in result.files.items() if p.endswith("tcgen05.cuh")).decode().split())


# --- The order itself


def order() -> Callable[[int, int, int], int]:
    """The function of the helpers, its C++ as Python: all of its numbers are unsigned."""
    text = Helpers(raster=GROUP).text()
    body = re.search(
        r"uint32_t raster\(uint32_t tile, uint32_t across, uint32_t count\) \{\n(.*?)\n\}", text, re.DOTALL
    )
    assert body is not None
    lines = ["def found(tile, across, count):"]
    for line in body[1].split("\n"):
        plain = re.sub(r"^if \((.*)\) return (.*);$", r"if \1: return \2", line.strip())
        lines.append("    " + plain.replace("const uint32_t ", "").replace("/", "//").rstrip(";"))
    scope: dict[str, Any] = {"kGroup": GROUP, "min": min}
    exec("\n".join(lines), scope)
    found = scope["found"]
    assert callable(found)
    return found


def test_every_tile_is_done_once() -> None:
    found = order()
    for across in range(1, 41):
        for count in [*range(1, 60), *(across * down + over for down in range(1, 41) for over in (0, across - 1))]:
            assert sorted(found(tile, across, count) for tile in range(count)) == list(range(count)), (across, count)


def test_tiles_that_follow_each_other_share_rows_and_columns() -> None:
    found = order()
    tiles = [divmod(found(tile, 64, 64 * 64), 64) for tile in range(148)]
    assert {row for row, _ in tiles} == set(range(GROUP))
    assert len({column for _, column in tiles}) == -(-148 // GROUP)


# --- What is understood


def test_a_grid_of_tiles(tmp_path: Path) -> None:
    result = tile_kernels.ported(tmp_path, STEPS)
    assert (missing(result), result.plans[0].native) == ([], STEPS)
    index = "tcgen05::block_index()"
    assert f"const int row = {index}.y, column = {index}.x;" in text_of(result)


def test_tiles_that_are_taken_over(tmp_path: Path) -> None:
    result = tile_kernels.ported(tmp_path, TILES)
    assert (missing(result), result.plans[0].native) == ([], TILES)
    text, header = text_of(result), header_of(result)
    assert text.count("const int row = tiles.index.y, column = tiles.index.x;") == 2
    assert "block_index" not in text
    assert "if (found != 0) index = raster(index);" in header
    assert "shared_address(&shared_.answered[0]), block_index()};" in header


@pytest.mark.parametrize("steps", [STEPS, TILES])
def test_tiles_that_are_numbered(tmp_path: Path, steps: tuple[str, ...]) -> None:
    result = tile_kernels.ported(tmp_path, steps, **LINEAR)
    assert (missing(result), result.plans[0].native) == ([], steps)
    wanted = ("const int row = tcgen05::tile_quotient(tile, (N / 16), gridDim.x), "
              "column = tcgen05::tile_remainder(tile, (N / 16), gridDim.x);")  # fmt: skip
    assert text_of(result).count(wanted) == (2 if steps is TILES else 1)


DIRECT = {**LINEAR, "PLACE": "const int row = blockIdx.x / (N / 16), column = blockIdx.x % (N / 16);"}


@pytest.mark.parametrize("steps", [STEPS, TILES])
def test_tiles_that_are_numbered_without_a_name(tmp_path: Path, steps: tuple[str, ...]) -> None:
    result = tile_kernels.ported(tmp_path, steps, **DIRECT)
    assert (missing(result), result.plans[0].native) == ([], steps)
    index = "tiles.index.x" if steps is TILES else "blockIdx.x"
    wanted = (f"const int row = tcgen05::tile_quotient({index}, (N / 16), gridDim.x), "
              f"column = tcgen05::tile_remainder({index}, (N / 16), gridDim.x);")  # fmt: skip
    assert text_of(result).count(wanted) == (2 if steps is TILES else 1)


def test_tiles_of_a_loop(tmp_path: Path) -> None:
    result = persistent_kernels.ported(tmp_path, STEPS)
    assert (missing(result), result.plans[0].native) == ([], STEPS)
    wanted = ("const int row = tcgen05::tile_quotient(tile, (N / 16), tiles), "
              "column = tcgen05::tile_remainder(tile, (N / 16), tiles);")  # fmt: skip
    assert text_of(result).count(wanted) == 2


def test_pairs_have_the_order_of_their_halves(tmp_path: Path) -> None:
    result = persistent_kernels.ported(tmp_path, PAIRS)
    assert (missing(result), result.plans[0].native) == ([], PAIRS)
    text = text_of(result)
    assert text.count("tcgen05::tile_quotient(tile, (half_n / 16), tiles)") == 2
    assert "(N / 16), tiles)" not in text


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a grid of three dimensions": (
        {"PLACE": "const int row = blockIdx.y + blockIdx.z, column = blockIdx.x;"}, "at most two dimensions",
    ),
    "an index as a whole": (
        {"PLACE": "const uint3 place = blockIdx;\nconst int row = place.y, column = place.x;"},
        "which dimension of `blockIdx`",
    ),
    "no columns": ({"PLACE": "const int row = blockIdx.x, column = 0;"}, "a tile's row and column by the grid"),
    "a remainder alone": (
        {**LINEAR, "PLACE": "const int row = 0, column = blockIdx.x % (N / 16);"},
        "a tile's row and column by the grid",
    ),
    "an index that is something else, too": (
        {**DIRECT, "STORE": STORE + "\nout[blockIdx.x] = out[blockIdx.x];"}, "a tile's row and column by the grid",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    result = tile_kernels.ported(tmp_path, STEPS[:2], **parts)
    assert result.plans[0].native == ("release",)
    assert any(what in said for said in missing(result)), missing(result)
    assert "block_index" not in text_of(result) + header_of(result)


LOOPS: dict[str, tuple[dict[str, str], str]] = {
    "an order of its own": (
        {"HEAD": SCHEDULE, "COUNT": "Tiles schedule(M, N);\nint row, column;",
         "LOOP": "while (schedule.pop(row, column))", "TILE": ""},
        "as quotient and remainder of its number",
    ),
    "tiles one by one": (
        {"LOOP": "for (int tile = blockIdx.x; tile < tiles; tile += 2)"}, "which numbers `tile` has",
    ),
    "a bound that is computed": (
        {"LOOP": "for (int tile = blockIdx.x; tile < M / 128 * (N / 16); tile += gridDim.x)"},
        "which numbers `tile` has",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_is_not_understood_keeps_its_order(tmp_path: Path, name: str) -> None:
    parts, what = LOOPS[name]
    result = persistent_kernels.ported(tmp_path, STEPS[:2], **parts)
    assert result.plans[0].native == ("release",)
    assert any(what in said for said in missing(result)), missing(result)


# --- What runs show


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("parts", [{}, LINEAR, DIRECT], ids=["grid", "numbers", "no name"])
@pytest.mark.parametrize("steps", [STEPS, TILES])
def test_the_gate_takes_it(tmp_path: Path, steps: tuple[str, ...], parts: dict[str, str]) -> None:
    found = made(tmp_path, steps, **parts)
    assert found.roots[0].native == steps
    assert failure(found) == ""


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("steps", [STEPS, PAIRS])
def test_the_gate_takes_it_of_a_loop(tmp_path: Path, steps: tuple[str, ...]) -> None:
    found = port_paths([persistent_kernels.write(tmp_path)], options_of(steps), (), look)
    assert found.roots[0].native == steps
    assert failure(found) == ""


PLANTED: dict[str, tuple[tuple[str, ...], dict[str, str], str, str]] = {
    "tiles that are done twice": (STEPS, {}, r"inside % rows\) \* across", "inside % kGroup) * across"),
    "loads of another tile": (
        TILES, {}, r"(const int row = )tiles.index.y(, column = )tiles.index.x(;\s*tiles.ask)",
        r"\1blockIdx.y\2blockIdx.x\3",
    ),
    "an own tile in the old order": (TILES, {}, r"block_index\(\)\};", "blockIdx};"),
    "tiles of another number": (STEPS, LINEAR, r"\(N / 16\), gridDim.x\), column", "(N / 16), gridDim.x + 16), column"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(tmp_path: Path, name: str) -> None:
    steps, parts, *mistake = PLANTED[name]
    what = failure(planted(made(tmp_path, steps, **parts), *mistake))
    assert what
    assert "nvcc" not in what
