# SPDX-License-Identifier: Apache-2.0
"""Threads that part: lanes and warps that return, barriers of the user's own, shapes of blocks."""

from __future__ import annotations

from functools import partial

import numpy as np
from variant_template import HEAD, SYNC, TILE, kernel, variant, whole, wrapper
from variant_types import Values, plus, total

put = partial(variant, axis="lanes")
ONE = plus({0: 1})
DONE = """<declare>
    <loop>
    <store>"""
PRODUCT = """<declare>
    <loop>
    """
CLEARED = """for (int i = threadIdx.x; i < 64 * kN; i += 128) c[i] = 0.f;
    __syncthreads();
    """
"""C is zero where nothing is stored."""

# --- Lanes that return apart

ROWS, COLUMNS = (
    np.arange(128)[:, None] // 32 * 16 + np.arange(128)[:, None] % 32 // 4 + np.arange(16) // 2 % 2 * 8,
    np.arange(16) // 4 * 8 + np.arange(128)[:, None] % 4 * 2 + np.arange(16) % 2,
)


def stored(mask: Values) -> object:
    """The product where the mask over (thread, element) is true, else zero."""
    return lambda p: np.where(mask, total(p), 0.0)


LANE = np.arange(128)[:, None] % 32
put(
    "lanes_return_by_row",
    CLEARED
    + PRODUCT
    + """if (row_of(0) >= tiles * 7) return;
    <store>""",
    want=stored(ROWS[:, :1] < 21),
)
put(
    "lanes_return_in_loop",
    CLEARED
    + PRODUCT
    + """for (int i = 0; i < 16; ++i) {
        if (row_of(i) >= tiles * 7) return;
        c[at(i)] = d[i];
    }""",
    want=stored(np.logical_and.accumulate(ROWS < 21, axis=1)),
)
put(
    "lanes_return_by_column",
    CLEARED
    + PRODUCT
    + """for (int i = 0; i < 16; ++i) {
        if (col_of(i) >= tiles * 7) return;
        c[at(i)] = d[i];
    }""",
    want=stored(np.logical_and.accumulate(COLUMNS < 21, axis=1)),
)
put(
    "lanes_return_by_value",
    CLEARED
    + PRODUCT
    + """if (d[0] < 0.f) return;
    <store>""",
    want=lambda p: np.where(total(p)[:, :1] < 0, 0.0, total(p)),
)
put("lanes_return_odd", CLEARED + PRODUCT + "if (threadIdx.x & 1) return;\n    <store>", want=stored(LANE % 2 == 0))
put(
    "lanes_return_one_by_one",
    CLEARED
    + PRODUCT
    + """for (int i = 0; i < 16; ++i) {
        if (threadIdx.x % 32 < i) return;
        c[at(i)] = d[i];
    }""",
    want=stored(np.arange(16) <= LANE),
)
put(
    "lanes_return_first_lane_of_warp",
    CLEARED
    + PRODUCT
    + """if (threadIdx.x % 32 == 0) return;
    <store>""",
    want=stored(LANE > 0),
)
put(
    "lanes_return_all_but_first",
    CLEARED
    + PRODUCT
    + """if (threadIdx.x != 0) return;
    <store>""",
    want=stored(np.arange(128)[:, None] == 0),
)
put(
    "lanes_return_in_helper",
    CLEARED
    + PRODUCT
    + """save(c, d, tiles);
    if (row_of(0) >= 60) return;
    c[at(0)] += 1.f;""",
    types="""
__device__ void save(float* c, const float (&d)[16], int tiles) {
    if (row_of(0) >= tiles * 7) return;
    <store>
}
""",
    want=lambda p: (
        np.where(ROWS[:, :1] < 21, total(p), 0.0) + np.where((ROWS[:, :1] < 60) & (np.arange(16) == 0), 1.0, 0.0)
    ),
)
put(
    "lanes_return_nested",
    CLEARED
    + PRODUCT
    + """if (tiles > 0) {
        if (threadIdx.x % 32 >= 16) {
            c[at(0)] = 1.f;
            return;
        }
    }
    <store>""",
    want=lambda p: np.where(LANE < 16, total(p), 1.0 * (np.arange(16) == 0)),
)
put(
    "lanes_return_from_switch",
    CLEARED
    + PRODUCT
    + """switch (threadIdx.x % 4) {
        case 0: return;
        case 1: d[0] = 3.f; break;
        default: break;
    }
    <store>""",
    want=lambda p: np.where(LANE % 4 == 0, 0.0, np.where((LANE % 4 == 1) & (np.arange(16) == 0), 3.0, total(p))),
)
put(
    "lanes_go_to_end",
    CLEARED
    + PRODUCT
    + """if (threadIdx.x & 1) goto end;
    <store>
end:;""",
    want=stored(LANE % 2 == 0),
)
put(
    "lanes_skip_by_condition",
    CLEARED
    + PRODUCT
    + """if (row_of(0) < tiles * 7) {
        <store>
    }""",
    want=stored(ROWS[:, :1] < 21),
)
put(
    "lanes_exit",
    CLEARED
    + PRODUCT
    + """if (threadIdx.x & 1) asm volatile("exit;");
    <store>""",
    want=stored(LANE % 2 == 0),
)
put(
    "warps_return",
    CLEARED
    + PRODUCT
    + """if (threadIdx.x >= 64) return;
    <store>""",
    want=stored(np.arange(128)[:, None] < 64),
)
put(
    "warps_return_then_barrier",
    CLEARED
    + PRODUCT
    + """if (threadIdx.x >= 64) return;
    __syncthreads();
    <store>""",
    want=stored(np.arange(128)[:, None] < 64),
)
put(
    "warp_0_returns_first",
    CLEARED
    + PRODUCT
    + """if (threadIdx.x < 32) return;
    __syncthreads();
    <store>""",
    want=stored(np.arange(128)[:, None] >= 32),
)
put("all_return_early", "if (tiles < 0) return;\n    " + DONE)
put(
    "all_return_before_mma",
    """for (int i = threadIdx.x; i < 64 * kN; i += 128) c[i] = 0.f;
    if (tiles == 3) return;
    """
    + DONE,
    want=lambda p: 0 * total(p),
)
put(
    "returns_after_store_of_each",
    PRODUCT
    + """if (threadIdx.x < 64) {
        <store>
        return;
    }
    <store>""",
)

# --- Barriers in the epilogue

STAGED = """float* stage = reinterpret_cast<float*>(a_tile);
    __syncthreads();
    for (int i = 0; i < 16; ++i) stage[at(i)] = d[i];
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * kN; i += 128) c[i] = stage[i];"""
put("staged_store", PRODUCT + STAGED)
put(
    "staged_store_half_by_half",
    PRODUCT
    + """float* stage = reinterpret_cast<float*>(a_tile);
    for (int h = 0; h < 2; ++h) {
        __syncthreads();
        for (int i = 0; i < 8; ++i) stage[row_of(i) * 16 + col_of(i)] = d[8 * h + i];
        __syncthreads();
        for (int i = threadIdx.x; i < 64 * 16; i += 128) c[i / 16 * kN + h * 16 + i % 16] = stage[i];
    }""",
)
put(
    "barriers_between_reads",
    PRODUCT
    + """for (int i = 0; i < 16; ++i) {
        c[at(i)] = d[i];
        __syncthreads();
    }""",
)
put("barrier_or", PRODUCT + "if (__syncthreads_or(d[0] > 1e9f)) return;\n    <store>")
put("named_barrier", PRODUCT + 'asm volatile("bar.sync 1, 128;" ::: "memory");\n    <store>')
put("named_barrier_15", PRODUCT + 'asm volatile("bar.sync 15, 128;" ::: "memory");\n    <store>')
put(
    "named_barriers_all",
    PRODUCT
    + "".join(
        f"""asm volatile("bar.sync {i}, 128;" ::: "memory");
    """
        for i in range(1, 15)
    )
    + "<store>",
)
put(
    "named_barrier_in_loop",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        <multiply>
        asm volatile("bar.sync %0, 128;" ::"r"(t + 1) : "memory");
    }
    <store>""",
)
put(
    "warp_barrier",
    PRODUCT
    + """__syncwarp();
    <store>
    __syncwarp();""",
)
put(
    "fence_in_epilogue",
    PRODUCT
    + """__threadfence();
    <store>
    __threadfence_block();""",
)

# --- Shapes of blocks, launch bounds, shared memory


def shaped(name: str, block: tuple[int, int, int], flat: str, **more: object) -> None:
    """A block of another shape; `flat` is the thread's number in it."""
    text = HEAD + SYNC + (TILE.replace("<N>", "32") + wrapper()).replace("threadIdx.x", f"({flat})")
    text += kernel(DONE, **more).replace("threadIdx.x", f"({flat})")
    whole(name, text, axis="lanes", block=block)


shaped("block_32_4", (32, 4, 1), "threadIdx.y * 32 + threadIdx.x")
shaped("block_64_2", (64, 2, 1), "threadIdx.y * 64 + threadIdx.x")
shaped("block_32_2_2", (32, 2, 2), "(threadIdx.z * 2 + threadIdx.y) * 32 + threadIdx.x")
shaped("block_1_128", (1, 128, 1), "threadIdx.y")
shaped("block_4_32", (4, 32, 1), "threadIdx.y * blockDim.x + threadIdx.x")
put("bounds_none", DONE, bounds="")
put("bounds_expression", DONE, bounds="__launch_bounds__(4 * 32, 1)")
put(
    "bounds_conditional",
    DONE,
    types="""
constexpr int TILE_M = 64;
""",
    bounds="__launch_bounds__(TILE_M == 64 ? 128 : 256, 1)",
)
put(
    "bounds_macro",
    DONE,
    types="""
#define WARPS 4
#define THREADS (WARPS * 32)
""",
    bounds="__launch_bounds__(THREADS, 2)",
)
put(
    "bounds_constant",
    DONE,
    types="""
constexpr int kWarps = 4;
static constexpr unsigned kThreads = kWarps * 32u;
""",
    bounds="__launch_bounds__(kThreads)",
)
put(
    "bounds_of_function",
    DONE,
    types="""
constexpr int threads(int warps) { return warps * 32; }
""",
    bounds="__launch_bounds__(threads(4))",
)
put("bounds_larger", DONE, bounds="__launch_bounds__(256)")
put(
    "bounds_none_asserted",
    """constexpr int NUM_THREADS = 128;
    static_assert(NUM_THREADS == 128);
    """
    + DONE,
    bounds="",
)
DYNAMIC = "extern __shared__ __align__(1024) uint4 smem[];\n    uint4 *a_tile = smem, *b_tile = smem + 64 * 12;"
put("dynamic_shared", DONE, shared=DYNAMIC, dynamic_smem=96 * 192)
put(
    "dynamic_shared_bytes",
    DONE,
    shared="""extern __shared__ __align__(128) unsigned char smem[];
    uint4* a_tile = reinterpret_cast<uint4*>(smem);
    uint4* b_tile = reinterpret_cast<uint4*>(smem + 64 * 192);""",
    dynamic_smem=96 * 192,
)
put(
    "dynamic_shared_struct",
    DONE,
    types="""
struct Storage {
    uint4 a[64 * 12];
    uint4 b[32 * 12];
};
""",
    shared="""extern __shared__ __align__(1024) char raw[];
    Storage& storage = *reinterpret_cast<Storage*>(raw);
    uint4 *a_tile = storage.a, *b_tile = storage.b;""",
    dynamic_smem=96 * 192,
)
put(
    "static_shared_struct",
    DONE,
    types="""
struct alignas(128) Storage {
    uint4 a[64 * 12];
    uint4 b[32 * 12];
};
""",
    shared="""__shared__ Storage storage;
    uint4 *a_tile = storage.a, *b_tile = storage.b;""",
)
