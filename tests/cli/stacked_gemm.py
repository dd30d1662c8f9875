# SPDX-License-Identifier: Apache-2.0
"""The corpus' GEMM in CuTe C++ whose one warpgroup has two m64 tiles, with other tiles and other ways to use sums."""

from __future__ import annotations

from pathlib import Path

CORPUS = Path(__file__).parents[2] / "corpus/cute_gemm_tma"
_TILE = "BM: 128, BN: 128"
_ATOM = "SM90_64x128x16"
_STORE = "    copy(tCrC, tCgC);\n"
_SIZES = "sizes: {M: 256, N: 128, K: 320}"
_REFERENCE = 'reference: "A @ B.T"'
_SHARED = "        uint64_t full[STAGES];\n"
_BYTES = "16 * STAGES + 1024"

VARIANTS: dict[str, dict[str, str]] = {
    "four tiles": {
        _TILE: "BM: 256, BN: 64",
        _ATOM: "SM90_64x64x16",
        _SIZES: "sizes: {M: 512, N: 64, K: 320}",
        "{M: 128, N: 128, K: 64}": "{M: 256, N: 128, K: 64}",
        "{M: 128, N: 256, K: 192}": "{M: 256, N: 64, K: 192}",
        "{M: 128, N: 128, K: 384}": "{M: 256, N: 64, K: 384}",
        _STORE: "    for (int i = 0; i < size(tCrC); ++i) tCgC(i) = 2 * tCrC(i);\n",
        _REFERENCE: 'reference: "2 * (A @ B.T)"',
    },
    "several tiles along N, an edge": {
        _ATOM: "SM90_64x32x16",
        "multiples: {M: BM,": "multiples: {M: 8,",
        '"M / BM"': '"(M + BM - 1) // BM"',
        _SIZES: "sizes: {M: 200, N: 128, K: 320}",
        _STORE: "    Tensor tCcC = thread_mma.partition_C(make_identity_tensor(Shape<Int<BM>, Int<BN>>{}));\n"
        "    for (int i = 0; i < size(tCrC); ++i) {\n"
        "        if (get<0>(tCcC(i)) + int(blockIdx.y) * BM < M) tCgC(i) = tCrC(i);\n"
        "    }\n",
    },
    "through shared memory": {
        _SHARED: "        alignas(1024) array_aligned<float, BM * BN> c;\n" + _SHARED,
        _BYTES: "16 * STAGES + BM * BN * 4 + 2048",
        _STORE: "    Tensor sC = make_tensor(make_smem_ptr(storage.c.data()), Layout<Shape<Int<BM>, Int<BN>>, "
        "Stride<Int<BN>, _1>>{});\n"
        "    auto staged = make_tiled_copy_C(Copy_Atom<UniversalCopy<uint64_t>, float>{}, tiled_mma);\n"
        "    auto own = staged.get_slice(threadIdx.x);\n"
        "    copy(staged, own.retile_S(tCrC), own.partition_D(sC));\n"
        "    __syncthreads();\n"
        "    auto whole = make_tiled_copy(Copy_Atom<UniversalCopy<uint128_t>, float>{},\n"
        "                                 Layout<Shape<_4, _32>, Stride<_32, _1>>{}, Layout<Shape<_1, _4>>{});\n"
        "    auto part = whole.get_slice(threadIdx.x);\n"
        "    copy(whole, part.partition_S(sC), part.partition_D(gC));\n",
    },
}
"""What each changes in the texts of the kernel and of its case."""


def written(folder: Path, name: str) -> Path:
    """The kernel with its case beside it."""
    for file in ("cute_gemm_tma.cu", "case.yaml"):
        text = (CORPUS / file).read_text()
        for old, new in VARIANTS[name].items():
            text = text.replace(old, new)
        (folder / file).write_text(text)
    both = "".join((CORPUS / file).read_text() for file in ("cute_gemm_tma.cu", "case.yaml"))
    assert all(both.count(old) == 1 for old in VARIANTS[name])
    return folder / "cute_gemm_tma.cu"
