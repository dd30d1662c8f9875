# SPDX-License-Identifier: Apache-2.0
"""Accumulator registers that go through functions, lambdas, templates and objects that refer to them."""

from __future__ import annotations

from functools import partial

import numpy as np
from variant_template import asm, loop, registers, variant
from variant_types import Values, each, plus, then, total

put = partial(variant, axis="call")
ONE = plus({0: 1})
FIRST = "<declare>\n    <loop>\n    "


def after(name: str, statements: str, types: str = "", **more: object) -> None:
    """A variant with statements between the loop and the stores."""
    put(name, FIRST + statements + "\n    <store>", types=types and f"\n{types}\n", **more)  # type: ignore[arg-type]


def doubled(d: Values) -> None:
    d *= 2


DOUBLED = then(doubled)

# --- Objects that refer to the registers

REF = "struct F { float (&r)[16]; };"
BUMP = """struct F {
    float (&r)[16];
    __device__ explicit F(float (&x)[16]) : r(x) {}
    __device__ void bump() { r[0] += 1.f; }
    __device__ float& operator[](int i) { return r[i]; }
    __device__ void operator()(float f) { for (float& x : r) x *= f; }
};"""
after("struct_of_reference", "F f{d};\n    f.r[0] += 1.f;", REF, want=ONE)
put("struct_local", FIRST + "struct F { float (&r)[16]; } f{d};\n    f.r[0] += 1.f;\n    <store>", want=ONE)
after("struct_constructed", "F f(d);\n    f.r[0] += 1.f;", BUMP, want=ONE)
after("struct_method", "F f(d);\n    f.bump();", BUMP, want=ONE)
after("struct_temporary", "F(d).bump();", BUMP, want=ONE)
after("struct_operator_index", "F f(d);\n    f[4] += 1.f;", BUMP, want=plus({4: 1}))
after("struct_call_operator", "F f(d);\n    f(2.f);", BUMP, want=DOUBLED)
after("struct_copied", "F f(d);\n    F g = f;\n    g.bump();", BUMP, want=ONE)
put("struct_early", f"<declare>\n    F f(d);\n    {loop('f.bump();')}\n    <store>", types=f"\n{BUMP}\n", want=plus({0: 3}))
put("struct_early_used_late", "<declare>\n    F f(d);\n    <loop>\n    f.bump();\n    <store>", types=f"\n{BUMP}\n", want=ONE)
after("struct_of_pointer", "P p{d};\n    p.p[1] += 2.f;", "struct P { float* p; };", want=plus({1: 2}))
put("struct_of_pointer_early", "<declare>\n    P p{d, 2};\n    <loop>\n    p.p[p.i] += 2.f;\n    <store>", types="\nstruct P { float* p; int i; };\n", want=plus({2: 2}))
after("struct_of_element_reference", "E e{d[3], d[4]};\n    e.x += 1.f;\n    e.y += 2.f;", "struct E { float &x, &y; };", want=plus({3: 1, 4: 2}))
after("struct_nested_reference", "G g{F{d}};\n    g.f.r[0] += 1.f;", REF + "\nstruct G { F f; };", want=ONE)
after("struct_by_function", "make(d).r[0] += 1.f;", REF + "\n__device__ F make(float (&x)[16]) { return F{x}; }", want=ONE)
after("span_of_pointer", "for (float& x : Span{d, d + 16}) x *= 2.f;", """struct Span {
    float *first, *last;
    __device__ float* begin() const { return first; }
    __device__ float* end() const { return last; }
};""", want=DOUBLED)  # fmt: skip
after("conversion_operator", "Ref r{d[2]};\n    static_cast<float&>(r) += 1.f;", "struct Ref {\n    float& x;\n    __device__ operator float&() const { return x; }\n};", want=plus({2: 1}))
after("guard_at_scope_end", "{\n        Guard g{d};\n    }", "struct Guard {\n    float* p;\n    __device__ ~Guard() { p[0] += 1.f; }\n};", want=ONE)
put("guard_around_loop", "<declare>\n    {\n        Guard g{d};\n        <loop>\n    }\n    <store>", types="\nstruct Guard {\n    float* p;\n    __device__ ~Guard() { p[0] += 1.f; }\n};\n", want=ONE)
after("static_member_function", "Tools::bump(d);", "struct Tools { static __device__ void bump(float (&x)[16]) { x[0] += 1.f; } };", want=ONE)

# --- Functions

after("get_reference", "float& x = get(d);\n    x += 1.f;", "__device__ float& get(float (&x)[16]) { return x[0]; }", want=ONE)
after("get_assigned", "get(d, 3) = 5.f;", "__device__ float& get(float* x, int i) { return x[i]; }", want=then(lambda d: d[:, 3].fill(5)))
after("get_pointer", "*where(d) += 1.f;", "__device__ float* where(float* x) { return x + 1; }", want=plus({1: 1}))
after("get_array", "whole(d)[2] += 1.f;", "using Tile = float[16];\n__device__ Tile& whole(Tile& x) { return x; }", want=plus({2: 1}))
after("by_array_reference", "scale(d, 2.f);", "__device__ void scale(float (&x)[16], float f) { for (float& v : x) v *= f; }", want=DOUBLED)
after("by_pointer", "scale(d, 2.f);", "__device__ void scale(float* x, float f) { for (int i = 0; i < 16; ++i) x[i] *= f; }", want=DOUBLED)
after("by_array_parameter", "scale(d, 2.f);", "__device__ void scale(float x[16], float f) { for (int i = 0; i < 16; ++i) x[i] *= f; }", want=DOUBLED)
after("by_element_reference", "for (int i = 0; i < 16; ++i) scale(d[i]);", "__device__ void scale(float& x) { x *= 2.f; }", want=DOUBLED)
after("by_part", "scale(d + 8);", "__device__ void scale(float* x) { for (int i = 0; i < 8; ++i) x[i] *= 2.f; }", want=then(lambda d: doubled(d[:, 8:])))
after("by_elements", "add(d[0], d[5], 3.f);", "__device__ void add(float& x, float& y, float f) { x += f; y -= f; }", want=plus({0: 3, 5: -3}))
after("by_value_only", "float m = 0.f;\n    for (int i = 0; i < 16; ++i) m = largest(m, d[i]);\n    d[0] = m;", "__device__ float largest(float x, float y) { return x > y ? x : y; }",
      want=then(lambda d: d[:, 0].__setitem__(slice(None), d.max(1).clip(0))))  # fmt: skip
after("default_argument", "bump(d);\n    bump(d, 4);", "__device__ void bump(float* x, int i = 0) { x[i] += 1.f; }", want=plus({0: 1, 4: 1}))
after("two_levels", "outer(d);", "__device__ void inner(float* x) { x[0] += 1.f; }\n__device__ void outer(float (&x)[16]) { inner(x); }", want=ONE)
after("through_const", "sneak(d);", "__device__ void sneak(const float* x) { const_cast<float*>(x)[0] += 1.f; }", want=ONE)
after("function_pointer", "void (*f)(float*) = bump;\n    f(d);", "__device__ void bump(float* x) { x[0] += 1.f; }", want=ONE)
after("noinline_reads", "d[0] = sum(d);", "__device__ __noinline__ float sum(const float* x) {\n    float s = 0.f;\n    for (int i = 0; i < 16; ++i) s += x[i];\n    return s;\n}",
      want=then(lambda d: d[:, 0].__setitem__(slice(None), d.sum(1))))  # fmt: skip
after("noinline_changes", "scale(d);", "__device__ __noinline__ void scale(float* x) {\n    for (int i = 0; i < 16; ++i) x[i] *= 2.f;\n}", want=DOUBLED)
after("noinline_element", "bump(d[2]);", "__device__ __noinline__ void bump(float& x) { x += 1.f; }", want=plus({2: 1}))
put("noinline_stores", "<declare>\n    <loop>\n    save(d, c);", types="\n__device__ __noinline__ void save(const float (&x)[16], float* c) {\n    for (int i = 0; i < 16; ++i) c[at(i)] = x[i];\n}\n")
put("stores_in_function", "<declare>\n    <loop>\n    save(d, c);", types="\n__device__ void save(const float (&x)[16], float* c) {\n    for (int i = 0; i < 16; ++i) c[at(i)] = x[i];\n}\n")
put("zeroed_by_function", "float d[16];\n    clear(d);\n    <loop>\n    <store>", types="\n__device__ void clear(float* x) { for (int i = 15; i >= 0; --i) x[i] = 0.f; }\n")
after("swap_helper", "swap_values(d[0], d[1]);", "__device__ void swap_values(float& x, float& y) {\n    const float z = x;\n    x = y;\n    y = z;\n}",
      want=then(lambda d: d.__setitem__((slice(None), [0, 1]), d[:, [1, 0]])))  # fmt: skip
after("return_copies", "const Copies x = copies(d);\n    d[0] = x.first + x.last;", "struct Copies { float first, last; };\n__device__ Copies copies(const float* x) { return {x[0], x[15]}; }",
      want=then(lambda d: d[:, 0].__iadd__(d[:, 15])))  # fmt: skip
after("changed_in_argument", "take(d[0]++, d[1] += 2.f, c);", "__device__ void take(float, float, float*) {}", want=plus({0: 1, 1: 2}))

# --- Templates

after("template_type", "scale(d);", "template <class T>\n__device__ void scale(T& t) { for (auto& x : t) x *= 2.f; }", want=DOUBLED)
after("template_extent", "scale(d);", "template <int N>\n__device__ void scale(float (&x)[N]) { for (int i = 0; i < N; ++i) x[i] *= 2.f; }", want=DOUBLED)
after("template_both", "scale(d);", "template <class T, int N>\n__device__ void scale(T (&x)[N]) { for (int i = 0; i < N; ++i) x[i] *= T(2); }", want=DOUBLED)
after("template_variadic", "bump(d[0], d[1], d[7]);", "template <class... T>\n__device__ void bump(T&... x) { ((x += 1.f), ...); }", want=plus({0: 1, 1: 1, 7: 1}))
after("template_recursive", "bump<3>(d);", "template <int I>\n__device__ void bump(float* x) {\n    x[I] += 1.f;\n    if constexpr (I > 0) bump<I - 1>(x);\n}", want=plus({0: 1, 1: 1, 2: 1, 3: 1}))
after("template_index", "get<5>(d) += 1.f;", "template <int I, int N>\n__device__ float& get(float (&x)[N]) { return x[I]; }", want=plus({5: 1}))
after("template_forwarding", "bump(d);", "template <class T>\n__device__ void bump(T&& x) { x[0] += 1.f; }", want=ONE)
after("template_of_function", "apply(d, [](float& x) { x *= 2.f; });", "template <class F>\n__device__ void apply(float (&x)[16], F f) { for (float& v : x) f(v); }", want=DOUBLED)

# --- Lambdas

after("lambda_by_reference", "auto bump = [&] { d[0] += 1.f; };\n    bump();", want=ONE)
after("lambda_named_capture", "auto bump = [&d](int i) { d[i] += 1.f; };\n    bump(0);", want=ONE)
after("lambda_init_capture", "auto bump = [&r = d] { r[0] += 1.f; };\n    bump();", want=ONE)
after("lambda_by_value", "auto first = [=] { return d[0] + d[1]; };\n    d[0] = 0.f;\n    d[0] = first();", want=then(lambda d: d[:, 0].__iadd__(d[:, 1])))
after("lambda_mutable_copy", "auto twice = [d]() mutable { d[0] *= 2.f; return d[0]; };\n    d[1] = twice();", want=then(lambda d: d[:, 1].__setitem__(slice(None), 2 * d[:, 0])))
after("lambda_returns_reference", "auto get = [&](int i) -> float& { return d[i]; };\n    get(3) += 1.f;", want=plus({3: 1}))
after("lambda_generic", "auto bump = [](auto& x) { x[0] += 1.f; };\n    bump(d);", want=ONE)
after("lambda_immediate", "[&] { d[0] += 1.f; }();", want=ONE)
after("lambda_nested", "auto outer = [&] {\n        auto inner = [&] { d[0] += 1.f; };\n        inner();\n    };\n    outer();", want=ONE)
after("lambda_passed_on", "run([&](int i) { d[i] += 1.f; });", "template <class F>\n__device__ void run(const F& f) { f(0); f(1); }", want=plus({0: 1, 1: 1}))
put("lambda_store", FIRST + "auto save = [&](int i) { c[at(i)] = d[i]; };\n    for (int i = 0; i < 16; ++i) save(i);")
put("lambda_zero", "float d[16];\n    auto clear = [&] { for (float& x : d) x = 0.f; };\n    clear();\n    <loop>\n    <store>")
put("lambda_batch", "<declare>\n    auto multiply = [&](int t) {\n        <multiply>\n    };\n    for (int t = 0; t < tiles; ++t) multiply(t);\n    <store>")
put("lambda_batch_and_change", "<declare>\n    auto multiply = [&](int t) {\n        <multiply>\n        d[0] += 1.f;\n    };\n    for (int t = 0; t < tiles; ++t) multiply(t);\n    <store>", want=plus({0: 3}))

# --- Objects that hold the registers

ACC = "\nstruct Acc { float d[16]; };\n__device__ __forceinline__ void mma(Acc& acc, uint64_t a, uint64_t b) {\n    " + asm(registers("acc.d", 16)) + "\n}\n"
HELD = {"declare": "Acc acc;\n    for (int i = 0; i < 16; ++i) acc.d[i] = 0;",
        "two": "mma(acc, a + 2 * t * kA, b + 2 * t * kB);\n        mma(acc, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);",
        "store": "for (int i = 0; i < 16; ++i) c[at(i)] = acc.d[i];"}  # fmt: skip


def held(name: str, statements: str, types: str = "", **more: object) -> None:
    """The registers are a struct's member."""
    put(name, FIRST + statements + "\n    <store>", mma=ACC, types=types and f"\n{types}\n", pieces=HELD, **more)  # type: ignore[arg-type]


held("object_plain", "")
held("object_member_changed", "acc.d[0] += 1.f;", want=ONE)
held("object_reference", "Acc& r = acc;\n    r.d[0] += 1.f;", want=ONE)
held("object_pointer", "Acc* p = &acc;\n    p->d[0] += 1.f;", want=ONE)
held("object_pointer_to_member", "float (Acc::*m)[16] = &Acc::d;\n    (acc.*m)[0] += 1.f;", want=ONE)
held("object_copied", "Acc e = acc;\n    e.d[0] += 1.f;\n    acc = e;", want=ONE)
held("object_by_value", "acc.d[0] = sum(acc);", "__device__ float sum(Acc x) { return x.d[0] + x.d[1]; }", want=then(lambda d: d[:, 0].__iadd__(d[:, 1])))
held("object_returned", "acc = scaled(acc, 2.f);", "__device__ Acc scaled(Acc x, float f) {\n    for (float& v : x.d) v *= f;\n    return x;\n}", want=DOUBLED)
held("object_operator", "acc *= 2.f;", "__device__ Acc& operator*=(Acc& x, float f) {\n    for (float& v : x.d) v *= f;\n    return x;\n}", want=DOUBLED)
held("object_reinterpreted", "reinterpret_cast<float*>(&acc)[2] += 1.f;", want=plus({2: 1}))
held("object_binding", "auto& [inner] = acc;\n    inner[2] += 1.f;", want=plus({2: 1}))
held("object_assigned_braces", "acc = Acc{{1.f, 2.f}};", want=then(lambda d: (d.fill(0), d[:, 0].fill(1), d[:, 1].fill(2))[0]))
put("union_member", "Acc acc;\n    for (int i = 0; i < 16; ++i) acc.d[i] = 0;\n    <loop>\n    acc.u[1] ^= 0x80000000u;\n    <store>",
    mma=ACC.replace("struct Acc { float d[16]; };", "union Acc { float d[16]; uint32_t u[16]; };"), pieces=HELD,
    want=then(lambda d: d[:, 1].__imul__(-1)))  # fmt: skip
put("object_pointing_at_itself", "Acc acc;\n    for (int i = 0; i < 16; ++i) acc.d[i] = 0;\n    <loop>\n    acc.p = acc.d;\n    acc.p[1] += 1.f;\n    <store>",
    mma=ACC.replace("float d[16];", "float d[16]; float* p;"), pieces=HELD, want=plus({1: 1}))  # fmt: skip

# --- Two accumulators

BOTH = "float d[16], e[16];\n    for (int i = 0; i < 16; ++i) d[i] = e[i] = 0;\n    "
PAIR = {"two": "mma(d, a + 2 * t * kA, b + 2 * t * kB);\n        mma(e, a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);",
        "store": "for (int i = 0; i < 16; ++i) c[at(i)] = d[i] + e[i];"}  # fmt: skip
put("two_added", BOTH + "<loop>\n    <store>", pieces=PAIR)
put("two_swapped", BOTH + loop("for (int i = 0; i < 16; ++i) {\n            const float x = d[i];\n            d[i] = e[i];\n            e[i] = x;\n        }") + "\n    <store>", pieces=PAIR)
put("two_chosen_reference", BOTH + "<loop>\n    auto& r = tiles > 1 ? d : e;\n    r[3] += 1.f;\n    <store>", pieces=PAIR, want=plus({3: 1}))
put("two_by_pointer", BOTH + "<loop>\n    float* p[2] = {d, e};\n    for (int k = 0; k < 2; ++k) p[k][3] += float(k + 1);\n    <store>", pieces=PAIR, want=plus({3: 3}))
put("two_swapped_by_helper", BOTH + "<loop>\n    exchange(d, e);\n    d[0] += e[1];\n    <store>", types="\ntemplate <class T, int N>\n__device__ void exchange(T (&x)[N], T (&y)[N]) {\n    for (int i = 0; i < N; ++i) {\n        T z = x[i];\n        x[i] = y[i];\n        y[i] = z;\n    }\n}\n",
    pieces={"store": PAIR["store"]},
    want=lambda p: total(p) + np.eye(1, 16) * total(p)[:, 1:2])  # fmt: skip
put("two_in_one_array", "float d[2][16] = {};\n    <loop>\n    <store>", pieces={
    "two": "mma(d[0], a + 2 * t * kA, b + 2 * t * kB);\n        mma(d[1], a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);",
    "store": "for (int i = 0; i < 16; ++i) c[at(i)] = d[0][i] + d[1][i];"})  # fmt: skip
put("two_flattened", "float d[2][16] = {};\n    <loop>\n    float* p = &d[0][0];\n    for (int i = 0; i < 16; ++i) c[at(i)] = p[i] + p[i + 16];", pieces={
    "two": "mma(d[0], a + 2 * t * kA, b + 2 * t * kB);\n        mma(d[1], a + (2 * t + 1) * kA, b + (2 * t + 1) * kB);"})  # fmt: skip

# --- Values before the first MMA

put("zero_braces", "float d[16]{};\n    <loop>\n    <store>")
put("zero_memset", "float d[16];\n    memset(d, 0, sizeof d);\n    <loop>\n    <store>")
put("zero_product", "float d[16];\n    for (int i = 0; i < 16; ++i) d[i] = 0.f * float(i);\n    <loop>\n    <store>")
put("zero_backwards", "float d[16];\n    for (int i = 16; i-- > 0;) d[i] = 0.f;\n    <loop>\n    <store>")
put("zero_some_by_some", "float d[16];\n    for (int i = 0; i < 8; ++i) d[i] = 0.f;\n    for (int i = 8; i < 16; ++i) d[i] = 0.f;\n    <loop>\n    <store>")
put("zero_from_other", "float z[16] = {}, d[16];\n    for (int i = 0; i < 16; ++i) d[i] = z[i];\n    <loop>\n    <store>")
put("zero_negative", "float d[16];\n    for (int i = 0; i < 16; ++i) d[i] = -0.f;\n    <loop>\n    <store>")
put("bias", "float d[16];\n    for (int i = 0; i < 16; ++i) d[i] = float(col_of(i));\n    <loop>\n    <store>",
    want=then(lambda d: d.__iadd__(np.arange(16) // 4 * 8 + np.arange(len(d))[:, None] % 4 * 2 + np.arange(16) % 2)))  # fmt: skip
put("bias_some", "float d[16] = {1.f, 2.f};\n    <loop>\n    <store>", want=plus({0: 1, 1: 2}))
put("bias_by_lane", "float d[16] = {};\n    if (threadIdx.x % 32 < 4) d[0] = 5.f;\n    <loop>\n    <store>", want=then(lambda d: [d[w + i, 0:1].__iadd__(5) for w in range(0, 128, 32) for i in range(4)][0]))
put("bias_after_zero", "<declare>\n    d[3] = 2.f;\n    <loop>\n    <store>", want=plus({3: 2}))
put("zeroed_in_first_tile", "float d[16];\n    for (int t = 0; t < tiles; ++t) {\n        if (t == 0)\n            <zero>\n        <multiply>\n    }\n    <store>")
put("zeroed_every_tile", "float d[16], sum[16] = {};\n    for (int t = 0; t < tiles; ++t) {\n        <zero>\n        <multiply>\n        for (int i = 0; i < 16; ++i) sum[i] += d[i] * float(t + 1);\n    }\n    for (int i = 0; i < 16; ++i) c[at(i)] = sum[i];",
    want=lambda p: np.tensordot(np.arange(1.0, len(p) + 1), p, 1))  # fmt: skip
put("scaled_every_tile", "<declare>\n    " + loop("for (float& x : d) x *= 2.f;") + "\n    <store>", want=each(doubled))
put("halved_at_first", "<declare>\n    " + loop("if (t == 0)\n            for (float& x : d) x *= 2.f;") + "\n    <store>", want=lambda p: total(p) + p[0])
