# SPDX-License-Identifier: Apache-2.0
"""Both CTAs of a pair take the same steps for tiles of other rows and columns: none may follow from these."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import persistent_kernels
import pytest
from _pytest.mark.structures import ParameterSet
from native_kernels import missing
from persistent_kernels import LOADS, ported

STEPS = ("release", "mma-thread", "pair")
TILE = persistent_kernels.DEFAULTS["TILE"]
COUNTED = persistent_kernels.SOURCE.replace("k < K / 64", "k < steps")

OF_A_TILE: dict[str, dict[str, str]] = {
    "as many as memory says": {"TILE": f"{TILE}\nconst int steps = int(out[row]);"},
    "as many as the row says": {"TILE": f"{TILE}\nconst int steps = min(K / 64, row + 1);"},
    "as many as the column says": {"TILE": f"{TILE}\nconst int last = column * 2, steps = last < K / 64 ? last : 1;"},
    "as many as the number says": {"TILE": f"{TILE}\nconst int steps = tile % 2 + 1;"},
    "as many as a branch says": {"TILE": f"{TILE}\nint steps = K / 64; if (row == 1) {{ steps = 1; }}"},
    "as many as a function says": {
        "HEAD": "__device__ int counted(int row, int k) { return row < 2 ? 1 : k; }\n",
        "TILE": f"{TILE}\nconst int steps = counted(row, K / 64);",
    },
    "a tile that is left out": {"TILE": f"{TILE}\nconst int steps = K / 64;\nif (row % 3 == 2) continue;"},
    "a tile that memory leaves out": {"TILE": f"{TILE}\nconst int steps = K / 64;\nif (out[tile] > 3) continue;"},
    "another part of the sum": {
        "TILE": f"{TILE}\nconst int steps = K / 128, first = tile % 2 * steps;",
        "LOADS": LOADS.replace("k * 64", "(first + k) * 64"),
    },
}


def each(names: Iterable[str], quick: tuple[str, ...]) -> list[ParameterSet]:
    """The ways by name; those that are much like others take their time in `make test-all`."""
    return [pytest.param(n, marks=[] if n in quick else [pytest.mark.slow]) for n in names]


@pytest.mark.parametrize(
    "how", each(OF_A_TILE, ("as many as memory says", "as many as a branch says", "a tile that is left out"))
)
def test_steps_follow_from_a_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(persistent_kernels, "SOURCE", COUNTED)
    result = ported(tmp_path, STEPS, **OF_A_TILE[how])
    assert result.plans[0].native == STEPS[:2]
    assert any("steps that do not follow from the tile" in text for text in missing(result)), missing(result)


OF_ALL: dict[str, dict[str, str]] = {
    "a number of the launch": {"TILE": f"{TILE}\nconst int steps = K / 64;"},
    "a number ahead of all tiles": {
        "COUNT": persistent_kernels.DEFAULTS["COUNT"] + " const int steps = K > 64 ? K / 64 : 1;"
    },
    "a part that all tiles have": {
        "TILE": f"{TILE}\nconst int steps = K / 64;",
        "LOADS": LOADS.replace("k * 64", "(steps - 1 - k) * 64"),
    },
}


@pytest.mark.parametrize("how", each(OF_ALL, ("a number ahead of all tiles",)))
def test_steps_are_those_of_all_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(persistent_kernels, "SOURCE", COUNTED)
    result = ported(tmp_path, STEPS, **OF_ALL[how])
    assert missing(result) == []
    assert result.plans[0].native == STEPS


LISTED = {"LOOP": "for (int it = blockIdx.x; it < tiles; it += gridDim.x)"}
PLACED: dict[str, dict[str, str]] = {
    "a list of tiles": {**LISTED, "TILE": f"const int tile = int(out[it]);\n{TILE}"},
    "a list of rows": {"TILE": "const int row = int(out[tile / (N / 16)]), column = tile % (N / 16);"},
    "a list in shared memory": {
        **LISTED,
        "COUNT": persistent_kernels.DEFAULTS["COUNT"]
        + " __shared__ int list[64]; list[threadIdx.x % 64] = 63 - threadIdx.x % 64;"
        " __syncthreads();",
        "TILE": f"const int tile = list[it];\n{TILE}",
    },
    "groups of tiles": {
        "COUNT": persistent_kernels.DEFAULTS["COUNT"] + " int group = 0, start = 0, end = M;",
        "TILE": "while (tile >= end) { ++group; start = end; end += int(out[group]); }\n"
        "const int local = tile - start;\nconst int row = local / (N / 16), column = local % (N / 16);",
    },
}


@pytest.mark.parametrize("how", each(PLACED, ("a list of tiles", "groups of tiles")))
def test_memory_tells_the_place_of_a_tile(tmp_path: Path, how: str) -> None:
    result = ported(tmp_path, STEPS, **PLACED[how])
    assert result.plans[0].native == STEPS[:2]
    assert any("the place of a tile by its number alone" in text for text in missing(result)), missing(result)
