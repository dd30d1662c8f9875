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


def uses(tmp_path: Path, statement: str) -> set[Use]:
    """What the statement does to `acc`."""
    path = tmp_path / "kernel.cu"
    path.write_text(kernel(BODY.replace("<statement>", statement), before=BEFORE))
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
