# SPDX-License-Identifier: Apache-2.0
"""Shapes and number formats of MMAs, operands in registers, swizzled tiles, parameters of several dimensions."""

from __future__ import annotations

from functools import partial

import numpy as np
from variant_template import HEAD, SYNC, TILE, asm, file, kernel, registers, variant, whole, wrapper
from variant_types import plus, then, total

put = partial(variant, axis="shape")
DONE = """<declare>
    <loop>
    <store>"""
ONE = plus({0: 1})
PACKED = "for (int i = 0; i < <R>; ++i) c[at(2 * i) / 2] = d[i];"

for n in (8, 16, 24, 40, 64, 96, 128, 192, 256):
    put(f"n{n}", DONE, n=n)
put(
    "n8_changed",
    """<declare>
    <loop>
    float* p = d;
    p[0] += 1.f;
    <store>""",
    n=8,
    want=ONE,
)
put(
    "n256_scaled",
    """<declare>
    <loop>
    for (float& x : d) x *= 2.f;
    <store>""",
    n=256,
    want=then("d *= 2"),
)
put("f16", DONE, kind="f16")
put("tf32", DONE, kind="tf32")
put("s8", DONE, kind="s8")
put(
    "s8_changed",
    """<declare>
    <loop>
    d[0] += 1;
    d[1] ^= d[1];
    <store>""",
    kind="s8",
    want=then("d[0] += 1; d[1] = 0"),
)
put(
    "s8_reference",
    """<declare>
    <loop>
    auto& r = d;
    r[0] <<= 1;
    <store>""",
    kind="s8",
    want=then("d[0] *= 2"),
)
put("f16acc", DONE, kind="f16acc", pieces={"store": PACKED})
put(
    "f16acc_negated",
    """<declare>
    <loop>
    for (uint32_t& x : d) x ^= 0x80008000u;
    <store>""",
    kind="f16acc",
    pieces={"store": PACKED},
    want=lambda p: -total(p),
)
put("f16acc_n64", DONE, kind="f16acc", n=64, pieces={"store": PACKED})
put("f16_zero_trip", DONE, kind="f16acc", pieces={"store": PACKED}, tiles=0)

# --- Parameters of several dimensions


def grouped(name: str, parameter: str, **more: object) -> None:
    """Registers in groups of four."""
    names = [f"d[{i // 4}][{i % 4}]" for i in range(16)]
    wrapped = f"""
__device__ __forceinline__ void mma({parameter}, uint64_t a, uint64_t b) {{
    {asm(names)}
}}
"""
    pieces = {
        "declare": """float d[4][4];
    for (int i = 0; i < 16; ++i) d[i / 4][i % 4] = 0.f;""",
        "store": "for (int i = 0; i < 16; ++i) c[at(i)] = d[i / 4][i % 4];",
    }
    put(name, DONE if "body" not in more else more.pop("body"), mma=wrapped, pieces=pieces, **more)


grouped("grouped_reference", "float (&d)[4][4]")
grouped("grouped_unsized", "float d[][4]")
grouped("grouped_sized", "float d[4][4]")
grouped("grouped_pointer", "float (*d)[4]")
grouped(
    "grouped_changed",
    "float d[][4]",
    body="""<declare>
    <loop>
    d[1][2] += 1.f;
    float (*p)[4] = d + 1;
    p[0][0] += 2.f;
    <store>""",
    want=plus({6: 1, 4: 2}),
)
grouped(
    "grouped_row_reference",
    "float (&d)[4][4]",
    body="""<declare>
    <loop>
    float (&row)[4] = d[2];
    row[1] += 1.f;
    for (auto& r : d) r[0] += 2.f;
    <store>""",
    want=plus({9: 1, 0: 2, 4: 2, 8: 2, 12: 2}),
)
put(
    "two_tiles_unsized",
    """float d[2][16];
    for (int i = 0; i < 32; ++i) d[i / 16][i % 16] = 0.f;
    <loop>
    for (int i = 0; i < 16; ++i) c[at(i)] = d[0][i] + d[1][i];""",
    types="""
__device__ __forceinline__ void both(float d[][16], uint64_t a, uint64_t b) {
    mma(d[0], a, b);
    mma(d[1], a + kA, b + kB);
}
""",
    pieces={"two": "both(d, a + 2 * t * kA, b + 2 * t * kB);"},
)
put(
    "two_tiles_loop",
    """float d[2][16] = {};
    <loop>
    for (int h = 0; h < 2; ++h)
        for (int i = 0; i < 16; ++i) d[h][i] *= 2.f;
    for (int i = 0; i < 16; ++i) c[at(i)] = d[0][i] + d[1][i];""",
    pieces={"two": "for (int h = 0; h < 2; ++h) mma(d[h], a + (2 * t + h) * kA, b + (2 * t + h) * kB);"},
    want=then("d *= 2"),
)
put(
    "one_dimension_of_32",
    """float d[32];
    for (float& x : d) x = 0.f;
    <loop>
    for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + d[16 + i];""",
    mma="""
__device__ __forceinline__ void mma(float* d, uint64_t a, uint64_t b) {
    """
    + asm(registers("d", 16))
    + "\n}\n",
    pieces={
        "two": """mma(d, a + 2 * t * kA, b + 2 * t * kB);
        mma(d + 16, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)

# --- A from registers

FRAGMENT = "const uint32_t* from = reinterpret_cast<const uint32_t*>(a_in) + row_of(0) * 48 + threadIdx.x % 4;"
LOADED = """const uint32_t* f = from + (2 * t + s) * 8;
            r[s][0] = f[0], r[s][1] = f[8 * 48], r[s][2] = f[4], r[s][3] = f[8 * 48 + 4];"""
RS = (
    """
__device__ __forceinline__ void mma_rs(float (&d)[16], const uint32_t (&r)[4], uint64_t b) {
    """
    + asm(registers("d", 16), sources="r[0], r[1], r[2], r[3]")
    + "\n}\n"
)
RS_TURN = (
    """uint32_t r[2][4];
        for (int s = 0; s < 2; ++s) {
            """
    + LOADED
    + """
        }
        fence();
        for (int s = 0; s < 2; ++s) mma_rs(d, r[s], b + (2 * t + s) * kB);
        commit();
        wait<0>();"""
)
put(
    "a_in_registers",
    FRAGMENT
    + """
    <declare>
    <loop>
    <store>""",
    types=RS,
    pieces={"multiply": RS_TURN},
)
put(
    "a_in_registers_changed",
    FRAGMENT
    + """
    <declare>
    for (int t = 0; t < tiles; ++t) {
        """
    + RS_TURN
    + """
        d[0] += 1.f;
    }
    <store>""",
    types=RS,
    want=plus({0: 3}),
)
put(
    "a_in_registers_and_shared",
    FRAGMENT
    + """
    <declare>
    for (int t = 0; t < tiles; ++t) {
        if (t == 1) {
        """
    + RS_TURN
    + """
        } else {
        fence();
        <two>
        commit();
        wait<0>();
        }
    }
    <store>""",
    types=RS,
)
put(
    "a_negated_in_registers",
    FRAGMENT
    + """
    <declare>
    <loop>
    <store>""",
    types=RS,
    pieces={
        "multiply": RS_TURN.replace(
            "f[8 * 48 + 4];",
            """f[8 * 48 + 4];
            for (uint32_t& x : r[s]) x ^= 0x80008000u;""",
        )
    },
    want=lambda p: -total(p),
)

# --- Swizzled tiles

SWIZZLED = """
// Rows of %(span)s bytes, whose 16-byte chunks are exchanged by the row, and those of one span behind one another.
template <int Rows>
__device__ void fill(uint4* tile, const uint4* from, int thread, int threads) {
    for (int i = thread; i < Rows * 12; i += threads) {
        const int row = i / 12, chunk = i %% 12, in = chunk %% %(chunks)s;
        tile[(chunk / %(chunks)s * Rows + row) * %(chunks)s + (in ^ (%(xor)s))] = from[i];
    }
}

template <int Rows>
__device__ uint64_t describe(const uint4* tile) {
    const uint64_t address = __cvta_generic_to_shared(tile);
    return (address >> 4 & 0x3fff) | uint64_t(1) << 16 | uint64_t(8 * %(span)s >> 4) << 32 | uint64_t(%(mode)s) << 62;
}

// What step s adds to a descriptor of a tile of so many rows.
__device__ uint64_t step_of(int s, int rows) { return s / %(steps)s * (rows * %(span)s >> 4) + s %% %(steps)s * 2; }
"""
PLACES = TILE[TILE.index("constexpr int kN") :]
for span, mode, xor in ((128, 1, "row & 7"), (64, 2, "row >> 1 & 3"), (32, 3, "row >> 2 & 1")):
    values = {"span": span, "mode": mode, "xor": xor, "chunks": span // 16, "steps": span // 32}
    text = (
        HEAD
        + SYNC
        + SWIZZLED % values
        + PLACES.replace("<N>", "32")
        + wrapper()
        + kernel(
            """<declare>
    for (int t = 0; t < tiles; ++t) {
        fence();
        for (int s = 2 * t; s < 2 * t + 2; ++s) mma(d, a + step_of(s, 64), b + step_of(s, 32));
        commit();
        wait<0>();
    }
    <store>""",
            shared="__shared__ alignas(1024) uint4 a_tile[64 * 16], b_tile[32 * 16];",
        )
    )
    whole(f"swizzle_{span}", text, axis="shape")

# --- Several types and shapes in one file

put(
    "two_shapes_in_kernel",
    """<declare>
    float e[8] = {};
    for (int t = 0; t < tiles; ++t) {
        fence();
        <two>
        for (int s = 2 * t; s < 2 * t + 2; ++s) mma16(e, a + s * kA, b + s * kB);
        commit();
        wait<0>();
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = i < 8 ? e[i % 8] + d[i] : d[i];""",
    types=wrapper(16, name="mma16"),
    want=lambda p: total(p) * np.where(np.arange(16) < 8, 2, 1),
)
S8 = """int e[16];
    for (int& x : e) x = 0;
    for (int t = 0; t < tiles; ++t) {
        fence();
        mma_s8(e, a + 2 * t * kA, b + 2 * t * kB);
        commit();
        wait<0>();
    }
    """
put(
    "s32_and_f32_in_kernel",
    S8
    + """<declare>
    <loop>
    for (int i = 0; i < 16; ++i) d[i] += float(e[i] - e[i]);
    <store>""",
    types=wrapper(32, "s8", name="mma_s8"),
)
whole(
    "s32_and_f32_in_file",
    file(
        wrapper(32, "s8", name="mma_s8")
        + kernel(DONE, name="kernel")
        + kernel(
            S8
            + """if (e[0] == 123456789) c[0] = 0.f;
    <declare>
    <loop>
    <store>""",
            name="other",
        )
    ),
    axis="shape",
)
whole(
    "f16acc_and_f32_in_file",
    file(
        wrapper(32, "f16acc", name="mma_f16")
        + kernel(DONE, name="kernel")
        + kernel(
            """uint32_t e[8] = {};
    fence();
    mma_f16(e, a, b);
    commit();
    wait<0>();
    if (e[0] == 123456789) c[0] = 0.f;
    <declare>
    <loop>
    <store>""",
            name="other",
        )
    ),
    axis="shape",
)
put(
    "overloads_s32_and_f32",
    S8.replace("mma_s8", "mma")
    + """<declare>
    <loop>
    for (int i = 0; i < 16; ++i) d[i] += float(e[i] - e[i]);
    <store>""",
    types=wrapper(32, "s8"),
)
put(
    "bf16_and_f16_in_kernel",
    """float e[16] = {};
    fence();
    mma_f16(e, a, b);
    commit();
    wait<0>();
    <declare>
    <loop>
    d[0] += e[0] > 1e30f ? 1.f : 0.f;
    <store>""",
    types=wrapper(32, "f16", name="mma_f16"),
)

# --- Files

HELPERS = SYNC + TILE.replace("<N>", "32")
GUARDED = (
    """#ifndef HELPERS_H
#define HELPERS_H
#include <cstdint>

"""
    + HELPERS
    + wrapper()
    + "#endif\n"
)
put = partial(whole, axis="file")
put(
    "helpers_in_header",
    """#include "helpers.cuh"
"""
    + kernel(DONE),
    files={
        "helpers.cuh": """#pragma once
"""
        + HEAD
        + HELPERS
        + wrapper()
    },
)
put("header_with_guard", '#include "helpers.cuh"\n' + kernel(DONE), files={"helpers.cuh": GUARDED})
put(
    "header_included_twice",
    """#include "helpers.cuh"
#include <cstddef>
#include "helpers.cuh"
"""
    + kernel(DONE),
    files={"helpers.cuh": GUARDED},
)
put(
    "kernel_in_header",
    """#include "gemm.cuh"
""",
    files={
        "gemm.cuh": """#pragma once
"""
        + HEAD
        + HELPERS
        + wrapper()
        + kernel(DONE)
    },
)
put(
    "two_headers",
    """#include "one.cuh"
#include "two.cuh"
""",
    files={
        f"{ns}.cuh": f"""#pragma once
{HEAD}namespace {ns} {{
{HELPERS}{wrapper()}{kernel(DONE)}}}
"""
        for ns in ("one", "two")
    },
)
put(
    "two_headers_one_base",
    """#include "one.cuh"
#include "two.cuh"
""",
    files={
        "base.cuh": GUARDED,
        **{
            f"{ns}.cuh": f"""#pragma once
#include "base.cuh"
namespace {ns} {{
{kernel(DONE)}}}
"""
            for ns in ("one", "two")
        },
    },
)
put(
    "two_headers_guarded",
    """#include "one.cuh"
#include "two.cuh"
#include "one.cuh"
""",
    files={
        f"{ns}.cuh": f"""#ifndef {ns}_H
#define {ns}_H
{HEAD}namespace {ns} {{
{HELPERS}{wrapper()}{kernel(DONE)}}}
#endif
"""
        for ns in ("one", "two")
    },
)
put(
    "header_and_kernel_of_its_own",
    """#include "one.cuh"

namespace two {
"""
    + HELPERS
    + wrapper()
    + kernel(DONE)
    + "}\n",
    files={
        "one.cuh": f"""#pragma once
{HEAD}namespace one {{
{HELPERS}{wrapper()}{kernel(DONE)}}}
"""
    },
)
put(
    "header_of_headers",
    """#include "all.cuh"
"""
    + kernel(DONE),
    files={
        "all.cuh": """#pragma once
#include "sync.cuh"
#include "mma.cuh"
""",
        "sync.cuh": """#pragma once
"""
        + HEAD
        + HELPERS,
        "mma.cuh": """#pragma once
#include "sync.cuh"
"""
        + wrapper(),
    },
)
put(
    "header_below_code",
    HEAD
    + HELPERS
    + """
constexpr int kUnused = 3;
#include "mma.cuh"
"""
    + kernel(DONE),
    files={"mma.cuh": wrapper()},
)
put(
    "header_of_macros",
    """#include "macros.h"
"""
    + HEAD
    + HELPERS
    + wrapper()
    + kernel("""<declare>
    <loop>
    BUMP(d);
    <store>"""),
    files={
        "macros.h": """#define BUMP(x) x[0] += 1.f
"""
    },
    want=ONE,
)
put(
    "header_in_directory",
    """#include "detail/mma.cuh"
"""
    + kernel(DONE),
    files={
        "detail/mma.cuh": """#pragma once
#include "../sync.cuh"
"""
        + wrapper(),
        "sync.cuh": """#pragma once
"""
        + HEAD
        + HELPERS,
    },
)
put("body_in_header", HEAD + HELPERS + wrapper() + kernel('#include "body.inc"\n'), files={"body.inc": DONE + "\n"})
put(
    "header_repeated_on_purpose",
    HEAD
    + HELPERS
    + wrapper()
    + """#define NAME first
#include "kernel.inc"
#undef NAME
#define NAME second
#include "kernel.inc"
""",
    files={"kernel.inc": kernel(DONE, name="NAME")},
)
put("long_lines_and_crlf", file(kernel(DONE)).replace("\n", "\r\n"))
put("no_newline_at_end", file(kernel(DONE)).rstrip("\n"))
put(
    "comments_everywhere",
    file(
        kernel("""/* the sums */ float /* of */ d /* tile */ [16] /* registers */ = {}; // zero
    <loop> // loop
    // d[0] += 1.f;
    /* d[1] += 1.f; */ <store> // done""")
    ),
)
put("tabs", file(kernel(DONE)).replace("    ", "\t"))
put(
    "unicode",
    file(
        """
// Σ aᵢ·bᵢ — Größe
"""
        + kernel("""/* é */ <declare>
    <loop>
    <store>""")
    ),
)
put(
    "host_code_below",
    file(kernel(DONE))
    + """
#include <cstdio>
#include <cuda_runtime.h>
cudaError_t launch(const uint4* a, const uint4* b, float* c) {
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    if (prop.major != 9) {
        std::printf("needs sm_90\\n");
        return cudaErrorInvalidDevice;
    }
    kernel<<<1, 128>>>(a, b, c, 3);
    return cudaGetLastError();
}
""",
)
