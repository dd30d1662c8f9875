# SPDX-License-Identifier: Apache-2.0
"""GEMMs of CuTe C++ in ways of writing that matter where CTAs multiply in pairs."""

from __future__ import annotations

from pathlib import Path

CORPUS = Path(__file__).parents[1] / "corpus"
KERNEL = CORPUS / "cute_gemm_persistent" / "cute_gemm_persistent.cu"
GRID = CORPUS / "cute_gemm_ws" / "cute_gemm_ws.cu"
"""Its blocks have one tile each."""
LOOP = "for (Tiles tiles(M, N); tiles.is_valid(); tiles.advance()) {"
COORD = "make_coord(tiles.row(), tiles.column())"

TEXT = KERNEL.read_text()
TILES = TEXT[TEXT.index("// The tiles of a block") : TEXT.index("CUTE_DEVICE void produce")]

Change = tuple[str, str]
NUMBERED = (
    "const int rows = M / config::kM, count = rows * (N / config::kN);\n"
    "    for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {\n"
    "        const int row = tile % rows;\n        const int column = tile / rows;"
)
BY_NUMBER: list[Change] = [
    (TILES, ""),
    (LOOP, NUMBERED),
    ("tiles.row() * config::kM", "row * config::kM"),
    ("tiles.column() * config::kN", "config::kN * column"),
    (COORD, "make_coord(row, column)"),
]
"""Two loops that number their tiles themselves."""
INLINE: list[Change] = [
    ("if (threadIdx.x == 0) produce(pipeline, storage, map_a, map_b, M, N, steps);",
     "if (threadIdx.x == 0) {\n"
     "            Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), LayoutA{});\n"
     "            Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), LayoutB{});\n"
     "            auto write = cutlass::make_producer_start_state<Pipeline>();\n"
     "            for (Tiles tiles(M, N); tiles.is_valid(); tiles.advance()) {\n"
     "                for (int k = 0; k < steps; ++k, ++write) {\n"
     "                    pipeline.producer_acquire(write);\n"
     "                    SM90_TMA_LOAD_2D::copy(&map_a, pipeline.producer_get_barrier(write), 0,\n"
     "                                           &sA(0, 0, write.index()), k * kK, tiles.row() * kM);\n"
     "                    SM90_TMA_LOAD_2D::copy(&map_b, pipeline.producer_get_barrier(write), 0,\n"
     "                                           &sB(0, 0, write.index()), k * kK, tiles.column() * kN);\n"
     "                }\n            }\n            pipeline.producer_tail(write);\n        }"),
]  # fmt: skip
"""Loads in the kernel itself."""
BY_ROWS: list[Change] = [
    ("return next % rows; }", "return next % rows * config::kM; }"),
    ("return next / rows; }", "return next / rows * config::kN; }"),
    ("tiles.row() * config::kM", "tiles.row()"),
    ("tiles.column() * config::kN", "tiles.column()"),
    (COORD, "make_coord(tiles.row() / kM, tiles.column() / kN)"),
]
"""Places of tiles that are counted in rows and columns of the product."""
EDGES: list[Change] = [
    ("rows(M / config::kM), count(rows * (N / config::kN))",
     "rows((M + config::kM - 1) / config::kM), count(rows * ((N + config::kN - 1) / config::kN))"),
    ("(M / kM) * (N / kN)", "((M + kM - 1) / kM) * ((N + kN - 1) / kN)"),
    ("        copy(results, thread_mma.partition_C(gD));",
     "        Tensor cD = local_tile(make_identity_tensor(make_shape(M, N)), Shape<Int<kM>, Int<kN>>{},\n"
     "                               make_coord(tiles.row(), tiles.column()));\n"
     "        Tensor tCgD = thread_mma.partition_C(gD);\n"
     "        Tensor tCcD = thread_mma.partition_C(cD);\n"
     "        CUTE_UNROLL\n"
     "        for (int i = 0; i < size(results); ++i)\n"
     "            if (elem_less(tCcD(i), make_shape(M, N))) tCgD(i) = results(i);"),
]  # fmt: skip
"""Tiles at the edges of a product that are not whole."""
AHEAD: list[Change] = [
    ("        mma.accumulate_ = GMMA::ScaleOut::Zero;",
     f"        const auto place = {COORD};\n"
     "        Tensor gD = local_tile(mD, Shape<Int<kM>, Int<kN>>{}, place);\n"
     "        mma.accumulate_ = GMMA::ScaleOut::Zero;"),
    (f"        Tensor gD = local_tile(mD, Shape<Int<kM>, Int<kN>>{{}}, {COORD});\n", ""),
]  # fmt: skip
"""What stores have for the place of their tile stands ahead of its MMAs."""
NARROW: list[Change] = [("kN = 128", "kN = 64"), ("SM90_64x128x16", "SM90_64x64x16")]

WRITINGS: dict[str, list[Change]] = {
    "tiles that are numbered": BY_NUMBER,
    "loads in the kernel itself": INLINE,
    "places in rows and columns": BY_ROWS,
    "tiles at the edges": EDGES,
    "tiles of 64 columns": NARROW,
    "places that are made ahead": AHEAD,
}


SWAPPED: list[Change] = [
    ("int(blockIdx.y) * BM", "int(blockIdx.x) * BM"),
    ("int(blockIdx.x) * BN", "int(blockIdx.y) * BN"),
    ("make_coord(blockIdx.y, blockIdx.x)", "make_coord(blockIdx.x, blockIdx.y)"),
    ("dim3(N / BN, M / BM)", "dim3(M / BM, N / BN)"),
]
"""Rows along the first dimension of the grid."""
NAMED: list[Change] = [
    ("    for (int tile = 0; tile < tiles; ++tile, ++state) {",
     "    const int row = blockIdx.y * BM, column = BN * static_cast<int>(blockIdx.x);\n"
     "    for (int tile = 0; tile < tiles; ++tile, ++state) {"),
    ("int(blockIdx.y) * BM", "row"),
    ("int(blockIdx.x) * BN", "column"),
    ("    multiply(pipeline, tiled_", "    const int m = blockIdx.y, n = blockIdx.x;\n    multiply(pipeline, tiled_"),
    ("    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));\n", ""),
    ("    copy(tCrC, thread_mma.partition_C(gC));",
     "    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(m, n));\n"
     "    copy(tCrC, thread_mma.partition_C(gC));"),
]  # fmt: skip
"""Places of tiles in variables."""
GRID_EDGES: list[Change] = [
    ("dim3(N / BN, M / BM)", "dim3((N + BN - 1) / BN, (M + BM - 1) / BM)"),
    ("    copy(tCrC, thread_mma.partition_C(gC));",
     "    Tensor cC = local_tile(make_identity_tensor(make_shape(M, N)), Shape<Int<BM>, Int<BN>>{},\n"
     "                           make_coord(blockIdx.y, blockIdx.x));\n"
     "    Tensor tCgC = thread_mma.partition_C(gC);\n    Tensor tCcC = thread_mma.partition_C(cC);\n"
     "    Tensor results = make_tensor_like<float>(tCrC);\n    copy(tCrC, results);\n    CUTE_UNROLL\n"
     "    for (int i = 0; i < size(results); ++i)\n"
     "        if (elem_less(tCcC(i), make_shape(M, N))) tCgC(i) = results(i);"),
]  # fmt: skip
GRIDS: dict[str, list[Change]] = {
    "rows first": SWAPPED, "places in variables": NAMED, "tiles at the edges of a grid": GRID_EDGES,
}  # fmt: skip


def source(changes: list[Change], kernel: Path = KERNEL) -> str:
    """A kernel with some texts in place of others."""
    text = kernel.read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text
