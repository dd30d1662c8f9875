# SPDX-License-Identifier: Apache-2.0
"""Several warpgroups: roles that end early, producers and consumers."""

from __future__ import annotations

from functools import partial

import numpy as np
from variant_template import HEAD, SYNC, TILE, kernel, variant, whole, wrapper
from variant_types import Values, plus, total

put = partial(variant, axis="role")
ONE = plus({0: 1})
DONE = """<declare>
    <loop>
    <store>"""
PRODUCT = """<declare>
    <loop>
    """

# --- Several warpgroups

put("warpgroups_2", DONE, warpgroups=2)
put("warpgroups_3", DONE, warpgroups=3)
put(
    "warpgroups_2_staged",
    PRODUCT
    + """for (int w = 0; w < 2; ++w) {
        if (threadIdx.x / 128 == w) {
            <store>
        }
        __syncthreads();
    }""",
    warpgroups=2,
)
put("warpgroups_2_no_bounds", DONE, warpgroups=2, bounds="")
put(
    "warpgroups_2_named_barriers",
    PRODUCT
    + """asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory");
    <store>""",
    warpgroups=2,
)
put(
    "second_warpgroup_returns",
    """for (int i = threadIdx.x; i < 128 * kN; i += 256) c[i] = 0.f;
    __syncthreads();
    if (threadIdx.x >= 128) return;
    """
    + DONE,
    warpgroups=2,
    want=lambda p: np.where(np.arange(256)[:, None] < 128, total(p), 0.0),
)
put(
    "first_warpgroup_returns",
    """for (int i = threadIdx.x; i < 128 * kN; i += 256) c[i] = 0.f;
    __syncthreads();
    if (threadIdx.x < 128) return;
    """
    + DONE,
    warpgroups=2,
    want=lambda p: np.where(np.arange(256)[:, None] >= 128, total(p), 0.0),
)
put(
    "one_returns_before_barrier",
    PRODUCT
    + """if (threadIdx.x < 128) {
        <store>
        return;
    }
    __syncthreads();
    <store>""",
    warpgroups=2,
)
put(
    "other_returns_before_barrier",
    PRODUCT
    + """if (threadIdx.x >= 128) {
        <store>
        return;
    }
    __syncthreads();
    <store>""",
    warpgroups=2,
)
put(
    "different_loops",
    """<declare>
    if (threadIdx.x < 128) {
        <loop>
    } else {
        for (int t = 0; t < tiles; ++t) {
            <batch>
        }
        wait<0>();
        d[0] += 1.f;
    }
    <store>""",
    warpgroups=2,
    want=lambda p: total(p) + (np.arange(256)[:, None] >= 128) * (np.arange(16) == 0),
)
put(
    "different_accumulators",
    """if (threadIdx.x < 128) {
        <declare>
        <loop>
        <store>
    } else {
        float e[16] = {};
        for (int t = 0; t < tiles; ++t) {
            fence();
            mma(e, a + 2 * t * kA, b + 2 * t * kB);
            mma(e, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
            commit();
            wait<0>();
        }
        for (int i = 0; i < 16; ++i) c[at(i)] = 2.f * e[i];
    }""",
    warpgroups=2,
    want=lambda p: total(p) * np.where(np.arange(256)[:, None] >= 128, 2, 1),
)
put(
    "register_budgets",
    """if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
    }
    """
    + DONE,
    warpgroups=2,
)

# --- Producers and consumers


def row_of_thread(threads: int) -> Values:
    """The row of a thread's first element, (thread, 1)."""
    thread = np.arange(float(threads))[:, None]
    return thread // 32 * 16 + thread % 32 // 4


def specialised(name: str, body: str, *, threads: int = 256, rows: int = 64, first: int = 0, **more: object) -> None:
    """A kernel whose roles fill shared memory themselves; the consumers' threads begin at `first`."""
    thread = f"(threadIdx.x - {first})" if first else "threadIdx.x"
    text = HEAD + SYNC + TILE.replace("<N>", "32").replace("threadIdx.x", thread) + wrapper()
    text += more.pop("types", "")
    frame = kernel(
        body,
        shared=f"__shared__ alignas(128) uint4 a_tile[{rows} * 12], b_tile[32 * 12];",
        bounds=f"__launch_bounds__({threads})",
    )
    start = frame.index("    fill<64>(a_tile, a_in")
    end = frame.index("    const uint64_t a =")
    whole(
        name,
        text + frame[:start] + frame[end:].replace("const uint64_t a =", "uint64_t a =", 1),
        axis="role",
        block=(threads, 1, 1),
        rows=rows,
        **more,
    )


FILL = """fill<64>(a_tile, a_in, threadIdx.x - 128, 128);
        fill<32>(b_tile, b_in, threadIdx.x - 128, 128);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        """
ARRIVE = 'asm volatile("bar.arrive 1, 256;" ::: "memory");'
MEET = 'asm volatile("bar.sync 1, 256;" ::: "memory");'
specialised(
    "producer_returns_consumers_sync",
    f"""if (threadIdx.x >= 128) {{
        {FILL}{ARRIVE}
        return;
    }}
    {MEET}
    {PRODUCT}__syncthreads();
    <store>""",
)
specialised(
    "producer_returns_consumers_sync_twice",
    f"""if (threadIdx.x >= 128) {{
        {FILL}{ARRIVE}
        return;
    }}
    {MEET}
    {PRODUCT}__syncthreads();
    d[0] += 1.f;
    __syncthreads();
    <store>""",
    want=ONE,
)
specialised(
    "producer_returns_consumers_sync_in_loop",
    f"""if (threadIdx.x >= 128) {{
        {FILL}{ARRIVE}
        return;
    }}
    {MEET}
    <declare>
    for (int t = 0; t < tiles; ++t) {{
        <multiply>
        __syncthreads();
    }}
    <store>""",
)
specialised(
    "producer_returns_no_sync",
    f"""if (threadIdx.x >= 128) {{
        {FILL}{ARRIVE}
        return;
    }}
    {MEET}
    {DONE}""",
)
specialised(
    "producer_in_branch_consumers_sync",
    f"""if (threadIdx.x >= 128) {{
        {FILL}{ARRIVE}
    }} else {{
        {MEET}
        {PRODUCT}__syncthreads();
        <store>
    }}""",
)
specialised(
    "producer_exits_consumers_sync",
    f"""if (threadIdx.x >= 128) {{
        {FILL}{ARRIVE}
        asm volatile("exit;");
    }}
    {MEET}
    {PRODUCT}__syncthreads();
    <store>""",
)
specialised(
    "producer_first_consumers_sync",
    """if (threadIdx.x < 128) {
        """
    + FILL.replace(" - 128", "")
    + f"""{ARRIVE}
        return;
    }}
    {MEET}
    {PRODUCT}__syncthreads();
    <store>""",
    first=128,
)
specialised(
    "producer_warp_returns",
    """if (threadIdx.x >= 128) {
        fill<64>(a_tile, a_in, threadIdx.x - 128, 32);
        fill<32>(b_tile, b_in, threadIdx.x - 128, 32);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.arrive 1, 160;" ::: "memory");
        return;
    }
    asm volatile("bar.sync 1, 160;" ::: "memory");
    """
    + PRODUCT
    + "__syncthreads();\n    <store>",
    threads=160,
)
specialised(
    "producer_lanes_return_apart",
    f"""if (threadIdx.x >= 128) {{
        {FILL}{ARRIVE}
        if (threadIdx.x % 32 > 7) return;
        if (threadIdx.x % 2) return;
        return;
    }}
    {MEET}
    {PRODUCT}__syncthreads();
    <store>""",
)
specialised(
    "producer_idles_at_once",
    """if (threadIdx.x >= 128) return;
    fill<64>(a_tile, a_in, threadIdx.x, 128);
    fill<32>(b_tile, b_in, threadIdx.x, 128);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    """
    + PRODUCT
    + "__syncthreads();\n    <store>",
)
specialised(
    "producer_in_function",
    f"""if (threadIdx.x >= 128) {{
        produce(a_in, b_in, a_tile, b_tile);
        return;
    }}
    {MEET}
    consume(a, b, c, tiles);""",
    types=f"""
__device__ void produce(const uint4* a_in, const uint4* b_in, uint4* a_tile, uint4* b_tile) {{
        {FILL}{ARRIVE}
}}
__device__ void consume(uint64_t a, uint64_t b, float* c, int tiles) {{
    {PRODUCT}__syncthreads();
    <store>
}}
""",
)
specialised(
    "producer_feeds_by_mbarrier",
    """__shared__ alignas(8) uint64_t full;
    const uint32_t bar = __cvta_generic_to_shared(&full);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(bar) : "memory");
    __syncthreads();
    if (threadIdx.x >= 128) {
        """
    + FILL
    + """asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(bar) : "memory");
        return;
    }
    uint32_t ready = 0;
    while (!ready)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                     : "=r"(ready) : "r"(bar) : "memory");
    """
    + PRODUCT
    + "__syncthreads();\n    <store>",
)
specialised(
    "producer_with_register_budgets",
    f"""if (threadIdx.x >= 128) {{
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        {FILL}{ARRIVE}
        return;
    }}
    asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
    {MEET}
    {PRODUCT}__syncthreads();
    <store>""",
)
specialised(
    "producer_and_lanes_that_return",
    f"""if (threadIdx.x >= 128) {{
        {FILL}for (int i = threadIdx.x - 128; i < 64 * kN; i += 128) c[i] = 0.f;
        __threadfence_block();
        {ARRIVE}
        return;
    }}
    {MEET}
    {PRODUCT}__syncthreads();
    if (row_of(0) >= tiles * 7) return;
    <store>""",
    want=lambda p: np.where(row_of_thread(128) < 21, total(p), 0.0),
)
specialised(
    "split_k",
    """if (threadIdx.x < 256) {
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
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + part[place + i];""",
)

PRODUCER_FIRST = """if (threadIdx.x < 128) {
        for (int w = 0; w < 2; ++w) fill<64>(a_tile + w * 768, a_in + w * 768, threadIdx.x, 128);
        fill<32>(b_tile, b_in, threadIdx.x, 128);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.arrive 1, 384;" ::: "memory");
        return;
    }
    asm volatile("bar.sync 1, 384;" ::: "memory");
    a += (threadIdx.x / 128 - 1) * 768;
    """
TWO_CONSUMERS = {"threads": 384, "rows": 128, "first": 128}
specialised("producer_first_two_consumers", PRODUCER_FIRST + DONE, **TWO_CONSUMERS)
specialised(
    "producer_first_two_consumers_sync",
    PRODUCER_FIRST + PRODUCT + "__syncthreads();\n    <store>",
    **TWO_CONSUMERS,
)
specialised(
    "producer_first_sync_before_loop",
    PRODUCER_FIRST + "__syncthreads();\n    <declare>\n    <loop>\n    <store>",
    **TWO_CONSUMERS,
)
specialised(
    "producer_first_sync_in_loop",
    PRODUCER_FIRST
    + """<declare>
    for (int t = 0; t < tiles; ++t) {
        <multiply>
        __syncthreads();
        d[0] += 1.f;
    }
    <store>""",
    want=plus({0: 3}),
    **TWO_CONSUMERS,
)
specialised(
    "producer_first_consumers_of_one_function",
    PRODUCER_FIRST + "consume(a, b, c, tiles);",
    types="""
__device__ void consume(uint64_t a, uint64_t b, float* c, int tiles) {
    <declare>
    <loop>
    __syncthreads();
    <store>
}
""",
    **TWO_CONSUMERS,
)
specialised(
    "consumers_end_one_by_one",
    PRODUCER_FIRST
    + PRODUCT
    + """if (threadIdx.x < 256) {
        <store>
        return;
    }
    __syncthreads();
    <store>""",
    **TWO_CONSUMERS,
)
specialised(
    "consumers_end_other_way_round",
    PRODUCER_FIRST
    + PRODUCT
    + """if (threadIdx.x >= 256) {
        <store>
        return;
    }
    __syncthreads();
    __syncthreads();
    <store>""",
    **TWO_CONSUMERS,
)
CLEARING = "for (int i = threadIdx.x; i < 128 * kN; i += 128) c[i] = 0.f;\n        asm volatile"
specialised(
    "producer_first_lanes_return",
    PRODUCER_FIRST.replace("asm volatile", CLEARING, 1)
    + PRODUCT
    + """__syncthreads();
    if (row_of(0) >= tiles * 30) return;
    <store>""",
    want=lambda p: np.where(row_of_thread(256) < 90, total(p), 0.0),
    **TWO_CONSUMERS,
)
specialised(
    "producer_in_middle",
    """if (threadIdx.x / 128 == 1) {
        for (int w = 0; w < 2; ++w) fill<64>(a_tile + w * 768, a_in + w * 768, threadIdx.x - 128, 128);
        fill<32>(b_tile, b_in, threadIdx.x - 128, 128);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.arrive 1, 384;" ::: "memory");
        return;
    }
    asm volatile("bar.sync 1, 384;" ::: "memory");
    const int w = threadIdx.x / 256;
    a += w * 768;
    """
    + PRODUCT
    + """__syncthreads();
    for (int i = 0; i < 16; ++i) c[at(i) - w * 64 * kN] = d[i];""",
    threads=384,
    rows=128,
)
specialised(
    "all_threads_fill_then_one_leaves",
    """for (int w = 0; w < 2; ++w) fill<64>(a_tile + w * 768, a_in + w * 768, threadIdx.x, 384);
    fill<32>(b_tile, b_in, threadIdx.x, 384);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x < 128) return;
    a += (threadIdx.x / 128 - 1) * 768;
    """
    + PRODUCT
    + "__syncthreads();\n    <store>",
    **TWO_CONSUMERS,
)
