# SPDX-License-Identifier: Apache-2.0
"""Hopper kernels that keep their accumulators in objects: C = A * B^T with one 64 x 32 tile, in the forms in which
people write it, and the case that runs them."""

from __future__ import annotations

HEAD = """#include <cstddef>
#include <cstdint>
#include <utility>

#include <cuda_bf16.h>

constexpr int kM = 64, kN = 32, kK = 64;

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// Core matrices of 8 rows by 16 bytes, those of one column of the tile behind one another.
template <int Rows>
__device__ uint64_t descriptor(const __nv_bfloat16* tile, int k) {
    uint64_t address = __cvta_generic_to_shared(tile) + k / 8 * (Rows / 8) * 128;
    return (address >> 4 & 0x3fff) | uint64_t(Rows / 8 * 128 >> 4) << 16 | uint64_t(128 >> 4) << 32;
}

template <int Rows>
__device__ void fill(__nv_bfloat16* tile, const __nv_bfloat16* from, int stride, int k) {
    for (int i = threadIdx.x; i < Rows * kK; i += blockDim.x) {
        int row = i / kK, col = i % kK;
        tile[((col / 8) * (Rows / 8) + row / 8) * 64 + row % 8 * 8 + col % 8] = from[row * stride + k + col];
    }
}

__device__ int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + (i % 4 / 2) * 8; }
__device__ int col_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }
"""

KERNEL = """
__global__ void __launch_bounds__(128) kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int k_total) {
    __shared__ alignas(128) __nv_bfloat16 a_tile[kM * kK], b_tile[kN * kK];
    <declare>
    for (int k = 0; k < k_total; k += kK) {
        fill<kM>(a_tile, a, k_total, k);
        fill<kN>(b_tile, b, k_total, k);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        <multiply>
        __syncthreads();
    }
    <store>
}
"""

CASE = """
version: 1
kernel: kernel.cu
entry: kernel
sizes: {M: 64, N: 32, K: 192}
tensors:
  A: {dtype: bf16, shape: [M, K], role: input}
  B: {dtype: bf16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
launch: {grid: [1, 1, 1], block: [128, 1, 1], dynamic_smem: 0}
params: [A, B, C, K]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""

A, B = "descriptor<kM>(a_tile, s)", "descriptor<kN>(b_tile, s)"
TILES = "const __nv_bfloat16* a_tile, const __nv_bfloat16* b_tile"


def asm(registers: list[str]) -> str:
    """One wgmma of bf16 that adds to `registers`, or overwrites them where `accumulate` is 0."""
    count = len(registers)
    names = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"({r})' for r in registers)
    return f"""asm volatile(
        "{{.reg .pred p; setp.ne.b32 p, %{count + 2}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32.bf16.bf16 "
        "{{{names}}}, %{count}, %{count + 1}, p, 1, 1, 0, 0;}}\\n"
        : {outputs} : "l"(a), "l"(b), "r"(int(accumulate)));"""


def mma(array: str, count: int = 16) -> str:
    return asm([f"{array}[{i}]" for i in range(count)])


def batch(call: str) -> str:
    """A k step of four MMAs and the wait for them."""
    return f"""fence();
        for (int s = 0; s < kK; s += 16) {call};
        commit();
        wait<0>();"""


def store(element: str) -> str:
    return f"for (int i = 0; i < 16; ++i) c[row_of(i) * kN + col_of(i)] = {element};"


def source(types: str, declare: str, multiply: str, write: str) -> str:
    text = KERNEL.replace("<declare>", declare).replace("<store>", write)
    return HEAD + types + text.replace("<multiply>", multiply)


STRUCT = f"""
struct Acc {{ float d[16]; }};
__device__ void mma(Acc& acc, uint64_t a, uint64_t b, int accumulate) {{ {mma("acc.d")} }}
"""

FILLED = """
__device__ Acc filled(float f) {
    Acc acc;
    for (int i = 0; i < 16; ++i) acc.d[i] = f;
    return acc;
}
"""

CHANGING = f"""
struct Acc {{
    float d[16];
    __device__ void add(float f) {{ for (int i = 0; i < 16; ++i) d[i] += f; }}
    __device__ float& at(int i) {{ return d[i]; }}
}};
__device__ void mma(Acc& acc, uint64_t a, uint64_t b, int accumulate) {{ {mma("acc.d")} }}
"""
COUNTED = "Acc acc;\n    for (int i = 0; i < 16; ++i) acc.d[i] = 0.f;\n    int turns = 0;"
MMA = f"mma(acc, {A}, {B}, 1)"

SCALARS = ", ".join(f"float& d{i:02}" for i in range(16))

PAIR = """for (int t = 0; t < 2; ++t)
        for (int i = 0; i < 8; ++i) c[row_of(i) * kN + t * 16 + col_of(i)] = at;"""

KERNELS = {
    "passed by reference": source(
        STRUCT
        + """
__device__ void clear(Acc& acc) { for (int i = 0; i < 16; ++i) acc.d[i] = 0.f; }
__device__ void write(const Acc& acc, float* c) {
    for (int i = 0; i < 16; ++i) c[row_of(i) * kN + col_of(i)] = acc.d[i];
}
""",
        "Acc acc;\n    clear(acc);",
        batch(MMA),
        "write(acc, c);",
    ),
    "methods": source(
        f"""
struct Tile {{
    float d[16];
    __device__ void clear() {{ for (int i = 0; i < 16; ++i) d[i] = 0.f; }}
    __device__ void mma(uint64_t a, uint64_t b, int accumulate) {{ {mma("d")} }}
    __device__ void scale(float f) {{ for (int i = 0; i < 16; ++i) d[i] *= f; }}
    __device__ void write(float* c) const {{
        for (int i = 0; i < 16; ++i) c[row_of(i) * kN + col_of(i)] = d[i];
    }}
}};
""",
        "Tile tile;\n    tile.clear();",
        batch(f"tile.mma({A}, {B}, 1)"),
        "tile.scale(1.f);\n    tile.write(c);",
    ),
    "returned by value": source(
        STRUCT
        + f"""
__device__ Acc product({TILES}) {{
    Acc acc;
    {batch(f"mma(acc, {A}, {B}, s != 0)")}
    return acc;
}}
""",
        "float sum[16] = {};",
        "Acc part = product(a_tile, b_tile);\n        for (int i = 0; i < 16; ++i) sum[i] += part.d[i];",
        store("sum[i]"),
    ),
    "member of a member": source(
        STRUCT + "struct State { Acc acc; float scale; };\n",
        "State state;\n    state.scale = 1.f;\n    for (int i = 0; i < 16; ++i) state.acc.d[i] = 0.f;",
        batch(f"mma(state.acc, {A}, {B}, 1)"),
        store("state.acc.d[i] * state.scale"),
    ),
    "static members of templates": source(
        f"""
struct M64N32 {{
    __device__ static void fma(uint64_t a, uint64_t b, {SCALARS}, bool accumulate) {{
        {asm([f"d{i:02}" for i in range(16)])}
    }}
}};
template <int N_, typename Instruction>
struct Wgmma {{
    static constexpr int kNumAccum = 64 * N_ / 128;
    template <size_t... Idx>
    __device__ static void call(uint64_t a, uint64_t b, float* d, bool scale_d, std::index_sequence<Idx...>) {{
        Instruction::fma(a, b, d[Idx]..., scale_d);
    }}
    __device__ static void wgmma(uint64_t a, uint64_t b, float* d, bool scale_d) {{
        call(a, b, d, scale_d, std::make_index_sequence<kNumAccum>{{}});
    }}
}};
""",
        "using WGMMA = Wgmma<kN, M64N32>;\n    float accum[WGMMA::kNumAccum], sum[WGMMA::kNumAccum] = {0};",
        batch(f"WGMMA::wgmma({A}, {B}, accum, s)") + "\n        for (int i = 0; i < 16; ++i) sum[i] += accum[i];",
        store("sum[i]"),
    ),
    "values at the declaration": source(
        f"\n__device__ void mma(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {{ {mma('d')} }}\n",
        "float f = k_total;\n    float acc[16] = {1.f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f};",
        batch(MMA),
        store("acc[i] - (i ? k_total : 1)"),
    ),
    "made by a function": source(STRUCT + FILLED, "Acc acc = filled(3.f);", batch(MMA), store("acc.d[i] - 3")),
    "changed by a method": source(
        CHANGING, COUNTED, batch(MMA) + "\n        acc.add(1.f);\n        ++turns;", store("acc.d[i] - turns")
    ),
    "changed through a method's reference": source(
        CHANGING,
        COUNTED,
        batch(MMA) + "\n        for (int i = 0; i < 16; ++i) acc.at(i) += 1.f;\n        ++turns;",
        store("acc.d[i] - turns"),
    ),
    "changed through a kept reference": source(
        CHANGING,
        COUNTED,
        batch(MMA)
        + "\n        for (int i = 0; i < 16; ++i) {\n            auto& e = acc.at(i);\n            e += 1.f;\n        }"
        + "\n        ++turns;",
        store("acc.d[i] - turns"),
    ),
    "beside other members": source(
        STRUCT.replace("float d[16];", "float d[16]; float sum[2];"),
        "Acc acc = {};",
        batch(MMA) + "\n        acc.sum[0] += kK;\n        acc.sum[1] += kK;",
        store("acc.d[i] + acc.sum[i % 2] - k_total"),
    ),
    "array of objects": source(
        f"""
struct Acc {{ float d[8]; }};
__device__ void mma(Acc& acc, uint64_t a, uint64_t b, int accumulate) {{ {mma("acc.d", 8)} }}
""",
        "Acc acc[2] = {};",
        batch(f"for (int t = 0; t < 2; ++t) mma(acc[t], {A}, {B} + t * 16, 1)"),
        PAIR.replace("at", "acc[t].d[i]"),
    ),
    "array of objects with methods": source(
        f"""
struct Acc {{
    float d[8];
    __device__ void mma(uint64_t a, uint64_t b, int accumulate) {{ {mma("d", 8)} }}
    __device__ void add(float f) {{ for (int i = 0; i < 8; ++i) d[i] += f; }}
}};
""",
        "Acc acc[2] = {};\n    int turns = 0;",
        batch(f"for (int t = 0; t < 2; ++t) acc[t].mma({A}, {B} + t * 16, 1)")
        + "\n        acc[0].add(1.f);\n        acc[1].add(1.f);\n        ++turns;",
        PAIR.replace("at", "acc[t].d[i] - turns"),
    ),
    "object handed on": source(
        f"""
struct Tile {{
    float d[16];
    __device__ void clear() {{ for (int i = 0; i < 16; ++i) d[i] = 0.f; }}
    __device__ void mma(uint64_t a, uint64_t b, int accumulate) {{ {mma("d")} }}
    __device__ void one(uint64_t a, uint64_t b) {{ this->mma(a, b, 1); }}
}};
__device__ void reset(Tile& tile) {{ tile.clear(); }}
__device__ void step(Tile& tile, {TILES}) {{
    {batch(f"tile.one({A}, {B})")}
}}
__device__ void add(Tile& tile, float f) {{
    for (int i = 0; i < 16; ++i) tile.d[i] += f;
}}
__device__ void write(const Tile& tile, float* c, int turns) {{
    for (int i = 0; i < 16; ++i) c[row_of(i) * kN + col_of(i)] = tile.d[i] - turns;
}}
""",
        "Tile tile;\n    reset(tile);\n    int turns = 0;",
        "step(tile, a_tile, b_tile);\n        add(tile, 1.f);\n        ++turns;",
        "write(tile, c, turns);",
    ),
    "result of a function with methods": source(
        f"""
struct Acc {{
    float d[16];
    __device__ void mma(uint64_t a, uint64_t b, int accumulate) {{ {mma("d")} }}
}};
__device__ Acc product({TILES}) {{
    Acc acc;
    {batch(f"acc.mma({A}, {B}, s != 0)")}
    return acc;
}}
""",
        "float sum[16] = {};",
        "Acc part = product(a_tile, b_tile);\n        for (int i = 0; i < 16; ++i) sum[i] += part.d[i];",
        store("sum[i]"),
    ),
    "template over the shape": source(
        f"""
template <int M, int N>
struct Fragment {{
    static constexpr int kRegisters = M * N / 128;
    float x[kRegisters];
    __device__ float& operator[](int i) {{ return x[i]; }}
    __device__ void clear() {{ for (int i = 0; i < kRegisters; ++i) x[i] = 0.f; }}
}};
__device__ void mma(Fragment<64, 32>& frag, uint64_t a, uint64_t b, int accumulate) {{ {mma("frag.x")} }}
template <int M, int N>
__device__ void gemm(Fragment<M, N>& frag, {TILES}) {{
    {batch(f"mma(frag, {A}, {B}, 1)")}
}}
""",
        "Fragment<kM, kN> frag;\n    frag.clear();",
        "gemm(frag, a_tile, b_tile);",
        store("frag[i]"),
    ),
    "overloads by class": source(
        f"""
template <int N>
struct Fragment {{ float x[N / 2]; }};
__device__ void mma(Fragment<32>& f, uint64_t a, uint64_t b, int accumulate) {{ {mma("f.x")} }}
__device__ void mma(Fragment<16>& f, uint64_t a, uint64_t b, int accumulate) {{ {mma("f.x", 8)} }}
""",
        "Fragment<16> left = {}, right = {};",
        batch(f"mma(left, {A}, {B}, 1), mma(right, {A}, {B} + 16, 1)"),
        PAIR.replace("at", "(t ? right : left).x[i]"),
    ),
    "another member cleared": source(
        STRUCT.replace("float d[16];", "float d[16], old[16];"),
        "Acc acc = {};",
        batch(MMA) + "\n        for (int i = 0; i < 16; ++i) acc.old[i] = 0.f;",
        store("acc.d[i] + acc.old[i]"),
    ),
    "tiles in a template's member": source(
        f"""
template <int Tiles>
struct Tiled {{
    static constexpr int kEach = 8;
    float d[Tiles][kEach];
}};
__device__ void mma(float (&d)[8], uint64_t a, uint64_t b, int accumulate) {{ {mma("d", 8)} }}
""",
        "Tiled<2> acc = {};",
        batch(f"for (int t = 0; t < 2; ++t) mma(acc.d[t], {A}, {B} + t * 16, 1)"),
        PAIR.replace("at", "acc.d[t][i]"),
    ),
    "pointer beside scalars of one name": source(
        f"""
struct M64N32 {{
    __device__ static void wgmma(uint64_t a, uint64_t b, {SCALARS}, bool accumulate) {{
        {asm([f"d{i:02}" for i in range(16)])}
    }}
    __device__ static void wgmma(uint64_t a, uint64_t b, float* d, bool accumulate) {{
        wgmma(a, b, {", ".join(f"d[{i}]" for i in range(16))}, accumulate);
    }}
}};
struct M64N16 {{
    __device__ static void wgmma(uint64_t a, uint64_t b, {", ".join(SCALARS.split(", ")[:8])}, bool accumulate) {{
        {asm([f"d{i:02}" for i in range(8)])}
    }}
    __device__ static void wgmma(uint64_t a, uint64_t b, float* d, bool accumulate) {{
        wgmma(a, b, {", ".join(f"d[{i}]" for i in range(8))}, accumulate);
    }}
}};
template <int N>
struct Select;
template <>
struct Select<32> {{ using type = M64N32; }};
template <>
struct Select<16> {{ using type = M64N16; }};
template <int N>
__device__ void step(float* d, uint64_t a, uint64_t b, bool accumulate) {{
    Select<N>::type::wgmma(a, b, d, accumulate);
}}
""",
        "float accum[16], sum[16] = {0};",
        batch(f"step<kN>(accum, {A}, {B}, s)") + "\n        for (int i = 0; i < 16; ++i) sum[i] += accum[i];",
        store("sum[i]"),
    ),
    "in a lambda that a lambda calls": source(
        STRUCT,
        "Acc acc;\n    float sum[16] = {0};\n    auto each = [](auto const& step) { step(0); step(32); };",
        f"""each([&](int first) {{
            fence();
            for (int s = first; s < first + 32; s += 16) mma(acc, {A}, {B}, s != first);
            commit();
            wait<0>();
            for (int i = 0; i < 16; ++i) sum[i] += acc.d[i];
        }});""",
        store("sum[i]"),
    ),
}
