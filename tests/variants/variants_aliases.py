# SPDX-License-Identifier: Apache-2.0
"""Accumulator registers under other names: macros, references, pointers."""

from __future__ import annotations

from functools import partial

from variant_template import asm, loop, registers, variant
from variant_types import each, plus, then

put = partial(variant, axis="alias")
ONE = plus({0: 1})
FIRST = "<declare>\n    <loop>\n    "
"""The product is in `d`."""

put("plain", "<declare>\n    <loop>\n    <store>")

# --- Macros for the array

put(
    "macro_nested",
    FIRST + "for (int i = 0; i < 16; ++i) c[at(i)] = OUT(i);",
    types="\n#define ACC d\n#define OUT(i) ACC[i]\n",
)
put("macro_assigned", FIRST + "ACC[0] += 1.f;\n    <store>", types="\n#define ACC d\n", want=ONE)
put("macro_nested_assigned", FIRST + "OUT(0) += 1.f;\n    <store>", types="\n#define OUT(i) ACC[i]\n#define ACC d\n", want=ONE)
put(
    "macro_three_deep",
    "<declare>\n    " + loop("SCALE(2.f);") + "\n    for (int i = 0; i < 16; ++i) c[at(i)] = LEAF(i);",
    types="""
#define REGS d
#define ROOT REGS
#define LEAF(i) (ROOT[i])
#define SCALE(f) for (int i = 0; i < 16; ++i) LEAF(i) *= f
""",
    want=each(lambda d: d.__imul__(2)),
)
put(
    "macro_in_loop",
    "<declare>\n    " + loop("ACC[5] = ACC[5] * 2.f;\n        ACC[6]++;") + "\n    <store>",
    types="\n#define ACC d\n",
    want=each(lambda d: (d[:, 5].__imul__(2), d[:, 6].__iadd__(1))[0]),
)
put(
    "macro_pasted_arrays",
    """float d0[16], d1[16];
    for (int i = 0; i < 16; ++i) D(0)[i] = CAT(d, 1)[i] = 0.f;
    for (int t = 0; t < tiles; ++t) {
        fence();
        mma(D(0), a + 2 * t * kA, b + 2 * t * kB);
        mma(D(1), a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);
        commit();
        wait<0>();
    }
    CAT(d, 0)[3] += 5.f;
    for (int i = 0; i < 16; ++i) c[at(i)] = D(0)[i] + CAT(d, 1)[i];""",
    types="\n#define CAT_(x, y) x##y\n#define CAT(x, y) CAT_(x, y)\n#define D(i) d##i\n",
    want=plus({3: 5}),
)
SCALARS = [f"r{i}" for i in range(16)]
put(
    "macro_pasted_scalars",
    "float " + ", ".join(f"{r} = 0.f" for r in SCALARS) + ";\n    for (int t = 0; t < tiles; ++t) {\n        fence();\n"
    "        for (int s = 0; s < 2; ++s) {\n            const uint64_t da = a + (2 * t + s) * kA, db = b + (2 * t + s) * kB;\n            "
    + asm(SCALARS, a="da", b="db")
    + "\n        }\n        commit();\n        wait<0>();\n    }\n    R(4) += 2.f;\n    "
    + " ".join(f"PUT({i});" for i in range(16)),
    types="\n#define R(i) r##i\n#define PUT(i) c[at(i)] = R(i)\n",
    want=plus({4: 2}),
)
put("macro_variadic", FIRST + "APPLY(add, d, 3.f);\n    <store>", types="""
#define APPLY(f, ...) f(__VA_ARGS__)
__device__ void add(float* p, float f) { p[1] += f; }
""", want=plus({1: 3}))  # fmt: skip
put("macro_lvalue", FIRST + "AT(d, 2) -= 4.f;\n    <store>", types="\n#define AT(x, i) (x)[(i)]\n", want=plus({2: -4}))
put(
    "macro_redefined",
    "float d[16], e[16];\n    for (int i = 0; i < 16; ++i) d[i] = e[i] = 0;\n    <loop>\n#define ACC e\n    ACC[0] += 7.f;\n"
    "#undef ACC\n#define ACC d\n    ACC[0] += 1.f;\n    ACC[1] += e[0];\n    <store>",
    want=plus({0: 1, 1: 7}),
)
put("macro_of_address", FIRST + "*(BASE + 2) += 1.f;\n    <store>", types="\n#define BASE (&d[0])\n", want=plus({2: 1}))
put("macro_with_default_names", FIRST + "ADD1(0);\n    ADD1(9);\n    <store>", types="\n#define ADD1(i) do { d[i] += 1.f; } while (0)\n", want=plus({0: 1, 9: 1}))
put("macro_for_each", FIRST + "EACH(INC)\n    <store>", types="""
#define EACH(X) X(0) X(1) X(2) X(3)
#define INC(i) d[i] += float(i);
""", want=plus({0: 0, 1: 1, 2: 2, 3: 3}))  # fmt: skip

# --- References and pointers declared after the loop

put("reference_to_array", FIRST + "float (&r)[16] = d;\n    r[0] += 1.f;\n    <store>", want=ONE)
put("auto_reference", FIRST + "auto& r = d;\n    r[0] += 1.f;\n    for (int i = 0; i < 16; ++i) c[at(i)] = r[i];", want=ONE)
put("forwarding_reference", FIRST + "auto&& r = d;\n    r[0] += 1.f;\n    <store>", want=ONE)
put("reference_of_reference", FIRST + "auto& r = d;\n    auto& s = r;\n    auto& q = s[3];\n    q += 2.f;\n    <store>", want=plus({3: 2}))
put("const_reference", FIRST + "const float (&r)[16] = d;\n    for (int i = 0; i < 16; ++i) c[at(i)] = r[i];")
put("element_reference", FIRST + "float& x = d[0];\n    x += 1.f;\n    <store>", want=ONE)
put("pointer_auto", FIRST + "auto* p = &d[0];\n    p[0] += 1.f;\n    <store>", want=ONE)
put("pointer_decayed", FIRST + "float* p = d;\n    p[3] += 2.f;\n    <store>", want=plus({3: 2}))
put("pointer_moved", FIRST + "float* p = d;\n    p += 2;\n    *p++ += 1.f;\n    *p += 2.f;\n    <store>", want=plus({2: 1, 3: 2}))
put("pointer_walk", FIRST + "for (float* p = d; p != d + 16; ++p) *p += 1.f;\n    <store>", want=then(lambda d: d.__iadd__(1)))
put("pointer_to_array", FIRST + "float (*p)[16] = &d;\n    (*p)[4] += 1.f;\n    <store>", want=plus({4: 1}))
put("pointer_const", FIRST + "const float* const p = d;\n    for (int i = 0; i < 16; ++i) c[at(i)] = p[i] + 1.f;", want=then(lambda d: d.__iadd__(1)))
put("pointer_void", FIRST + "void* v = d;\n    static_cast<float*>(v)[2] += 3.f;\n    <store>", want=plus({2: 3}))
put("pointer_to_pointer", FIRST + "float* p = d;\n    float** pp = &p;\n    (*pp)[2] += 3.f;\n    <store>", want=plus({2: 3}))
put("pointer_chosen", FIRST + "float* p = threadIdx.x & 1 ? &d[0] : &d[1];\n    *p += 1.f;\n    <store>",
    want=then(lambda d: (d[1::2, 0].__iadd__(1), d[0::2, 1].__iadd__(1))[0]))  # fmt: skip
put("pointer_restrict", FIRST + "float* __restrict__ p = d;\n    for (int i = 0; i < 16; ++i) p[i] *= 3.f;\n    <store>", want=then(lambda d: d.__imul__(3)))
put("pointer_range_for", FIRST + "for (float* p : {&d[0], &d[7]}) *p += 1.f;\n    <store>", head="#include <initializer_list>\n", want=plus({0: 1, 7: 1}))
put("range_for", FIRST + "for (float& x : d) x += 1.f;\n    <store>", want=then(lambda d: d.__iadd__(1)))
put("range_for_copy", FIRST + "int i = 0;\n    for (float x : d) c[at(i++)] = x;")
put("typedef_reference", FIRST + "typedef float (&Ref)[16];\n    Ref r = d;\n    r[2] += 1.f;\n    <store>", want=plus({2: 1}))
put("using_array_type", "using Tile = float[16];\n    Tile d;\n    <zero>\n    <loop>\n    Tile& r = d;\n    r[2] += 1.f;\n    <store>", want=plus({2: 1}))
put("decltype_reference", FIRST + "decltype(d)& r = d;\n    r[2] += 1.f;\n    <store>", want=plus({2: 1}))
put("decltype_auto", FIRST + "decltype(auto) r = (d);\n    r[2] += 1.f;\n    <store>", want=plus({2: 1}))

# --- Expressions

put("deref_sum", FIRST + "*(d + 0) += 1.f;\n    <store>", want=ONE)
put("deref_sum_reversed", FIRST + "*(3 + d) += 1.f;\n    <store>", want=plus({3: 1}))
put("deref_array", FIRST + "*d += 1.f;\n    <store>", want=ONE)
put("deref_address", FIRST + "*&d[0] += 1.f;\n    <store>", want=ONE)
put("subscript_reversed", FIRST + "0[d] += 1.f;\n    <store>", want=ONE)
put("conditional_lvalue", FIRST + "(tiles > 1 ? d[0] : d[1]) += 1.f;\n    <store>", want=ONE)
put("conditional_array", FIRST + "float e[16] = {};\n    (tiles > 1 ? d : e)[2] += 1.f;\n    <store>", want=plus({2: 1}))
put("const_cast", FIRST + "const_cast<float&>(d[0]) += 1.f;\n    <store>", want=ONE)
put("const_cast_of_const", FIRST + "const float& x = d[0];\n    const_cast<float&>(x) += 1.f;\n    <store>", want=ONE)
put("parenthesised", FIRST + "((d))[0] += 1.f;\n    (d[1]) += 2.f;\n    <store>", want=plus({0: 1, 1: 2}))
put("address_subscript", FIRST + "(&d[0])[5] += 1.f;\n    <store>", want=plus({5: 1}))
put("address_negative", FIRST + "(&d[8])[-3] += 1.f;\n    <store>", want=plus({5: 1}))
put("address_of_array", FIRST + "(*&d)[5] += 1.f;\n    <store>", want=plus({5: 1}))
put("comma", FIRST + "int n = 0;\n    (++n, d[n]) += 1.f;\n    d[0] += 1.f, d[2] += 2.f;\n    <store>", want=plus({0: 1, 1: 1, 2: 2}))
put("index_increment", FIRST + "int n = 0;\n    while (n < 4) d[n++] += 1.f;\n    <store>", want=plus({0: 1, 1: 1, 2: 1, 3: 1}))
put("index_function", FIRST + "for (int i = 0; i < 4; ++i) d[odd(i)] += 1.f;\n    <store>", types="\n__device__ int odd(int i) { return 2 * i + 1; }\n", want=plus({1: 1, 3: 1, 5: 1, 7: 1}))
put("index_of_thread", FIRST + "d[threadIdx.x % 16] += 1.f;\n    <store>", want=then(lambda d: [d[t].__setitem__(t % 16, d[t, t % 16] + 1) for t in range(len(d))][0]))
put("index_expression", FIRST + "for (int i = 0; i < 2; ++i)\n        for (int j = 0; j < 2; ++j) d[i * 4 + (j ^ 1)] += float(2 * i + j);\n    <store>", want=plus({1: 0, 0: 1, 5: 2, 4: 3}))
put("index_of_memory", FIRST + "d[int(d[0] * 0.f) + 3] += 1.f;\n    <store>", want=plus({3: 1}))
put("increments", FIRST + "++d[0];\n    d[1]--;\n    float x = d[2]++;\n    d[3] = x;\n    <store>",
    want=then(lambda d: (d[:, 0].__iadd__(1), d[:, 1].__isub__(1), d[:, 3].__setitem__(slice(None), d[:, 2]), d[:, 2].__iadd__(1))[0]))  # fmt: skip
put("chained_assignment", FIRST + "d[0] = d[1] = d[2] = 4.f;\n    <store>", want=then(lambda d: d[:, :3].fill(4)))
put("swap_by_hand", FIRST + "float x = d[0]; d[0] = d[1]; d[1] = x;\n    <store>", want=then(lambda d: d[:, [0, 1]].__class__ and d.__setitem__((slice(None), [0, 1]), d[:, [1, 0]])))
put("sizeof_only", FIRST + "float e[sizeof(d) / sizeof(d[0])];\n    for (int i = 0; i < int(sizeof e / sizeof *e); ++i) e[i] = d[i];\n    for (int i = 0; i < 16; ++i) c[at(i)] = e[i];")
put("reinterpreted_float4", FIRST + "reinterpret_cast<float4*>(d)[1].y += 2.f;\n    <store>", want=plus({5: 2}), pieces={"declare": "alignas(16) float d[16];\n    <zero>"})
put("reinterpreted_int", FIRST + "reinterpret_cast<uint32_t&>(d[1]) ^= 0x80000000u;\n    <store>", want=then(lambda d: d[:, 1].__imul__(-1)))
put("c_cast", FIRST + "((float*)d)[1] += 2.f;\n    *(float*)&d[2] += 1.f;\n    <store>", want=plus({1: 2, 2: 1}))
put("memcpy_read", FIRST + "float x;\n    memcpy(&x, d + 3, sizeof x);\n    d[0] = x;\n    <store>", want=then(lambda d: d[:, 0].__setitem__(slice(None), d[:, 3])))
put("memcpy_all", FIRST + "float e[16];\n    memcpy(e, d, sizeof d);\n    for (int i = 0; i < 16; ++i) c[at(i)] = e[i];")
put("memcpy_write", FIRST + "const float x = 9.f;\n    memcpy(d + 1, &x, sizeof x);\n    <store>", want=then(lambda d: d[:, 1].fill(9)))
put("float_as_int", FIRST + "for (int i = 0; i < 16; ++i) c[at(i)] = __int_as_float(__float_as_int(d[i]));")
put("structured_binding", FIRST + "auto& [x, y] = *reinterpret_cast<float (*)[2]>(&d[4]);\n    y += 1.f;\n    x += 2.f;\n    <store>", want=plus({4: 2, 5: 1}))
put("structured_binding_tile", "float d[16] = {};\n    <loop>\n    auto& [" + ", ".join(f"x{i}" for i in range(16)) + "] = d;\n    x3 += 1.f;\n    x9 = x3 - x3;\n    <store>",
    want=then(lambda d: (d[:, 3].__iadd__(1), d[:, 9].fill(0))[1]))  # fmt: skip
put("asm_register", FIRST + 'asm volatile("add.f32 %0, %0, 0f3F800000;" : "+f"(d[0]));\n    <store>', want=ONE)
put("asm_input", FIRST + 'float x;\n    asm("add.f32 %0, %1, %2;" : "=f"(x) : "f"(d[0]), "f"(d[1]));\n    d[0] = x;\n    <store>', want=then(lambda d: d[:, 0].__iadd__(d[:, 1])))
put("shuffled", FIRST + "for (int i = 0; i < 16; ++i) d[i] += __shfl_xor_sync(0xffffffffu, d[i], 1);\n    <store>",
    want=then(lambda d: d.__iadd__(d.reshape(-1, 2, 16)[:, ::-1].reshape(-1, 16).copy())))  # fmt: skip
put("some_lanes", FIRST + "if (threadIdx.x % 32 == 0) d[0] = 7.f;\n    <store>", want=then(lambda d: d[::32, 0].fill(7)))
put("some_lanes_in_loop", "<declare>\n    " + loop("if (threadIdx.x % 4 == t) d[3] += 8.f;") + "\n    <store>",
    want=then(lambda d: [d[t::4, 3].__iadd__(8) for t in range(3)][0]))  # fmt: skip
put("some_warps", FIRST + "if (threadIdx.x / 32 == 2)\n        for (int i = 0; i < 16; ++i) d[i] = -d[i];\n    <store>", want=then(lambda d: d[64:96].__imul__(-1)))
put("used_in_condition", FIRST + "if (d[0] > 0.f) d[0] = 0.f;\n    <store>", want=then(lambda d: d[:, 0].__setitem__(d[:, 0] > 0, 0)))
put("logical", FIRST + "if (d[0] < 0.f && (d[1] = 3.f) > 0.f) d[0] += 1.f;\n    <store>",
    want=then(lambda d: (d[:, 1].__setitem__(d[:, 0] < 0, 3), d[:, 0].__setitem__(d[:, 0] < 0, d[:, 0][d[:, 0] < 0] + 1))[1]))  # fmt: skip
put("init_statement", FIRST + "if (float& x = d[2]; x != 12345.f) x += 1.f;\n    <store>", want=plus({2: 1}))
put("ternary_value", FIRST + "for (int i = 0; i < 16; ++i) c[at(i)] = d[i] > 0.f ? d[i] : 0.f;", want=then(lambda d: d.clip(0, out=d)))
put("min_by_reference", FIRST + "least(d[0], d[1]) += 5.f;\n    <store>", types="\n__device__ float& least(float& x, float& y) { return y < x ? y : x; }\n",
    want=then(lambda d: d.__setitem__((slice(None), slice(0, 2)), d[:, :2] + 5 * __import__("numpy").stack([d[:, 1] >= d[:, 0], d[:, 1] < d[:, 0]], 1))))  # fmt: skip

# --- Aliases from before the loop

BEFORE = "<declare>\n    %s\n    " + loop("%s") + "\n    <store>"
put("early_pointer", BEFORE % ("float* p = d;", "p[3] += 1.f;"), want=plus({3: 3}))
put("early_pointer_read", "<declare>\n    const float* p = d;\n    <loop>\n    for (int i = 0; i < 16; ++i) c[at(i)] = p[i];")
put("early_reference", BEFORE % ("float (&r)[16] = d;", "r[3] += 1.f;"), want=plus({3: 3}))
put("early_element", BEFORE % ("float& x = d[7];", "x += 1.f;"), want=plus({7: 3}))
put("early_lambda", BEFORE % ("auto bump = [&] { d[2] += 1.f; };", "bump();"), want=plus({2: 3}))
put("early_lambda_of_pointer", BEFORE % ("auto bump = [p = &d[2]] { *p += 1.f; };", "bump();"), want=plus({2: 3}))
put("early_pointer_table", BEFORE % ("float* table[2] = {&d[0], &d[8]};", "*table[0] += 1.f;\n        *table[1] += 2.f;"), want=plus({0: 3, 8: 6}))
put("zero_through_pointer", "float d[16];\n    float* p = d;\n    for (int i = 0; i < 16; ++i) p[i] = 0.f;\n    <loop>\n    <store>")
put("mma_through_reference", "<declare>\n    float (&r)[16] = d;\n    <loop>\n    <store>", pieces={"two": "mma(r, a + 2 * t * kA, b + 2 * t * kB);\n        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})
put("mma_through_pointer", "<declare>\n    float* p = d;\n    <loop>\n    <store>", mma=None, types="\n__device__ __forceinline__ void mma_p(float* d, uint64_t a, uint64_t b) {\n    " + asm(registers("d", 16)) + "\n}\n",
    pieces={"two": "mma_p(p, a + 2 * t * kA, b + 2 * t * kB);\n        mma_p(p, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})  # fmt: skip
