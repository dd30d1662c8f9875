# SPDX-License-Identifier: Apache-2.0
"""Control flow around batches of MMAs and the waits for them."""

from __future__ import annotations

from functools import partial

import numpy as np
from variant_template import asm, registers, variant
from variant_types import Values, plus, then, total

put = partial(variant, axis="wait")


def loops(name: str, text: str, **more: object) -> None:
    """A variant with another main loop."""
    put(name, f"<declare>\n    {text}\n    <store>", **more)  # type: ignore[arg-type]


def middle_left_out(p: Values) -> Values:
    return p[0] + p[2]


loops("wait1_then_0", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        wait<1>();\n    }\n    wait<0>();")
loops("wait_after_loop", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n    }\n    wait<0>();")
loops("wait_if_else", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        if (t + 1 < tiles)\n            wait<1>();\n        else\n            wait<0>();\n    }")
loops("wait_in_helper", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        finish();\n    }", types="\n__device__ void finish() { wait<0>(); }\n")
loops("wait_in_header", "for (int t = 0; t < tiles; wait<0>(), ++t) {\n        <batch>\n    }")
loops("wait_in_header_1", "for (int t = 0; t < tiles; ++t, wait<1>()) {\n        <batch>\n    }\n    wait<0>();")
loops("wait_twice", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        wait<0>();\n        wait<0>();\n    }\n    wait<0>();")
loops("wait_first_in_loop", "for (int t = 0; t < tiles; ++t) {\n        wait<0>();\n        <batch>\n    }\n    wait<0>();")
loops("wait_in_condition", "int t = 0;\n    auto done = [&] { wait<0>(); return t >= tiles; };\n    while (!done()) {\n        <batch>\n        ++t;\n    }")
loops("wait_by_ternary", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        t + 1 < tiles ? wait<1>() : wait<0>();\n    }")
loops("wait_in_switch", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        switch (tiles - t) {\n            case 1: wait<0>(); break;\n            case 2: wait<1>(); break;\n            default: wait<2>(); break;\n        }\n    }")
loops("wait_runtime_helper", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        wait_for(t + 1 < tiles ? 1 : 0);\n    }", types="\n__device__ void wait_for(int n) {\n    if (n == 0) wait<0>();\n    else wait<1>();\n}\n")
loops("wait_inline_asm", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        asm volatile(\"wgmma.wait_group.sync.aligned 0;\\n\" ::: \"memory\");\n    }")
loops("do_while", "int t = 0;\n    do {\n        <multiply>\n    } while (++t < tiles);")
loops("while_break", "int t = 0;\n    while (true) {\n        if (t >= tiles) break;\n        <multiply>\n        ++t;\n    }")
loops("for_ever", "for (int t = 0;;) {\n        <multiply>\n        if (++t == tiles) break;\n    }")
loops("counting_down", "for (int t = tiles; t-- > 0;) {\n        <multiply>\n    }")
loops("goto_forward", "for (int t = 0; t < tiles; ++t) {\n        if (t == 1) goto next;\n        <multiply>\n    next:;\n    }", want=middle_left_out)
loops("goto_loop", "int t = 0;\nagain:\n    if (t < tiles) {\n        <multiply>\n        ++t;\n        goto again;\n    }")
loops("goto_out", "for (int t = 0; t < 100; ++t) {\n        if (t == tiles) goto done;\n        <multiply>\n    }\ndone:\n    d[0] += 1.f;", want=plus({0: 1}))
loops("continue_early", "for (int t = 0; t < tiles; ++t) {\n        if (t == 1) continue;\n        <multiply>\n    }", want=middle_left_out)
loops("continue_after_wait", "for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        if (t != 1) continue;\n        d[0] += 1.f;\n    }", want=plus({0: 1}))
loops("mma_conditional", "for (int t = 0; t < tiles; ++t) {\n        if (t != 1) {\n            <multiply>\n        }\n    }", want=middle_left_out)
loops("mma_conditional_in_batch", "for (int t = 0; t < tiles; ++t) {\n        fence();\n        if (t != 1) {\n            <two>\n        }\n        commit();\n        wait<0>();\n    }", want=middle_left_out)
loops("last_peeled", "int t = 0;\n    for (; t + 1 < tiles; ++t) {\n        <batch>\n        wait<1>();\n    }\n    <batch>\n    wait<0>();")
loops("first_peeled", "int t = 0;\n    <batch>\n    for (t = 1; t < tiles; ++t) {\n        <batch>\n        wait<1>();\n    }\n    wait<0>();")
loops("unrolled_by_hand", "int t = 0;\n    <multiply>\n    t = 1;\n    <multiply>\n    t = 2;\n    <multiply>")
loops("unrolled_two", "int t = 0;\n    for (; t + 2 <= tiles; t += 2) {\n        {\n            <batch>\n        }\n        { const int u = t; const int t = u + 1;\n            <batch>\n        }\n        wait<0>();\n    }\n    if (t < tiles) {\n        <multiply>\n    }")
loops("zero_trip", "<loop>", tiles=0)
loops("zero_trip_changed", "<loop>\n    d[3] += 2.f;", tiles=0, want=plus({3: 2}))
put("zero_trip_bias", "float d[16];\n    for (int i = 0; i < 16; ++i) d[i] = float(i);\n    <loop>\n    <store>", tiles=0, want=then(lambda d: d.__iadd__(np.arange(16))))
loops("only_if_any", "if (tiles > 0) {\n        <loop>\n        d[2] += 1.f;\n    }", want=plus({2: 1}))
loops("none_of_any", "if (tiles > 0) {\n        <loop>\n        d[2] += 1.f;\n    }", tiles=0)
loops("empty_group", "for (int t = 0; t < tiles; ++t) {\n        <batch>\n        commit();\n        wait<0>();\n    }")
loops("commit_alone", "for (int t = 0; t < tiles; ++t) {\n        fence();\n        <two>\n        if (t & 1) commit();\n    }\n    commit();\n    wait<0>();")
loops("one_commit_for_all", "fence();\n    for (int t = 0; t < tiles; ++t) {\n        <two>\n    }\n    commit();\n    wait<0>();")
loops("fence_in_every_step", "for (int t = 0; t < tiles; ++t)\n        for (int s = 0; s < 2; ++s) {\n            fence();\n            mma(d, a + (2 * t + s) * kA, b + (2 * t + s) * kB);\n            commit();\n            wait<0>();\n        }")
loops("commit_helper", "for (int t = 0; t < tiles; ++t) {\n        fence();\n        <two>\n        commit_and_wait();\n    }", types="\n__device__ void commit_and_wait() {\n    commit();\n    wait<0>();\n}\n")
loops("fence_helper", "for (int t = 0; t < tiles; ++t) {\n        step(d, a, b, t);\n        wait<0>();\n    }", types="\n__device__ void step(float (&d)[16], uint64_t a, uint64_t b, int t) {\n        <batch>\n}\n")
loops("whole_helper", "multiply(d, a, b, tiles);", types="\n__device__ void multiply(float (&d)[16], uint64_t a, uint64_t b, int tiles) {\n    <loop>\n}\n")
loops("helper_changes", "multiply(d, a, b, tiles);\n    d[1] += 1.f;", types="\n__device__ void multiply(float (&d)[16], uint64_t a, uint64_t b, int tiles) {\n    <loop>\n    d[0] += 1.f;\n}\n", want=plus({0: 1, 1: 1}))
loops("helper_without_wait", "for (int t = 0; t < tiles; ++t) {\n        step(d, a, b, t);\n    }\n    wait<0>();\n    d[0] += 1.f;", types="\n__device__ void step(float (&d)[16], uint64_t a, uint64_t b, int t) {\n        <batch>\n}\n", want=plus({0: 1}))
loops("read_in_condition", "for (int t = 0; t < tiles && d[0] < 1e9f; ++t) {\n        <multiply>\n    }")
loops("read_in_while", "int t = 0;\n    while (t < tiles && d[0] < 1e9f) {\n        <multiply>\n        ++t;\n    }")
loops("changed_in_header", "for (int t = 0; t < tiles; ++t, d[0] += 1.f) {\n        <multiply>\n    }", want=plus({0: 3}))
loops("changed_on_condition", "for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        if (t == 1)\n            for (float& x : d) x += 1.f;\n    }", want=then(lambda d: d.__iadd__(1)))
loops("changed_before_loop_end", "for (int t = 0; t < tiles; ++t) {\n        if (t > 0) d[4] += 1.f;\n        <multiply>\n    }", want=plus({4: 2}))
put("stored_in_last_turn", "<declare>\n    for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        if (t + 1 == tiles)\n            <store>\n    }")
put("stored_every_turn", "<declare>\n    for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        <store>\n    }")
put("stored_in_both_branches", "<declare>\n    <loop>\n    if (threadIdx.x < 64) {\n        <store>\n    } else {\n        for (int i = 15; i >= 0; --i) c[at(i)] = d[i];\n    }")
put("sum_of_tiles", "float d[16], sum[16] = {};\n    for (int t = 0; t < tiles; ++t) {\n        <zero>\n        <multiply>\n        for (int i = 0; i < 16; ++i) sum[i] += d[i];\n    }\n    for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];")

FLAG = """
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {
    """ + asm(registers("d", 16), flag="accumulate") + "\n}\n"  # fmt: skip
OVER = "mma(d, a + 2 * t * kA, b + 2 * t * kB, %s);\n        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB, 1);"
put("overwriting_first", "float d[16];\n    <loop>\n    <store>", mma=FLAG, pieces={"two": OVER % "t > 0"})
put("overwriting_variable", "float d[16];\n    int on = 0;\n    for (int t = 0; t < tiles; ++t) {\n        <batch>\n        on = 1;\n        wait<0>();\n    }\n    <store>", mma=FLAG, pieces={"two": OVER % "on"})
put("overwriting_every_tile", "float d[16], sum[16] = {};\n    for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        for (int i = 0; i < 16; ++i) sum[i] += d[i];\n    }\n    for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];", mma=FLAG, pieces={"two": OVER % "0"})
put("overwriting_after_change", "float d[16];\n    for (int t = 0; t < tiles; ++t) {\n        <multiply>\n        d[0] += 1.f;\n    }\n    <store>", mma=FLAG, pieces={"two": OVER % "t == 1"},
    want=lambda p: p[2] + np.eye(1, 16))  # fmt: skip
put("ternary_mma", "<declare>\n    <loop>\n    <store>", mma=FLAG, pieces={"two": "t ? mma(d, a + 2 * t * kA, b + 2 * t * kB, 1) : mma(d, a, b, 0);\n        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB, 1);"})
put("switched_mma", "<declare>\n    <loop>\n    <store>", mma=FLAG, pieces={"two": "switch (t) {\n            case 0: mma(d, a, b, 0); break;\n            default: mma(d, a + 2 * t * kA, b + 2 * t * kB, 1);\n        }\n        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB, 1);"})



def first_read(p: Values) -> Values:
    c = total(p)
    c[:, 0] = p[0::2].cumsum(0).sum(0)[:, 0]
    return c


TWO = "float d[16], e[16];\n    for (int i = 0; i < 16; ++i) d[i] = e[i] = 0;\n    "
ADDED = "for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + e[i];"
EVEN = "fence();\n        mma(d, a + 2 * t * kA, b + 2 * t * kB);\n        commit();"
ODD = "fence();\n        mma(e, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);\n        commit();"
put("two_in_flight", f"{TWO}for (int t = 0; t < tiles; ++t) {{\n        {EVEN}\n        {ODD}\n        wait<1>();\n    }}\n    wait<0>();\n    {ADDED}")
put("two_in_flight_first_read", f"{TWO}float s = 0.f;\n    for (int t = 0; t < tiles; ++t) {{\n        {EVEN}\n        {ODD}\n        wait<1>();\n        s += d[0];\n        wait<0>();\n    }}\n    d[0] = s - e[0];\n    {ADDED}",
    by_step=True, want=first_read)  # fmt: skip
put("two_alternating", f"""{TWO}for (int t = 0; t < tiles; ++t) {{
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
    {ADDED}""", want=plus({0: 5}))  # fmt: skip
put("two_epilogue_overlapped", f"""{TWO}for (int t = 0; t < tiles; ++t) {{
        {EVEN}
    }}
    for (int t = 0; t < tiles; ++t) {{
        {ODD}
    }}
    wait<3>();
    for (float& x : d) x *= 2.f;
    wait<0>();
    {ADDED}""", by_step=True, want=lambda p: 2 * total(p[0::2]) + total(p[1::2]))  # fmt: skip
put("two_one_of_them_rezeroed", f"""{TWO}for (int t = 0; t < tiles; ++t) {{
        if (t == 1)
            for (float& x : e) x = 0.f;
        {EVEN}
        {ODD}
        wait<0>();
    }}
    {ADDED}""", by_step=True, want=lambda p: total(p) - p[1])  # fmt: skip

put("everything_in_one_asm", """<declare>
    for (int t = 0; t < tiles; ++t) {
        const uint64_t da = a + 2 * t * kA, db = b + 2 * t * kB, ea = da + kA, eb = db + kB;
        one(d, da, db);
        one(d, ea, eb);
    }
    <store>""", types=f"""
__device__ __forceinline__ void one(float (&d)[16], uint64_t a, uint64_t b) {{
    {asm(registers("d", 16)).replace('"wgmma', '"wgmma.fence.sync.aligned; wgmma', 1).replace('0, 0;"', '0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"')}
}}
""")  # fmt: skip
put("two_mmas_in_one_asm", "<declare>\n    <loop>\n    <store>", types=f"""
__device__ __forceinline__ void both(float (&d)[16], uint64_t a, uint64_t b, uint64_t e, uint64_t f) {{
    {asm(registers("d", 16)).replace('0, 0;"', '0, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{' + ", ".join(f"%{i}" for i in range(16)) + '}}, %18, %19, 1, 1, 1, 0, 0;"').replace("{{", "{").replace("}}", "}").replace('"l"(b)', '"l"(b), "l"(e), "l"(f)')}
}}
""", pieces={"two": "both(d, a + 2 * t * kA, b + 2 * t * kB, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})  # fmt: skip
put("no_sync_helpers", """<declare>
    for (int t = 0; t < tiles; ++t) {
        asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory");
        <two>
        asm volatile("wgmma.commit_group.sync.aligned;\\n" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;\\n" ::: "memory");
    }
    <store>""", sync="")  # fmt: skip
put("wait_count_as_argument", "<declare>\n    for (int t = 0; t < tiles; ++t) {\n        <batch>\n        wait_n(1);\n    }\n    wait_n(0);\n    <store>", types="""
__device__ __forceinline__ void wait_n(int n) {
    switch (n) {
        case 0: asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); return;
        case 1: asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); return;
    }
}
""")  # fmt: skip
put("two_output_tiles", """for (int half = 0; half < 2; ++half) {
        <declare>
        <loop>
        for (int i = 0; i < 8; ++i) c[at(i + half * 8)] = d[i + half * 8];
    }""")  # fmt: skip
put("two_output_tiles_outside", """float d[16];
    for (int half = 0; half < 2; ++half) {
        <zero>
        <loop>
        for (int i = 0; i < 8; ++i) c[at(i + half * 8)] = d[i + half * 8];
    }""")  # fmt: skip
put("loop_of_loops", """<declare>
    for (int u = 0; u < tiles; ++u)
        for (int t = u; t < u + 1; ++t) {
            <multiply>
        }
    <store>""")  # fmt: skip
put("pragma_unroll", """<declare>
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
    <store>""")  # fmt: skip
put("braces_left_out", """<declare>
    for (int t = 0; t < tiles; ++t)
        if (t < tiles)
            step(d, a, b, t), wait<0>();
        else
            d[0] = 0.f;
    <store>""", types="\n__device__ void step(float (&d)[16], uint64_t a, uint64_t b, int t) {\n        <batch>\n}\n")  # fmt: skip
put("one_line", "<declare> for (int t = 0; t < tiles; ++t) { fence(); for (int s = 0; s < 2; ++s) mma(d, a + (2 * t + s) * kA, b + (2 * t + s) * kB); commit(); wait<0>(); } <store>")
put("try_result_flag", """<declare>
    bool waited = true;
    for (int t = 0; t < tiles; ++t) {
        if (!waited) wait<0>();
        <batch>
        waited = false;
    }
    if (!waited) wait<0>();
    <store>""")  # fmt: skip
