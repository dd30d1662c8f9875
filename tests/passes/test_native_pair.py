# SPDX-License-Identifier: Apache-2.0
"""The step in which CTAs multiply in pairs: ways of writing that are understood, and what is refused with which missing
fact. Values and order are shown by the slow tests of `tests/passes/test_native_gate.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_kernels import missing, text_of
from persistent_kernels import DEFAULTS, SCHEDULE, ported

STEPS = ("release", "mma-thread", "double-buffer", "pair")
LOADS, STORE = DEFAULTS["LOADS"], DEFAULTS["STORE"]
UNDERSTOOD: dict[str, tuple[dict[str, str], list[str]]] = {
    "as it is": ({}, [
        "__global__ __cluster_dims__(2, 1, 1) void",
        "init(&ring.full[i], 2);",
        "const auto half_m = tcgen05::half_of(M, 128);",
        "const auto half_n = tcgen05::half_of(N, 16);",
        "const int tiles = half_m / 128 * (half_n / 16);",
        "tile = tcgen05::pair_index(); tile < tiles; tile += tcgen05::pair_count()",
        "k * 64, row * 128 + tcgen05::pair_rank() * half_m);",
        "k * 64, column * 16 + tcgen05::pair_rank() * half_n);",
        "const int pair_row = row + tcgen05::pair_rank() * (half_m / 128);",
        "if (row * 128 >= M || column * 16 >= N) continue;",
        "+ lane / 4) * N + column * 16",
        "loads.drain();",
        "kernel<<<(blocks + 1) / 2 * 2, 384, sizeof(Ring)>>>",
    ]),
    "a schedule of its own": (
        {"HEAD": SCHEDULE, "COUNT": "Tiles schedule(M, N);\nint row, column;",
         "LOOP": "while (schedule.pop(row, column))", "TILE": ""},
        ["Tiles schedule(half_m, half_n);", "next(tcgen05::pair_index()), step(tcgen05::pair_count())"],
    ),
    "rows and columns of the product, not tiles": (
        {"TILE": "const int row0 = tile / (N / 16) * 128, column0 = tile % (N / 16) * 16;",
         "LOADS": LOADS.replace("row * 128", "row0").replace("column * 16", "column0"),
         "STORE": STORE.replace("row * 128", "row0").replace("column * 16", "column0")},
        ["const int pair_row = row0 + tcgen05::pair_rank() * half_m;", "if (row0 >= M || column0 >= N) continue;"],
    ),
    "other names": (
        {"SIZES": "int rows, int columns, int K", "COUNT": "const int tiles = rows / 128 * (columns / 16);",
         "TILE": "const int row = tile / (columns / 16), column = tile % (columns / 16);",
         "STORE": STORE.replace("* N ", "* columns ").replace("* N +", "* columns +")},
        ["tcgen05::half_of(rows, 128);", "const int tiles = half_rows / 128 * (half_columns / 16);", "* columns +"],
    ),
    "what follows from the tile in front of its MMAs": (
        {"EARLY": "const int first = row * 128 + consumer * 64;",
         "STORE": STORE.replace("row * 128 + consumer * 64", "first")},
        ["continue; const int first = row * 128 + consumer * 64; "],
    ),
    "a grid in a variable": (
        {"LAUNCH": "dim3 grid(blocks, 1, 1);\nkernel<<<grid, 384, sizeof(Ring)>>>(map_a, map_b, out, M, N, K);"},
        ["dim3 grid((blocks + 1) / 2 * 2, 1, 1);"],
    ),
    "a grid that is computed": (
        {"LAUNCH": "kernel<<<dim3(blocks < 148 ? blocks : 148), 384, sizeof(Ring)>>>(map_a, map_b, out, M, N, K);"},
        ["<<<dim3(((blocks < 148 ? blocks : 148) + 1) / 2 * 2), 384,"],
    ),
    "a warp that loads": (
        {"PRODUCER": "if (threadIdx.x / 32 == 2 && threadIdx.x % 32 == 0)"},
        ["if (tcgen05::elect_mma_thread()) {"],
    ),
    "A in two boxes": (
        {"LOADS": "expect(&ring.full[n % kStages], 16384 + 2048);\n"
                  "load(ring.a[n % kStages], &map_a, &ring.full[n % kStages], k * 64, row * 128);\n"
                  "load(ring.a[n % kStages], &map_a, &ring.full[n % kStages], k * 64, row * 128);\n"
                  "load(ring.b[n % kStages], &map_b, &ring.full[n % kStages], k * 64, column * 16);"},
        ["row * 128 + tcgen05::pair_rank() * half_m);"],
    ),
    "a mask in the epilogue": (
        {"STORE": STORE.replace("for (int i", "if (row * 128 + warp * 16 < M) for (int i")},
        ["if (row * 128 + warp * 16 < M) for"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, wanted = UNDERSTOOD[name]
    result = ported(tmp_path, STEPS, **parts)
    assert missing(result) == []
    assert result.plans[0].native == STEPS
    text = text_of(result)
    assert [w for w in wanted if w not in text] == []


ROUND = "for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)"
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a grid of two dimensions": (
        {"LOOP": "for (int tile = blockIdx.y; tile < tiles; tile += gridDim.y)",
         "LAUNCH": "kernel<<<dim3(1, blocks), 384, sizeof(Ring)>>>(map_a, map_b, out, M, N, K);"},
        "a grid of one dimension",
    ),
    "a number of tiles that nobody can halve": (
        {"SIZES": "int M, int N, int K, int tiles", "COUNT": "", "TILE": "const int row = tile / 2, column = tile % 2;",
         "LAUNCH": "kernel<<<blocks, 384, sizeof(Ring)>>>(map_a, map_b, out, M, N, K, M / 128 * (N / 16));"},
        "that the number of tiles follows from the size of the product",
    ),
    "blocks a fixed way apart": (
        {"LOOP": "for (int tile = blockIdx.x; tile < tiles; tile += 132)"},
        "as far apart as there are blocks",
    ),
    "rows that are no parameter": (
        {"SIZES": "int rows, int N, int K", "COUNT": "const int tiles = rows * (N / 16);",
         "LAUNCH": "kernel<<<blocks, 384, sizeof(Ring)>>>(map_a, map_b, out, M / 128, N, K);"},
        "rows and columns of the product as parameters",
    ),
    "a coordinate that is no multiple": (
        {"LOADS": LOADS.replace("row * 128", "row * 128 + 64")}, "as a multiple of the tile's index",
    ),
    "a launch by a function": (
        {"LAUNCH": "void* arguments[] = {&map_a, &map_b, &out, &M, &N, &K};\n"
                   "cudaLaunchKernel((const void*)kernel, blocks, 384, arguments, sizeof(Ring), 0);"},
        "launch",
    ),
    "no host code": ({"LAUNCH": ""}, "its launch"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    result = ported(tmp_path, STEPS, **parts)
    assert any(what in said for said in missing(result)), missing(result)
    assert "pair" not in result.plans[0].native
    text = text_of(result)
    assert "pair_" not in text
    assert "cluster_dims" not in text
