# SPDX-License-Identifier: Apache-2.0
"""Which of several constants a name means: what C++ says, or nothing."""

from __future__ import annotations

import pytest
from modelled import program_of

TWO = "namespace a { constexpr int N = 64; }\nnamespace b { constexpr int N = 128; }\n"
CASES = [
    # source, in which `at` asks; expression; its value
    ("constexpr int N = 4; void at() {}", "N", 4),
    (TWO + "namespace b { void at() {} }", "N", 128),
    (TWO + "namespace b { void at() {} }", "a::N", 64),
    (TWO + "namespace c { void at() {} }", "N", None),
    (TWO + "void at() {}", "N", None),
    (TWO + "void at() {}", "::b::N", 128),
    (TWO + "using b::N; void at() {}", "N", 128),
    (TWO + "using namespace a; void at() {}", "N", 64),
    (TWO + "void at() { using namespace b; }", "N", 128),
    (TWO + "namespace c = b; void at() {}", "c::N", 128),
    (TWO + "namespace a { namespace b { constexpr int N = 32; void at() {} } }", "b::N", 32),
    ("namespace inner { constexpr int N = 64; } namespace lib_user { void at() {} }", "N", None),
    ("constexpr int N = 4; namespace cfg = lib::config; void at() {}", "cfg::N", None),
    ("constexpr int N = 4; using C = lib::Config; void at() {}", "C::N", None),
    ("constexpr int N = 4; typedef lib::Config C; void at() {}", "C::N", None),
    ("constexpr int N = 4; namespace lib { struct Config; } void at() {}", "lib::Config::N", None),
    ("struct A { static constexpr int N = 64; }; struct B { static constexpr int N = 128; }; void at() {}", "A::N", 64),
    ("struct A { static constexpr int N = 64; }; struct B { static constexpr int N = 128; };"
     "void at() { using C = B; }", "C::N", 128),
    ("struct A { enum { N = 64 }; }; struct B { enum { N = 128 }; }; void at() {}", "B::N", 128),
    ("template <int X> struct Cfg { static constexpr int N = X; }; constexpr int X = 5; using C = Cfg<64>;"
     "void at() {}", "C::N", None),
    ("template <int X> struct Cfg { static constexpr int N = 2 * K; static constexpr int K = 3; }; constexpr int K = 7;"
     "using C = Cfg<64>; void at() {}", "C::N", 6),
    ("constexpr int BM = 128; constexpr int N = BM * 2; void at() { constexpr int BM = 64; }", "N", 256),
    ("constexpr int BM = 128; constexpr int N = BM * 2; void at() { constexpr int BM = 64; }", "BM", 64),
    ("constexpr int BM = 128; void at() { constexpr int BM = 64; constexpr int N = BM * 2; }", "N", 128),
    ("constexpr int K = 4; void at() { { constexpr int K = 8; } }", "K", None),
    ("constexpr int K = 4; void at() { if (x) { constexpr int K = 8; } else { constexpr int K = 16; } }", "K", None),
    ("constexpr int K = 4; void at() { auto f = [] { constexpr int K = 8; return K; }; }", "K", None),
    ("constexpr int BM = 128; template <int BM> struct S { void at() {} };", "BM", None),
    ("constexpr int BM = 128; template <int BM> void at() {}", "BM", None),
    ("constexpr int BM = 128; template <int BM> void S<BM>::at() {}", "BM", None),
    ("constexpr int N = 4; struct S { int N; void at() {} };", "N", None),
    ("constexpr int N = 4; struct Params { int N; }; void at() {}", "N", 4),
    ("constexpr int N = 4; struct S { static constexpr int N = 8; void at() {} };", "N", 8),
    ("constexpr int N = 4; struct B { static constexpr int N = 8; }; struct S : B { void at() {} };", "N", 8),
    ("constexpr int N = 4; struct S { static constexpr int N = 8; void at(); }; void S::at() {}", "N", 8),
    ("constexpr int N = 4; int M; namespace m { int N; void at() {} }", "N", None),
    ("namespace m { constexpr int N = 4; } enum { N }; void at() {}", "N", 0),
    ("enum E { A = 3, B, C }; void at() {}", "C", 5),
    ("enum E { A, B = A + 4, C }; void at() {}", "E::C", 5),
    ("enum class E { N = 8 }; constexpr int N = 4; void at() {}", "E::N", 8),
    ("enum class E { N = 8 }; constexpr int N = 4; void at() {}", "N", 4),
    ("enum class E { N = 8 }; namespace x { constexpr int N = 4; } void at() {}", "N", None),
    ("#define N 4\n#undef N\n#define N 8\nvoid at() {}", "N", None),
    ("#define N M\nconstexpr int M = 4; void at() { constexpr int M = 8; }", "N", 8),
    ("#if X\n#define N 4\n#else\n#define N 8\n#endif\nvoid at() {}", "N", None),
    ("constexpr int N = 4; void at(int N) {}", "N", None),
    ("constexpr int N = 4; void at() { int N = 3; }", "N", None),
    ("constexpr int N = 4; void at() { auto [N, M] = two(); }", "N", None),
    ("constexpr int N = 4; void at() { for (int N : all) {} }", "N", None),
    ("constexpr int N = 4; void at() { for (int N = 0; N < 3; ++N) {} }", "N", None),
    ("constexpr int N = 4; void at() { auto f = [&](int N) { return N; }; }", "N", 4),
    ("constexpr float N = 5; void at() {}", "N / 2", None),
    ("constexpr bool N = 4; void at() {}", "N", 1),
    ("struct S { static const int N; }; const int S::N = runtime(); constexpr int N = 4; void at() {}", "S::N", None),
    ("namespace a { constexpr int f() { return 64; } } namespace b { constexpr int f() { int x = 128; return x; }"
     "void at() {} }", "f()", None),
    ("namespace a { constexpr int f() { return 64; } } namespace b { int f(); void at() {} }", "f()", None),
    ("constexpr int f(int x) { return x; } int f(long x) { return 7; } void at() {}", "f(2)", None),
    ("constexpr int X = 5; template <int X> constexpr int f() { return X; } void at() {}", "f()", None),
    ("constexpr int s = 2; constexpr int f(int x) { return x * s; } void at() { constexpr int s = 3; }", "f(2)", 4),
    ("constexpr int f(int x) { return x * 2; } void at() {}", "f(8)", 16),
    ("namespace m { constexpr int f(int x) { return x * 2; } } void at() {}", "lib::f(8)", None),
]  # fmt: skip


@pytest.mark.parametrize(("source", "expression", "value"), CASES)
def test_what_a_name_means(source: str, expression: str, value: int | None) -> None:
    program = program_of(source)
    (at,) = (f for f in program.functions if f.name == "at")
    assert program.constants_in(at).evaluate(expression) == value


def test_kernels_with_constants_of_one_name() -> None:
    program = program_of(
        "template <int T> __global__ void one() { constexpr int BN = 64; }\n"
        "__global__ void two() { constexpr int BN = 128; constexpr int N = BN / 2; }\n"
        "__global__ void three() { enum { BN = 256 }; }\n"
    )
    found = {f.name: program.constants_in(f).evaluate("BN") for f in program.kernels}
    assert found == {"one": 64, "two": 128, "three": 256}
