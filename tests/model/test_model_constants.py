# SPDX-License-Identifier: Apache-2.0
"""Integer constants of a source: what is folded, as C++ does it, and what stays unknown."""

from __future__ import annotations

import random

import pytest
from modelled import of_kernel, program_of

from porter.model.constants import Constants

TEXT = """
#define TILE 64
#define TWICE (2 * TILE)
#define PICK(x) x
constexpr int kN = TWICE + 0x10;
const unsigned kMask = 0xF'00u;
static constexpr uint32_t kBytes = uint32_t(kN) * sizeof(float);
enum { kStages = 4, kDepth = kStages << 1 };
namespace inner { constexpr int kDeep = kN / 7; }
struct Config { static constexpr int kWide = 1 << 6; };
constexpr int kTwo = 1;
constexpr int kLoop = kLoop + 1;
int notConstant = 3;
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int rounded(int n) { return ceil_div(n, 128) * 128; }
constexpr int forever(int n) { return forever(n + 1) + 1; }
__global__ void k() { constexpr int kLocal = 5; }
#if A
constexpr int kChosen = 1;
#else
constexpr int kChosen = 2;
#endif
"""

FOLDED = {
    "kN": 144, "TWICE": 128, "kMask": 0xF00, "kDepth": 8, "inner::kDeep": 20, "Config::kWide": 64, "kN - 2 * TILE": 16,
    "(kStages + 1) * 3 % 4": 3, "-7 / 2": -3, "-7 % 3": -1, "7 / -2": -3, "1 << 4 | 3": 19, "6 & 3 ^ 1": 3,
    "static_cast<int>(kN) / 2": 72, "uint32_t(kN) >> 1": 72, "(unsigned)(12)": 12, "1'000'000ull": 1_000_000,
    "kBytes": 576, "kN ? 1 : 2": 1, "kN < 3": 0, "~kN": -145, "!kN": 0, "010 + 1": 9,
    "kN == 144 && kDepth != 3": 1, "kN > 200 || missing > 3 || kDepth >= 8": 1, "kN > 200 && missing": 0,
    "kN < 3 ? missing : 7": 7, "max(kN, 7) - std::min(3, 4)": 141, "sizeof(unsigned long long) + sizeof(half)": 10,
    "ceil_div(kN, 7)": 21, "rounded(kN)": 256, "sizeof(float*)": 8, "(kN + 127) & ~127": 256, "missing ? 3 : 3": 3,
    "true": 1, "0b101": 5, "+3 - -2": 5, "1152921504606846975 / 3": 384307168202282325,
}  # fmt: skip
UNKNOWN = [
    "kLoop", "notConstant", "kLocal", "kChosen", "missing", "kN / 0", "kN % 0", "1.5", "missing ? 1 : 2", "sizeof(kN)",
    "PICK(3)", "missing < 3", "ceil_div(kN, missing)", "forever(1)", "kTiles<3>::kN",
    "", "kN +", "1 << -1", "1 << 400000000000", "a, b", "'k'", "'kN'", "threadIdx.x", "2 ** 3",
    "09", "~missing", "!missing", "missing && kN", "kN == 144 || (",
]  # fmt: skip


@pytest.mark.parametrize("expression", FOLDED)
def test_known(expression: str) -> None:
    assert program_of(TEXT).constants.evaluate(expression) == FOLDED[expression]


@pytest.mark.parametrize("expression", UNKNOWN)
def test_unknown(expression: str) -> None:
    assert program_of(TEXT).constants.evaluate(expression) is None


def test_deep_expressions_are_unknown() -> None:
    constants = Constants({"k0": "1", **{f"k{i}": f"k{i - 1} + k{i - 1}" for i in range(1, 20)}})
    assert constants.evaluate("k19") == 2**19
    assert constants.evaluate("+".join(["1"] * 50)) == 50
    assert constants.evaluate("+".join(["1"] * 50000)) == 50000
    assert constants.evaluate("(" * 5000 + "1" + ")" * 5000) is None
    chain = Constants({"c0": "1", **{f"c{i}": f"c{i - 1}" for i in range(1, 30000)}})
    assert chain.evaluate("c50") == 1
    assert chain.evaluate("c29999") is None


def quotient(a: int, b: int) -> int:
    """C++ rounds towards zero."""
    return (abs(a) // abs(b)) * (-1 if (a < 0) != (b < 0) else 1)


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": quotient,
    "%": lambda a, b: a - b * quotient(a, b), "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
}  # fmt: skip


def expression(generator: random.Random, depth: int) -> tuple[str, int]:
    if depth == 0:
        value = generator.choice((generator.randrange(0, 10), generator.randrange(2**62)))
        return generator.choice((str(value), hex(value), f"{value}u", f"{value}LL")), value
    sign = generator.choice([*OPERATORS])
    left, right = expression(generator, depth - 1), expression(generator, generator.randrange(depth))
    if sign in "/%" and right[1] == 0:
        sign = "+"
    return f"({left[0]}) {sign} ({right[0]})", OPERATORS[sign](left[1], right[1])


def test_random_expressions() -> None:
    generator = random.Random(1)
    for _ in range(300):
        text, value = expression(generator, 3)
        assert Constants().evaluate(text) == value, text


@pytest.mark.parametrize("hidden", ["constexpr int scale = 0;", "#define scale 0", "enum { scale = 0 };"])
def test_a_parameter_hides_a_constant(hidden: str) -> None:
    """The MMA adds or overwrites as its caller says, not as a constant of the same name."""
    wrapper = """
__device__ void either(float (&d)[8], uint64_t a, uint64_t b, int scale) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;\\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b), "r"(scale));
}
"""  # noqa: E501
    body = "float acc[8];\nacc[0] = 1.f;\narrive(); either(acc, a, b, steps); commit(); wait<0>();"
    model = of_kernel(body, wrapper, head=hidden + "\n" if not hidden.startswith("#") else "")
    assert not model.refusals
    assert len(model.place().stores) == 1


def test_each_member_of_a_declaration_has_its_own_value() -> None:
    """`static constexpr int M = 128, N = 64` in a class."""
    text = "struct Tile { static constexpr int M = 128, N = 64, K = N / 2; };\nint x = Tile::K;\n"
    constants = program_of(text).constants
    assert [constants.evaluate(f"Tile::{name}") for name in "MNK"] == [128, 64, 32]
