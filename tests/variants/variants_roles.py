# SPDX-License-Identifier: Apache-2.0
"""Threads that part: roles that end early, lanes that return, barriers of the user's own, shapes of blocks."""

from __future__ import annotations

from functools import partial

import numpy as np
from variant_template import HEAD, SYNC, TILE, file, kernel, variant, whole, wrapper
from variant_types import Values, plus, then, total

put = partial(variant, axis="role")
ONE = plus({0: 1})
DONE = "<declare>\n    <loop>\n    <store>"
PRODUCT = "<declare>\n    <loop>\n    "
CLEARED = "for (int i = threadIdx.x; i < 64 * kN; i += 128) c[i] = 0.f;\n    __syncthreads();\n    "
"""C is zero where nothing is stored."""

# --- Lanes that return apart

ROWS, COLUMNS = (np.arange(128)[:, None] // 32 * 16 + np.arange(128)[:, None] % 32 // 4 + np.arange(16) // 2 % 2 * 8,
                 np.arange(16) // 4 * 8 + np.arange(128)[:, None] % 4 * 2 + np.arange(16) % 2)  # fmt: skip


def stored(mask: Values) -> object:
    """The product where the mask over (thread, element) is true, else zero."""
    return lambda p: np.where(mask, total(p), 0.0)


LANE = np.arange(128)[:, None] % 32
put("lanes_return_by_row", CLEARED + PRODUCT + "if (row_of(0) >= tiles * 7) return;\n    <store>", want=stored(ROWS[:, :1] < 21))
put("lanes_return_in_loop", CLEARED + PRODUCT + "for (int i = 0; i < 16; ++i) {\n        if (row_of(i) >= tiles * 7) return;\n        c[at(i)] = d[i];\n    }",
    want=stored(np.logical_and.accumulate(ROWS < 21, axis=1)))  # fmt: skip
put("lanes_return_by_column", CLEARED + PRODUCT + "for (int i = 0; i < 16; ++i) {\n        if (col_of(i) >= tiles * 7) return;\n        c[at(i)] = d[i];\n    }",
    want=stored(np.logical_and.accumulate(COLUMNS < 21, axis=1)))  # fmt: skip
put("lanes_return_by_value", CLEARED + PRODUCT + "if (d[0] < 0.f) return;\n    <store>", want=lambda p: np.where(total(p)[:, :1] < 0, 0.0, total(p)))
put("lanes_return_odd", CLEARED + PRODUCT + "if (threadIdx.x & 1) return;\n    <store>", want=stored(LANE % 2 == 0))
put("lanes_return_one_by_one", CLEARED + PRODUCT + "for (int i = 0; i < 16; ++i) {\n        if (threadIdx.x % 32 < i) return;\n        c[at(i)] = d[i];\n    }", want=stored(np.arange(16) <= LANE))
put("lanes_return_first_lane_of_warp", CLEARED + PRODUCT + "if (threadIdx.x % 32 == 0) return;\n    <store>", want=stored(LANE > 0))
put("lanes_return_all_but_first", CLEARED + PRODUCT + "if (threadIdx.x != 0) return;\n    <store>", want=stored(np.arange(128)[:, None] == 0))
put("lanes_return_in_helper", CLEARED + PRODUCT + "save(c, d, tiles);\n    if (row_of(0) >= 60) return;\n    c[at(0)] += 1.f;", types="\n__device__ void save(float* c, const float (&d)[16], int tiles) {\n    if (row_of(0) >= tiles * 7) return;\n    <store>\n}\n",
    want=lambda p: np.where(ROWS[:, :1] < 21, total(p), 0.0) + np.where((ROWS[:, :1] < 60) & (np.arange(16) == 0), 1.0, 0.0))  # fmt: skip
put("lanes_return_nested", CLEARED + PRODUCT + "if (tiles > 0) {\n        if (threadIdx.x % 32 >= 16) {\n            c[at(0)] = 1.f;\n            return;\n        }\n    }\n    <store>",
    want=lambda p: np.where(LANE < 16, total(p), 1.0 * (np.arange(16) == 0)))  # fmt: skip
put("lanes_return_from_switch", CLEARED + PRODUCT + "switch (threadIdx.x % 4) {\n        case 0: return;\n        case 1: d[0] = 3.f; break;\n        default: break;\n    }\n    <store>",
    want=lambda p: np.where(LANE % 4 == 0, 0.0, np.where((LANE % 4 == 1) & (np.arange(16) == 0), 3.0, total(p))))  # fmt: skip
put("lanes_go_to_end", CLEARED + PRODUCT + "if (threadIdx.x & 1) goto end;\n    <store>\nend:;", want=stored(LANE % 2 == 0))
put("lanes_skip_by_condition", CLEARED + PRODUCT + "if (row_of(0) < tiles * 7) {\n        <store>\n    }", want=stored(ROWS[:, :1] < 21))
put("lanes_exit", CLEARED + PRODUCT + 'if (threadIdx.x & 1) asm volatile("exit;");\n    <store>', want=stored(LANE % 2 == 0))
put("warps_return", CLEARED + PRODUCT + "if (threadIdx.x >= 64) return;\n    <store>", want=stored(np.arange(128)[:, None] < 64))
put("warps_return_then_barrier", CLEARED + PRODUCT + "if (threadIdx.x >= 64) return;\n    __syncthreads();\n    <store>", want=stored(np.arange(128)[:, None] < 64))
put("warp_0_returns_first", CLEARED + PRODUCT + "if (threadIdx.x < 32) return;\n    __syncthreads();\n    <store>", want=stored(np.arange(128)[:, None] >= 32))
put("all_return_early", "if (tiles < 0) return;\n    " + DONE)
put("all_return_before_mma", "for (int i = threadIdx.x; i < 64 * kN; i += 128) c[i] = 0.f;\n    if (tiles == 3) return;\n    " + DONE, want=lambda p: 0 * total(p))
put("returns_after_store_of_each", PRODUCT + "if (threadIdx.x < 64) {\n        <store>\n        return;\n    }\n    <store>")

# --- Barriers in the epilogue

STAGED = """float* stage = reinterpret_cast<float*>(a_tile);
    __syncthreads();
    for (int i = 0; i < 16; ++i) stage[at(i)] = d[i];
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * kN; i += 128) c[i] = stage[i];"""
put("staged_store", PRODUCT + STAGED)
put("staged_store_half_by_half", PRODUCT + """float* stage = reinterpret_cast<float*>(a_tile);
    for (int h = 0; h < 2; ++h) {
        __syncthreads();
        for (int i = 0; i < 8; ++i) stage[row_of(i) * 16 + col_of(i)] = d[8 * h + i];
        __syncthreads();
        for (int i = threadIdx.x; i < 64 * 16; i += 128) c[i / 16 * kN + h * 16 + i % 16] = stage[i];
    }""")  # fmt: skip
put("barriers_between_reads", PRODUCT + "for (int i = 0; i < 16; ++i) {\n        c[at(i)] = d[i];\n        __syncthreads();\n    }")
put("barrier_or", PRODUCT + "if (__syncthreads_or(d[0] > 1e9f)) return;\n    <store>")
put("named_barrier", PRODUCT + 'asm volatile("bar.sync 1, 128;" ::: "memory");\n    <store>')
put("named_barrier_15", PRODUCT + 'asm volatile("bar.sync 15, 128;" ::: "memory");\n    <store>')
put("named_barriers_all", PRODUCT + "".join(f'asm volatile("bar.sync {i}, 128;" ::: "memory");\n    ' for i in range(1, 15)) + "<store>")
put("named_barrier_in_loop", "<declare>\n    for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        asm volatile(\"bar.sync %0, 128;\" ::\"r\"(t + 1) : \"memory\");\n    }\n    <store>")
put("warp_barrier", PRODUCT + "__syncwarp();\n    <store>\n    __syncwarp();")
put("fence_in_epilogue", PRODUCT + "__threadfence();\n    <store>\n    __threadfence_block();")

# --- Shapes of blocks, launch bounds, shared memory



def shaped(name: str, block: tuple[int, int, int], flat: str, **more: object) -> None:
    """A block of another shape; `flat` is the thread's number in it."""
    text = HEAD + SYNC + (TILE.replace("<N>", "32") + wrapper()).replace("threadIdx.x", f"({flat})")
    text += kernel(DONE, **more).replace("threadIdx.x", f"({flat})")  # type: ignore[arg-type]
    whole(name, text, axis="role", block=block)


shaped("block_32_4", (32, 4, 1), "threadIdx.y * 32 + threadIdx.x")
shaped("block_64_2", (64, 2, 1), "threadIdx.y * 64 + threadIdx.x")
shaped("block_32_2_2", (32, 2, 2), "(threadIdx.z * 2 + threadIdx.y) * 32 + threadIdx.x")
shaped("block_1_128", (1, 128, 1), "threadIdx.y")
shaped("block_4_32", (4, 32, 1), "threadIdx.y * blockDim.x + threadIdx.x")
put("bounds_none", DONE, bounds="")
put("bounds_expression", DONE, bounds="__launch_bounds__(4 * 32, 1)")
put("bounds_conditional", DONE, types="\nconstexpr int TILE_M = 64;\n", bounds="__launch_bounds__(TILE_M == 64 ? 128 : 256, 1)")
put("bounds_macro", DONE, types="\n#define WARPS 4\n#define THREADS (WARPS * 32)\n", bounds="__launch_bounds__(THREADS, 2)")
put("bounds_constant", DONE, types="\nconstexpr int kWarps = 4;\nstatic constexpr unsigned kThreads = kWarps * 32u;\n", bounds="__launch_bounds__(kThreads)")
put("bounds_of_function", DONE, types="\nconstexpr int threads(int warps) { return warps * 32; }\n", bounds="__launch_bounds__(threads(4))")
put("bounds_larger", DONE, bounds="__launch_bounds__(256)")
put("bounds_none_asserted", "constexpr int NUM_THREADS = 128;\n    static_assert(NUM_THREADS == 128);\n    " + DONE, bounds="")
DYNAMIC = "extern __shared__ __align__(1024) uint4 smem[];\n    uint4 *a_tile = smem, *b_tile = smem + 64 * 12;"
put("dynamic_shared", DONE, shared=DYNAMIC, dynamic_smem=96 * 192)
put("dynamic_shared_bytes", DONE, shared="extern __shared__ __align__(128) unsigned char smem[];\n    uint4* a_tile = reinterpret_cast<uint4*>(smem);\n    uint4* b_tile = reinterpret_cast<uint4*>(smem + 64 * 192);", dynamic_smem=96 * 192)
put("dynamic_shared_struct", DONE, types="\nstruct Storage {\n    uint4 a[64 * 12];\n    uint4 b[32 * 12];\n};\n", shared="extern __shared__ __align__(1024) char raw[];\n    Storage& storage = *reinterpret_cast<Storage*>(raw);\n    uint4 *a_tile = storage.a, *b_tile = storage.b;", dynamic_smem=96 * 192)
put("static_shared_struct", DONE, types="\nstruct alignas(128) Storage {\n    uint4 a[64 * 12];\n    uint4 b[32 * 12];\n};\n", shared="__shared__ Storage storage;\n    uint4 *a_tile = storage.a, *b_tile = storage.b;")

# --- Several warpgroups

put("warpgroups_2", DONE, warpgroups=2)
put("warpgroups_3", DONE, warpgroups=3)
put("warpgroups_2_staged", PRODUCT + "for (int w = 0; w < 2; ++w) {\n        if (threadIdx.x / 128 == w) {\n            <store>\n        }\n        __syncthreads();\n    }", warpgroups=2)
put("warpgroups_2_no_bounds", DONE, warpgroups=2, bounds="")
put("warpgroups_2_named_barriers", PRODUCT + 'asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory");\n    <store>', warpgroups=2)
put("second_warpgroup_returns", "for (int i = threadIdx.x; i < 128 * kN; i += 256) c[i] = 0.f;\n    __syncthreads();\n    if (threadIdx.x >= 128) return;\n    " + DONE, warpgroups=2, want=lambda p: np.where(np.arange(256)[:, None] < 128, total(p), 0.0))
put("first_warpgroup_returns", "for (int i = threadIdx.x; i < 128 * kN; i += 256) c[i] = 0.f;\n    __syncthreads();\n    if (threadIdx.x < 128) return;\n    " + DONE, warpgroups=2, want=lambda p: np.where(np.arange(256)[:, None] >= 128, total(p), 0.0))
put("one_returns_before_barrier", PRODUCT + "if (threadIdx.x < 128) {\n        <store>\n        return;\n    }\n    __syncthreads();\n    <store>", warpgroups=2)
put("other_returns_before_barrier", PRODUCT + "if (threadIdx.x >= 128) {\n        <store>\n        return;\n    }\n    __syncthreads();\n    <store>", warpgroups=2)
put("different_loops", "<declare>\n    if (threadIdx.x < 128) {\n        <loop>\n    } else {\n        for (int t = 0; t < tiles; ++t) {\n            <batch>\n        }\n        wait<0>();\n        d[0] += 1.f;\n    }\n    <store>", warpgroups=2,
    want=lambda p: total(p) + (np.arange(256)[:, None] >= 128) * (np.arange(16) == 0))  # fmt: skip
put("different_accumulators", "if (threadIdx.x < 128) {\n        <declare>\n        <loop>\n        <store>\n    } else {\n        float e[16] = {};\n        for (int t = 0; t < tiles; ++t) {\n            fence();\n            mma(e, a + 2 * t * kA, b + 2 * t * kB);\n            mma(e, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);\n            commit();\n            wait<0>();\n        }\n        for (int i = 0; i < 16; ++i) c[at(i)] = 2.f * e[i];\n    }", warpgroups=2,
    want=lambda p: total(p) * np.where(np.arange(256)[:, None] >= 128, 2, 1))  # fmt: skip
put("register_budgets", "if (threadIdx.x < 128) {\n        asm volatile(\"setmaxnreg.inc.sync.aligned.u32 152;\");\n    } else {\n        asm volatile(\"setmaxnreg.dec.sync.aligned.u32 104;\");\n    }\n    " + DONE, warpgroups=2)

# --- Producers and consumers


def specialised(name: str, body: str, *, threads: int = 256, rows: int = 64, first: int = 0, **more: object) -> None:
    """A kernel whose roles fill shared memory themselves; the consumers' threads begin at `first`."""
    thread = f"(threadIdx.x - {first})" if first else "threadIdx.x"
    text = HEAD + SYNC + TILE.replace("<N>", "32").replace("threadIdx.x", thread) + wrapper()
    text += more.pop("types", "")  # type: ignore[operator]
    frame = kernel(body, shared=f"__shared__ alignas(128) uint4 a_tile[{rows} * 12], b_tile[32 * 12];", bounds=f"__launch_bounds__({threads})")
    start = frame.index("    fill<64>(a_tile, a_in")
    end = frame.index("    const uint64_t a =")
    whole(name, text + frame[:start] + frame[end:], axis="role", block=(threads, 1, 1), rows=rows, **more)  # type: ignore[arg-type]


FILL = """fill<64>(a_tile, a_in, threadIdx.x - 128, 128);
        fill<32>(b_tile, b_in, threadIdx.x - 128, 128);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        """
ARRIVE = 'asm volatile("bar.arrive 1, 256;" ::: "memory");'
MEET = 'asm volatile("bar.sync 1, 256;" ::: "memory");'
specialised("producer_returns_consumers_sync", f"if (threadIdx.x >= 128) {{\n        {FILL}{ARRIVE}\n        return;\n    }}\n    {MEET}\n    {PRODUCT}__syncthreads();\n    <store>")
specialised("producer_returns_consumers_sync_twice", f"if (threadIdx.x >= 128) {{\n        {FILL}{ARRIVE}\n        return;\n    }}\n    {MEET}\n    {PRODUCT}__syncthreads();\n    d[0] += 1.f;\n    __syncthreads();\n    <store>", want=ONE)
specialised("producer_returns_consumers_sync_in_loop", f"if (threadIdx.x >= 128) {{\n        {FILL}{ARRIVE}\n        return;\n    }}\n    {MEET}\n    <declare>\n    for (int t = 0; t < tiles; ++t) {{\n        <multiply>\n        __syncthreads();\n    }}\n    <store>")
specialised("producer_returns_no_sync", f"if (threadIdx.x >= 128) {{\n        {FILL}{ARRIVE}\n        return;\n    }}\n    {MEET}\n    {DONE}")
specialised("producer_in_branch_consumers_sync", f"if (threadIdx.x >= 128) {{\n        {FILL}{ARRIVE}\n    }} else {{\n        {MEET}\n        {PRODUCT}__syncthreads();\n        <store>\n    }}")
specialised("producer_exits_consumers_sync", f"if (threadIdx.x >= 128) {{\n        {FILL}{ARRIVE}\n        asm volatile(\"exit;\");\n    }}\n    {MEET}\n    {PRODUCT}__syncthreads();\n    <store>")
specialised("producer_first_consumers_sync", "if (threadIdx.x < 128) {\n        " + FILL.replace(" - 128", "") + f"{ARRIVE}\n        return;\n    }}\n    {MEET}\n    {PRODUCT}__syncthreads();\n    <store>", first=128)
specialised("producer_warp_returns", """if (threadIdx.x >= 128) {
        fill<64>(a_tile, a_in, threadIdx.x - 128, 32);
        fill<32>(b_tile, b_in, threadIdx.x - 128, 32);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.arrive 1, 160;" ::: "memory");
        return;
    }
    asm volatile("bar.sync 1, 160;" ::: "memory");
    """ + PRODUCT + "__syncthreads();\n    <store>", threads=160)  # fmt: skip
specialised("producer_lanes_return_apart", f"""if (threadIdx.x >= 128) {{
        {FILL}{ARRIVE}
        if (threadIdx.x % 32 > 7) return;
        if (threadIdx.x % 2) return;
        return;
    }}
    {MEET}
    {PRODUCT}__syncthreads();
    <store>""")  # fmt: skip
specialised("producer_idles_at_once", """if (threadIdx.x >= 128) return;
    fill<64>(a_tile, a_in, threadIdx.x, 128);
    fill<32>(b_tile, b_in, threadIdx.x, 128);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    """ + PRODUCT + "__syncthreads();\n    <store>")  # fmt: skip
specialised("producer_in_function", f"if (threadIdx.x >= 128) {{\n        produce(a_in, b_in, a_tile, b_tile);\n        return;\n    }}\n    {MEET}\n    consume(a, b, c, tiles);", types=f"""
__device__ void produce(const uint4* a_in, const uint4* b_in, uint4* a_tile, uint4* b_tile) {{
        {FILL}{ARRIVE}
}}
__device__ void consume(uint64_t a, uint64_t b, float* c, int tiles) {{
    {PRODUCT}__syncthreads();
    <store>
}}
""")  # fmt: skip
specialised("producer_feeds_by_mbarrier", """__shared__ alignas(8) uint64_t full;
    const uint32_t bar = __cvta_generic_to_shared(&full);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(bar) : "memory");
    __syncthreads();
    if (threadIdx.x >= 128) {
        """ + FILL + """asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(bar) : "memory");
        return;
    }
    uint32_t ready = 0;
    while (!ready)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" : "=r"(ready) : "r"(bar) : "memory");
    """ + PRODUCT + "__syncthreads();\n    <store>")  # fmt: skip
specialised("producer_with_register_budgets", f"if (threadIdx.x >= 128) {{\n        asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\");\n        {FILL}{ARRIVE}\n        return;\n    }}\n    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 200;\");\n    {MEET}\n    {PRODUCT}__syncthreads();\n    <store>")
specialised("producer_and_lanes_that_return", f"if (threadIdx.x >= 128) {{\n        {FILL}for (int i = threadIdx.x - 128; i < 64 * kN; i += 128) c[i] = 0.f;\n        __threadfence_block();\n        {ARRIVE}\n        return;\n    }}\n    {MEET}\n    {PRODUCT}__syncthreads();\n    if (row_of(0) >= tiles * 7) return;\n    <store>",
            want=stored(ROWS[:, :1] < 21))  # fmt: skip
specialised("split_k", """if (threadIdx.x < 256) {
        fill<64>(a_tile, a_in, threadIdx.x, 256);
        fill<32>(b_tile, b_in, threadIdx.x, 256);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    <declare>
    for (int t = threadIdx.x / 128; t < tiles; t += 2) {
        <multiply>
    }
    __shared__ float part[64 * 32];
    const int place = (threadIdx.x % 128) * 16;
    if (threadIdx.x >= 128)
        for (int i = 0; i < 16; ++i) part[place + i] = d[i];
    __syncthreads();
    if (threadIdx.x >= 128) return;
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + part[place + i];""")  # fmt: skip
