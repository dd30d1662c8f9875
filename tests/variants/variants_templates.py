# SPDX-License-Identifier: Apache-2.0
"""Templates: of helpers, of wrappers and of kernels."""

from __future__ import annotations

from functools import partial

from variant_template import HEAD, SYNC, TILE, asm, file, kernel, registers, variant, whole, wrapper
from variant_types import plus, then

ONE = plus({0: 1})
DONE = """<declare>
    <loop>
    <store>"""

# --- Templates

put = partial(variant, axis="template")

put(
    "wait_default_argument",
    DONE,
    sync=SYNC.replace("<int N>", "<int N = 0>"),
    pieces={
        "multiply": """<batch>
        wait();"""
    },
)
put(
    "wait_default_brackets",
    DONE,
    sync=SYNC.replace("<int N>", "<int N = 0>"),
    pieces={
        "multiply": """<batch>
        wait<>();"""
    },
)
put(
    "wait_constant",
    """constexpr int kPending = 1;
    <declare>
    for (int t = 0; t < tiles; ++t) {
        <batch>
        wait<kPending - 1>();
    }
    <store>""",
)
put(
    "wait_in_template",
    DONE,
    types="""
template <int N, bool Last>
__device__ void settle() {
    if constexpr (Last) wait<0>();
    else wait<N>();
}
""",
    pieces={
        "multiply": """<batch>
        settle<1, true>();"""
    },
)
STEP = """
template <int J>
__device__ __forceinline__ void step(float (&d)[16], uint64_t a, uint64_t b) {
    mma(d, a + J * kA, b + J * kB);
    if constexpr (J + 1 < 2) step<J + 1>(d, a, b);
}
"""
put("steps_recursive", DONE, types=STEP, pieces={"two": "step<0>(d, a + 2 * t * kA, b + 2 * t * kB);"})
put(
    "steps_recursive_default",
    DONE,
    types=STEP.replace("<int J>", "<int J = 0>"),
    pieces={"two": "step(d, a + 2 * t * kA, b + 2 * t * kB);"},
)
put(
    "steps_recursive_batches",
    """<declare>
    all<0>(d, a, b, tiles);
    <store>""",
    types="""
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
""",
)
put(
    "steps_index_sequence",
    DONE,
    head="#include <utility>\n",
    types="""
template <int... J>
__device__ __forceinline__ void steps(float (&d)[16], uint64_t a, uint64_t b, std::integer_sequence<int, J...>) {
    (mma(d, a + J * kA, b + J * kB), ...);
}
""",
    pieces={"two": "steps(d, a + 2 * t * kA, b + 2 * t * kB, std::make_integer_sequence<int, 2>{});"},
)
put(
    "wrapper_template_of_register_count",
    DONE,
    mma="""
template <int R>
__device__ __forceinline__ void mma(float (&d)[R], uint64_t a, uint64_t b) {
    static_assert(R == 16);
    """
    + asm(registers("d", 16))
    + "\n}\n",
)
put(
    "wrapper_specialised",
    DONE,
    mma="""
template <int N>
struct Mma;
template <>
struct Mma<32> {
    static constexpr int kRegisters = 16;
    static __device__ __forceinline__ void run(float (&d)[16], uint64_t a, uint64_t b) {
    """
    + asm(registers("d", 16))
    + """
    }
};
""",
    pieces={
        "two": """Mma<32>::run(d, a + 2 * t * kA, b + 2 * t * kB);
        Mma<kN>::run(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)
put(
    "wrapper_if_constexpr",
    DONE,
    mma="""
template <int N>
__device__ __forceinline__ void mma(float (&d)[N / 2], uint64_t a, uint64_t b) {
    if constexpr (N == 32) {
        """
    + asm(registers("d", 16))
    + """
    } else if constexpr (N == 16) {
        """
    + asm(registers("d", 8))
    + """
    }
}
""",
    pieces={
        "two": """mma<32>(d, a + 2 * t * kA, b + 2 * t * kB);
        mma<32>(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)
put(
    "wrapper_scale_argument",
    DONE,
    mma="""
template <int ScaleD = 1>
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b) {
    """
    + asm(registers("d", 16)).replace("%17, 1,", "%17, %18,").replace('"l"(b)', '"l"(b), "n"(ScaleD)')
    + "\n}\n",
)
put(
    "wrapper_variadic_registers",
    DONE,
    mma="""
__device__ __forceinline__ void fma(uint64_t a, uint64_t b, """
    + ", ".join(f"float& d{i}" for i in range(16))
    + """) {
    """
    + asm([f"d{i}" for i in range(16)])
    + """
}
template <class... R>
__device__ __forceinline__ void mma_each(uint64_t a, uint64_t b, R&... d) { fma(a, b, d...); }
""",
    pieces={
        "two": f"""mma_each(a + 2 * t * kA, b + 2 * t * kB, {", ".join(registers("d", 16))});
        mma_each(a + (2 * t + 1) * kA, b + (2 * t + 1) * kB, {", ".join(registers("d", 16))});"""
    },
)

ARGUMENTS = "(const uint4*, const uint4*, float*, int);\n"


def instances(name: str, parameters: str, arguments: list[str], body: str, **more: object) -> None:
    """A template kernel, instantiated for each of the arguments."""
    after = "".join(f"template __global__ void kernel<{a}>{ARGUMENTS}" for a in arguments)
    put(name, body, before=f"template <{parameters}>\n", after=f"\n{after}", **more)


instances(
    "kernel_of_bool",
    "bool Bump",
    ["false", "true"],
    """<declare>
    <loop>
    if constexpr (Bump) d[0] += 1.f;
    <store>""",
    wants={"true": ONE},
)
instances(
    "kernel_of_int",
    "int Steps",
    ["1", "2"],
    """<declare>
    <loop>
    <store>""",
    pieces={"two": "for (int s = 0; s < Steps; ++s) mma(d, a + (2 * t + s) * kA, b + (2 * t + s) * kB);"},
    by_step=True,
    wants={"kernel<1>": lambda p: p[0] + p[2] + p[4]},
)
instances(
    "kernel_of_depth",
    "int Depth",
    ["0", "1", "2"],
    """<declare>
    for (int t = 0; t < tiles; ++t) {
        <batch>
        wait<Depth>();
    }
    wait<0>();
    <store>""",
)
instances(
    "kernel_of_type",
    "class Out",
    ["float", "double"],
    """<declare>
    <loop>
    for (int i = 0; i < 16; ++i) c[at(i)] = float(Out(d[i]) * Out(2));""",
    want=then("d *= 2"),
)
instances(
    "kernel_of_policy",
    "class Policy",
    ["Plain", "Bumped"],
    """<declare>
    <loop>
    Policy::apply(d);
    <store>""",
    types="""
struct Plain { static __device__ void apply(float (&)[16]) {} };
struct Bumped { static __device__ void apply(float (&d)[16]) { d[0] += 1.f; } };
""",
    wants={"Bumped": ONE},
)
instances(
    "kernel_of_functor",
    "class F",
    ["Relu", "Twice"],
    """<declare>
    <loop>
    F f;
    for (float& x : d) x = f(x);
    <store>""",
    types="""
struct Relu { __device__ float operator()(float x) const { return x > 0.f ? x : 0.f; } };
struct Twice { __device__ float operator()(float x) const { return 2.f * x; } };
""",
    wants={"Relu": then("d[:] = np.maximum(d, 0)"), "Twice": then("d *= 2")},
)
instances(
    "kernel_default_argument",
    "int Depth = 0, class T = float",
    [""],
    """T d[16] = {};
    <loop>
    <store>""",
)
instances(
    "kernel_registers_computed",
    "int N",
    ["32"],
    """constexpr int kCount = N / 2;
    float d[kCount];
    for (int i = 0; i < kCount; ++i) d[i] = 0.f;
    <loop>
    for (int i = 0; i < kCount; ++i) c[at(i)] = d[i];""",
)
instances(
    "kernel_of_auto",
    "auto Bias",
    ["3", "5u"],
    """float d[16];
    for (float& x : d) x = float(Bias);
    <loop>
    <store>""",
    wants={"kernel<3": then("d += 3"), "kernel<5": then("d += 5")},
)
instances(
    "kernel_with_static_assert",
    "int Threads",
    ["128"],
    """static_assert(Threads == 128);
    <declare>
    <loop>
    <store>""",
    bounds="__launch_bounds__(Threads)",
)

TWO_SHAPES = (
    HEAD
    + SYNC
    + TILE.replace(
        """constexpr int kB = 2 * <N>;
""",
        "",
    ).replace(
        """constexpr int kN = <N>;
""",
        """constexpr int kN = 32;
""",
    )
    + wrapper(32)
    + wrapper(16)
    + """
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
"""
)
whole("kernel_of_shape", TWO_SHAPES, axis="template")
whole(
    "kernel_of_shape_once",
    TWO_SHAPES.replace(
        """template __global__ void kernel<32>(const uint4*, const uint4*, float*, int);
""",
        "",
    ),
    axis="template",
)
whole(
    "kernel_of_tag",
    file(
        """
struct Fast { static constexpr int kDepth = 1; };
template <class Tag>
struct Settings {
    static constexpr int kThreads = 128, kPending = Tag::kDepth;
    using Tile = float[16];
};
template <class S>
"""
        + kernel(
            """typename S::Tile d;
    <zero>
    for (int t = 0; t < tiles; ++t) {
        <batch>
        wait<S::kPending>();
    }
    wait<0>();
    <store>""",
            bounds="__launch_bounds__(S::kThreads)",
        ).lstrip("\n")
        + """
template __global__ void kernel<Settings<Fast>>(const uint4*, const uint4*, float*, int);
"""
    ),
    axis="template",
)
