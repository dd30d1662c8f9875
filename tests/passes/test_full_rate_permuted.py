# SPDX-License-Identifier: Apache-2.0
"""M=128 MMAs where threads cannot get the rows of others: rows of A change places in shared memory. Ways of writing
that are understood, and what is refused with which missing fact. Values and order are shown by
`tests/cli/test_cli_full_rate_permuted.py`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from permuted_kernels import HOST, JOINED, LOADS, STACKED, TOP, missing, ported, texts, why, write

from porter.cli.building import make_builder
from porter.cli.porting import boxes_of, look
from porter.diagnostics import Code
from porter.passes.port import PortOptions
from porter.passes.ported import port_paths
from porter.tune.full_rate import taken
from porter.tune.verifying import Proofs
from porter.verify.builder import PORT_ARCH

READS = "asm reads which warp of the CTA a thread is in"
WHOLE = "fetch(tcgen05::rows_of_a<128>(block.left, part), x, &block.ready, k * 64, top + 16 * part);"
PARTS = "for (int part = 0; part < 8; ++part)"
BOX = "describe(x, a, m, depth, 16);"
ASM = """\
asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
             ::"r"(window(block.left)), "l"(&x), "r"(window(&block.ready)), "r"(k * 64), "r"(top) : "memory");"""
TEMPLATE = """\
template <int ROWS> CUtensorMap made(void* data, uint64_t rows, uint64_t columns) {
    CUtensorMap map;
    cuuint64_t extents[2] = {columns, rows}, pitch[1] = {columns * 2};
    cuuint32_t box[2];
    box[0] = 64;
    box[1] = static_cast<cuuint32_t>(ROWS);
    cuuint32_t steps[2] = {1, 1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, data, extents, pitch, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}
"""
LAUNCH = HOST[HOST.index("void launch") :]
ENCODE = """\
    cuTensorMapEncodeTiled(&@MAP@, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, @DATA@, @MAP@_size, @MAP@_pitch, @MAP@_box,
                           steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
"""
IN_PLACE = (
    "void launch(__half* a, __half* b, float* out, int m, int n, int depth) {\n    CUtensorMap x, y;\n"
    "    cuuint32_t steps[2] = {1, 1};\n"
    "    cuuint64_t x_size[2] = {depth, m}, x_pitch[1] = {depth * 2};\n"
    "    cuuint64_t y_size[2] = {depth, n}, y_pitch[1] = {depth * 2};\n"
    "    cuuint32_t x_box[2] = {64, 128}, y_box[2] = {64, 16};\n"
    + ENCODE.replace("@MAP@", "x").replace("@DATA@", "a")
    + ENCODE.replace("@MAP@", "y").replace("@DATA@", "b")
    + "    product<<<dim3(n / 16, m / 128), 256, sizeof(Block)>>>(x, y, out, depth, n);\n}\n"
)
BY_LAMBDA = (
    HOST.replace("describe(x, a, m, depth, @BOX@)", "make(x, a, m, 128)")
    .replace("describe(y, b, n, depth, 16);", "make(y, b, n, 16);")
    .replace(
        "    CUtensorMap x, y;\n",
        "    CUtensorMap x, y;\n    auto make = [&](CUtensorMap& map, void* data, int count, int box_rows) {\n"
        "        describe(map, data, count, depth, box_rows);\n    };\n",
    )
)
SLICES = """\
__device__ int rank_in_cluster() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ void slice(__half* to, const CUtensorMap& map, uint64_t* bar, int depth, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;"
                 ::"r"(window(to)), "l"(&map), "r"(window(bar)), "r"(depth), "r"(row), "h"((uint16_t)3) : "memory");
}
"""
OTHER = "__device__ int place() { return threadIdx.x; }\n__global__ void clear(float* out) { out[place()] = 0; }\n"
UNDERSTOOD: dict[str, tuple[dict[str, str], str, list[str]]] = {
    "asm reads the index": ({}, READS, [PARTS, WHOLE, BOX]),
    "all of the index": (
        {"TOP": TOP.replace("asm(", "//"), "HEAD": "__device__ int flat(uint3 where) { return where.x; }\n",
         "THREAD": "flat(threadIdx)"},
        "`threadIdx` is used as a whole", [WHOLE, BOX],
    ),
    "a function of a library": (
        {"TOP": "#include <cooperative_groups.h>\n" + TOP.replace("asm(", "//"),
         "THREAD": "cooperative_groups::this_thread_block().thread_rank()"},
        "<cooperative_groups.h> numbers threads itself", [WHOLE, BOX],
    ),
    "a function that reads the register": (
        {"TOP": "#include <cuda/ptx>\n" + TOP.replace("asm(", "//"), "THREAD": "cuda::ptx::get_sreg_tid_x()"},
        "a function that reads the registers of a thread is not renamed", [WHOLE, BOX],
    ),
    "an index that also another kernel asks for": (
        {"TOP": TOP.replace("asm(", "//"), "HEAD": OTHER, "THREAD": "place()"},
        "`threadIdx` is read where also a kernel comes that stays at M=64", [WHOLE, BOX],
    ),
    "halves in a loop": (
        {"BOX": "64", "LOADS": "for (int h = 0; h < 2; ++h)\n"
         "    fetch(block.left + h * 64 * 64, x, &block.ready, k * 64, top + h * 64);"},
        READS,
        ["for (int part = 0; part < 4; ++part)", BOX,
         "rows_of_a<128>(block.left + h * 64 * 64, part, (top + h * 64) / 16 % 8), x, &block.ready, k * 64, "
         "(top + h * 64) + 16 * part);"],
    ),
    "halves in two statements": (
        {"BOX": "64", "LOADS": LOADS + "\nfetch(&block.left[4096], x, &block.ready, k * 64, top + 64);"},
        READS,
        ["rows_of_a<128>(block.left, part, top / 16 % 8)", BOX,
         "rows_of_a<128>(&block.left[4096], part, (top + 64) / 16 % 8), x, &block.ready, k * 64, "
         "(top + 64) + 16 * part"],
    ),
    "quarters": (
        {"BOX": "32", "LOADS": "for (int q = 0; q < 4; q++) { fetch(block.left + q * 2048, x, &block.ready, k * 64, "
         "blockIdx.y * 128 + q * 32); }"},
        READS, ["for (int part = 0; part < 2; ++part)", "(blockIdx.y * 128 + q * 32) / 16 % 8", BOX],
    ),
    "halves of a tile whose place is divided": (
        {"BOX": "64", "LOADS": "for (unsigned h = 0; h != 2; ++h)\n    fetch(&block.left[h * 4096], x, &block.ready, "
         "k << 6, (int)((blockIdx.y / 3 * 3 + blockIdx.y % 3 << 7) + (h << 6)));"},
        READS, ["((int)((blockIdx.y / 3 * 3 + blockIdx.y % 3 << 7) + (h << 6))) + 16 * part", BOX],
    ),
    "asm in the kernel": (
        {"LOADS": ASM}, READS,
        [PARTS, '"r"(tcgen05::rows_of_a<128>(window(block.left), part))', '"r"(top + 16 * part)', BOX],
    ),
    "a lambda that loads A": (
        {"LOADS": "auto bring = [&](int step, int row) { fetch(block.left, x, &block.ready, step * 64, row); };\n"
         "bring(k, top);"},
        READS,
        [PARTS, "fetch(tcgen05::rows_of_a<128>(block.left, part), x, &block.ready, step * 64, row + 16 * part);", BOX],
    ),
    "a function that counts tiles": (
        {"HEAD": "__device__ void bring(__half* to, const CUtensorMap& map, uint64_t* bar, int step, int tile) {\n"
         "    fetch(to, map, bar, step * 64, tile * 128);\n}\n",
         "LOADS": "bring(block.left, x, &block.ready, k, blockIdx.y);"},
        READS, [PARTS, "rows_of_a<128>(to, part), map, bar, step * 64, (tile * 128) + 16 * part);", BOX],
    ),
    "a function with an address of its own": (
        {"HEAD": "__device__ void bring(const void* to, const CUtensorMap& map, uint64_t* bar, int step, int row) {\n"
         "    const uint32_t at = window(to);\n"
         '    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes '
         '[%0], [%1, {%3, %4}], [%2];"\n'
         '                 ::"r"(at), "l"(&map), "r"(window(bar)), "r"(step), "r"(row) : "memory");\n}\n',
         "LOADS": "bring(block.left, x, &block.ready, k * 64, top);"},
        READS, [PARTS, '"r"(tcgen05::rows_of_a<128>(at, part))', BOX],
    ),
    "slices of a cluster": (
        {"BOX": "64", "HEAD": SLICES, "LOADS": "const int rank = rank_in_cluster();\n"
         "slice(block.left + rank * 4096, x, &block.ready, k * 64, top + rank * 64);"},
        READS,
        ["for (int part = 0; part < 4; ++part)", BOX,
         '"r"(tcgen05::rows_of_a<128>(window(to), part, row / 16 % 8))', '"r"(row + 16 * part)'],
    ),
    "a descriptor that goes on": (
        {"LOADS": LOADS,
         "MMAS": "uint64_t rows = tile_of(block.left + half * 4096);\n"
         "for (int i = 0; i < 4; ++i) { multiply(sum, rows, tile_of(block.right + i * 16)); rows += 2; }"},
        READS, [WHOLE, BOX, "multiply(sum_tmem, rows, tile_of(block.right + i * 16)); rows += 2;"],
    ),
    "a name that is taken": ({"HEAD": "constexpr int part = 1;\n"}, READS,
                             ["for (int part_ = 0; part_ < 8; ++part_)", "top + 16 * part_"]),
    "a branch without braces": (
        {"LOADS": "if (k >= 0) " + LOADS}, READS, ["if (k >= 0) " + PARTS, WHOLE],
    ),
    "the rows in a template of the host": (
        {"HOST": TEMPLATE
         + LAUNCH.replace("CUtensorMap x, y;", "auto x = made<128>(a, m, depth), y = made<16>(b, n, depth);")
         .replace("describe", "//")},
        READS, ["auto x = made<16>(a, m, depth), y = made<16>(b, n, depth);"],
    ),
    "maps without a function": ({"HOST": IN_PLACE}, READS, ["x_box[2] = {64, 16}, y_box[2] = {64, 16};"]),
    "a lambda that makes maps": ({"HOST": BY_LAMBDA}, READS, ["make(x, a, m, 16);", "make(y, b, n, 16);"]),
    "a number in a variable": (
        {"HOST": HOST.replace("    describe(x, a, m, depth, @BOX@);",
                              "    const uint32_t tall = 128;\n    describe(x, a, m, depth, tall);")},
        READS, ["describe(x, a, m, depth, 16);"],
    ),
    "a launch by a function": (
        {"HOST": HOST.replace(HOST[HOST.index("product<<<") : HOST.rindex("\n}")],
                              "cudaLaunchConfig_t config{};\n    config.gridDim = dim3(n / 16, m / 128);\n"
                              "    config.blockDim = dim3(256);\n    config.dynamicSmemBytes = sizeof(Block);\n"
                              "    cudaLaunchKernelEx(&config, product, x, y, out, depth, n);")},
        READS, [BOX],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_rows_of_a_change_places(tmp_path: Path, name: str) -> None:
    parts, reason, expected = UNDERSTOOD[name]
    result = ported(tmp_path, **parts)
    assert not missing(result), missing(result)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    assert reason in why(result)
    kernel, helpers = texts(result)
    for text in expected:
        assert text in kernel, kernel
    assert "thread_index" not in kernel + helpers
    assert "bar.sync 15, 256;" in helpers
    assert "128u >> 4 << 24" in helpers
    assert [(p.mma_rows, p.permuted) for p in result.plans] == [(128, True)]
    assert "expect(&block.ready, 128 * 128 + 16 * 128);" in kernel


TILES: dict[str, dict[str, str]] = {
    "an opaque index": {},
    "a place that threads choose": {"THREAD": "threadIdx.x", "ROW": "m * 64 + (at == depth * 1000 ? m : 0)"},
}


@pytest.mark.parametrize("name", TILES)
def test_two_tiles_of_a_warpgroup(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, STACKED, **TILES[name])
    assert not missing(result), missing(result)
    assert why(result)
    kernel, helpers = texts(result)
    assert WHOLE in kernel
    assert BOX in kernel
    assert "tile_row" not in kernel + helpers
    assert "128u >> 4 << 24" in helpers


def test_rows_stay_where_threads_can_get_those_of_others(tmp_path: Path) -> None:
    result = ported(tmp_path, TOP=TOP.replace("asm(", "//"), THREAD="threadIdx.x")
    assert not missing(result)
    assert not why(result)
    kernel, helpers = texts(result)
    assert "tcgen05::thread_index()" in kernel
    assert "rows_of_a" not in kernel + helpers
    assert "describe(x, a, m, depth, 128);" in kernel


ALSO = """\
__global__ void other(const __grid_constant__ CUtensorMap x) { asm volatile("prefetch.tensormap [%0];" ::"l"(&x)); }
"""
AGAIN = """\
void launch_more(__half* a, __half* b, float* out) {
    CUtensorMap x, y;
    describe(x, a, 128, 64, 128);
    describe(y, b, 16, 64, 16);
    product<<<1, 256, sizeof(Block)>>>(x, y, out, 64, 16);
}
"""
TURNED = """\
asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
             "[%0], [%1, {%3, %4, %3}], [%2];"
             ::"r"(window(block.left)), "l"(&x), "r"(window(&block.ready)), "r"(k * 64), "r"(top) : "memory");"""
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "an MMA of something else": (
        {"END": 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
         "multiply(sum, tile_of(bytes + 40960), tile_of(block.right));\n"
         'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");\n'
         'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'},
        "A of this MMA is not what tensor maps load",
    ),
    "the map is for B, too": ({"LOADS": LOADS + "\nfetch(block.right, x, &block.ready, k * 64, top);"},
                              "`x` is for something else than loads of A, too"),
    "another kernel has the map": (
        {"HEAD": ALSO, "HOST": HOST.replace("    product<<<", "    other<<<1, 32>>>(x);\n    product<<<")},
        "is for other maps, too",
    ),
    "one function makes all maps with one box": (
        {"HOST": HOST.replace("uint32_t box_rows", "int").replace("{64, box_rows}", "{64, 128}")},
        "is for other maps, too",
    ),
    "a map that is made in one of two ways": (
        {"HOST": HOST.replace("    describe(x, a, m, depth, @BOX@);",
                              "    if (m > 128) describe(x, a, m, depth, 128);\n"
                              "    else describe(x, a, m, depth, 64);")},
        "a tensor map is encoded that no launch is known to have",
    ),
    "maps that another function makes": (
        {"HOST": HOST + "void look(__half* a) {\n    CUtensorMap z;\n    describe(z, a, 128, 64, 128);\n}\n"},
        "a tensor map is encoded that no launch is known to have",
    ),
    "a map that another one may stand for": (
        {"HOST": HOST.replace("    product<<<", "    CUtensorMap z;\n    describe(z, a, m / 2, depth, 128);\n"
                              "    if (m > 4096) x = z;\n    product<<<")},
        "a tensor map is encoded that no launch is known to have",
    ),
    "one array for both": (
        {"HOST": IN_PLACE.replace("y_box,", "x_box,")},
        "`x_box`, the box of its tensor map, is used for something else",
    ),
    "a box that is asked for": (
        {"HOST": HOST.replace("describe(x, a, m, depth, @BOX@)", "describe(x, a, m, depth, m / 2)")},
        "the box of its tensor map is no known number of rows and bytes",
    ),
    "rows of the box count something else": (
        {"HOST": HOST.replace("{columns, rows}", "{columns, rows / box_rows * box_rows}")},
        "`box_rows`, the rows of its tensor map's box, is used for something else",
    ),
    "two launches": ({"HOST": HOST + AGAIN}, "the kernel is launched in several places"),
    "no host code": ({"HOST": ""}, "no host code in these files makes it"),
    "three dimensions": ({"LOADS": TURNED}, "A is not loaded by tensor maps of two dimensions alone"),
    "uneven boxes": ({"BOX": "48"}, "A is loaded 48 rows at a time"),
    "a load in a macro": (
        {"HEAD": "#define BRING(to, row) fetch(to, x, &block.ready, k * 64, row)\n",
         "LOADS": "BRING(block.left, top);"},
        "what is loaded here is not understood",
    ),
    "a load that counts": (
        {"HEAD": "__device__ int taken;\n__device__ void bring(__half* to, const CUtensorMap& map, uint64_t* bar, "
         "int x, int y) {\n    taken += 1;\n    fetch(to, map, bar, x, y);\n}\n",
         "LOADS": "bring(block.left, x, &block.ready, k * 64, top);\nbring(block.right, y, &block.ready, k * 64, 0);"},
        "a load of A is made by a function that does something else, too",
    ),
    "a load that expects bytes": (
        {"HEAD": "__device__ void bring(__half* to, const CUtensorMap& map, uint64_t* bar, int x, int y) {\n"
         "    expect(bar, 0);\n    fetch(to, map, bar, x, y);\n}\n",
         "LOADS": "bring(block.left, x, &block.ready, k * 64, top);\nbring(block.right, y, &block.ready, k * 64, 0);"},
        "the statement that loads A is for something else, too",
    ),
    "a row that a function changes": (
        {"HEAD": "__device__ void bring(__half* to, const CUtensorMap& map, uint64_t* bar, int step, int tile) {\n"
         "    fetch(to, map, bar, step * 64, tile * 16);\n}\n",
         "LOADS": "bring(block.left, x, &block.ready, k, blockIdx.y * 8);\nbring(block.right, y, &block.ready, k, 0);"},
        "`tile * 16`, of a load of A, is not what a call hands over",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_named(tmp_path: Path, name: str) -> None:
    parts, expected = REFUSED[name]
    result = ported(tmp_path, **parts)
    assert any(expected in what for what in missing(result)), missing(result)
    assert not why(result)
    kernel, helpers = texts(result)
    assert "rows_of_a" not in kernel + helpers
    assert "64u >> 4 << 24" in helpers or result.exit_code
    assert kernel.count("describe(x, a, m, depth, 16)") == 0


def test_both_chips_have_one_host_code(tmp_path: Path) -> None:
    result = ported(tmp_path, keep_hopper=True)
    assert any("its port are others than those of the original beside it" in what for what in missing(result))
    assert "rows_of_a" not in texts(result)[0]


def test_what_a_header_has_is_for_others_too(tmp_path: Path) -> None:
    (tmp_path / "host.cuh").write_text(
        "#pragma once\n#include <cstdint>\n#include <cuda.h>\n#include <cuda_fp16.h>\n" + IN_PLACE
    )
    result = ported(tmp_path, HOST='#include "host.cuh"')
    assert any("made in a header, which other files may include" in what for what in missing(result)), missing(result)


# --- on a simulator


def failure(path: Path) -> str:
    """Why a port with M=128 MMAs is not given; empty if it is."""
    found = port_paths([path], PortOptions(full_rate=True, boxes=partial(boxes_of, ())), (), look)
    (root,) = taken(found)
    assert root.permuted == ("product",)
    said = Proofs(make_builder(None, PORT_ARCH)).full_rate(found, root)
    return "" if said.code is Code.FULL_RATE_PROVED else str(said.values["what"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n, (p, *_) in UNDERSTOOD.items() if {"LOADS", "THREAD"} & set(p) and "cluster" not in n]
)
def test_the_gate_takes_each_way_of_writing(tmp_path: Path, name: str) -> None:
    parts = dict(UNDERSTOOD[name][0])
    if "TOP" in parts:
        parts["TOP"] = parts["TOP"].replace("int found;\n    //", "int found = 0; //")
    assert failure(write(tmp_path, **parts)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", TILES)
def test_the_gate_takes_two_tiles(tmp_path: Path, name: str) -> None:
    assert failure(write(tmp_path, STACKED, **TILES[name])) == ""


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [JOINED, STACKED], ids=["two warpgroups", "two tiles"])
@pytest.mark.parametrize("row_bytes", [64, 32])
def test_narrow_swizzles(tmp_path: Path, kernel: str, row_bytes: int) -> None:
    """Rows of 64 and 32 bytes: 16 of them are two of the groups after which a swizzle begins again."""
    path, part = write(tmp_path, kernel), 128 // row_bytes
    code = {64: 2, 32: 3}[row_bytes]
    for file, pairs in {
        path: {
            "64ull << 32 | 1ull << 62": f"{64 // part}ull << 32 | {code}ull << 62",
            "128 * 64]": f"128 * {64 // part}]",
            "16 * 64]": f"16 * {64 // part}]",
            "depth / 64": f"depth / {64 // part}",
            "128 * 128 + 16 * 128": f"(128 * 128 + 16 * 128) / {part}",
            "k * 64": f"k * {64 // part}",
            "i < 4": f"i < {4 // part}",
            "* 4096": f"* {4096 // part}",
            "{64, box_rows}": f"{{{64 // part}, box_rows}}",
            "SWIZZLE_128B": f"SWIZZLE_{row_bytes}B",
        },
        tmp_path / "case.yaml": {", 64], swizzle: 128B": f", {64 // part}], swizzle: {row_bytes}B"},
    }.items():
        text = file.read_text()
        for before, after in pairs.items():
            assert before in text
            text = text.replace(before, after)
        file.write_text(text)
    assert failure(path) == ""


MEET = 'asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");'


@pytest.mark.slow
def test_slices_that_ctas_load_for_each_other(tmp_path: Path) -> None:
    path = write(tmp_path, **UNDERSTOOD["slices of a cluster"][0])
    text = path.read_text().replace("__syncthreads();", MEET)
    path.write_text(text.replace("__global__ void", "__global__ __cluster_dims__(2) void"))
    case = tmp_path / "case.yaml"
    wide = case.read_text().replace("N: 16, K: 64}\n  - ", "N: 32, K: 64}\n  - ").replace("N: 48", "N: 96")
    case.write_text(wide.replace("multiples: {M: 128, N: 16,", "multiples: {M: 128, N: 32,"))
    assert failure(path) == ""
