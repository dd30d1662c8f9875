# SPDX-License-Identifier: Apache-2.0
"""Control flow around batches of MMAs and the waits for them."""

from __future__ import annotations

from functools import partial

import numpy as np
from variant_template import asm, registers, variant
from variant_types import Values, plus, then

put = partial(variant, axis="wait")


def loops(name: str, text: str, **more: object) -> None:
    """A variant with another main loop."""
    put(
        name,
        f"""<declare>
    {text}
    <store>""",
        **more,
    )


def middle_left_out(p: Values) -> Values:
    return p[0] + p[2]


loops(
    "wait1_then_0",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        wait<1>();
    }
    wait<0>();""",
)
loops(
    "wait_after_loop",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
    }
    wait<0>();""",
)
loops(
    "wait_if_else",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        if (t + 1 < tiles)
            wait<1>();
        else
            wait<0>();
    }""",
)
loops(
    "wait_in_helper",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        finish();
    }""",
    types="""
__device__ void finish() { wait<0>(); }
""",
)
loops(
    "wait_in_header",
    """for (int t = 0; t < tiles; wait<0>(), ++t) {
        <batch>
    }""",
)
loops(
    "wait_in_header_1",
    """for (int t = 0; t < tiles; ++t, wait<1>()) {
        <batch>
    }
    wait<0>();""",
)
loops(
    "wait_twice",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        wait<0>();
        wait<0>();
    }
    wait<0>();""",
)
loops(
    "wait_first_in_loop",
    """for (int t = 0; t < tiles; ++t) {
        wait<0>();
        <batch>
    }
    wait<0>();""",
)
loops(
    "wait_in_condition",
    """int t = 0;
    auto done = [&] { wait<0>(); return t >= tiles; };
    while (!done()) {
        <batch>
        ++t;
    }""",
)
loops(
    "wait_by_ternary",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        t + 1 < tiles ? wait<1>() : wait<0>();
    }""",
)
loops(
    "wait_in_switch",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        switch (tiles - t) {
            case 1: wait<0>(); break;
            case 2: wait<1>(); break;
            default: wait<2>(); break;
        }
    }""",
)
loops(
    "wait_runtime_helper",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        wait_for(t + 1 < tiles ? 1 : 0);
    }""",
    types="""
__device__ void wait_for(int n) {
    if (n == 0) wait<0>();
    else wait<1>();
}
""",
)
loops(
    "wait_inline_asm",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        asm volatile("wgmma.wait_group.sync.aligned 0;\\n" ::: "memory");
    }""",
)
loops(
    "do_while",
    """int t = 0;
    do {
        <multiply>
    } while (++t < tiles);""",
)
loops(
    "while_break",
    """int t = 0;
    while (true) {
        if (t >= tiles) break;
        <multiply>
        ++t;
    }""",
)
loops(
    "for_ever",
    """for (int t = 0;;) {
        <multiply>
        if (++t == tiles) break;
    }""",
)
loops(
    "counting_down",
    """for (int t = tiles; t-- > 0;) {
        <multiply>
    }""",
)
loops(
    "goto_forward",
    """for (int t = 0; t < tiles; ++t) {
        if (t == 1) goto next;
        <multiply>
    next:;
    }""",
    want=middle_left_out,
)
loops(
    "goto_loop",
    """int t = 0;
again:
    if (t < tiles) {
        <multiply>
        ++t;
        goto again;
    }""",
)
loops(
    "goto_out",
    """for (int t = 0; t < 100; ++t) {
        if (t == tiles) goto done;
        <multiply>
    }
done:
    d[0] += 1.f;""",
    want=plus({0: 1}),
)
loops(
    "continue_early",
    """for (int t = 0; t < tiles; ++t) {
        if (t == 1) continue;
        <multiply>
    }""",
    want=middle_left_out,
)
loops(
    "continue_after_wait",
    """for (int t = 0; t < tiles; ++t) {
        <multiply>
        if (t != 1) continue;
        d[0] += 1.f;
    }""",
    want=plus({0: 1}),
)
loops(
    "mma_conditional",
    """for (int t = 0; t < tiles; ++t) {
        if (t != 1) {
            <multiply>
        }
    }""",
    want=middle_left_out,
)
loops(
    "mma_conditional_in_batch",
    """for (int t = 0; t < tiles; ++t) {
        fence();
        if (t != 1) {
            <two>
        }
        commit();
        wait<0>();
    }""",
    want=middle_left_out,
)
loops(
    "last_peeled",
    """int t = 0;
    for (; t + 1 < tiles; ++t) {
        <batch>
        wait<1>();
    }
    <batch>
    wait<0>();""",
)
loops(
    "first_peeled",
    """int t = 0;
    <batch>
    for (t = 1; t < tiles; ++t) {
        <batch>
        wait<1>();
    }
    wait<0>();""",
)
loops(
    "unrolled_by_hand",
    """int t = 0;
    <multiply>
    t = 1;
    <multiply>
    t = 2;
    <multiply>""",
)
loops(
    "unrolled_two",
    """int t = 0;
    for (; t + 2 <= tiles; t += 2) {
        {
            <batch>
        }
        { const int u = t; const int t = u + 1;
            <batch>
        }
        wait<0>();
    }
    if (t < tiles) {
        <multiply>
    }""",
)
loops("zero_trip", "<loop>", tiles=0)
loops("zero_trip_changed", "<loop>\n    d[3] += 2.f;", tiles=0, want=plus({3: 2}))
put(
    "zero_trip_bias",
    """float d[16];
    for (int i = 0; i < 16; ++i) d[i] = float(i);
    <loop>
    <store>""",
    tiles=0,
    want=then("d += np.arange(16)[:, None]"),
)
loops(
    "only_if_any",
    """if (tiles > 0) {
        <loop>
        d[2] += 1.f;
    }""",
    want=plus({2: 1}),
)
loops(
    "none_of_any",
    """if (tiles > 0) {
        <loop>
        d[2] += 1.f;
    }""",
    tiles=0,
)
loops(
    "empty_group",
    """for (int t = 0; t < tiles; ++t) {
        <batch>
        commit();
        wait<0>();
    }""",
)
loops(
    "commit_alone",
    """for (int t = 0; t < tiles; ++t) {
        fence();
        <two>
        if (t & 1) commit();
    }
    commit();
    wait<0>();""",
)
loops(
    "one_commit_for_all",
    """fence();
    for (int t = 0; t < tiles; ++t) {
        <two>
    }
    commit();
    wait<0>();""",
)
loops(
    "fence_in_every_step",
    """for (int t = 0; t < tiles; ++t)
        for (int s = 0; s < 2; ++s) {
            fence();
            mma(d, a + (2 * t + s) * kA, b + (2 * t + s) * kB);
            commit();
            wait<0>();
        }""",
)
loops(
    "commit_helper",
    """for (int t = 0; t < tiles; ++t) {
        fence();
        <two>
        commit_and_wait();
    }""",
    types="""
__device__ void commit_and_wait() {
    commit();
    wait<0>();
}
""",
)
loops(
    "fence_helper",
    """for (int t = 0; t < tiles; ++t) {
        step(d, a, b, t);
        wait<0>();
    }""",
    types="""
__device__ void step(float (&d)[16], uint64_t a, uint64_t b, int t) {
        <batch>
}
""",
)
loops(
    "whole_helper",
    "multiply(d, a, b, tiles);",
    types="""
__device__ void multiply(float (&d)[16], uint64_t a, uint64_t b, int tiles) {
    <loop>
}
""",
)
loops(
    "helper_changes",
    """multiply(d, a, b, tiles);
    d[1] += 1.f;""",
    types="""
__device__ void multiply(float (&d)[16], uint64_t a, uint64_t b, int tiles) {
    <loop>
    d[0] += 1.f;
}
""",
    want=plus({0: 1, 1: 1}),
)
loops(
    "helper_without_wait",
    """for (int t = 0; t < tiles; ++t) {
        step(d, a, b, t);
    }
    wait<0>();
    d[0] += 1.f;""",
    types="""
__device__ void step(float (&d)[16], uint64_t a, uint64_t b, int t) {
        <batch>
}
""",
    want=plus({0: 1}),
)
loops(
    "read_in_condition",
    """for (int t = 0; t < tiles && d[0] < 1e9f; ++t) {
        <multiply>
    }""",
)
loops(
    "read_in_while",
    """int t = 0;
    while (t < tiles && d[0] < 1e9f) {
        <multiply>
        ++t;
    }""",
)
loops(
    "changed_in_header",
    """for (int t = 0; t < tiles; ++t, d[0] += 1.f) {
        <multiply>
    }""",
    want=plus({0: 3}),
)
loops(
    "changed_on_condition",
    """for (int t = 0; t < tiles; ++t) {
        <multiply>
        if (t == 1)
            for (float& x : d) x += 1.f;
    }""",
    want=then("d += 1"),
)
loops(
    "changed_before_loop_end",
    """for (int t = 0; t < tiles; ++t) {
        if (t > 0) d[4] += 1.f;
        <multiply>
    }""",
    want=plus({4: 2}),
)
put(
    "stored_in_last_turn",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        <multiply>
        if (t + 1 == tiles)
            <store>
    }""",
)
put(
    "stored_every_turn",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        <multiply>
        <store>
    }""",
)
put(
    "stored_in_both_branches",
    """<declare>
    <loop>
    if (threadIdx.x < 64) {
        <store>
    } else {
        for (int i = 15; i >= 0; --i) c[at(i)] = d[i];
    }""",
)
put(
    "sum_of_tiles",
    """float d[16], sum[16] = {};
    for (int t = 0; t < tiles; ++t) {
        <zero>
        <multiply>
        for (int i = 0; i < 16; ++i) sum[i] += d[i];
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];""",
)

FLAG = (
    """
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {
    """
    + asm(registers("d", 16), flag="accumulate")
    + "\n}\n"
)
OVER = "mma(d, a + 2 * t * kA, b + 2 * t * kB, %s);\n        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB, 1);"
put(
    "overwriting_first",
    """float d[16];
    <loop>
    <store>""",
    mma=FLAG,
    pieces={"two": OVER % "t > 0"},
)
put(
    "overwriting_variable",
    """float d[16];
    int on = 0;
    for (int t = 0; t < tiles; ++t) {
        <batch>
        on = 1;
        wait<0>();
    }
    <store>""",
    mma=FLAG,
    pieces={"two": OVER % "on"},
)
put(
    "overwriting_every_tile",
    """float d[16], sum[16] = {};
    for (int t = 0; t < tiles; ++t) {
        <multiply>
        for (int i = 0; i < 16; ++i) sum[i] += d[i];
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];""",
    mma=FLAG,
    pieces={"two": OVER % "0"},
)
put(
    "overwriting_after_change",
    """float d[16];
    for (int t = 0; t < tiles; ++t) {
        <multiply>
        d[0] += 1.f;
    }
    <store>""",
    mma=FLAG,
    pieces={"two": OVER % "t == 1"},
    want=lambda p: p[2] + np.eye(1, 16),
)
put(
    "ternary_mma",
    """<declare>
    <loop>
    <store>""",
    mma=FLAG,
    pieces={
        "two": """t ? mma(d, a + 2 * t * kA, b + 2 * t * kB, 1) : mma(d, a, b, 0);
        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB, 1);"""
    },
)
put(
    "switched_mma",
    """<declare>
    <loop>
    <store>""",
    mma=FLAG,
    pieces={
        "two": """switch (t) {
            case 0: mma(d, a, b, 0); break;
            default: mma(d, a + 2 * t * kA, b + 2 * t * kB, 1);
        }
        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB, 1);"""
    },
)
