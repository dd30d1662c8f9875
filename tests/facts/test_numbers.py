# SPDX-License-Identifier: Apache-2.0
"""Which registers hold one number in all threads and in any run."""

from __future__ import annotations

import pytest

from porter.facts.code import Code
from porter.facts.warps import Warps
from porter.ptx.parser import parse_module

HEAD = """.version 8.7
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry kernel(.param .u32 given, .param .u32 other)
{
.reg .pred %p<4>;
.reg .b32 %r<16>;
.reg .b64 %rd<4>;
mov.u32 %r1, %tid.x;
"""
NUMBERS: dict[str, tuple[str, int | None]] = {
    "a constant": ("mov.u32 %r2, 40;", 40),
    "computed of constants": ("mov.u32 %r3, 5;\nshl.b32 %r4, %r3, 4;\nxor.b32 %r2, %r4, 3;", 83),
    "a difference below zero": ("mov.u32 %r3, 5;\nadd.s32 %r2, %r3, -6;", 0xFFFFFFFF),
    "a half": ("mov.b64 %rd1, 12884901890;\nmov.b64 {%r3, %r2}, %rd1;", 3),
    "a parameter": ("ld.param.u32 %r3, [given];\ndiv.u32 %r2, %r3, 64;", 21),
    "the same in two places": ("mov.u32 %r2, 8;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra $ON;\nmov.u32 %r2, 8;\n$ON:", 8),
    "threads of the block": ("mov.u32 %r3, %ntid.x;\nshr.u32 %r2, %r3, 5;", 4),
    "another in two places": ("mov.u32 %r2, 8;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra $ON;\nmov.u32 %r2, 9;\n$ON:", None),
    "written under a guard": ("setp.eq.u32 %p1, %r1, 0;\n@%p1 mov.u32 %r2, 9;", None),
    "the index of the thread": ("mov.u32 %r2, %r1;", None),
    "the index of the warp, 0 in the first": ("shr.u32 %r2, %r1, 5;", None),
    "the lane": ("mov.u32 %r3, %laneid;\nshr.u32 %r2, %r3, 5;", None),
    "the index of the block, 0 in the first": ("mov.u32 %r2, %ctaid.x;", None),
    "a parameter that no launch gives": ("ld.param.u32 %r2, [other];", None),
    "an address": ("mov.u32 %r3, smem;\nadd.s32 %r2, %r3, 8;", None),
    "data": ("ld.shared.u32 %r2, [smem];", None),
    "what a loop counts": ("mov.u32 %r2, 0;\n$L:\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 4;\n@%p1 bra $L;", None),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_a_number(name: str) -> None:
    text, expected = NUMBERS[name]
    module = parse_module(HEAD + text + "\nst.shared.u32 [smem], %r2;\nret;\n}\n")
    code = Code(module, module.entries()[0], {"given": (1344).to_bytes(4, "little")})
    warps = Warps(code, (128,))
    (store,) = (at for at, ins in enumerate(code.code) if ins.parts[0] == "st")
    assert warps.number(store, code.code[store].operands[1]) == expected
