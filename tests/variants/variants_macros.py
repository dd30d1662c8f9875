# SPDX-License-Identifier: Apache-2.0
"""Kernels put together by the preprocessor, and by templates."""

from __future__ import annotations

from functools import partial

from variant_template import HEAD, SYNC, TILE, asm, file, kernel, registers, variant, whole, wrapper
from variant_types import plus, then

put = partial(variant, axis="macro")
DONE = "<declare>\n    <loop>\n    <store>"
ONE = plus({0: 1})


def lines(text: str) -> str:
    """The body of a macro: every line but the last continued."""
    return " \\\n".join(text.strip("\n").splitlines())


put("macro_whole_gemm", "GEMM(d, a, b, tiles)", types="\n" + lines("""#define GEMM(D, A, B, COUNT)
    float D[16];
    for (int i = 0; i < 16; ++i) D[i] = 0.f;
    for (int t = 0; t < COUNT; ++t) {
        fence();
        mma(D, A + 2 * t * kA, B + 2 * t * kB);
        mma(D, A + (2 * t + 1) * kA, B + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = D[i];""") + "\n")  # fmt: skip
put("macro_loop", "<declare>\n    MULTIPLY_ALL\n    <store>", types="\n" + lines("""#define MULTIPLY_ALL
    for (int t = 0; t < tiles; ++t) {
        fence();
        mma(d, a + 2 * t * kA, b + 2 * t * kB);
        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }""") + "\n")  # fmt: skip
put("macro_batch", "<declare>\n    for (int t = 0; t < tiles; ++t) {\n        BATCH(t);\n        wait<0>();\n    }\n    <store>", types="\n" + lines("""#define BATCH(t)
    do {
        fence();
        mma(d, a + 2 * (t) * kA, b + 2 * (t) * kB);
        mma(d, a + (2 * (t) + 1) * kA, b + (2 * (t) + 1) * kB);
        commit();
    } while (0)""") + "\n")  # fmt: skip
put("macro_batch_and_wait", "<declare>\n    for (int t = 0; t < tiles; ++t) BATCH(d, t)\n    d[0] += 1.f;\n    <store>", types="\n" + lines("""#define BATCH(D, t) {
        fence();
        mma(D, a + 2 * (t) * kA, b + 2 * (t) * kB);
        mma(D, a + (2 * (t) + 1) * kA, b + (2 * (t) + 1) * kB);
        commit();
        wait<0>();
    }""") + "\n", want=ONE)  # fmt: skip
put("macro_store", "<declare>\n    <loop>\n    STORE(c, d)", types="\n#define STORE(C, D) for (int i = 0; i < 16; ++i) C[at(i)] = D[i];\n")
put("macro_zero", "float d[16];\n    ZERO(d)\n    <loop>\n    <store>", types="\n#define ZERO(D) for (int i = 0; i < 16; ++i) D[i] = 0.f;\n")
put("macro_declares", "ACCUMULATOR(d, 16);\n    <loop>\n    <store>", types="\n#define ACCUMULATOR(name, count) float name[count] = {}\n")
put("macro_for", "float d[16];\n    FOR(i, 16) d[i] = 0.f;\n    FOR(t, tiles) {\n        <multiply>\n    }\n    FOR(i, 16) c[at(i)] = d[i];", types="\n#define FOR(i, n) for (int i = 0; i < (n); ++i)\n")
put("macro_unroll", "<declare>\n    UNROLL\n    <loop>\n    UNROLL\n    <store>", types='\n#define UNROLL _Pragma("unroll")\n')
put("macro_braces", "<declare>\n    for (int t = 0; t < tiles; ++t) BEGIN\n        <multiply>\n    END\n    <store>", types="\n#define BEGIN {\n#define END }\n")
put("macro_sync", DONE, sync="""#define fence() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define commit() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
""", pieces={"multiply": "<batch>\n        WAIT(0);"})  # fmt: skip
put("macro_sync_stringised", DONE, sync="""#define WGMMA(what) asm volatile("wgmma." #what ".sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
""", pieces={"batch": "WGMMA(fence);\n        <two>\n        WGMMA(commit_group);", "multiply": "<batch>\n        WAIT(0);"})  # fmt: skip
put("macro_sync_without_semicolon", DONE, sync="""#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#define WAIT0 asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
""", pieces={"batch": "FENCE\n        <two>\n        COMMIT", "multiply": "<batch>\n        WAIT0"})  # fmt: skip
put("macro_renames_function", "<declare>\n    <loop>\n    <store>", types="\n#define multiply_add mma\n#define sync_all wait<0>\n", pieces={"two": "multiply_add(d, a + 2 * t * kA, b + 2 * t * kB);\n        multiply_add(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);", "multiply": "<batch>\n        sync_all();"})
put("macro_conditional", "<declare>\n    for (int t = 0; t < tiles; ++t) {\n        <batch>\n#if DEPTH == 0\n        wait<0>();\n#else\n        wait<DEPTH>();\n#endif\n    }\n#if DEPTH\n    wait<0>();\n#endif\n    <store>", head="#define DEPTH 1\n")
put("macro_not_taken", "<declare>\n    <loop>\n#ifdef NEVER_DEFINED\n    d[0] = 1.f;\n#else\n    d[1] += 2.f;\n#endif\n    <store>", want=plus({1: 2}))
put("macro_shadows_parameter", "<declare>\n    <loop>\n    ADD(d, 2);\n    <store>", types="\n#define ADD(x, d) x[d] += 1.f\n", want=plus({2: 1}))
put("macro_of_macro_arguments", "<declare>\n    <loop>\n    TWICE(BUMP, d);\n    <store>", types="\n#define TWICE(m, x) m(x, 0); m(x, 1)\n#define BUMP(x, i) x[i] += 1.f\n", want=plus({0: 1, 1: 1}))
put("macro_in_lambda", "<declare>\n    <loop>\n    auto f = [&] { BUMP; };\n    f();\n    <store>", types="\n#define BUMP d[0] += 1.f\n", want=ONE)
put("macro_return", "<declare>\n    <loop>\n    RETURN_IF(tiles == 77);\n    d[0] += 1.f;\n    <store>", types="\n#define RETURN_IF(x) do { if (x) return; } while (0)\n", want=ONE)
put("macro_check", "<declare>\n    <loop>\n    CHECK(d[0] < 1e9f);\n    <store>", types='\n#define CHECK(x) do { if (!(x)) { asm volatile("trap;"); } } while (0)\n')
put("macro_statement_expression", "<declare>\n    <loop>\n    d[0] = MAX(d[0], d[1]);\n    <store>", types="\n#define MAX(x, y) ({ float x_ = (x), y_ = (y); x_ > y_ ? x_ : y_; })\n", want=then(lambda d: d[:, 0].__setitem__(slice(None), d[:, :2].max(1))))
REGS = ", ".join(f"%{i}" for i in range(16))
put("macro_registers", DONE, mma="""
#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(d) R4(d, 0), R4(d, 4), R4(d, 8), R4(d, 12)
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {""" + REGS + """}, %16, %17, 1, 1, 1, 0, 0;" : R16(d) : "l"(a), "l"(b));
}
""")  # fmt: skip
put("macro_defines_wrapper", DONE, mma=lines("""
#define DEFINE_MMA(name, N)
__device__ __forceinline__ void name(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {""" + REGS + """}, %16, %17, 1, 1, 1, 0, 0;"
                 : """ + ", ".join(f'"+f"(d[{i}])' for i in range(16)) + """ : "l"(a), "l"(b));
}""") + "\nDEFINE_MMA(mma, 32)\n")  # fmt: skip
put("macro_instruction_text", DONE, mma="""
#define SHAPE "m64n32k16"
#define TYPES ".f32.bf16.bf16"
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE TYPES " {""" + REGS + """}, %16, %17, 1, 1, 1, 0, 0;"
                 : """ + ", ".join(f'"+f"(d[{i}])' for i in range(16)) + """ : "l"(a), "l"(b));
}
""")  # fmt: skip
whole("macro_defines_kernel", file("\n" + lines("#define KERNEL(NAME)\n" + kernel("""float d[16] = {};
    for (int t = 0; t < tiles; ++t) {
        fence();
        mma(d, a + 2 * t * kA, b + 2 * t * kB);
        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i];""", name="NAME").strip()) + "\nKERNEL(made_by_macro)\n"), axis="macro")  # fmt: skip

# --- Templates

put = partial(variant, axis="template")

put("wait_default_argument", DONE, sync=SYNC.replace("<int N>", "<int N = 0>"), pieces={"multiply": "<batch>\n        wait();"})
put("wait_default_brackets", DONE, sync=SYNC.replace("<int N>", "<int N = 0>"), pieces={"multiply": "<batch>\n        wait<>();"})
put("wait_constant", "constexpr int kPending = 1;\n    <declare>\n    for (int t = 0; t < tiles; ++t) {\n        <batch>\n        wait<kPending - 1>();\n    }\n    <store>")
put("wait_in_template", DONE, types="\ntemplate <int N, bool Last>\n__device__ void settle() {\n    if constexpr (Last) wait<0>();\n    else wait<N>();\n}\n", pieces={"multiply": "<batch>\n        settle<1, true>();"})
STEP = """
template <int J>
__device__ __forceinline__ void step(float (&d)[16], uint64_t a, uint64_t b) {
    mma(d, a + J * kA, b + J * kB);
    if constexpr (J + 1 < 2) step<J + 1>(d, a, b);
}
"""
put("steps_recursive", DONE, types=STEP, pieces={"two": "step<0>(d, a + 2 * t * kA, b + 2 * t * kB);"})
put("steps_recursive_default", DONE, types=STEP.replace("<int J>", "<int J = 0>"), pieces={"two": "step(d, a + 2 * t * kA, b + 2 * t * kB);"})
put("steps_recursive_batches", "<declare>\n    all<0>(d, a, b, tiles);\n    <store>", types="""
template <int T>
__device__ __forceinline__ void all(float (&d)[16], uint64_t a, uint64_t b, int tiles) {
    if (T < tiles) {
        fence();
        mma(d, a + 2 * T * kA, b + 2 * T * kB);
        mma(d, a + (2 * T + 1) * kA, b + (2 * T + 1) * kB);
        commit();
        wait<0>();
        if constexpr (T < 3) all<T + 1>(d, a, b, tiles);
    }
}
""")  # fmt: skip
put("steps_index_sequence", DONE, head="#include <utility>\n", types="""
template <int... J>
__device__ __forceinline__ void steps(float (&d)[16], uint64_t a, uint64_t b, std::integer_sequence<int, J...>) {
    (mma(d, a + J * kA, b + J * kB), ...);
}
""", pieces={"two": "steps(d, a + 2 * t * kA, b + 2 * t * kB, std::make_integer_sequence<int, 2>{});"})  # fmt: skip
put("wrapper_template_of_register_count", DONE, mma="""
template <int R>
__device__ __forceinline__ void mma(float (&d)[R], uint64_t a, uint64_t b) {
    static_assert(R == 16);
    """ + asm(registers("d", 16)) + "\n}\n")  # fmt: skip
put("wrapper_specialised", DONE, mma="""
template <int N>
struct Mma;
template <>
struct Mma<32> {
    static constexpr int kRegisters = 16;
    static __device__ __forceinline__ void run(float (&d)[16], uint64_t a, uint64_t b) {
    """ + asm(registers("d", 16)) + "\n    }\n};\n",
    pieces={"two": "Mma<32>::run(d, a + 2 * t * kA, b + 2 * t * kB);\n        Mma<kN>::run(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})  # fmt: skip
put("wrapper_if_constexpr", DONE, mma="""
template <int N>
__device__ __forceinline__ void mma(float (&d)[N / 2], uint64_t a, uint64_t b) {
    if constexpr (N == 32) {
        """ + asm(registers("d", 16)) + """
    } else if constexpr (N == 16) {
        """ + asm(registers("d", 8)) + "\n    }\n}\n",
    pieces={"two": "mma<32>(d, a + 2 * t * kA, b + 2 * t * kB);\n        mma<32>(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})  # fmt: skip
put("wrapper_scale_argument", DONE, mma="""
template <int ScaleD = 1>
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b) {
    """ + asm(registers("d", 16)).replace("%17, 1,", "%17, %18,").replace('"l"(b)', '"l"(b), "n"(ScaleD)') + "\n}\n")  # fmt: skip
put("wrapper_variadic_registers", DONE, mma="""
__device__ __forceinline__ void fma(uint64_t a, uint64_t b, """ + ", ".join(f"float& d{i}" for i in range(16)) + """) {
    """ + asm([f"d{i}" for i in range(16)]) + """
}
template <class... R>
__device__ __forceinline__ void mma_each(uint64_t a, uint64_t b, R&... d) { fma(a, b, d...); }
""", pieces={"two": f"mma_each(a + 2 * t * kA, b + 2 * t * kB, {', '.join(registers('d', 16))});\n        mma_each(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB, {', '.join(registers('d', 16))});"})  # fmt: skip

ARGUMENTS = "(const uint4*, const uint4*, float*, int);\n"


def instances(name: str, parameters: str, arguments: list[str], body: str, **more: object) -> None:
    """A template kernel, instantiated for each of the arguments."""
    after = "".join(f"template __global__ void kernel<{a}>{ARGUMENTS}" for a in arguments)
    put(name, body, before=f"template <{parameters}>\n", after=f"\n{after}", **more)  # type: ignore[arg-type]


instances("kernel_of_bool", "bool Bump", ["false", "true"], "<declare>\n    <loop>\n    if constexpr (Bump) d[0] += 1.f;\n    <store>", wants={"true": ONE})
instances("kernel_of_int", "int Steps", ["1", "2"], "<declare>\n    <loop>\n    <store>", pieces={"two": "for (int s = 0; s < Steps; ++s) mma(d, a + (2 * t + s) * kA, b + (2 * t + s) * kB);"}, by_step=True, wants={"kernel<1>": lambda p: p[0] + p[2] + p[4]})
instances("kernel_of_depth", "int Depth", ["0", "1", "2"], "<declare>\n    for (int t = 0; t < tiles; ++t) {\n        <batch>\n        wait<Depth>();\n    }\n    wait<0>();\n    <store>")
instances("kernel_of_type", "class Out", ["float", "double"], "<declare>\n    <loop>\n    for (int i = 0; i < 16; ++i) c[at(i)] = float(Out(d[i]) * Out(2));", want=then(lambda d: d.__imul__(2)))
instances("kernel_of_policy", "class Policy", ["Plain", "Bumped"], "<declare>\n    <loop>\n    Policy::apply(d);\n    <store>", types="""
struct Plain { static __device__ void apply(float (&)[16]) {} };
struct Bumped { static __device__ void apply(float (&d)[16]) { d[0] += 1.f; } };
""", wants={"Bumped": ONE})  # fmt: skip
instances("kernel_of_functor", "class F", ["Relu", "Twice"], "<declare>\n    <loop>\n    F f;\n    for (float& x : d) x = f(x);\n    <store>", types="""
struct Relu { __device__ float operator()(float x) const { return x > 0.f ? x : 0.f; } };
struct Twice { __device__ float operator()(float x) const { return 2.f * x; } };
""", wants={"Relu": then(lambda d: d.clip(0, out=d)), "Twice": then(lambda d: d.__imul__(2))})  # fmt: skip
instances("kernel_default_argument", "int Depth = 0, class T = float", [""], "T d[16] = {};\n    <loop>\n    <store>")
instances("kernel_registers_computed", "int N", ["32"], "constexpr int kCount = N / 2;\n    float d[kCount];\n    for (int i = 0; i < kCount; ++i) d[i] = 0.f;\n    <loop>\n    for (int i = 0; i < kCount; ++i) c[at(i)] = d[i];")
instances("kernel_of_auto", "auto Bias", ["3", "5u"], "float d[16];\n    for (float& x : d) x = float(Bias);\n    <loop>\n    <store>", wants={"kernel<3": then(lambda d: d.__iadd__(3)), "kernel<5": then(lambda d: d.__iadd__(5))})
instances("kernel_with_static_assert", "int Threads", ["128"], "static_assert(Threads == 128);\n    <declare>\n    <loop>\n    <store>", bounds="__launch_bounds__(Threads)")

TWO_SHAPES = HEAD + SYNC + TILE.replace("constexpr int kB = 2 * <N>;\n", "").replace("constexpr int kN = <N>;\n", "constexpr int kN = 32;\n") + wrapper(32) + wrapper(16) + """
template <int N>
__global__ void __launch_bounds__(128) kernel(const uint4* a_in, const uint4* b_in, float* c, int tiles) {
    __shared__ alignas(128) uint4 a_tile[64 * 12], b_tile[32 * 12];
    fill<64>(a_tile, a_in, threadIdx.x, 128);
    for (int h = 0; h < 32 / N; ++h) fill<N>(b_tile + h * N * 12, b_in + h * N * 12, threadIdx.x, 128);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    constexpr int kB = 2 * N;
    for (int h = 0; h < 32 / N; ++h) {
        const uint64_t a = describe<64>(a_tile), b = describe<N>(b_tile + h * N * 12);
        float d[N / 2];
        for (int i = 0; i < N / 2; ++i) d[i] = 0.f;
        for (int t = 0; t < tiles; ++t) {
            <multiply>
        }
        for (int i = 0; i < N / 2; ++i) c[at(i) + h * N] = d[i];
    }
}
template __global__ void kernel<16>(const uint4*, const uint4*, float*, int);
template __global__ void kernel<32>(const uint4*, const uint4*, float*, int);
"""  # fmt: skip
whole("kernel_of_shape", TWO_SHAPES, axis="template")
whole("kernel_of_shape_once", TWO_SHAPES.replace("template __global__ void kernel<32>(const uint4*, const uint4*, float*, int);\n", ""), axis="template")
whole("kernel_of_tag", file("""
struct Fast { static constexpr int kDepth = 1; };
template <class Tag>
struct Settings {
    static constexpr int kThreads = 128, kPending = Tag::kDepth;
    using Tile = float[16];
};
template <class S>
""" + kernel("""typename S::Tile d;
    <zero>
    for (int t = 0; t < tiles; ++t) {
        <batch>
        wait<S::kPending>();
    }
    wait<0>();
    <store>""", bounds="__launch_bounds__(S::kThreads)").lstrip("\n") + """
template __global__ void kernel<Settings<Fast>>(const uint4*, const uint4*, float*, int);
"""), axis="template")  # fmt: skip
