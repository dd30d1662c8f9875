# SPDX-License-Identifier: Apache-2.0
"""What only a launch tells of how two consumers are apart, on PTX."""

from __future__ import annotations

import pytest

from porter.facts.apart import Apart
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.ptx.parser import parse_module

KERNEL = """\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u32 rows, .param .u32 steps) {
    .reg .pred %p<9>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<20>;
    .reg .f32 %f<9>;
    ld.param.u64 %rd1, [a];
    ld.param.u32 %r1, [rows];
    ld.param.u32 %r2, [steps];
    mov.u32 %r3, %tid.x;
    shr.u32 %r4, %r3, 7;
    mov.u32 %r9, 0;
    mov.u32 %r8, %r4;
    @HEAD@
    shl.b32 %r10, %r8, 9;
    cvt.u64.u32 %rd2, %r10;
    add.s64 %rd3, %rd1, %rd2;
    mov.u64 %rd4, %rd1;
LOOP:
    @TURN@
    setp.ne.s32 %p1, %r9, 0;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd3, %rd4, %p1, 1, 1, 0, 0;
    add.s32 %r9, %r9, 1;
    setp.lt.s32 %p2, %r9, %r2;
    @%p2 bra LOOP;
END:
    @TAIL@
    ret;
}
"""
A, WHICH = "which a an MMA takes", "which MMAs a warpgroup comes to"
FOUND = {
    "a product": ({"HEAD": "mul.lo.s32 %r8, %r4, %r1;"}, A),
    "a quotient": ({"HEAD": "add.s32 %r5, %r4, %r1; div.u32 %r8, %r5, 3;"}, A),
    "a remainder": ({"HEAD": "add.s32 %r5, %r4, %r1; and.b32 %r8, %r5, 1;"}, A),
    "the less of two": ({"HEAD": "min.s32 %r8, %r4, %r1;"}, A),
    "a choice by rows": ({"HEAD": "setp.gt.s32 %p3, %r1, 64; selp.b32 %r8, %r4, 1, %p3;"}, A),
    "a choice by the consumer": ({"HEAD": "setp.eq.s32 %p3, %r4, 0; selp.b32 %r8, %r1, 1, %p3;"}, A),
    "a branch": ({"HEAD": "setp.eq.s32 %p3, %r4, 0; @%p3 bra ON; mov.u32 %r8, %r1; ON:"}, A),
    "a table": ({"HEAD": "mul.wide.u32 %rd9, %r4, 4; add.s64 %rd9, %rd9, %rd1; ld.global.u32 %r8, [%rd9];"}, A),
    "b": ({"HEAD": "mul.lo.s32 %r5, %r4, %r1; cvt.u64.u32 %rd9, %r5;", "TURN": "add.s64 %rd4, %rd1, %rd9;"},
          "which b an MMA takes"),
    "a way out of a loop": ({"TURN": "shl.b32 %r5, %r4, 6; setp.ge.s32 %p3, %r5, %r1; @%p3 bra END;"}, WHICH),
    "an early end": ({"HEAD": "shl.b32 %r5, %r4, 6; setp.ge.s32 %p3, %r5, %r1; @%p3 ret;"}, WHICH),
    "turns of its own": ({"HEAD": "sub.s32 %r2, %r2, %r4;"}, WHICH),
    "a count": ({"HEAD": "setp.lt.s32 %p3, %r4, %r1; selp.b32 %r6, 1, 2, %p3;",
                 "TURN": "setp.eq.s32 %p4, %r9, %r6; @%p4 bra END;"}, WHICH),
}  # fmt: skip


def found(parts: dict[str, str]) -> list[str]:
    text = KERNEL
    for part in ("HEAD", "TURN", "TAIL"):
        text = text.replace(f"    @{part}@\n", parts.get(part, "") + "\n")
    module = parse_module(text)
    return [what for _, what in Apart(Flow(Code(module, module.entries()[0]))).found()]


@pytest.mark.parametrize("name", FOUND)
def test_what_only_a_launch_tells_is_found(name: str) -> None:
    parts, what = FOUND[name]
    assert what in found(parts)


ALIKE = {
    "a constant": {},
    "a sum with rows": {"HEAD": "add.s32 %r8, %r4, %r1;"},
    "an address as a descriptor has it": {
        "HEAD": "add.s32 %r5, %r4, %r1; shr.u32 %r5, %r5, 4; and.b32 %r8, %r5, 16383;"
    },
    "a branch that all take alike": {"HEAD": "setp.gt.s32 %p3, %r1, 64; @%p3 ret;"},
    "a role": {"HEAD": "setp.eq.s32 %p3, %r4, 2; @%p3 ret;"},
    "a bound on what is stored": {
        "TAIL": "setp.ge.s32 %p3, %r3, %r1; @%p3 bra OUT; st.global.f32 [%rd1], %f1; OUT:",
    },
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_all_launches_have_alike_is_not(name: str) -> None:
    assert found(ALIKE[name]) == []
