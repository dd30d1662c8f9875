# SPDX-License-Identifier: Apache-2.0
"""Two accumulators in flight, and statements and loops in other forms."""

from __future__ import annotations

from functools import partial

from variant_template import asm, registers, variant
from variant_types import Values, plus, total

put = partial(variant, axis="batch")


def first_read(p: Values) -> Values:
    c = total(p)
    c[:, 0] = p[0::2].cumsum(0).sum(0)[:, 0]
    return c


TWO = """float d[16], e[16];
    for (int i = 0; i < 16; ++i) d[i] = e[i] = 0;
    """
ADDED = "for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + e[i];"
EVEN = """fence();
        mma(d, a + 2 * t * kA, b + 2 * t * kB);
        commit();"""
ODD = """fence();
        mma(e, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();"""
put(
    "two_in_flight",
    f"""{TWO}for (int t = 0; t < tiles; ++t) {{
        {EVEN}
        {ODD}
        wait<1>();
    }}
    wait<0>();
    {ADDED}""",
)
put(
    "two_in_flight_first_read",
    f"""{TWO}float s = 0.f;
    for (int t = 0; t < tiles; ++t) {{
        {EVEN}
        {ODD}
        wait<1>();
        s += d[0];
        wait<0>();
    }}
    d[0] = s - e[0];
    {ADDED}""",
    by_step=True,
    want=first_read,
)
put(
    "two_alternating",
    f"""{TWO}for (int t = 0; t < tiles; ++t) {{
        {EVEN}
        if (t > 0) {{
            wait<1>();
            e[0] += 1.f;
        }}
        {ODD}
        wait<1>();
        d[0] += 1.f;
    }}
    wait<0>();
    {ADDED}""",
    want=plus({0: 5}),
)
put(
    "two_epilogue_overlapped",
    f"""{TWO}for (int t = 0; t < tiles; ++t) {{
        {EVEN}
    }}
    for (int t = 0; t < tiles; ++t) {{
        {ODD}
    }}
    wait<3>();
    for (float& x : d) x *= 2.f;
    wait<0>();
    {ADDED}""",
    by_step=True,
    want=lambda p: 2 * total(p[0::2]) + total(p[1::2]),
)
put(
    "two_one_of_them_rezeroed",
    f"""{TWO}for (int t = 0; t < tiles; ++t) {{
        if (t == 1)
            for (float& x : e) x = 0.f;
        {EVEN}
        {ODD}
        wait<0>();
    }}
    {ADDED}""",
    by_step=True,
    want=lambda p: total(p) - p[1],
)

COMMIT_AND_WAIT = " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
SECOND = f" wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{{', '.join(f'%{i}' for i in range(16))}}}, "
SECOND += "%18, %19, 1, 1, 1, 0, 0;"
put(
    "everything_in_one_asm",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        const uint64_t da = a + 2 * t * kA, db = b + 2 * t * kB, ea = da + kA, eb = db + kB;
        one(d, da, db);
        one(d, ea, eb);
    }
    <store>""",
    types=f"""
__device__ __forceinline__ void one(float (&d)[16], uint64_t a, uint64_t b) {{
    {asm(registers("d", 16), around=("wgmma.fence.sync.aligned; ", COMMIT_AND_WAIT))}
}}
""",
)
put(
    "two_mmas_in_one_asm",
    """<declare>
    <loop>
    <store>""",
    types=f"""
__device__ __forceinline__ void both(float (&d)[16], uint64_t a, uint64_t b, uint64_t e, uint64_t f) {{
    {asm(registers("d", 16), around=("", SECOND), more=', "l"(e), "l"(f)')}
}}
""",
    pieces={"two": "both(d, a + 2 * t * kA, b + 2 * t * kB, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"},
)
put(
    "no_sync_helpers",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory");
        <two>
        asm volatile("wgmma.commit_group.sync.aligned;\\n" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;\\n" ::: "memory");
    }
    <store>""",
    sync="",
)
put(
    "wait_count_as_argument",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        <batch>
        wait_n(1);
    }
    wait_n(0);
    <store>""",
    types="""
__device__ __forceinline__ void wait_n(int n) {
    switch (n) {
        case 0: asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); return;
        case 1: asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); return;
    }
}
""",
)
put(
    "two_output_tiles",
    """for (int half = 0; half < 2; ++half) {
        <declare>
        <loop>
        for (int i = 0; i < 8; ++i) c[at(i + half * 8)] = d[i + half * 8];
    }""",
)
put(
    "two_output_tiles_outside",
    """float d[16];
    for (int half = 0; half < 2; ++half) {
        <zero>
        <loop>
        for (int i = 0; i < 8; ++i) c[at(i + half * 8)] = d[i + half * 8];
    }""",
)
put(
    "loop_of_loops",
    """<declare>
    for (int u = 0; u < tiles; ++u)
        for (int t = u; t < u + 1; ++t) {
            <multiply>
        }
    <store>""",
)
put(
    "pragma_unroll",
    """<declare>
#pragma unroll 1
    // one turn a tile
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int u = 0; u < 1; ++u) {
            <multiply>
        }
    }
#pragma unroll
    // all elements
    <store>""",
)
put(
    "braces_left_out",
    """<declare>
    for (int t = 0; t < tiles; ++t)
        if (t < tiles)
            step(d, a, b, t), wait<0>();
        else
            d[0] = 0.f;
    <store>""",
    types="""
__device__ void step(float (&d)[16], uint64_t a, uint64_t b, int t) {
        <batch>
}
""",
)
put(
    "one_line",
    "<declare> for (int t = 0; t < tiles; ++t) { <one_line> commit(); wait<0>(); } <store>",
    pieces={"one_line": "fence(); for (int s = 2 * t; s < 2 * t + 2; ++s) mma(d, a + s * kA, b + s * kB);"},
)
put(
    "try_result_flag",
    """<declare>
    bool waited = true;
    for (int t = 0; t < tiles; ++t) {
        if (!waited) wait<0>();
        <batch>
        waited = false;
    }
    if (!waited) wait<0>();
    <store>""",
)
