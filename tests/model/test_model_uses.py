# SPDX-License-Identifier: Apache-2.0
"""What expressions do with the registers they name. Whatever is not known to be harmless is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import kernel

from porter.lang.sources import load_sources
from porter.model.accumulators import find_accumulators
from porter.model.mentions import Mentions
from porter.model.program import build_program
from porter.model.uses import Use
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary

BEFORE = """
#define ACC acc
#define OUT(i) ACC[i]
#define ADD(i, x) OUT(i) += x
#define PUT(i) out[i] = OUT(i)
#define PASTE(a, b) a##b
#define SAME(x) x
#define STORE(i, v) out[i] = v;
#define STREAM(i, v) __stcs(&out[i], v)
#define SQUARE(v) ((v) * (v))
#define SET(v, x) v = x
#define BUMP(v) ++v
#define KEEP(v) p = &v
#define HAND(v) unknown_to_us(v)
using number = float;
struct Holder { float (&r)[8]; };
struct Copy { float a, b; };
struct Keeper { float* p; __device__ void keep(float* q) { p = q; } };
__device__ float& first(float (&x)[8]) { return x[0]; }
__device__ float twice(float x) { return x + x; }
__device__ void scale(float (&x)[8], float f) { for (int i = 0; i < 8; ++i) x[i] *= f; }
__device__ float sum(const float (&x)[8]) { float s = 0; for (float v : x) s += v; return s; }
__device__ void keep(float (&x)[8], float** p) { *p = x; }
__device__ void swap_two(float& a, float& b) { float t = a; a = b; b = t; }
template <class T> __device__ void negate(T& all) { for (auto& x : all) x = -x; }
template <class T> __device__ T identity(T x) { return x; }
"""
BODY = """
    float acc[8];
    mma(acc, a, b);
    int i = threadIdx.x % 8, c = steps;
    float x, y;
    <statement>
"""
USES = {
    Use.READ: [
        "x = acc[0];", "x = acc[i] * 2.f;", "float v = acc[i];", "auto v = acc[i];", "number v = acc[i];",
        "out[i] = -acc[0];", "if (acc[0] > 1.f) x = 1.f;", "x = c ? acc[0] : acc[1];", "x = (acc[i]);", "x = *acc;",
        "x = (float)acc[0];", "x = static_cast<float>(acc[0]);", "x = (number)(acc[0]);",
        "half h = (half)(acc[i]);", "x = float(acc[0]);", "out[i] = __expf(acc[0]);",
        "float2 v = make_float2(acc[0], acc[1]);", "float v[2] = {acc[0], acc[1]};", "float2 v = {acc[0], acc[1]};",
        "STORE(i, acc[0]);", "STORE(i, acc[i] * 2.f);", "if (c) STORE(0, acc[1]);", "STREAM(i, acc[0]);",
        "x = SQUARE(acc[i]);", "x = SQUARE(SQUARE(acc[0]) + 1.f);",
        "x = twice(acc[0]);", "x = sum(acc);", "x = identity(acc[0]);", "for (float v : acc) x += v;", "PUT(0);",
        "x = OUT(i);", 'asm volatile("mov.f32 %0, %1;" : "=f"(x) : "f"(acc[0]));', "out[int(acc[0])] = 1.f;",
        "while (acc[0] > x) x += 1.f;", "x = acc[0], y = 1.f;", "memcpy(out, acc, sizeof(acc));",
    ],
    Use.WRITE: [
        "SET(acc[i], 1.f);",
        "acc[0] = 1.f;", "acc[i] = x;", "(acc[0]) = x;", "*acc = x;", "ACC[i] = x;", "OUT(i) = x;",
    ],
    Use.UPDATE: [
        "BUMP(acc[0]);",
        "acc[0] += 1.f;", "++acc[i];", "acc[i]--;", "(c ? acc[0] : acc[1]) += 1.f;", "scale(acc, 2.f);", "negate(acc);",
        "swap_two(acc[0], acc[1]);", "for (auto& v : acc) v *= 2.f;", "ACC[0] += 1.f;", "ADD(i, 1.f);",
        "PASTE(ac, c)[i] += 1.f;", 'asm volatile("neg.f32 %0, %0;" : "+f"(acc[0]));', "memset(acc, 0, sizeof(acc));",
    ],
    Use.UNKNOWN: [
        "float* p; KEEP(acc[0]);", "HAND(acc[0]);",
        "float (&r)[8] = acc;", "auto& r = acc;", "auto&& r = acc;", "float* p = acc;", "float* p = &acc[0];",
        "float& r = acc[0];", "Holder f{acc};", "Holder f(acc);", "float& r = first(acc);", "*(acc + 0) += 1.f;",
        "*&acc[0] += 1.f;", "0[acc] += 1.f;", "const_cast<float&>(acc[0]) += 1.f;", "(float&)acc[0] = x;",
        "for (float* p : {&acc[0], &acc[1]}) *p += 1.f;", "atomicAdd(&acc[0], 1.f);", "float* p; keep(acc, &p);",
        "Keeper k; k.keep(acc);", "unknown(acc);", "unknown(acc[0]);", "auto& [p, q] = *reinterpret_cast<Copy*>(acc);",
        "reinterpret_cast<float4*>(acc)[0].x = x;", "(x, acc[0]) = 1.f;", "(acc[0] = x) += 1.f;",
        "auto f = [&held = acc] { held[0] += 1.f; };", "SAME(float* p = acc);", "float (*p)[8] = &acc;",
        "struct { float* p; } s = {acc};", "float* ps[2] = {acc, acc};", "std::swap(acc[0], acc[1]);",
    ],
}  # fmt: skip
CASES = [(use, statement) for use, statements in USES.items() for statement in statements]


def uses(tmp_path: Path, statement: str, before: str = BEFORE) -> set[Use]:
    """What the statement does to `acc`."""
    path = tmp_path / "kernel.cu"
    path.write_text(kernel(BODY.replace("<statement>", statement), before=before))
    return _uses_in(path)


def _uses_in(path: Path) -> set[Use]:
    program = build_program(load_sources(path), vocabulary(load_rules()))
    accumulators = find_accumulators(program)
    (accumulator,) = accumulators.accumulators
    return {m.use for m in Mentions(program, accumulators).of(accumulator, [])}


@pytest.mark.parametrize(("use", "statement"), CASES, ids=[s for _, s in CASES])
def test_a_use_is_read_off_the_expression(tmp_path: Path, use: Use, statement: str) -> None:
    assert uses(tmp_path, statement) == {use}


@pytest.mark.parametrize(
    "statement",
    ["x = sizeof(acc);", "decltype(acc[0]) z = 0.f;", 'asm volatile("" : "+f"(acc[0]));', "// acc[0] += 1.f;",
     'printf("acc");', "{ float acc[4]; acc[0] = 1.f; }", "out[0] = Copy{1.f, 2.f}.a;"],
)  # fmt: skip
def test_what_names_no_register_is_no_mention(tmp_path: Path, statement: str) -> None:
    assert uses(tmp_path, statement) == set()


def test_overloaded_operators_may_take_references(tmp_path: Path) -> None:
    operator = "struct S { float* p; };\n__device__ void operator<<(S& s, float& f) { s.p = &f; }\n"
    path = tmp_path / "kernel.cu"
    path.write_text(kernel(BODY.replace("<statement>", "S s; s << acc[0];"), before=BEFORE + operator))
    program = build_program(load_sources(path), vocabulary(load_rules()))
    accumulators = find_accumulators(program)
    (accumulator,) = accumulators.accumulators
    assert [m.use for m in Mentions(program, accumulators).of(accumulator, [])] == [Use.UNKNOWN]


SEEN = """
struct Copied { float v; Copied() = default; __device__ Copied(float x) : v(x) {} };
struct Nested { Copied c; __device__ explicit Nested(Copied x) : c(x) {} };
struct Kept { float& r; __device__ explicit Kept(float& x) : r(x) {} };
struct KeptByConst { const float& r; __device__ explicit KeptByConst(const float& x) : r(x) {} };
struct KeptWithin { float* p; __device__ explicit KeptWithin(Kept x) : p(&x.r) {} };
struct KeptByTemplate { void* p; template <class U> __device__ explicit KeptByTemplate(U&& x) : p(&x) {} };
struct Aggregate { float& r; };
template <class U> struct Box { U v; __device__ Box(U x) : v(x) {} };
namespace ns { using number = unsigned short; using copied = Copied; using reference = float&;
__device__ float keeping(float& x) { static float* p; p = &x; return *p; } }
using reference = float&;
using from_element = decltype((SEEN_ARRAY[0]));
typedef Kept kept_alias;
__device__ float keeping(float& x) { static float* p; p = &x; return *p; }
__device__ float half(float& x) { static float* p; p = &x; return *p; }
#define ELEM elem
#define WIDE unsigned long
#define CALLED keeping
#define CAST(x) (elem)(x)
#define FUNCTIONAL(x) elem(x)
#define CALLS(x) (keeping)(x)
struct Has { using elem = int; template <int N> struct of { using elem = int; }; };
__device__ void uses(elem* p, other::elem q) { elem e[2]; }
"""
CASTS = {
    Use.READ: [
        "x = (elem)(acc[0]);", "x = (elem) (acc[i]);", "x = elem(acc[0]);", "x = ((elem))(acc[0]);",
        "x = (const elem)(acc[0]);", "x = (elem)((acc[0]));", "x = -(elem)(acc[0]) + 1;", "x = (elem)acc[0];",
        "elem e = (elem)(acc[0]);", "elem e((elem)(acc[0]));", "twice((elem)(acc[0]));", "unknown(elem(acc[0]), 1);",
        "return; (void)[&] { return (elem)(acc[0]); };", "x = (other::elem)(acc[0]);", "x = other::elem(acc[i]);",
        "x = (ELEM)(acc[0]);", "x = ELEM(acc[0]);", "x = CAST(acc[0]);", "x = FUNCTIONAL(acc[i]);", "x = WIDE(acc[0]);",
        "x = (unsigned)(acc[0]);", "x = unsigned(acc[0]);", "x = (ns::number)(acc[0]);", "x = ns::number(acc[0]);",
        "x = (Copied)(acc[0]).v;", "auto s = Copied(acc[0]);", "auto s = (ns::copied)(acc[0]);",
        "auto s = static_cast<Nested>(acc[0]);", "auto s = Box<float>(acc[0]);", "x = (typename Has::elem)(acc[0]);",
        "x = typename Has::elem(acc[0]);", "out[i] = unknown(typename Has::elem(acc[0]));", "x = (Has::elem)(acc[0]);",
        "x = Has::of<2>::elem(acc[0]);", "x = static_cast<elem>(acc[0]);", "x = (uint32_t)(acc[0]);",
        "using inner = short; x = (inner)(acc[0]);", "x = (first_seen_here)acc[0];",
        "first_seen_here v; v = (first_seen_here)(acc[0]);",
    ],
    Use.WRITE: ["auto elem = [](float& v) { v = 1.f; }; (elem)(acc[0]);"],
    Use.UNKNOWN: [
        "x = (unknown)(acc[0]);", "x = unknown(acc[0]);", "x = (other::unknown)(acc[0]);", "x = (keeping)(acc[0]);",
        "x = (ns::keeping)(acc[0]);", "x = CALLED(acc[0]);", "x = CALLS(acc[0]);", "x = (half)(acc[0]);",
        "auto s = (Kept)(acc[0]);", "auto s = Kept(acc[0]);", "auto s = static_cast<Kept>(acc[0]);",
        "auto s = (kept_alias)(acc[0]);", "auto s = KeptByConst(acc[0]);", "auto s = static_cast<KeptWithin>(acc[0]);",
        "auto s = KeptByTemplate(acc[0]);", "auto s = Aggregate(acc[0]);", "(reference)(acc[0]) = x;",
        "reference(acc[0]) = x;", "(ns::reference)(acc[0]) = x;", "static_cast<reference>(acc[0]) = x;",
        "(reference)acc[0] = x;", "(from_element)(acc[0]) = x;", "(decltype((acc[0])))acc[1] = x;",
        "auto s = Box<float&>(acc[0]);", "auto s = static_cast<std::reference_wrapper<float>>(acc[0]);",
        "using namespace other; x = (elem)(acc[0]);",
        "using other::elem; x = elem(acc[0]);", "auto s = (Kept)acc[0];", "x = (elem&)(acc[0]);",
    ],
}  # fmt: skip
SPELLINGS = [(use, statement) for use, statements in CASTS.items() for statement in statements]


@pytest.mark.parametrize(("use", "statement"), SPELLINGS, ids=[s for _, s in SPELLINGS])
def test_a_cast_is_told_from_a_call_by_what_its_name_means(tmp_path: Path, use: Use, statement: str) -> None:
    assert uses(tmp_path, statement, BEFORE + SEEN) - {Use.NOTHING} == {use}


@pytest.mark.parametrize(
    ("head", "statement", "use"),
    [
        ("template <class T>", "T* p; *p = (T)(acc[0]);", Use.READ),
        ("template <class T>", "out[0] = T(acc[0]);", Use.READ),
        ("template <class T>", "out[0] = (typename T::elem)(acc[0]);", Use.READ),
        ("template <class T>", "out[0] = typename T::elem(acc[0]);", Use.READ),
        ("template <class T>", "out[0] = T::elem(acc[0]);", Use.UNKNOWN),
        ("template <class T>", "out[0] = (T::elem)(acc[0]);", Use.UNKNOWN),
        ("template <float (*T)(float&)>", "out[0] = (T)(acc[0]);", Use.UNKNOWN),
        ("template <float (*T)(float&)>", "out[0] = T(acc[0]);", Use.UNKNOWN),
        ("template <auto T>", "out[0] = (T)(acc[0]);", Use.UNKNOWN),
    ],
)
def test_a_template_parameter_may_be_a_type_or_a_function(tmp_path: Path, head: str, statement: str, use: Use) -> None:
    path = tmp_path / "kernel.cu"
    text = kernel(BODY.replace("<statement>", statement), before=BEFORE)
    path.write_text(text.replace("__global__", f"{head}\n__global__"))
    assert _uses_in(path) == {use}


@pytest.mark.parametrize(
    "seen",
    [
        "struct P { elem* p; };",
        "template <class T> struct P { T n; elem a[4]; };",
        "struct P { static void f(elem e) {} };\n__device__ void g(elem* p) {}",
        "namespace { __device__ elem* f(elem& e) { return &e; } }\nstruct P { elem e; };",
    ],
)
def test_members_show_what_is_a_type(tmp_path: Path, seen: str) -> None:
    assert uses(tmp_path, "x = (elem)(acc[0]);", f"{BEFORE}{seen}\n") == {Use.READ}


def test_what_another_scope_uses_as_a_type_says_nothing(tmp_path: Path) -> None:
    """`elem` of another namespace, or of one that a directive brings into another function."""
    for other in (
        "namespace apart { __device__ void uses(elem* p) {} }\n",
        "__device__ void uses() { using namespace apart; elem e[2]; }\n",
        "struct elem_user : base { elem* p; };\n",
        "__device__ void uses() { elem * e; }\n",
    ):
        assert uses(tmp_path, "x = (elem)(acc[0]);", BEFORE + other) == {Use.UNKNOWN}
