# SPDX-License-Identifier: Apache-2.0
"""Accumulator registers that go through functions, lambdas, templates and objects that refer to them."""

from __future__ import annotations

from functools import partial

from variant_template import loop, variant
from variant_types import plus, then

put = partial(variant, axis="call")
ONE = plus({0: 1})
FIRST = """<declare>
    <loop>
    """


def after(name: str, statements: str, types: str = "", **more: object) -> None:
    """A variant with statements between the loop and the stores."""
    put(name, FIRST + statements + "\n    <store>", types=types and f"\n{types}\n", **more)


DOUBLED = then("d *= 2")

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
put(
    "struct_local",
    FIRST
    + """struct F { float (&r)[16]; } f{d};
    f.r[0] += 1.f;
    <store>""",
    want=ONE,
)
after("struct_constructed", "F f(d);\n    f.r[0] += 1.f;", BUMP, want=ONE)
after("struct_method", "F f(d);\n    f.bump();", BUMP, want=ONE)
after("struct_temporary", "F(d).bump();", BUMP, want=ONE)
after("struct_operator_index", "F f(d);\n    f[4] += 1.f;", BUMP, want=plus({4: 1}))
after("struct_call_operator", "F f(d);\n    f(2.f);", BUMP, want=DOUBLED)
after(
    "struct_copied",
    """F f(d);
    F g = f;
    g.bump();""",
    BUMP,
    want=ONE,
)
put(
    "struct_early",
    f"""<declare>
    F f(d);
    {loop("f.bump();")}
    <store>""",
    types=f"\n{BUMP}\n",
    want=plus({0: 3}),
)
put(
    "struct_early_used_late",
    """<declare>
    F f(d);
    <loop>
    f.bump();
    <store>""",
    types=f"\n{BUMP}\n",
    want=ONE,
)
after("struct_of_pointer", "P p{d};\n    p.p[1] += 2.f;", "struct P { float* p; };", want=plus({1: 2}))
put(
    "struct_of_pointer_early",
    """<declare>
    P p{d, 2};
    <loop>
    p.p[p.i] += 2.f;
    <store>""",
    types="""
struct P { float* p; int i; };
""",
    want=plus({2: 2}),
)
after(
    "struct_of_element_reference",
    """E e{d[3], d[4]};
    e.x += 1.f;
    e.y += 2.f;""",
    "struct E { float &x, &y; };",
    want=plus({3: 1, 4: 2}),
)
after("struct_nested_reference", "G g{F{d}};\n    g.f.r[0] += 1.f;", REF + "\nstruct G { F f; };", want=ONE)
after(
    "struct_by_function",
    "make(d).r[0] += 1.f;",
    REF
    + """
__device__ F make(float (&x)[16]) { return F{x}; }""",
    want=ONE,
)
after(
    "span_of_pointer",
    "for (float& x : Span{d, d + 16}) x *= 2.f;",
    """struct Span {
    float *first, *last;
    __device__ float* begin() const { return first; }
    __device__ float* end() const { return last; }
};""",
    want=DOUBLED,
)
after(
    "conversion_operator",
    """Ref r{d[2]};
    static_cast<float&>(r) += 1.f;""",
    """struct Ref {
    float& x;
    __device__ operator float&() const { return x; }
};""",
    want=plus({2: 1}),
)
after(
    "guard_at_scope_end",
    """{
        Guard g{d};
    }""",
    """struct Guard {
    float* p;
    __device__ ~Guard() { p[0] += 1.f; }
};""",
    want=ONE,
)
put(
    "guard_around_loop",
    """<declare>
    {
        Guard g{d};
        <loop>
    }
    <store>""",
    types="""
struct Guard {
    float* p;
    __device__ ~Guard() { p[0] += 1.f; }
};
""",
    want=ONE,
)
after(
    "static_member_function",
    "Tools::bump(d);",
    "struct Tools { static __device__ void bump(float (&x)[16]) { x[0] += 1.f; } };",
    want=ONE,
)

# --- Functions

after(
    "get_reference",
    """float& x = get(d);
    x += 1.f;""",
    "__device__ float& get(float (&x)[16]) { return x[0]; }",
    want=ONE,
)
after(
    "get_assigned",
    "get(d, 3) = 5.f;",
    "__device__ float& get(float* x, int i) { return x[i]; }",
    want=then("d[3] = 5"),
)
after("get_pointer", "*where(d) += 1.f;", "__device__ float* where(float* x) { return x + 1; }", want=plus({1: 1}))
after(
    "get_array",
    "whole(d)[2] += 1.f;",
    """using Tile = float[16];
__device__ Tile& whole(Tile& x) { return x; }""",
    want=plus({2: 1}),
)
after(
    "by_array_reference",
    "scale(d, 2.f);",
    "__device__ void scale(float (&x)[16], float f) { for (float& v : x) v *= f; }",
    want=DOUBLED,
)
after(
    "by_pointer",
    "scale(d, 2.f);",
    "__device__ void scale(float* x, float f) { for (int i = 0; i < 16; ++i) x[i] *= f; }",
    want=DOUBLED,
)
after(
    "by_array_parameter",
    "scale(d, 2.f);",
    "__device__ void scale(float x[16], float f) { for (int i = 0; i < 16; ++i) x[i] *= f; }",
    want=DOUBLED,
)
after(
    "by_element_reference",
    "for (int i = 0; i < 16; ++i) scale(d[i]);",
    "__device__ void scale(float& x) { x *= 2.f; }",
    want=DOUBLED,
)
after(
    "by_part",
    "scale(d + 8);",
    "__device__ void scale(float* x) { for (int i = 0; i < 8; ++i) x[i] *= 2.f; }",
    want=then("d[8:] *= 2"),
)
after(
    "by_elements",
    "add(d[0], d[5], 3.f);",
    "__device__ void add(float& x, float& y, float f) { x += f; y -= f; }",
    want=plus({0: 3, 5: -3}),
)
after(
    "by_value_only",
    """float m = 0.f;
    for (int i = 0; i < 16; ++i) m = largest(m, d[i]);
    d[0] = m;""",
    "__device__ float largest(float x, float y) { return x > y ? x : y; }",
    want=then("d[0] = np.maximum(d.max(0), 0)"),
)
after(
    "default_argument",
    """bump(d);
    bump(d, 4);""",
    "__device__ void bump(float* x, int i = 0) { x[i] += 1.f; }",
    want=plus({0: 1, 4: 1}),
)
after(
    "two_levels",
    "outer(d);",
    """__device__ void inner(float* x) { x[0] += 1.f; }
__device__ void outer(float (&x)[16]) { inner(x); }""",
    want=ONE,
)
after(
    "through_const", "sneak(d);", "__device__ void sneak(const float* x) { const_cast<float*>(x)[0] += 1.f; }", want=ONE
)
after(
    "function_pointer",
    """void (*f)(float*) = bump;
    f(d);""",
    "__device__ void bump(float* x) { x[0] += 1.f; }",
    want=ONE,
)
after(
    "noinline_reads",
    "d[0] = sum(d);",
    """__device__ __noinline__ float sum(const float* x) {
    float s = 0.f;
    for (int i = 0; i < 16; ++i) s += x[i];
    return s;
}""",
    want=then("d[0] = d.sum(0)"),
)
after(
    "noinline_changes",
    "scale(d);",
    """__device__ __noinline__ void scale(float* x) {
    for (int i = 0; i < 16; ++i) x[i] *= 2.f;
}""",
    want=DOUBLED,
)
after("noinline_element", "bump(d[2]);", "__device__ __noinline__ void bump(float& x) { x += 1.f; }", want=plus({2: 1}))
put(
    "noinline_stores",
    """<declare>
    <loop>
    save(d, c);""",
    types="""
__device__ __noinline__ void save(const float (&x)[16], float* c) {
    for (int i = 0; i < 16; ++i) c[at(i)] = x[i];
}
""",
)
put(
    "stores_in_function",
    """<declare>
    <loop>
    save(d, c);""",
    types="""
__device__ void save(const float (&x)[16], float* c) {
    for (int i = 0; i < 16; ++i) c[at(i)] = x[i];
}
""",
)
put(
    "zeroed_by_function",
    """float d[16];
    clear(d);
    <loop>
    <store>""",
    types="""
__device__ void clear(float* x) { for (int i = 15; i >= 0; --i) x[i] = 0.f; }
""",
)
after(
    "swap_helper",
    "swap_values(d[0], d[1]);",
    """__device__ void swap_values(float& x, float& y) {
    const float z = x;
    x = y;
    y = z;
}""",
    want=then("d[[0, 1]] = d[[1, 0]]"),
)
after(
    "return_copies",
    """const Copies x = copies(d);
    d[0] = x.first + x.last;""",
    """struct Copies { float first, last; };
__device__ Copies copies(const float* x) { return {x[0], x[15]}; }""",
    want=then("d[0] += d[15]"),
)
after(
    "changed_in_argument",
    "take(d[0]++, d[1] += 2.f, c);",
    "__device__ void take(float, float, float*) {}",
    want=plus({0: 1, 1: 2}),
)

# --- Templates

after(
    "template_type",
    "scale(d);",
    """template <class T>
__device__ void scale(T& t) { for (auto& x : t) x *= 2.f; }""",
    want=DOUBLED,
)
after(
    "template_extent",
    "scale(d);",
    """template <int N>
__device__ void scale(float (&x)[N]) { for (int i = 0; i < N; ++i) x[i] *= 2.f; }""",
    want=DOUBLED,
)
after(
    "template_both",
    "scale(d);",
    """template <class T, int N>
__device__ void scale(T (&x)[N]) { for (int i = 0; i < N; ++i) x[i] *= T(2); }""",
    want=DOUBLED,
)
after(
    "template_variadic",
    "bump(d[0], d[1], d[7]);",
    """template <class... T>
__device__ void bump(T&... x) { ((x += 1.f), ...); }""",
    want=plus({0: 1, 1: 1, 7: 1}),
)
after(
    "template_recursive",
    "bump<3>(d);",
    """template <int I>
__device__ void bump(float* x) {
    x[I] += 1.f;
    if constexpr (I > 0) bump<I - 1>(x);
}""",
    want=plus({0: 1, 1: 1, 2: 1, 3: 1}),
)
after(
    "template_index",
    "get<5>(d) += 1.f;",
    """template <int I, int N>
__device__ float& get(float (&x)[N]) { return x[I]; }""",
    want=plus({5: 1}),
)
after("template_forwarding", "bump(d);", "template <class T>\n__device__ void bump(T&& x) { x[0] += 1.f; }", want=ONE)
after(
    "template_of_function",
    "apply(d, [](float& x) { x *= 2.f; });",
    """template <class F>
__device__ void apply(float (&x)[16], F f) { for (float& v : x) f(v); }""",
    want=DOUBLED,
)

# --- Lambdas

after("lambda_by_reference", "auto bump = [&] { d[0] += 1.f; };\n    bump();", want=ONE)
after("lambda_named_capture", "auto bump = [&d](int i) { d[i] += 1.f; };\n    bump(0);", want=ONE)
after("lambda_init_capture", "auto bump = [&r = d] { r[0] += 1.f; };\n    bump();", want=ONE)
after(
    "lambda_by_value",
    """auto first = [=] { return d[0] + d[1]; };
    d[0] = 0.f;
    d[0] = first();""",
    want=then("d[0] += d[1]"),
)
after(
    "lambda_mutable_copy",
    """auto twice = [d]() mutable { d[0] *= 2.f; return d[0]; };
    d[1] = twice();""",
    want=then("d[1] = 2 * d[0]"),
)
after(
    "lambda_returns_reference",
    """auto get = [&](int i) -> float& { return d[i]; };
    get(3) += 1.f;""",
    want=plus({3: 1}),
)
after("lambda_generic", "auto bump = [](auto& x) { x[0] += 1.f; };\n    bump(d);", want=ONE)
after("lambda_immediate", "[&] { d[0] += 1.f; }();", want=ONE)
after(
    "lambda_nested",
    """auto outer = [&] {
        auto inner = [&] { d[0] += 1.f; };
        inner();
    };
    outer();""",
    want=ONE,
)
after(
    "lambda_passed_on",
    "run([&](int i) { d[i] += 1.f; });",
    """template <class F>
__device__ void run(const F& f) { f(0); f(1); }""",
    want=plus({0: 1, 1: 1}),
)
put("lambda_store", FIRST + "auto save = [&](int i) { c[at(i)] = d[i]; };\n    for (int i = 0; i < 16; ++i) save(i);")
put(
    "lambda_zero",
    """float d[16];
    auto clear = [&] { for (float& x : d) x = 0.f; };
    clear();
    <loop>
    <store>""",
)
put(
    "lambda_batch",
    """<declare>
    auto multiply = [&](int t) {
        <multiply>
    };
    for (int t = 0; t < tiles; ++t) multiply(t);
    <store>""",
)
put(
    "lambda_batch_and_change",
    """<declare>
    auto multiply = [&](int t) {
        <multiply>
        d[0] += 1.f;
    };
    for (int t = 0; t < tiles; ++t) multiply(t);
    <store>""",
    want=plus({0: 3}),
)
