# SPDX-License-Identifier: Apache-2.0
"""Accumulator registers under other names: macros, references, pointers."""

from __future__ import annotations

from functools import partial

from variant_template import asm, loop, registers, variant
from variant_types import each, plus, then

put = partial(variant, axis="alias")
ONE = plus({0: 1})
FIRST = """<declare>
    <loop>
    """
"""The product is in `d`."""


def after(name: str, statements: str, **more: object) -> None:
    """A variant with statements between the loop and the stores."""
    put(name, FIRST + statements + "\n    <store>", **more)


put(
    "plain",
    """<declare>
    <loop>
    <store>""",
)

# --- Macros for the array

put(
    "macro_nested",
    FIRST + "for (int i = 0; i < 16; ++i) c[at(i)] = OUT(i);",
    types="""
#define ACC d
#define OUT(i) ACC[i]
""",
)
after(
    "macro_assigned",
    "ACC[0] += 1.f;",
    types="""
#define ACC d
""",
    want=ONE,
)
after(
    "macro_nested_assigned",
    "OUT(0) += 1.f;",
    types="""
#define OUT(i) ACC[i]
#define ACC d
""",
    want=ONE,
)
put(
    "macro_three_deep",
    "<declare>\n    " + loop("SCALE(2.f);") + "\n    for (int i = 0; i < 16; ++i) c[at(i)] = LEAF(i);",
    types="""
#define REGS d
#define ROOT REGS
#define LEAF(i) (ROOT[i])
#define SCALE(f) for (int i = 0; i < 16; ++i) LEAF(i) *= f
""",
    want=each("d *= 2"),
)
put(
    "macro_in_loop",
    "<declare>\n    " + loop("ACC[5] = ACC[5] * 2.f;\n        ACC[6]++;") + "\n    <store>",
    types="""
#define ACC d
""",
    want=each("d[5] *= 2; d[6] += 1"),
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
    types="""
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#define D(i) d##i
""",
    want=plus({3: 5}),
)
SCALARS = [f"r{i}" for i in range(16)]
put(
    "macro_pasted_scalars",
    "float " + ", ".join(f"{r} = 0.f" for r in SCALARS) + """;
    for (int t = 0; t < tiles; ++t) {
        fence();
"""
    """        for (int s = 0; s < 2; ++s) {
            const uint64_t da = a + (2 * t + s) * kA, db = b + (2 * t + s) * kB;
            """
    + asm(SCALARS, a="da", b="db")
    + """
        }
        commit();
        wait<0>();
    }
    R(4) += 2.f;
    """
    + " ".join(f"PUT({i});" for i in range(16)),
    types="""
#define R(i) r##i
#define PUT(i) c[at(i)] = R(i)
""",
    want=plus({4: 2}),
)
after(
    "macro_variadic",
    "APPLY(add, d, 3.f);",
    types="""
#define APPLY(f, ...) f(__VA_ARGS__)
__device__ void add(float* p, float f) { p[1] += f; }
""",
    want=plus({1: 3}),
)
after(
    "macro_lvalue",
    "AT(d, 2) -= 4.f;",
    types="""
#define AT(x, i) (x)[(i)]
""",
    want=plus({2: -4}),
)
put(
    "macro_redefined",
    """float d[16], e[16];
    for (int i = 0; i < 16; ++i) d[i] = e[i] = 0;
    <loop>
#define ACC e
    ACC[0] += 7.f;
"""
    """#undef ACC
#define ACC d
    ACC[0] += 1.f;
    ACC[1] += e[0];
    <store>""",
    want=plus({0: 1, 1: 7}),
)
after(
    "macro_of_address",
    "*(BASE + 2) += 1.f;",
    types="""
#define BASE (&d[0])
""",
    want=plus({2: 1}),
)
after(
    "macro_with_default_names",
    """ADD1(0);
    ADD1(9);""",
    types="""
#define ADD1(i) do { d[i] += 1.f; } while (0)
""",
    want=plus({0: 1, 9: 1}),
)
after(
    "macro_for_each",
    "EACH(INC)",
    types="""
#define EACH(X) X(0) X(1) X(2) X(3)
#define INC(i) d[i] += float(i);
""",
    want=plus({0: 0, 1: 1, 2: 2, 3: 3}),
)

# --- References and pointers declared after the loop

after("reference_to_array", "float (&r)[16] = d;\n    r[0] += 1.f;", want=ONE)
put(
    "auto_reference",
    FIRST
    + """auto& r = d;
    r[0] += 1.f;
    for (int i = 0; i < 16; ++i) c[at(i)] = r[i];""",
    want=ONE,
)
after("forwarding_reference", "auto&& r = d;\n    r[0] += 1.f;", want=ONE)
after(
    "reference_of_reference",
    """auto& r = d;
    auto& s = r;
    auto& q = s[3];
    q += 2.f;""",
    want=plus({3: 2}),
)
put("const_reference", FIRST + "const float (&r)[16] = d;\n    for (int i = 0; i < 16; ++i) c[at(i)] = r[i];")
after("element_reference", "float& x = d[0];\n    x += 1.f;", want=ONE)
after("pointer_auto", "auto* p = &d[0];\n    p[0] += 1.f;", want=ONE)
after("pointer_decayed", "float* p = d;\n    p[3] += 2.f;", want=plus({3: 2}))
after(
    "pointer_moved",
    """float* p = d;
    p += 2;
    *p++ += 1.f;
    *p += 2.f;""",
    want=plus({2: 1, 3: 2}),
)
after("pointer_walk", "for (float* p = d; p != d + 16; ++p) *p += 1.f;", want=then("d += 1"))
after("pointer_to_array", "float (*p)[16] = &d;\n    (*p)[4] += 1.f;", want=plus({4: 1}))
put(
    "pointer_const",
    FIRST
    + """const float* const p = d;
    for (int i = 0; i < 16; ++i) c[at(i)] = p[i] + 1.f;""",
    want=then("d += 1"),
)
after("pointer_void", "void* v = d;\n    static_cast<float*>(v)[2] += 3.f;", want=plus({2: 3}))
after(
    "pointer_to_pointer",
    """float* p = d;
    float** pp = &p;
    (*pp)[2] += 3.f;""",
    want=plus({2: 3}),
)
after(
    "pointer_chosen",
    "float* p = threadIdx.x & 1 ? &d[0] : &d[1];\n    *p += 1.f;",
    want=then("d[0, 1::2] += 1; d[1, 0::2] += 1"),
)
after(
    "pointer_restrict",
    """float* __restrict__ p = d;
    for (int i = 0; i < 16; ++i) p[i] *= 3.f;""",
    want=then("d *= 3"),
)
after(
    "pointer_range_for",
    "for (float* p : {&d[0], &d[7]}) *p += 1.f;",
    head="""#include <initializer_list>
""",
    want=plus({0: 1, 7: 1}),
)
after("range_for", "for (float& x : d) x += 1.f;", want=then("d += 1"))
put("range_for_copy", FIRST + "int i = 0;\n    for (float x : d) c[at(i++)] = x;")
after(
    "typedef_reference",
    """typedef float (&Ref)[16];
    Ref r = d;
    r[2] += 1.f;""",
    want=plus({2: 1}),
)
put(
    "using_array_type",
    """using Tile = float[16];
    Tile d;
    <zero>
    <loop>
    Tile& r = d;
    r[2] += 1.f;
    <store>""",
    want=plus({2: 1}),
)
after("decltype_reference", "decltype(d)& r = d;\n    r[2] += 1.f;", want=plus({2: 1}))
after("decltype_auto", "decltype(auto) r = (d);\n    r[2] += 1.f;", want=plus({2: 1}))

# --- Expressions

after("deref_sum", "*(d + 0) += 1.f;", want=ONE)
after("deref_sum_reversed", "*(3 + d) += 1.f;", want=plus({3: 1}))
after("deref_array", "*d += 1.f;", want=ONE)
after("deref_address", "*&d[0] += 1.f;", want=ONE)
after("subscript_reversed", "0[d] += 1.f;", want=ONE)
after("conditional_lvalue", "(tiles > 1 ? d[0] : d[1]) += 1.f;", want=ONE)
after("conditional_array", "float e[16] = {};\n    (tiles > 1 ? d : e)[2] += 1.f;", want=plus({2: 1}))
after("const_cast", "const_cast<float&>(d[0]) += 1.f;", want=ONE)
after("const_cast_of_const", "const float& x = d[0];\n    const_cast<float&>(x) += 1.f;", want=ONE)
after("parenthesised", "((d))[0] += 1.f;\n    (d[1]) += 2.f;", want=plus({0: 1, 1: 2}))
after("address_subscript", "(&d[0])[5] += 1.f;", want=plus({5: 1}))
after("address_negative", "(&d[8])[-3] += 1.f;", want=plus({5: 1}))
after("address_of_array", "(*&d)[5] += 1.f;", want=plus({5: 1}))
after(
    "comma",
    """int n = 0;
    (++n, d[n]) += 1.f;
    d[0] += 1.f, d[2] += 2.f;""",
    want=plus({0: 1, 1: 1, 2: 2}),
)
after("index_increment", "int n = 0;\n    while (n < 4) d[n++] += 1.f;", want=plus({0: 1, 1: 1, 2: 1, 3: 1}))
after(
    "index_function",
    "for (int i = 0; i < 4; ++i) d[odd(i)] += 1.f;",
    types="""
__device__ int odd(int i) { return 2 * i + 1; }
""",
    want=plus({1: 1, 3: 1, 5: 1, 7: 1}),
)
after(
    "index_of_thread",
    "d[threadIdx.x % 16] += 1.f;",
    want=then("d[thread % 16, thread] += 1"),
)
after(
    "index_expression",
    """for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) d[i * 4 + (j ^ 1)] += float(2 * i + j);""",
    want=plus({1: 0, 0: 1, 5: 2, 4: 3}),
)
after("index_of_memory", "d[int(d[0] * 0.f) + 3] += 1.f;", want=plus({3: 1}))
after(
    "increments",
    """++d[0];
    d[1]--;
    float x = d[2]++;
    d[3] = x;""",
    want=then("d[3] = d[2]; d[0] += 1; d[1] -= 1; d[2] += 1"),
)
after("chained_assignment", "d[0] = d[1] = d[2] = 4.f;", want=then("d[:3] = 4"))
after(
    "swap_by_hand",
    "float x = d[0]; d[0] = d[1]; d[1] = x;",
    want=then("d[[0, 1]] = d[[1, 0]]"),
)
put(
    "sizeof_only",
    FIRST
    + """float e[sizeof(d) / sizeof(d[0])];
    for (int i = 0; i < int(sizeof e / sizeof *e); ++i) e[i] = d[i];
    for (int i = 0; i < 16; ++i) c[at(i)] = e[i];""",
)
after(
    "reinterpreted_float4",
    "reinterpret_cast<float4*>(d)[1].y += 2.f;",
    want=plus({5: 2}),
    pieces={
        "declare": """alignas(16) float d[16];
    <zero>"""
    },
)
after("reinterpreted_int", "reinterpret_cast<uint32_t&>(d[1]) ^= 0x80000000u;", want=then("d[1] *= -1"))
after("c_cast", "((float*)d)[1] += 2.f;\n    *(float*)&d[2] += 1.f;", want=plus({1: 2, 2: 1}))
after(
    "memcpy_read",
    """float x;
    memcpy(&x, d + 3, sizeof x);
    d[0] = x;""",
    want=then("d[0] = d[3]"),
)
put(
    "memcpy_all",
    FIRST
    + """float e[16];
    memcpy(e, d, sizeof d);
    for (int i = 0; i < 16; ++i) c[at(i)] = e[i];""",
)
after("memcpy_write", "const float x = 9.f;\n    memcpy(d + 1, &x, sizeof x);", want=then("d[1] = 9"))
put("float_as_int", FIRST + "for (int i = 0; i < 16; ++i) c[at(i)] = __int_as_float(__float_as_int(d[i]));")
after(
    "structured_binding",
    """auto& [x, y] = *reinterpret_cast<float (*)[2]>(&d[4]);
    y += 1.f;
    x += 2.f;""",
    want=plus({4: 2, 5: 1}),
)
put(
    "structured_binding_tile",
    """float d[16] = {};
    <loop>
    auto& ["""
    + ", ".join(f"x{i}" for i in range(16))
    + """] = d;
    x3 += 1.f;
    x9 = x3 - x3;
    <store>""",
    want=then("d[3] += 1; d[9] = 0"),
)
put("asm_register", FIRST + 'asm volatile("add.f32 %0, %0, 0f3F800000;" : "+f"(d[0]));\n    <store>', want=ONE)
put(
    "asm_input",
    FIRST
    + """float x;
    asm("add.f32 %0, %1, %2;" : "=f"(x) : "f"(d[0]), "f"(d[1]));
    d[0] = x;
    <store>""",
    want=then("d[0] += d[1]"),
)
after(
    "shuffled",
    "for (int i = 0; i < 16; ++i) d[i] += __shfl_xor_sync(0xffffffffu, d[i], 1);",
    want=then("d += d[:, thread ^ 1]"),
)
after("some_lanes", "if (threadIdx.x % 32 == 0) d[0] = 7.f;", want=then("d[0, ::32] = 7"))
put(
    "some_lanes_in_loop",
    "<declare>\n    " + loop("if (threadIdx.x % 4 == t) d[3] += 8.f;") + "\n    <store>",
    want=then("d[3] += 8 * (thread % 4 < 3)"),
)
after(
    "some_warps",
    """if (threadIdx.x / 32 == 2)
        for (int i = 0; i < 16; ++i) d[i] = -d[i];""",
    want=then("d[:, 64:96] *= -1"),
)
after("used_in_condition", "if (d[0] > 0.f) d[0] = 0.f;", want=then("d[0] = np.minimum(d[0], 0)"))
after(
    "logical",
    "if (d[0] < 0.f && (d[1] = 3.f) > 0.f) d[0] += 1.f;",
    want=then("low = d[0] < 0; d[1, low] = 3; d[0, low] += 1"),
)
after("init_statement", "if (float& x = d[2]; x != 12345.f) x += 1.f;", want=plus({2: 1}))
put(
    "ternary_value",
    FIRST + "for (int i = 0; i < 16; ++i) c[at(i)] = d[i] > 0.f ? d[i] : 0.f;",
    want=then("d[:] = np.maximum(d, 0)"),
)
after(
    "min_by_reference",
    "least(d[0], d[1]) += 5.f;",
    types="""
__device__ float& least(float& x, float& y) { return y < x ? y : x; }
""",
    want=then("low = d[1] < d[0]; d[0] += 5 * ~low; d[1] += 5 * low"),
)

# --- Aliases from before the loop

BEFORE = (
    """<declare>
    %s
    """
    + loop("%s")
    + "\n    <store>"
)
put("early_pointer", BEFORE % ("float* p = d;", "p[3] += 1.f;"), want=plus({3: 3}))
put(
    "early_pointer_read",
    """<declare>
    const float* p = d;
    <loop>
    for (int i = 0; i < 16; ++i) c[at(i)] = p[i];""",
)
put("early_reference", BEFORE % ("float (&r)[16] = d;", "r[3] += 1.f;"), want=plus({3: 3}))
put("early_element", BEFORE % ("float& x = d[7];", "x += 1.f;"), want=plus({7: 3}))
put("early_lambda", BEFORE % ("auto bump = [&] { d[2] += 1.f; };", "bump();"), want=plus({2: 3}))
put("early_lambda_of_pointer", BEFORE % ("auto bump = [p = &d[2]] { *p += 1.f; };", "bump();"), want=plus({2: 3}))
put(
    "early_pointer_table",
    BEFORE
    % (
        "float* table[2] = {&d[0], &d[8]};",
        """*table[0] += 1.f;
        *table[1] += 2.f;""",
    ),
    want=plus({0: 3, 8: 6}),
)
put(
    "zero_through_pointer",
    """float d[16];
    float* p = d;
    for (int i = 0; i < 16; ++i) p[i] = 0.f;
    <loop>
    <store>""",
)
put(
    "mma_through_reference",
    """<declare>
    float (&r)[16] = d;
    <loop>
    <store>""",
    pieces={
        "two": """mma(r, a + 2 * t * kA, b + 2 * t * kB);
        mma(d, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)
put(
    "mma_through_pointer",
    """<declare>
    float* p = d;
    <loop>
    <store>""",
    mma=None,
    types="""
__device__ __forceinline__ void mma_p(float* d, uint64_t a, uint64_t b) {
    """
    + asm(registers("d", 16))
    + "\n}\n",
    pieces={
        "two": """mma_p(p, a + 2 * t * kA, b + 2 * t * kB);
        mma_p(p, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"""
    },
)
