# SPDX-License-Identifier: Apache-2.0
"""The step that makes tiles twice as wide: ways of writing a tile's width that are understood, what is refused with
which missing fact, and mistakes that are planted in ports, each of which fails the runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from native_kernels import missing
from wide_kernels import BY_TILE, BY_TMA, CHOICE, PAIRS, STORE, mma, options, ported, write

from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.diagnostics import Code
from porter.passes.native.step import STEPS
from porter.passes.ported import Ported, port_paths
from porter.tune import verifying
from porter.verify.builder import PORT_ARCH

CORPUS = Path(__file__).parents[2] / "corpus"
ENCODES = """\
template <int ROWS>
CUtensorMap map_of(T* data, int rows, int columns) {
    CUtensorMap map;
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, rows, columns, ROWS, BK);
    return map;
}"""
GUARD = "if (w < BN / 8 / 2 || column0 + BN <= N) {"
GRID = "dim3((N / (BN / 2) + 1) / 2, M / BM)"

QUICK = (
    "a constant", "a macro", "an enumerator", "a constant of host code, handed by a template",
    "a wrapper that chooses the instruction", "registers in two dimensions", "a loop that a number ends",
    "a number of tiles that is rounded up", "results that leave by TMA", "sums that are stored one by one",
    "columns that the kernel does not know", "TMA, and tiles that are rounded down", "a grid of a number",
    "sums of host code", "two launches",
)  # fmt: skip
UNDERSTOOD: dict[str, tuple[dict[str, str], list[str]]] = {
    "a constant": ({}, ["constexpr int BN = 32;", GUARD, GRID, "N % (BN / 2)",
                        'std::printf("whole tiles of %d x %d\\n", BM, (BN / 2))',
                        "encode(&map_b, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, B, N, K, BN, BK);"]),
    "a macro": ({"CONST": "#define BN 16"}, ["#define BN 32", GUARD, GRID]),
    "an enumerator": ({"CONST": "enum { BN = 16 };"}, ["enum { BN = 32 };", GUARD]),
    "a member": (
        {"CONST": "struct Tile { static constexpr int kN = 16; };", "BN": "Tile::kN"},
        ["kN = 32;", "if (w < Tile::kN / 8 / 2 || column0 + Tile::kN <= N) {", "N / (Tile::kN / 2) + 1) / 2"],
    ),
    "a constant of host code, handed by a template": (
        {"CONST": "", "TEMPLATE": "template <int BN>", "GIVEN": "<BN>", "HOST": "constexpr int BN = 16;"},
        ["constexpr int BN = 32;", GUARD, GRID],
    ),
    "a wrapper that chooses the instruction": (
        {"MMA": CHOICE, "CALL": "multiply<BN>"}, ["constexpr int BN = 32;", "multiply16(", "multiply32("],
    ),
    "registers in two dimensions": (
        {"MMA": mma(16, array="float (&d)[@Q@][4]", element="d[{q}][{r}]"), "SUMS": "float d[BN / 8][4] = {};",
         **BY_TILE, "STORE": PAIRS},
        ["float d[BN / 8][4]", "if (w < BN / 8 / 2 || tile * BN + BN <= N)"],
    ),
    "as many registers as a number says": (
        {"SUMS": "float d[8] = {};"}, ["float d[16];", GUARD],
    ),
    "a loop that a number ends": (
        {"STORE": STORE.replace("@BN@ / 8", "2")},
        ["for (int w = 0; w < 4; ++w) if (w < 4 / 2 || column0 + BN <= N) {"],
    ),
    "the number of a tile": (BY_TILE, ["if (w < BN / 8 / 2 || tile * BN + BN <= N) {", GRID]),
    "bytes in a constant": (
        {"CONST": "constexpr int BN = 16, kBytes = (64 + BN) * 64 * 2;", "BYTES": "kBytes"},
        ["BN = 32, kBytes = (64 + BN) * 64 * 2;"],
    ),
    "a number of tiles that is rounded up": (
        {"GRID": "(N + BN - 1) / BN", "CHECK": ""},
        ["dim3((N + BN - 1) / BN, M / BM)", "if (w < BN / 8 / 2 || column0 + BN / 2 < N) {"],
    ),
    "a function that rounds up": (
        {"GRID": "ceil_div(N, BN)", "CHECK": "",
         "HELP": "constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }"},
        ["dim3(ceil_div(N, BN), M / BM)", "column0 + BN / 2 < N"],
    ),
    "a template that encodes maps": (
        {"HELP": ENCODES, "MAP": "map_a = map_of<BM>(A, M, K); map_b = map_of<BN>(B, N, K);"},
        ["map_b = map_of<BN>(B, N, K);", GUARD],
    ),
    "a grid in variables": (
        {"HOST": "const int columns = N / BN; dim3 grid(columns, M / BM);", "GRID": "columns"},
        ["const int columns = (N / (BN / 2) + 1) / 2; dim3 grid(columns, M / BM);"],
    ),
    "descriptors that go on": (
        {"LOOP": "uint64_t left = desc(a), right = desc(b);\n        for (int i = 0; i < BK / 16; ++i) "
                 "{ multiply(d, left, right); left += 2; right += 2; }"},
        ["constexpr int BN = 32;", GUARD],
    ),
    "results that leave by TMA": (BY_TMA, ["part < BN / 16; ++part) {", GRID]),
}  # fmt: skip


def some(names: Iterable[str], quick: tuple[str, ...]) -> list[object]:
    """All names, of which those that are not quick run with the slow tests."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", some(UNDERSTOOD, QUICK))
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    result = ported(tmp_path, **parts)
    assert [d.values["what"] for d in result.diagnostics if d.code is Code.NATIVE_LEFT] == []
    assert result.plans[0].native == ("wide",)
    assert result.plans[0].halved == 0
    text = result.files[str(tmp_path / "kernel.cu")].decode()
    assert [e for e in expected if e not in text] == []


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "sums that are stored one by one": (
        {"STORE": "".join(f"C[size_t(row) * N + column0 + {i}] = d[{i}];" for i in range(8))},
        "a loop over all columns that this sum is one of",
    ),
    "a loop that ends by half of the registers": (
        {"STORE": STORE.replace("@BN@ / 8", "1")}, "a loop over all columns that this sum is one of",
    ),
    "columns that the kernel does not know": (
        {"PARAMS": "float* C, int ld, int K", "ARGUMENTS": "C, 4096, K", "STORE": STORE.replace(" N", " ld")},
        "columns of the product as a parameter of the kernel, as the last tile may have fewer",
    ),
    "TMA, and tiles that are rounded down": (
        {**BY_TMA, "CHECK": ""}, "that host code asks for whole tiles, or rounds their number up",
    ),
    "a grid of a number": ({"GRID": "N / 16", "CHECK": ""}, "a grid that host code makes of `BN`"),
    "columns by another block's index": (
        {"PLACE": "const int column0 = (blockIdx.x + blockIdx.y) * BN;"}, "follows from the block's index in the grid",
    ),
    "columns that do not begin at tiles": (
        {"PLACE": "const int column0 = blockIdx.x * BN + 16;"}, "as a multiple of the tile's index",
    ),
    "rows and columns of one constant": (
        {"CONST": "constexpr int BN = 16;\n__device__ int rows() { return BN + 3; }"},
        "has to do with the width of a tile",
    ),
    "a width that a build chooses": (
        {"CONST": "#if defined(NARROW)\nconstexpr int BN = 16;\n#endif"}, "outside of `#if`: a build may choose it",
    ),
    "sums of host code": (
        {"HOST": "const size_t bytes = size_t(M) * (N / BN); std::printf(\"%zu\", bytes);"}, "what `N / BN` has to do",
    ),
    "a remainder that is used": ({"HOST": "int rest = N % BN; N -= rest;"}, "what `N % BN` has to do"),
    "an argument of something else": (
        {"HELP": "void tune(int columns);", "HOST": "tune(BN);"}, "what `tune(BN);` has to do",
    ),
    "two launches": (
        {"MAP": "product<<<dim3(N / BN, M / BM), 128>>>(map_a, map_b, C, N, K);"}, "one place that launches",
    ),
    "registers whose order is not read": (
        {"MMA": mma(16, element="d[{i:#x}]")},
        "the registers of an MMA of 16 columns as elements of one array",
    ),
    "no host code": ({"GIVEN": "_of", "GRID": "1"}, "its launch"),
    "tiles as wide as an instruction can be": (
        {"CONST": "constexpr int BN = 256;", "MMA": mma(256)}, "a tile of fewer than 256 columns",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", some(REFUSED, QUICK))
def test_what_is_missing_is_said(tmp_path: Path, name: str) -> None:
    parts, expected = REFUSED[name]
    result = ported(tmp_path, **parts)
    assert expected in "; ".join(missing(result))
    assert result.plans[0].native == ()
    assert result.plans[0].halved is None
    assert any(g.rule != "PTR285" for g in result.groups)


def test_both_forms_have_one_launch(tmp_path: Path) -> None:
    from dataclasses import replace

    from porter.lang.sources import load_sources
    from porter.passes.port import port_sources

    path = write(tmp_path)
    result = port_sources(load_sources(path), replace(options(path), keep_hopper=True))
    assert "one launch for one chip" in "; ".join(missing(result))


# --- The runs that show it


def made(folder: Path, steps: tuple[str, ...] = ("wide",), **parts: str) -> Ported:
    path = write(folder, **parts)
    return port_paths([path], options(path, steps), (), look)


def failure(found: Ported) -> str:
    """What the runs of a port say against it."""
    (root,) = found.roots
    assert "wide" in root.native
    return verifying.Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing


def planted(found: Ported, pattern: str, instead: str) -> Ported:
    """With another text in one place of the port."""
    hits = [(p, *re.subn(pattern, instead, t.decode(), flags=re.DOTALL)) for p, t in found.new.items()]
    ((path, text, count),) = [hit for hit in hits if hit[2]]
    assert count == 1
    found.new[path] = text.encode()
    return found


PASSES = ("a constant", "a wrapper that chooses the instruction", "registers in two dimensions",
          "a constant of host code, handed by a template", "a number of tiles that is rounded up",
          "descriptors that go on")  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PASSES)
def test_the_gate_takes_a_way_of_writing(tmp_path: Path, name: str) -> None:
    assert failure(made(tmp_path, **UNDERSTOOD[name][0])) == ""


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", ["gemm_ws", "gemm_cluster", "gemm_cooperative_128"])
def test_the_gate_takes_a_corpus_kernel(name: str) -> None:
    """Of a cluster each block loads half of B, and TMA stores the results of the last one."""
    path = CORPUS / name / f"{name}.cu"
    assert failure(port_paths([path], options(path), (), look)) == ""


PLANTED: dict[str, tuple[str, str]] = {
    "bytes of a narrow tile": (r'"r"\(\(BM \+ BN\) \* BK', '"r"((BM + BN / 2) * BK'),
    "columns of a narrow tile": (r"column0 = blockIdx.x \* BN;", "column0 = blockIdx.x * (BN / 2);"),
    "the box of a narrow tile": (r"B, N, K, BN, BK\)", "B, N, K, BN / 2, BK)"),
    "half of the columns": (r"w < BN / 8; \+\+w\) if \([^{]*\{", "w < BN / 8 / 2; ++w) {"),
    "columns that there are not": (r"\+\+w\) if \([^{]*\{", "++w) {"),
    "as many blocks as before": (r"dim3\(\(N / \(BN / 2\) \+ 1\) / 2,", "dim3(N / (BN / 2),"),
    "a last half tile that is left out": (r"dim3\(\(N / \(BN / 2\) \+ 1\) / 2,", "dim3(N / BN,"),
    "an instruction of half the columns": (r"constexpr int BN = 32;", "constexpr int BN = 16;"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(tmp_path: Path, name: str) -> None:
    what = failure(planted(made(tmp_path), *PLANTED[name]))
    assert what
    assert "nvcc" not in what


@pytest.mark.slow
@pytest.mark.external
def test_a_case_without_a_size_for_half_a_tile_proves_nothing(tmp_path: Path) -> None:
    found = made(tmp_path)
    case = tmp_path / "case.yaml"
    case.write_text(case.read_text().replace("multiples: {M: BM, N: BN}", "multiples: {M: BM, N: 32}")
                    .replace("N: 16, K: 64", "N: 32, K: 64"))  # fmt: skip
    assert "at which the last tile is a half" in failure(found)


def test_the_step_is_the_first() -> None:
    assert STEPS[0] == "wide"
