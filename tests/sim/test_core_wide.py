# SPDX-License-Identifier: Apache-2.0
"""128-bit registers, and small instructions that kernels rarely use, against references in Python."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from core_ptx import apply, download, module_text, run, upload

from porter.sim import GlobalMemory

WORD = (1 << 32) - 1


def words(seed: int, count: int = 600) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 1 << 32, count) >> rng.integers(0, 32, count)).astype(np.uint32)


def test_moves_loads_and_stores_of_128_bits() -> None:
    data = np.arange(1, 65, dtype=np.uint32) * np.uint32(0x01010101)
    memory = GlobalMemory()
    source, out = upload(memory, data), memory.alloc(2 * data.nbytes)
    body = """
    .reg .b128 %q<4>; .reg .b64 %d<8>; .reg .b32 %r<8>; .shared .align 16 .b8 tile[256];
    ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 16;
    add.u64 %d0, %d0, %d2; mul.wide.u32 %d3, %r0, 32; add.u64 %d1, %d1, %d3;
    ld.global.b128 %q0, [%d0];
    cvt.u32.u64 %r5, %d2; mov.u32 %r6, tile; add.u32 %r6, %r6, %r5;
    st.shared.b128 [%r6], %q0; ld.shared.b128 %q1, [%r6];
    mov.b128 {%r1, %r2, %r3, %r4}, %q1; mov.b128 {%d4, %d5}, %q1;
    mov.b128 %q2, {%d5, %d4}; mov.b128 %q3, {%r4, %r3, %r2, %r1};
    st.global.b128 [%d1], %q2; st.global.b128 [%d1+16], %q3; ret;
    """
    assert run(module_text(["in", "out"], body), [source, out], memory, block=16).status == "ok"
    got = download(memory, out, 2 * data.size, np.uint32).reshape(16, 2, 4)
    rows = data.reshape(16, 4)
    np.testing.assert_array_equal(got[:, 0], rows[:, [2, 3, 0, 1]])
    np.testing.assert_array_equal(got[:, 1], rows[:, ::-1])


@pytest.mark.parametrize("space", ["global", "shared", ""])
def test_exchange_and_compare_of_128_bits(space: str) -> None:
    """Of 32 lanes that compare with zero one wins; the exchanges hand every value on."""
    memory = GlobalMemory()
    out, cell = memory.alloc(32 * 32, fill=0), memory.alloc(32, fill=0)
    address = "mov.u64 %d1, tile;" if space == "shared" else "ld.param.u64 %d1, [cell];"
    qualifier = f".{space}" if space else ""
    body = f"""
    .reg .b128 %q<6>; .reg .b64 %d<8>; .reg .b32 %r<8>; .shared .align 16 .b8 tile[32];
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 32; add.u64 %d0, %d0, %d2; {address}
    {"mov.u64 %d3, 0; st.shared.b64 [tile], %d3; st.shared.b64 [tile+8], %d3;" if space == "shared" else ""}
    {"st.shared.b64 [tile+16], %d3; st.shared.b64 [tile+24], %d3;" if space == "shared" else ""}
    add.u32 %r1, %r0, 1; cvt.u64.u32 %d4, %r1; mov.b128 %q0, {{%d4, %d4}}; mov.u64 %d5, 0; mov.b128 %q1, {{%d5, %d5}};
    atom{qualifier}.cas.b128 %q2, [%d1], %q1, %q0; atom{qualifier}.exch.b128 %q3, [%d1+16], %q0;
    st.global.b128 [%d0], %q2; st.global.b128 [%d0+16], %q3; ret;
    """
    assert run(module_text(["out", "cell"], body), [out, cell], memory).status == "ok"
    got = download(memory, out, 128, np.uint64).reshape(32, 2, 2)
    assert (got[..., 0] == got[..., 1]).all()
    compared, exchanged = got[:, 0, 0].tolist(), got[:, 1, 0].tolist()
    assert compared.count(0) == 1
    winner = compared.index(0) + 1
    assert set(compared) == {0, winner}
    assert len(set(exchanged)) == 32
    assert set(exchanged) <= set(range(33))


def nth(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else WORD
    left = abs(offset)
    for position in range(base, 32) if offset > 0 else range(base, -1, -1):
        left -= mask >> position & 1
        if left == 0:
            return position
    return WORD


def test_find_nth() -> None:
    mask, base = words(1), words(2) & 31
    offset = np.random.default_rng(3).integers(-9, 10, mask.size).astype(np.int32)
    got = apply("fns.b32 %d, %a, %b, %c;", "b32", ("b32", mask), ("b32", base), ("b32", offset))
    assert got.tolist() == [nth(int(m), int(b), int(o)) for m, b, o in zip(mask, base, offset, strict=True)]


@pytest.mark.parametrize(("join", "combine"), [("or", lambda x, q: x or q), ("and", lambda x, q: x and q)])
def test_lop3_with_a_predicate(join: str, combine: Callable[[bool, bool], bool]) -> None:
    a, b = words(4) & 0xF, words(5) & 0xF
    q = np.arange(a.size) % 2
    code = f"{{ .reg .b32 %s; lop3.{join}.b32 %s|%d, %a, %b, %a, 0xC0, %c; }}"
    got = apply(code, "pred", ("b32", a), ("b32", b), ("pred", q))
    assert got.astype(bool).tolist() == [combine(bool(x & y), bool(p)) for x, y, p in zip(a, b, q, strict=True)]


def test_high_products_of_24_bits() -> None:
    a, b, c = words(6), words(7), words(8)

    def signed(x: int) -> int:
        return (x & 0xFFFFFF) - (x << 1 & 0x1000000)

    got = apply("mul24.hi.u32 %d, %a, %b;", "b32", ("b32", a), ("b32", b))
    assert got.tolist() == [((int(x) & 0xFFFFFF) * (int(y) & 0xFFFFFF) >> 16) & WORD for x, y in zip(a, b, strict=True)]
    got = apply("mad24.hi.s32 %d, %a, %b, %c;", "b32", ("b32", a), ("b32", b), ("b32", c))
    want = [((signed(int(x)) * signed(int(y)) >> 16) + int(z)) & WORD for x, y, z in zip(a, b, c, strict=True)]
    assert got.tolist() == want


@pytest.mark.parametrize("to", ["u2", "s2", "u4", "s4", "u8", "s8"])
def test_packing_of_few_bits(to: str) -> None:
    bits = int(to[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    random.seed(9)
    a, b = (np.array([random.randint(low - 3, high + 3) for _ in range(200)], np.int32) for _ in range(2))
    c = words(10, 200)
    got = apply(f"cvt.pack.sat.{to}.s32.b32 %d, %a, %b, %c;", "b32", ("b32", a), ("b32", b), ("b32", c))

    def clamp(x: int) -> int:
        return min(max(x, low), high) & ((1 << bits) - 1)

    want = [
        (int(z) << 2 * bits | clamp(int(x)) << bits | clamp(int(y))) & WORD for x, y, z in zip(a, b, c, strict=True)
    ]
    assert got.tolist() == want


def test_bulk_clearing() -> None:
    memory = GlobalMemory()
    out = memory.alloc(64)
    body = """
    .reg .b64 %d<3>; .reg .b32 %r<6>; .shared .align 8 .b32 tile[16];
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, tile; add.u32 %r3, %r2, %r1;
    st.shared.u32 [%r3], 7; bar.sync 0; .reg .pred %p; setp.eq.u32 %p, %r0, 0; mov.u64 %d1, 24;
    @%p st.bulk.weak.shared::cta [%r2+16], %d1, 0; bar.sync 0;
    ld.shared.u32 %r4, [%r3]; cvt.u64.u32 %d2, %r1; add.u64 %d0, %d0, %d2; st.global.u32 [%d0], %r4; ret;
    """
    assert run(module_text(["out"], body, "sm_100a"), [out], memory, block=16).status == "ok"
    assert download(memory, out, 16, np.uint32).tolist() == [7] * 4 + [0] * 6 + [7] * 6


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_stochastic_rounding(to: str) -> None:
    """Up exactly if the random bits carry out of the bits that are dropped."""
    rng = np.random.default_rng(11)
    width = 13 if to == "f16" else 16
    x = rng.uniform(0.1, 100, (2, 500)).astype(np.float32) * np.float32(-1)
    bits = rng.integers(0, 1 << 32, 500).astype(np.uint32)
    got = apply(f"cvt.rs.{to}x2.f32 %d, %a, %b, %c;", "b32", ("b32", x[0]), ("b32", x[1]), ("b32", bits),
                target="sm_100a")  # fmt: skip
    ones = (1 << width) - 1
    for half, value, shift in ((got >> np.uint32(16), x[0], 16), (got & np.uint32(0xFFFF), x[1], 0)):
        raw = value.view(np.uint32).astype(np.int64)
        up = ((raw & ones) + (bits.astype(np.int64) >> shift & ones)) >> width
        top = (raw >> width) + up
        want = ((top - (112 << 10)) & 0x7FFF) | 0x8000 if to == "f16" else top
        assert half.tolist() == want.tolist()
