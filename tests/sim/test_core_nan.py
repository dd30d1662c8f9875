# SPDX-License-Identifier: Apache-2.0
"""Which NaN instructions make. The words are those an H200 gave for the same PTX and inputs."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import apply, download, module_text, run, upload

from porter.sim import GlobalMemory

Q32, S32, I32 = 0x7FC00005, 0xFF800001, 0x7F800000
Q64, S64, N64 = 0x7FF8000000000005, 0xFFF0000000000001, 0x7FF8000000000000
ONE = {"b16": 0x3C00, "b32": 0x3F800000, "b64": 0x3FF0000000000000}
_TYPES = {"b16": np.uint16, "b32": np.uint32, "b64": np.uint64}

WORDS = [
    # code, result register, operand register, operands, word
    ("add.rn.f32 %d, %a, %b;", "b32", "b32", (Q32, 0x3F800000), 0x7FFFFFFF),
    ("add.rn.f32 %d, %a, %b;", "b32", "b32", (I32, 0xFF800000), 0x7FFFFFFF),
    ("sub.rn.f32 %d, %a, %b;", "b32", "b32", (I32, I32), 0x7FFFFFFF),
    ("mul.rz.f32 %d, %a, %b;", "b32", "b32", (I32, 0), 0x7FFFFFFF),
    ("fma.rn.f32 %d, %a, %b, %c;", "b32", "b32", (S32, 0, Q32), 0x7FFFFFFF),
    ("div.rn.f32 %d, %a, %b;", "b32", "b32", (0, 0), 0x7FFFFFFF),
    ("sqrt.rn.f32 %d, %a;", "b32", "b32", (0xBF800000,), 0x7FFFFFFF),
    ("rsqrt.approx.f32 %d, %a;", "b32", "b32", (0xBF800000,), 0x7FFFFFFF),
    ("neg.f32 %d, %a;", "b32", "b32", (Q32,), 0x7FFFFFFF),
    ("abs.f32 %d, %a;", "b32", "b32", (S32,), 0x7FFFFFFF),
    ("min.f32 %d, %a, %b;", "b32", "b32", (Q32, S32), 0x7FFFFFFF),
    ("max.NaN.f32 %d, %a, %b;", "b32", "b32", (S32, 0), 0x7FFFFFFF),
    ("min.NaN.xorsign.abs.f32 %d, %a, %b;", "b32", "b32", (S32, 0), 0x7FFFFFFF),
    ("cvt.rni.f32.f32 %d, %a;", "b32", "b32", (S32,), 0x7FFFFFFF),
    ("cvt.rn.tf32.f32 %d, %a;", "b32", "b32", (S32,), 0x7FFFE000),
    ("cvt.rna.tf32.f32 %d, %a;", "b32", "b32", (0xFFC00005,), 0xFFC00000),
    ("cvt.rn.f16x2.f32 %d, %a, %b;", "b32", "b32", (S32, 0x3F800000), 0x7FFF3C00),
    ("cvt.rn.bf16x2.f32 %d, %a, %b;", "b32", "b32", (0x3F800000, S32), 0x3F807FFF),
    ("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", "b16", "b32", (S32, 0), 0x7F00),
    ("cvt.f64.f32 %d, %a;", "b64", "b32", (S32,), 0xFFF8000020000000),
    ("cvt.ftz.f64.f32 %d, %a;", "b64", "b32", (S32,), 0x7FFFFFFFE0000000),
    ("add.f16x2 %d, %a, %b;", "b32", "b32", (0x7C013C00, 0x3C003C00), 0x7FFF4000),
    ("fma.rn.bf16x2 %d, %a, %b, %c;", "b32", "b32", (0x3F80FF81, 0x3F803F80, 0x3F803F80), 0x40007FFF),
    ("add.f16 %d, %a, %b;", "b16", "b16", (0xFE05, 0x3C00), 0x7FFF),
    ("neg.bf16 %d, %a;", "b16", "b16", (0x7F81,), 0x7FFF),
    ("cvt.f32.f16 %d, %a;", "b32", "b16", (0x7C01,), 0x7FFFFFFF),
    ("cvt.f32.bf16 %d, %a;", "b32", "b16", (0x7F81,), 0x7F810000),
    ("cvt.f64.f16 %d, %a;", "b64", "b16", (0xFC01,), 0xFFF8040000000000),
    ("cvt.rn.f16x2.e4m3x2 %d, %a;", "b32", "b16", (0xFF38,), 0x7FFF3C00),
    # Double precision keeps a payload.
    ("add.rn.f64 %d, %a, %b;", "b64", "b64", (S64, Q64), Q64),
    ("mul.rn.f64 %d, %a, %b;", "b64", "b64", (Q64, S64), S64 | 1 << 51),
    ("fma.rn.f64 %d, %a, %b, %c;", "b64", "b64", (S64, 0, Q64), Q64),
    ("fma.rn.f64 %d, %a, %b, %c;", "b64", "b64", (N64, S64, Q64), S64 | 1 << 51),
    ("div.rn.f64 %d, %a, %b;", "b64", "b64", (Q64, S64), Q64),
    ("div.rn.f64 %d, %a, %b;", "b64", "b64", (0, 0), 0xFFF8000000000000),
    ("neg.f64 %d, %a;", "b64", "b64", (S64,), S64 | 1 << 51),
    ("max.f64 %d, %a, %b;", "b64", "b64", (S64, Q64), Q64),
    ("cvt.rn.f32.f64 %d, %a;", "b32", "b64", (S64,), 0xFFC00000),
    ("cvt.rn.bf16.f64 %d, %a;", "b16", "b64", (S64,), 0xFFC0),
    # Copies keep all bits.
    ("mov.f32 %d, %a;", "b32", "b32", (S32,), S32),
    ("{ .reg .pred %s; setp.eq.u32 %s, 0, 0; selp.f32 %d, %a, %b, %s; }", "b32", "b32", (S32, 0), S32),
    ("copysign.f32 %d, %a, %b;", "b32", "b32", (0x80000000, 0x7F800001), 0xFF800001),
    ("cvt.f32.f32 %d, %a;", "b32", "b32", (S32,), S32),
]  # fmt: skip


@pytest.mark.parametrize(("code", "result", "register", "operands", "word"), WORDS)
def test_nan_words_of_hardware(code: str, result: str, register: str, operands: tuple[int, ...], word: int) -> None:
    got = apply(code, result, *[(register, np.array([x], _TYPES[register])) for x in operands])
    assert hex(int(got[0])) == hex(word)


def test_results_taken_apart_and_kept() -> None:
    """A NaN sum is canonical however its bits are looked at: in another block, as an integer, by halves."""
    code = """
    { .reg .b32 %s; .reg .b16 %h0, %h1; .reg .pred %g; .reg .b32 %n;
    add.rn.f32 %s, %a, %b;
    setp.ne.u32 %g, %a, 12345; @%g bra AGAIN; trap;
    AGAIN: mov.b32 {%h0, %h1}, %s; cvt.u32.u16 %n, %h0; xor.b32 %d, %n, %s; }
    """
    got = apply(code, "b32", ("b32", np.array([S32], np.uint32)), ("b32", np.array([I32], np.uint32)))
    assert hex(int(got[0])) == hex(0x7FFFFFFF ^ 0xFFFF)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("red", [False, True])
def test_atomic_sums(space: str, red: bool) -> None:
    memory = GlobalMemory()
    out = upload(memory, np.array([S32], np.uint32))
    update = f"red.{space}.add.f32 [%p1], 1.0;" if red else f"atom.{space}.add.f32 %f0, [%p1], 1.0;"
    place = "mov.u64 %p1, cell; st.shared.b32 [%p1], %r0;" if space == "shared" else "mov.u64 %p1, %p0;"
    body = f"""
    .reg .b64 %p<2>; .reg .b32 %r<2>; .reg .f32 %f<1>; .shared .align 4 .b8 cell[4];
    ld.param.u64 %p0, [out]; ld.global.b32 %r0, [%p0]; {place}
    {update} ld.{space}.b32 %r1, [%p1]; st.global.b32 [%p0], %r1; ret;
    """
    assert run(module_text(["out"], body), [out], memory, block=1).status == "ok"
    assert hex(int(download(memory, out, 1, np.uint32)[0])) == hex(0x7FFFFFFF)
