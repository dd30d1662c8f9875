# SPDX-License-Identifier: Apache-2.0
"""Where the model loads and stores accumulators: LOAD stands in front of a statement, STORE behind one."""

from __future__ import annotations

import pytest
from kernels import kernel
from modelled import WRAPPERS, expanded, of_kernel, placed

LOOP = "for (int k = 0; k < steps; ++k)"

PLACED = {
    "read after the loop": f"""
        float acc[8] = {{0}};
        {LOOP} {{ MMA(acc); }}
        LOAD out[0] = acc[0];""",
    "one load for several reads": f"""
        float acc[8] = {{0}};
        {LOOP} {{ MMA(acc); }}
        LOAD out[0] = acc[0];
        out[1] = acc[1];
        if (steps > 2) out[2] = acc[2];""",
    "read in each turn": f"""
        float acc[8] = {{0}};
        {LOOP} {{ MMA(acc); LOAD out[k] = acc[0]; }}""",
    "rescaled before the MMA of a turn": f"""
        float acc[8] = {{0}};
        {LOOP} {{
            LOAD acc[0] *= 2.f; STORE
            MMA(acc);
        }}""",
    "changed after the MMA of a turn": f"""
        float acc[8] = {{0}};
        {LOOP} {{
            MMA(acc);
            LOAD acc[0] *= 2.f; STORE
        }}""",
    "preloaded": """
        float acc[8];
        for (int i = 0; i < 8; ++i) acc[i] = out[i]; STORE
        MMA(acc);""",
    "replaced whole by the MMA": """
        float acc[8];
        acc[0] = 1.f;
        NEW(acc);
        LOAD out[0] = acc[0];""",
    "nothing is read": f"""
        float acc[8] = {{0}};
        {LOOP} {{ MMA(acc); }}""",
    "MMA in one branch": """
        float acc[8] = {0};
        if (steps > 1) { MMA(acc); }
        LOAD out[0] = acc[0];""",
    "read in one branch": """
        float acc[8] = {0};
        MMA(acc);
        LOAD if (steps > 1) { out[0] = acc[0]; } else { out[1] = 1.f; }""",
    "a change in one branch is stored there": """
        float acc[8] = {0};
        MMA(acc);
        LOAD if (steps > 1) { acc[0] = 1.f; } STORE
        MMA(acc);""",
    "threads that may leave are waited for": """
        float acc[8] = {0};
        MMA(acc);
        LOAD if (threadIdx.x > steps) return;
        out[0] = acc[0];""",
    "a break in front of the read": f"""
        float acc[8] = {{0}};
        {LOOP} {{
            MMA(acc);
            LOAD if (threadIdx.x > k) break;
            out[k] = acc[0];
        }}""",
    "cleared again": f"""
        float acc[8];
        {LOOP} {{
            for (int i = 0; i < 8; ++i) acc[i] = 0.f;
            MMA(acc);
            LOAD out[k] = acc[0];
        }}""",
    "declared in the loop": f"""
        {LOOP} {{
            float acc[8];
            NEW(acc);
            LOAD out[k] = acc[0];
        }}""",
    "through a pointer": """
        float acc[8] = {0};
        MMA(acc);
        LOAD float* p = acc;
        out[0] = p[0];""",
    "do-while": """
        float acc[8] = {0};
        do { MMA(acc); } while (--steps);
        LOAD out[0] = acc[0];""",
    "switch": """
        float acc[8] = {0};
        MMA(acc);
        LOAD switch (steps) { case 1: out[0] = acc[0]; break; default: out[1] = 0.f; }""",
    "a case that breaks ends the switch, not the loop": f"""
        float acc[8] = {{0}};
        float other[8] = {{0}};
        {LOOP} {{
            switch (k & 1) {{
                case 0: MMA(acc); break;
                default: break;
            }}
            LOAD acc[0] *= 2.f; STORE
        }}
        LOAD out[0] = acc[0];""",
    "only behind a case that breaks": f"""
        float acc[8] = {{0}};
        {LOOP} {{
            switch (steps) {{
                case 0: MMA(acc); break;
                default: return;
            }}
            LOAD out[k] = acc[0];
        }}""",
    "a case that runs on into the next": """
        float acc[8] = {0};
        switch (steps) {
            case 0: MMA(acc);
            LOAD case 1: out[0] = acc[0]; break;
        }""",
    "a case that continues the loop": f"""
        float acc[8] = {{0}};
        {LOOP} {{
            LOAD acc[0] *= 2.f; STORE
            switch (steps & k) {{
                case 0: MMA(acc); continue;
                case 1: return;
            }}
        }}""",
    "cases of the preprocessor": """
        float acc[8] = {0};
        switch (steps) {
        #if TWICE
            case 0: MMA(acc); break;
            case 1: MMA(acc); MMA(acc); break;
        #endif
        }
        LOAD out[0] = acc[0];""",
    "a jump over the MMA": """
        float acc[8] = {0};
        if (steps == 7) goto end;
        MMA(acc);
        end:;
        LOAD out[0] = acc[0];""",
    "only the accumulator that is read": f"""
        float acc[8] = {{0}};
        float other[8] = {{0}};
        {LOOP} {{ MMA(acc); LOAD out[k] = acc[0]; MMA(other); }}
        LOAD out[0] = other[0];""",
    "behind the wait, not behind the MMA": f"""
        float acc[8] = {{0}};
        {LOOP} {{
            arrive(); mma(acc, a, b); commit();
            out[1] = 2.f;
            wait<0>();
            LOAD out[k] = acc[0];
        }}""",
    "in a lambda that sees everything": f"""
        float acc[8] = {{0}};
        auto turn = [&](int k) {{ MMA(acc); LOAD out[k] = acc[0]; }};
        {LOOP} turn(k);""",
    "through a macro": f"""
        #define GET(i) acc[i]
        float acc[8] = {{0}};
        {LOOP} {{ MMA(acc); }}
        LOAD out[0] = GET(0);""",
    "changed by a macro": """
        #define SCALE(f) acc[0] *= f
        float acc[8] = {0};
        MMA(acc);
        LOAD SCALE(2.f); STORE
        MMA(acc);""",
    "read by a function": """
        float acc[8] = {0};
        MMA(acc);
        LOAD show(acc, out);
        MMA(acc);""",
    "changed by a function": """
        float acc[8] = {0};
        MMA(acc);
        LOAD scale(acc); STORE
        MMA(acc);""",
    "a component of a vector": """
        float acc[8] = {0};
        MMA(acc);
        LOAD reinterpret_cast<float2*>(out)[0] = make_float2(acc[0], acc[1]);""",
    "the preprocessor chooses": """
        float acc[8] = {0};
        MMA(acc);
    LOAD #ifdef TWICE
        acc[0] *= 2.f;
    #endif STORE
        MMA(acc);
        LOAD out[0] = acc[0];""",
    "changed in a loop, read behind it": f"""
        float acc[8];
        {LOOP} {{
            NEW(acc);
            LOAD acc[0] *= 2.f; STORE
        }}
        LOAD out[0] = acc[0];""",
    "cleared by some threads": f"""
        float acc[8] = {{0}};
        {LOOP} {{
            MMA(acc);
            LOAD if (threadIdx.x > k) {{ for (int i = 0; i < 8; ++i) acc[i] = 0.f; }} STORE
        }}""",
    "cleared where some threads do not come": f"""
        float acc[8] = {{0}};
        const int lane = threadIdx.x % 32;
        MMA(acc);
        LOAD {LOOP} {{
            if (lane > k) continue;
            for (int i = 0; i < 8; ++i) acc[i] = 0.f;
        }}
        out[0] = acc[0];""",
    "cleared by all warps or none": f"""
        float acc[8] = {{0}};
        {LOOP} {{
            if (k % 2 == 0) {{ for (int i = 0; i < 8; ++i) acc[i] = 0.f; }}
            MMA(acc);
            LOAD out[k] = acc[0];
        }}""",
}
FUNCTIONS = """
__device__ void show(const float (&d)[8], float* p) { for (int i = 0; i < 8; ++i) p[i] = d[i]; }
__device__ void scale(float (&d)[8]) { for (int i = 0; i < 8; ++i) d[i] *= 2.f; }
"""


@pytest.mark.parametrize("body", PLACED.values(), ids=PLACED)
def test_moves(body: str) -> None:
    assert placed(body, FUNCTIONS) == kernel(expanded(body), before=WRAPPERS + FUNCTIONS)


REFUSED = {
    "a case inside of a loop": (
        "float acc[8] = {0};\nswitch (steps & 3) {\ncase 0: do { out[0] = acc[0];\ncase 1: MMA(acc);\n"
        "} while (--steps);\n}\nout[1] = acc[1];",
        "it is read while MMAs that no wait covers may be in flight",
    ),
    "goto": (
        "float acc[8] = {0};\nagain: out[0] = acc[0];\nMMA(acc);\nif (--steps) goto again;",
        "it is read where no single load can be placed in front",
    ),
    "read in flight by the next case": (
        "float acc[8] = {0};\nswitch (steps) {\ncase 0: arrive(); mma(acc, a, b); commit();\ncase 1: out[0] = acc[0];\n"
        "}\nwait<0>();",
        "it is read while MMAs that no wait covers may be in flight",
    ),
    "read in flight": (
        "float acc[8] = {0};\narrive(); mma(acc, a, b); commit(); out[0] = acc[0];\nwait<0>();",
        "it is read while MMAs that no wait covers may be in flight",
    ),
    "a newer batch is waited for": (
        "float acc[8] = {0};\narrive(); mma(acc, a, b); commit(); wait<1>(); out[0] = acc[0];",
        "it is read while MMAs that no wait covers may be in flight",
    ),
    "no number of batches is known": (
        "float acc[8] = {0};\narrive(); mma(acc, a, b); commit(); some(steps); out[0] = acc[0];",
        "it is read while MMAs that no wait covers may be in flight",
    ),
    "no fence after a change": (
        "float acc[8] = {0};\nMMA(acc); acc[0] *= 2.f; mma(acc, a, b); commit(); wait<0>();",
        "threads use its registers and an MMA follows without a wgmma.fence in between",
    ),
    "no fence after a read": (
        "float acc[8] = {0};\nMMA(acc); out[0] = acc[0]; mma(acc, a, b); commit(); wait<0>();",
        "threads use its registers and an MMA follows without a wgmma.fence in between",
    ),
    "a pointer that outlives an MMA": (
        "float acc[8] = {0};\nfloat* p = acc; MMA(acc); out[0] = p[0];",
        "a pointer or reference to it is kept across MMAs",
    ),
    "a lambda that sees a part": (
        "float acc[8] = {0};\nauto f = [&acc, out, a, b]() { MMA(acc); out[0] = acc[0]; };\nf();",
        "it is read where no single load can be placed in front",
    ),
    "some threads do not come to the store": (
        f"float acc[8] = {{0}};\n{LOOP} {{ MMA(acc); if (threadIdx.x > k) continue; acc[0] *= 2.f; }}",
        "it is changed where some threads of a warp may have left",
    ),
    "some threads do not come to the load": (
        "float acc[8] = {0};\nMMA(acc); if (steps) { MMA(acc); if (threadIdx.x > steps) return; } out[0] = acc[0];",
        "it is read where some threads of a warp may have left",
    ),
}  # fmt: skip
SOME = "__device__ void some(int n) { if (n) wait<0>(); }\n"


@pytest.mark.parametrize(("body", "why"), REFUSED.values(), ids=REFUSED)
def test_what_no_move_makes_right_is_a_problem(body: str, why: str) -> None:
    model = of_kernel(body, SOME).place()
    assert why in {p.what for p in model.problems}


def test_a_body_that_the_preprocessor_chooses_is_not_understood() -> None:
    body = "#ifdef A\nacc[0] *= 2.f;\n#else\nacc[0] *= 3.f;\n#endif\n"
    chosen = f"float acc[8] = {{0}};\nMMA(acc);\nif (steps)\n{body}MMA(acc);"
    what = "a branch or loop without braces whose body the preprocessor chooses"
    assert of_kernel(chosen).refusals == [what]
    assert not of_kernel(chosen.replace("if (steps)", "")).refusals


def test_threads_that_return_have_no_part_in_later_mmas() -> None:
    """A producer that returns does not keep the consumers from moving their accumulators."""
    body = f"""
        if (threadIdx.x / 128 == 0) {{ out[0] = 1.f; return; }}
        float acc[8];
        for (int i = 0; i < 8; ++i) acc[i] = out[i]; STORE
        {LOOP} {{ LOAD acc[0] *= 2.f; STORE
            MMA(acc); }}
        LOAD out[0] = acc[0];"""
    assert placed(body) == kernel(expanded(body), before=WRAPPERS)
