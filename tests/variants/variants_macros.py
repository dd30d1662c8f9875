# SPDX-License-Identifier: Apache-2.0
"""Kernels put together by the preprocessor, and by templates."""

from __future__ import annotations

from functools import partial

from variant_template import file, kernel, variant, whole
from variant_types import plus, then

put = partial(variant, axis="macro")
DONE = """<declare>
    <loop>
    <store>"""
ONE = plus({0: 1})


def lines(text: str) -> str:
    """The body of a macro: every line but the last continued."""
    return " \\\n".join(text.strip("\n").splitlines())


put(
    "macro_whole_gemm",
    "GEMM(d, a, b, tiles)",
    types="\n"
    + lines("""#define GEMM(D, A, B, COUNT)
    float D[16];
    for (int i = 0; i < 16; ++i) D[i] = 0.f;
    for (int t = 0; t < COUNT; ++t) {
        fence();
        mma(D, A + 2 * t * kA, B + 2 * t * kB);
        mma(D, A + (2 * t + 1) * kA, B + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = D[i];""")
    + "\n",
)
put(
    "macro_loop",
    """<declare>
    MULTIPLY_ALL
    <store>""",
    types="\n"
    + lines("""#define MULTIPLY_ALL
    for (int t = 0; t < tiles; ++t) {
        fence();
        mma(d, a + 2 * t * kA, b + 2 * t * kB);
        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }""")
    + "\n",
)
put(
    "macro_batch",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        BATCH(t);
        wait<0>();
    }
    <store>""",
    types="\n"
    + lines("""#define BATCH(t)
    do {
        fence();
        mma(d, a + 2 * (t) * kA, b + 2 * (t) * kB);
        mma(d, a + (2 * (t) + 1) * kA, b + (2 * (t) + 1) * kB);
        commit();
    } while (0)""")
    + "\n",
)
put(
    "macro_batch_and_wait",
    """<declare>
    for (int t = 0; t < tiles; ++t) BATCH(d, t)
    d[0] += 1.f;
    <store>""",
    types="\n"
    + lines("""#define BATCH(D, t) {
        fence();
        mma(D, a + 2 * (t) * kA, b + 2 * (t) * kB);
        mma(D, a + (2 * (t) + 1) * kA, b + (2 * (t) + 1) * kB);
        commit();
        wait<0>();
    }""")
    + "\n",
    want=ONE,
)
put(
    "macro_store",
    """<declare>
    <loop>
    STORE(c, d)""",
    types="""
#define STORE(C, D) for (int i = 0; i < 16; ++i) C[at(i)] = D[i];
""",
)
put(
    "macro_zero",
    """float d[16];
    ZERO(d)
    <loop>
    <store>""",
    types="""
#define ZERO(D) for (int i = 0; i < 16; ++i) D[i] = 0.f;
""",
)
put(
    "macro_declares",
    """ACCUMULATOR(d, 16);
    <loop>
    <store>""",
    types="""
#define ACCUMULATOR(name, count) float name[count] = {}
""",
)
put(
    "macro_for",
    """float d[16];
    FOR(i, 16) d[i] = 0.f;
    FOR(t, tiles) {
        <multiply>
    }
    FOR(i, 16) c[at(i)] = d[i];""",
    types="""
#define FOR(i, n) for (int i = 0; i < (n); ++i)
""",
)
put(
    "macro_unroll",
    """<declare>
    UNROLL
    <loop>
    UNROLL
    <store>""",
    types="""
#define UNROLL _Pragma("unroll")
""",
)
put(
    "macro_braces",
    """<declare>
    for (int t = 0; t < tiles; ++t) BEGIN
        <multiply>
    END
    <store>""",
    types="""
#define BEGIN {
#define END }
""",
)
put(
    "macro_sync",
    DONE,
    sync="""#define fence() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define commit() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
""",
    pieces={"multiply": "<batch>\n        WAIT(0);"},
)
put(
    "macro_sync_stringised",
    DONE,
    sync="""#define WGMMA(what) asm volatile("wgmma." #what ".sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
""",
    pieces={
        "batch": """WGMMA(fence);
        <two>
        WGMMA(commit_group);""",
        "multiply": """<batch>
        WAIT(0);""",
    },
)
put(
    "macro_sync_without_semicolon",
    DONE,
    sync="""#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#define WAIT0 asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
""",
    pieces={
        "batch": """FENCE
        <two>
        COMMIT""",
        "multiply": "<batch>\n        WAIT0",
    },
)
put(
    "macro_renames_function",
    """<declare>
    <loop>
    <store>""",
    types="""
#define multiply_add mma
#define sync_all wait<0>
""",
    pieces={
        "two": """multiply_add(d, a + 2 * t * kA, b + 2 * t * kB);
        multiply_add(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);""",
        "multiply": """<batch>
        sync_all();""",
    },
)
put(
    "macro_conditional",
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        <batch>
#if DEPTH == 0
        wait<0>();
#else
        wait<DEPTH>();
#endif
    }
#if DEPTH
    wait<0>();
#endif
    <store>""",
    head="""#define DEPTH 1
""",
)
put(
    "macro_not_taken",
    """<declare>
    <loop>
#ifdef NEVER_DEFINED
    d[0] = 1.f;
#else
    d[1] += 2.f;
#endif
    <store>""",
    want=plus({1: 2}),
)
put(
    "macro_shadows_parameter",
    """<declare>
    <loop>
    ADD(d, 2);
    <store>""",
    types="""
#define ADD(x, d) x[d] += 1.f
""",
    want=plus({2: 1}),
)
put(
    "macro_of_macro_arguments",
    """<declare>
    <loop>
    TWICE(BUMP, d);
    <store>""",
    types="""
#define TWICE(m, x) m(x, 0); m(x, 1)
#define BUMP(x, i) x[i] += 1.f
""",
    want=plus({0: 1, 1: 1}),
)
put(
    "macro_in_lambda",
    """<declare>
    <loop>
    auto f = [&] { BUMP; };
    f();
    <store>""",
    types="""
#define BUMP d[0] += 1.f
""",
    want=ONE,
)
put(
    "macro_return",
    """<declare>
    <loop>
    RETURN_IF(tiles == 77);
    d[0] += 1.f;
    <store>""",
    types="""
#define RETURN_IF(x) do { if (x) return; } while (0)
""",
    want=ONE,
)
put(
    "macro_check",
    """<declare>
    <loop>
    CHECK(d[0] < 1e9f);
    <store>""",
    types="""
#define CHECK(x) do { if (!(x)) { asm volatile("trap;"); } } while (0)
""",
)
put(
    "macro_statement_expression",
    """<declare>
    <loop>
    d[0] = MAX(d[0], d[1]);
    <store>""",
    types="""
#define MAX(x, y) ({ float x_ = (x), y_ = (y); x_ > y_ ? x_ : y_; })
""",
    want=then("d[0] = d[:2].max(0)"),
)
REGS = ", ".join(f"%{i}" for i in range(16))
put(
    "macro_registers",
    DONE,
    mma="""
#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(d) R4(d, 0), R4(d, 4), R4(d, 8), R4(d, 12)
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"""
    + REGS
    + """}, %16, %17, 1, 1, 1, 0, 0;" : R16(d) : "l"(a), "l"(b));
}
""",
)
put(
    "macro_defines_wrapper",
    DONE,
    mma=lines(
        """
#define DEFINE_MMA(name, N)
__device__ __forceinline__ void name(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {"""
        + REGS
        + """}, %16, %17, 1, 1, 1, 0, 0;"
                 : """
        + ", ".join(f'"+f"(d[{i}])' for i in range(16))
        + """ : "l"(a), "l"(b));
}"""
    )
    + """
DEFINE_MMA(mma, 32)
""",
)
put(
    "macro_instruction_text",
    DONE,
    mma="""
#define SHAPE "m64n32k16"
#define TYPES ".f32.bf16.bf16"
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE TYPES " {"""
    + REGS
    + """}, %16, %17, 1, 1, 1, 0, 0;"
                 : """
    + ", ".join(f'"+f"(d[{i}])' for i in range(16))
    + """ : "l"(a), "l"(b));
}
""",
)
whole(
    "macro_defines_kernel",
    file(
        "\n"
        + lines(
            "#define KERNEL(NAME)\n"
            + kernel(
                """float d[16] = {};
    for (int t = 0; t < tiles; ++t) {
        fence();
        mma(d, a + 2 * t * kA, b + 2 * t * kB);
        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i];""",
                name="NAME",
            ).strip()
        )
        + """
KERNEL(made_by_macro)
"""
    ),
    axis="macro",
)
