# SPDX-License-Identifier: Apache-2.0
"""Integer instructions against Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from core_ptx import apply

EDGE32 = [0, 1, 2, 3, 5, 31, 32, 33, 127, 128, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0x80000001,
          0xDEADBEEF, 0x12345678, 0xFFFFFFFE, 0xFFFFFFFF]  # fmt: skip
EDGE64 = [*EDGE32, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF, 0xFEDCBA9876543210]


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def tdiv(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def pairs(bits: int) -> tuple[list[int], list[int]]:
    edge = EDGE32 if bits <= 32 else EDGE64
    rng = np.random.default_rng(bits)
    a = [x for x in edge for _ in edge] + [int(x) for x in rng.integers(0, 1 << 63, 60)]
    b = [y for _ in edge for y in edge] + [int(x) for x in rng.integers(0, 1 << 63, 60)]
    mask = (1 << bits) - 1
    return [x & mask for x in a], [y & mask for y in b]


def check(code: str, bits: int, fn: Callable[[int, int], int], out: int | None = None) -> None:
    a, b = pairs(bits)
    out = out or bits
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    got = apply(code, f"b{out}", (f"b{bits}", np.array(a, dtype)), (f"b{bits}", np.array(b, dtype)))
    want = [fn(x, y) & ((1 << out) - 1) for x, y in zip(a, b, strict=True)]
    bad = [(hex(x), hex(y), hex(g), hex(w)) for x, y, g, w in zip(a, b, got.tolist(), want, strict=True) if g != w]
    assert not bad, bad[:5]


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_add_sub_mul(bits: int) -> None:
    check(f"add.u{bits} %d, %a, %b;", bits, lambda a, b: a + b)
    check(f"sub.s{bits} %d, %a, %b;", bits, lambda a, b: a - b)
    check(f"mul.lo.s{bits} %d, %a, %b;", bits, lambda a, b: a * b)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_mul_hi(bits: int) -> None:
    check(f"mul.hi.u{bits} %d, %a, %b;", bits, lambda a, b: (a * b) >> bits)
    check(f"mul.hi.s{bits} %d, %a, %b;", bits, lambda a, b: (signed(a, bits) * signed(b, bits)) >> bits)


@pytest.mark.parametrize("bits", [16, 32])
def test_mul_wide(bits: int) -> None:
    check(f"mul.wide.u{bits} %d, %a, %b;", bits, lambda a, b: a * b, 2 * bits)
    check(f"mul.wide.s{bits} %d, %a, %b;", bits, lambda a, b: signed(a, bits) * signed(b, bits), 2 * bits)


def test_mad() -> None:
    check("mad.lo.s32 %d, %a, %b, %a;", 32, lambda a, b: a * b + a)
    check("mad.hi.u32 %d, %a, %b, %b;", 32, lambda a, b: ((a * b) >> 32) + b)
    check("{.reg .b64 %w; mov.b64 %w, 77; mad.wide.s32 %d, %a, %b, %w;}", 32,
          lambda a, b: signed(a, 32) * signed(b, 32) + 77, 64)  # fmt: skip


def test_saturation() -> None:
    low, high = -(1 << 31), (1 << 31) - 1
    check("add.sat.s32 %d, %a, %b;", 32, lambda a, b: clamp(signed(a, 32) + signed(b, 32), low, high))
    check("sub.sat.s32 %d, %a, %b;", 32, lambda a, b: clamp(signed(a, 32) - signed(b, 32), low, high))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_division(bits: int) -> None:
    ones = (1 << bits) - 1
    check(f"div.u{bits} %d, %a, %b;", bits, lambda a, b: a // b if b else ones)
    check(f"rem.u{bits} %d, %a, %b;", bits, lambda a, b: a % b if b else ones)

    def sdiv(a: int, b: int) -> int:
        return tdiv(signed(a, bits), signed(b, bits)) if b else ones

    def srem(a: int, b: int) -> int:
        x, y = signed(a, bits), signed(b, bits)
        return x - y * tdiv(x, y) if b else ones

    check(f"div.s{bits} %d, %a, %b;", bits, sdiv)
    check(f"rem.s{bits} %d, %a, %b;", bits, srem)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_min_max_shift(bits: int) -> None:
    check(f"min.s{bits} %d, %a, %b;", bits, lambda a, b: min(signed(a, bits), signed(b, bits)))
    check(f"max.u{bits} %d, %a, %b;", bits, max)
    take = "cvt.u32.u64 %t4, %b;" if bits == 64 else "mov.u32 %t4, %b;" if bits == 32 else "cvt.u32.u16 %t4, %b;"
    word = (1 << 32) - 1
    check(f"{take} shl.b{bits} %d, %a, %t4;", bits, lambda a, b: a << min(b & word, 200))
    check(f"{take} shr.u{bits} %d, %a, %t4;", bits, lambda a, b: a >> min(b & word, 200))
    check(f"{take} shr.s{bits} %d, %a, %t4;", bits, lambda a, b: signed(a, bits) >> min(b & word, 200))


def test_logic() -> None:
    check("and.b32 %d, %a, %b;", 32, lambda a, b: a & b)
    check("or.b64 %d, %a, %b;", 64, lambda a, b: a | b)
    check("xor.b32 %d, %a, %b;", 32, lambda a, b: a ^ b)
    check("not.b32 %d, %a;", 32, lambda a, b: ~a)
    check("cnot.b32 %d, %a;", 32, lambda a, b: int(a == 0))
    check("neg.s32 %d, %a;", 32, lambda a, b: -a)
    check("abs.s32 %d, %a;", 32, lambda a, b: abs(signed(a, 32)))
    check("sad.s32 %d, %a, %b, %a;", 32, lambda a, b: a + abs(signed(a, 32) - signed(b, 32)))


@pytest.mark.parametrize("table", [0x00, 0xFF, 0x96, 0xCA, 0x3C, 0xF8, 0x1B, 0xE4, 0x2D])
def test_lop3(table: int) -> None:
    def fn(a: int, b: int) -> int:
        c = a ^ (b << 3) & 0xFFFFFFFF
        out = 0
        for i in range(32):
            key = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)
            out |= (table >> key & 1) << i
        return out

    check(f"shl.b32 %t4, %b, 3; xor.b32 %t4, %a, %t4; lop3.b32 %d, %a, %b, %t4, {table};", 32, fn)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counts(bits: int) -> None:
    ones = 0xFFFFFFFF
    check(f"popc.b{bits} %d, %a;", bits, lambda a, b: a.bit_count(), 32)
    check(f"clz.b{bits} %d, %a;", bits, lambda a, b: bits - a.bit_length(), 32)
    check(f"bfind.u{bits} %d, %a;", bits, lambda a, b: a.bit_length() - 1 if a else ones, 32)

    def find(a: int, b: int) -> int:
        x = signed(a, bits)
        x = ~x if x < 0 else x
        return x.bit_length() - 1 if x else ones

    check(f"bfind.s{bits} %d, %a;", bits, find, 32)
    check(f"brev.b{bits} %d, %a;", bits, lambda a, b: int(f"{a:0{bits}b}"[::-1], 2))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("pos", "length"), [(0, 8), (3, 5), (20, 12), (28, 10), (31, 1), (5, 0), (0, 64), (200, 7)])
def test_bit_fields(bits: int, pos: int, length: int) -> None:
    def extract(a: int, is_signed: bool) -> int:
        # The loop of PTX ISA 9.7.1.17.
        msb = bits - 1
        sign = 0 if not is_signed or length == 0 else (a >> min(pos + length - 1, msb)) & 1
        d = 0
        for i in range(msb + 1):
            bit = (a >> (pos + i)) & 1 if i < length and pos + i <= msb else sign
            d |= bit << i
        return d

    def insert(a: int, b: int) -> int:
        f = b
        for i in range(length):
            if pos + i >= bits:
                break
            f = (f & ~(1 << (pos + i))) | ((a >> i & 1) << (pos + i))
        return f

    check(f"bfe.u{bits} %d, %a, {pos}, {length};", bits, lambda a, b: extract(a, False))
    check(f"bfe.s{bits} %d, %a, {pos}, {length};", bits, lambda a, b: extract(a, True))
    check(f"bfi.b{bits} %d, %a, %b, {pos}, {length};", bits, insert)


def test_funnel_shift() -> None:
    def left(a: int, b: int, n: int) -> int:
        return ((b << 32 | a) << n) >> 32

    check("shf.l.wrap.b32 %d, %a, %b, %b;", 32, lambda a, b: left(a, b, b & 31))
    check("shf.l.clamp.b32 %d, %a, %b, %b;", 32, lambda a, b: left(a, b, min(b, 32)))
    check("shf.r.wrap.b32 %d, %a, %b, %b;", 32, lambda a, b: (b << 32 | a) >> (b & 31))
    check("shf.r.clamp.b32 %d, %a, %b, %b;", 32, lambda a, b: (b << 32 | a) >> min(b, 32))


@pytest.mark.parametrize("selector", [0x3210, 0x0123, 0x7654, 0x4567, 0x8421, 0xFEDC, 0x5140, 0x7632])
def test_prmt(selector: int) -> None:
    def fn(a: int, b: int) -> int:
        data = a | b << 32
        out = 0
        for i in range(4):
            s = selector >> 4 * i & 15
            byte = data >> 8 * (s & 7) & 0xFF
            if s & 8:
                byte = 0xFF if byte & 0x80 else 0
            out |= byte << 8 * i
        return out

    check(f"prmt.b32 %d, %a, %b, {selector};", 32, fn)


def test_carry_chain() -> None:
    code = """{.reg .b32 al, ah, bl, bh, rl, rh;
    mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b;
    OP.cc.u32 rl, al, bl; OPc.u32 rh, ah, bh; mov.b64 %d, {rl, rh};}"""
    check(code.replace("OP", "add"), 64, lambda a, b: a + b)
    check(code.replace("OP", "sub"), 64, lambda a, b: a - b)


def test_dot_products() -> None:
    def dot(a: int, b: int) -> int:
        total = 5
        for i in range(4):
            total += signed(a >> 8 * i, 8) * (b >> 8 * i & 0xFF)
        return total

    check("dp4a.s32.u32 %d, %a, %b, 5;", 32, dot)
    check("dp2a.lo.u32.s32 %d, %a, %b, 0;", 32,
          lambda a, b: (a & 0xFFFF) * signed(b, 8) + (a >> 16) * signed(b >> 8, 8))  # fmt: skip


def test_comparisons() -> None:
    a, b = pairs(32)
    for name, fn in {
        "eq.s32": lambda x, y: x == y, "ne.b32": lambda x, y: x != y,
        "lt.s32": lambda x, y: signed(x, 32) < signed(y, 32), "ge.u32": lambda x, y: x >= y,
        "lo.u32": lambda x, y: x < y, "hs.u32": lambda x, y: x >= y,
        "gt.s32": lambda x, y: signed(x, 32) > signed(y, 32), "le.u32": lambda x, y: x <= y,
    }.items():  # fmt: skip
        operands = ("b32", np.array(a, np.uint32)), ("b32", np.array(b, np.uint32))
        got = apply(f"setp.{name} %d, %a, %b;", "pred", *operands)
        assert got.tolist() == [int(fn(x, y)) for x, y in zip(a, b, strict=True)], name


def test_predicate_pairs_and_select() -> None:
    a, b = np.arange(64, dtype=np.uint32), np.full(64, 30, np.uint32)
    got = apply("setp.gt.and.s32 %q1|%q2, %a, %b, %c; selp.b32 %d, 7, 9, %q2;", "b32", ("b32", a), ("b32", b),
                ("pred", a % 2))  # fmt: skip
    assert got.tolist() == [7 if not x > 30 and x % 2 else 9 for x in range(64)]


def test_packed_16_bit() -> None:
    def each(a: int, b: int, fn: Callable[[int, int], int]) -> int:
        low, high = fn(a & 0xFFFF, b & 0xFFFF), fn(a >> 16, b >> 16)
        return (low & 0xFFFF) | (high & 0xFFFF) << 16

    check("add.u16x2 %d, %a, %b;", 32, lambda a, b: each(a, b, lambda x, y: x + y))
    check("max.s16x2 %d, %a, %b;", 32, lambda a, b: each(a, b, lambda x, y: max(signed(x, 16), signed(y, 16))))


def test_moves_between_widths() -> None:
    check("{.reg .b16 h0, h1; mov.b32 {h0, h1}, %a; mov.b32 %d, {h1, h0};}", 32, lambda a, b: a >> 16 | a << 16)
    check("mov.b64 {%t4, %t5}, %a; mov.b64 %d, {%t5, %t4};", 64, lambda a, b: a >> 32 | a << 32)
    check("cvt.u32.u64 %d, %a;", 64, lambda a, b: a, 32)
    check("cvt.s64.s32 %d, %a;", 32, lambda a, b: signed(a, 32), 64)
    check("cvt.s32.s16 %d, %a;", 32, lambda a, b: signed(a, 16))
    check("cvt.u32.u8 %d, %a;", 32, lambda a, b: a & 0xFF)
    check("cvt.sat.s8.s32 %d, %a;", 32, lambda a, b: clamp(signed(a, 32), -128, 127))
    check("cvt.sat.u16.s32 %d, %a;", 32, lambda a, b: clamp(signed(a, 32), 0, 65535))
    check("cvt.pack.sat.s16.s32 %d, %a, %b;", 32, lambda a, b: (clamp(signed(a, 32), -32768, 32767) & 0xFFFF) << 16
          | clamp(signed(b, 32), -32768, 32767) & 0xFFFF)  # fmt: skip
