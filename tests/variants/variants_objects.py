# SPDX-License-Identifier: Apache-2.0
"""Objects that hold the registers, two accumulators, and values before the first MMA."""

from __future__ import annotations

from functools import partial

import numpy as np
from variant_template import asm, loop, registers, variant
from variant_types import each, plus, then, total

put = partial(variant, axis="object")
ONE = plus({0: 1})
DOUBLED = then("d *= 2")
FIRST = """<declare>
    <loop>
    """

# --- Objects that hold the registers

ACC = (
    """
struct Acc { float d[16]; };
__device__ __forceinline__ void mma(Acc& acc, uint64_t a, uint64_t b) {
    """
    + asm(registers("acc.d", 16))
    + "\n}\n"
)
HELD = {
    "declare": "Acc acc;\n    for (int i = 0; i < 16; ++i) acc.d[i] = 0;",
    "two": """mma(acc, a + 2 * t * kA, b + 2 * t * kB);
        mma(acc, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);""",
    "store": "for (int i = 0; i < 16; ++i) c[at(i)] = acc.d[i];",
}


def held(name: str, statements: str, types: str = "", **more: object) -> None:
    """The registers are a struct's member."""
    put(
        name,
        FIRST
        + statements
        + """
    <store>""",
        mma=ACC,
        types=types and f"\n{types}\n",
        pieces=HELD,
        **more,
    )


held("object_plain", "")
held("object_member_changed", "acc.d[0] += 1.f;", want=ONE)
held("object_reference", "Acc& r = acc;\n    r.d[0] += 1.f;", want=ONE)
held("object_pointer", "Acc* p = &acc;\n    p->d[0] += 1.f;", want=ONE)
held("object_pointer_to_member", "float (Acc::*m)[16] = &Acc::d;\n    (acc.*m)[0] += 1.f;", want=ONE)
held(
    "object_copied",
    """Acc e = acc;
    e.d[0] += 1.f;
    acc = e;""",
    want=ONE,
)
held(
    "object_by_value",
    "acc.d[0] = sum(acc);",
    "__device__ float sum(Acc x) { return x.d[0] + x.d[1]; }",
    want=then("d[0] += d[1]"),
)
held(
    "object_returned",
    "acc = scaled(acc, 2.f);",
    """__device__ Acc scaled(Acc x, float f) {
    for (float& v : x.d) v *= f;
    return x;
}""",
    want=DOUBLED,
)
held(
    "object_operator",
    "acc *= 2.f;",
    """__device__ Acc& operator*=(Acc& x, float f) {
    for (float& v : x.d) v *= f;
    return x;
}""",
    want=DOUBLED,
)
held("object_reinterpreted", "reinterpret_cast<float*>(&acc)[2] += 1.f;", want=plus({2: 1}))
held("object_binding", "auto& [inner] = acc;\n    inner[2] += 1.f;", want=plus({2: 1}))
held(
    "object_assigned_braces",
    "acc = Acc{{1.f, 2.f}};",
    want=then("d[:] = 0; d[0] = 1; d[1] = 2"),
)
put(
    "union_member",
    """Acc acc;
    for (int i = 0; i < 16; ++i) acc.d[i] = 0;
    <loop>
    acc.u[1] ^= 0x80000000u;
    <store>""",
    mma=ACC.replace("struct Acc { float d[16]; };", "union Acc { float d[16]; uint32_t u[16]; };"),
    pieces=HELD,
    want=then("d[1] *= -1"),
)
put(
    "object_pointing_at_itself",
    """Acc acc;
    for (int i = 0; i < 16; ++i) acc.d[i] = 0;
    <loop>
    acc.p = acc.d;
    acc.p[1] += 1.f;
    <store>""",
    mma=ACC.replace("float d[16];", "float d[16]; float* p;"),
    pieces=HELD,
    want=plus({1: 1}),
)

# --- Two accumulators

BOTH = """float d[16], e[16];
    for (int i = 0; i < 16; ++i) d[i] = e[i] = 0;
    """
PAIR = {
    "two": "mma(d, a + 2 * t * kA, b + 2 * t * kB);\n        mma(e, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);",
    "store": "for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + e[i];",
}
put("two_added", BOTH + "<loop>\n    <store>", pieces=PAIR)
put(
    "two_swapped",
    BOTH
    + loop("""for (int i = 0; i < 16; ++i) {
            const float x = d[i];
            d[i] = e[i];
            e[i] = x;
        }""")
    + """
    <store>""",
    pieces=PAIR,
)
put(
    "two_chosen_reference",
    BOTH
    + """<loop>
    auto& r = tiles > 1 ? d : e;
    r[3] += 1.f;
    <store>""",
    pieces=PAIR,
    want=plus({3: 1}),
)
put(
    "two_by_pointer",
    BOTH
    + """<loop>
    float* p[2] = {d, e};
    for (int k = 0; k < 2; ++k) p[k][3] += float(k + 1);
    <store>""",
    pieces=PAIR,
    want=plus({3: 3}),
)
put(
    "two_swapped_by_helper",
    BOTH
    + """<loop>
    exchange(d, e);
    d[0] += e[1];
    <store>""",
    types="""
template <class T, int N>
__device__ void exchange(T (&x)[N], T (&y)[N]) {
    for (int i = 0; i < N; ++i) {
        T z = x[i];
        x[i] = y[i];
        y[i] = z;
    }
}
""",
    pieces={"store": PAIR["store"]},
    want=lambda p: total(p) + np.eye(1, 16) * total(p)[:, 1:2],
)
put(
    "two_in_one_array",
    """float d[2][16] = {};
    <loop>
    <store>""",
    pieces={
        "two": """mma(d[0], a + 2 * t * kA, b + 2 * t * kB);
        mma(d[1], a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);""",
        "store": "for (int i = 0; i < 16; ++i) c[at(i)] = d[0][i] + d[1][i];",
    },
)
put(
    "two_flattened",
    """float d[2][16] = {};
    <loop>
    float* p = &d[0][0];
    for (int i = 0; i < 16; ++i) c[at(i)] = p[i] + p[i + 16];""",
    pieces={
        "two": """mma(d[0], a + 2 * t * kA, b + 2 * t * kB);
        mma(d[1], a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)

# --- Values before the first MMA

put(
    "zero_braces",
    """float d[16]{};
    <loop>
    <store>""",
)
put(
    "zero_memset",
    """float d[16];
    memset(d, 0, sizeof d);
    <loop>
    <store>""",
)
put(
    "zero_product",
    """float d[16];
    for (int i = 0; i < 16; ++i) d[i] = 0.f * float(i);
    <loop>
    <store>""",
)
put(
    "zero_backwards",
    """float d[16];
    for (int i = 16; i-- > 0;) d[i] = 0.f;
    <loop>
    <store>""",
)
put(
    "zero_some_by_some",
    """float d[16];
    for (int i = 0; i < 8; ++i) d[i] = 0.f;
    for (int i = 8; i < 16; ++i) d[i] = 0.f;
    <loop>
    <store>""",
)
put(
    "zero_from_other",
    """float z[16] = {}, d[16];
    for (int i = 0; i < 16; ++i) d[i] = z[i];
    <loop>
    <store>""",
)
put(
    "zero_negative",
    """float d[16];
    for (int i = 0; i < 16; ++i) d[i] = -0.f;
    <loop>
    <store>""",
)
put(
    "bias",
    """float d[16];
    for (int i = 0; i < 16; ++i) d[i] = float(col_of(i));
    <loop>
    <store>""",
    want=then("i = np.arange(16)[:, None]; d += i // 4 * 8 + thread % 4 * 2 + i % 2"),
)
put(
    "bias_some",
    """float d[16] = {1.f, 2.f};
    <loop>
    <store>""",
    want=plus({0: 1, 1: 2}),
)
put(
    "bias_by_lane",
    """float d[16] = {};
    if (threadIdx.x % 32 < 4) d[0] = 5.f;
    <loop>
    <store>""",
    want=then("d[0] += 5 * (thread % 32 < 4)"),
)
put(
    "bias_after_zero",
    """<declare>
    d[3] = 2.f;
    <loop>
    <store>""",
    want=plus({3: 2}),
)
put(
    "zeroed_in_first_tile",
    """float d[16];
    for (int t = 0; t < tiles; ++t) {
        if (t == 0)
            <zero>
        <multiply>
    }
    <store>""",
)
put(
    "zeroed_every_tile",
    """float d[16], sum[16] = {};
    for (int t = 0; t < tiles; ++t) {
        <zero>
        <multiply>
        for (int i = 0; i < 16; ++i) sum[i] += d[i] * float(t + 1);
    }
    for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];""",
    want=lambda p: np.tensordot(np.arange(1.0, len(p) + 1), p, 1),
)
put(
    "scaled_every_tile",
    """<declare>
    """
    + loop("for (float& x : d) x *= 2.f;")
    + """
    <store>""",
    want=each("d *= 2"),
)
put(
    "halved_at_first",
    """<declare>
    """
    + loop("""if (t == 0)
            for (float& x : d) x *= 2.f;""")
    + """
    <store>""",
    want=lambda p: total(p) + p[0],
)
