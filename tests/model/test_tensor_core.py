# SPDX-License-Identifier: Apache-2.0
"""Asm statements that hold wgmma and that the PTX ISA does not have: each is refused, none is read as another one."""

from __future__ import annotations

import pytest
from modelled import program_of

REFUSED = [
    "wgmma.wait_group.sync.aligned;",
    "wgmma.wait_group.sync.aligned 0, 1;",
    "wgmma.wait_group.aligned 0;",
    "wgmma.wait_group.sync.aligned %98;",
    "wgmma.wait_group.sync.aligned %99999999999999999999;",
    "wgmma.fence;",
    "wgmma.fence.sync.aligned 1;",
    "wgmma.commit_group.sync.aligned 0;",
    "wgmma.sync.aligned;",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16;",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %98}, %1, %2, 1, 1, 1, 0, 0;",
    "@p wgmma.fence.sync.aligned;",
    ".reg .pred p; setp.ne; wgmma.fence.sync.aligned;",
    ".reg .pred p; setp.ne.b32 p; wgmma.fence.sync.aligned;",
    ".reg .pred p, q; @q setp.ne.b32 p, %0, 0; wgmma.fence.sync.aligned;",
    ".reg .pred p; setp.lt.s32 p, %0, 0; wgmma.fence.sync.aligned;",
    "wgmma.fence.sync.aligned; add.u32 %0, %0, 1;",
]


@pytest.mark.parametrize("text", REFUSED)
def test_forms_that_do_not_exist(text: str) -> None:
    program = program_of(
        f'__global__ void k(int a, int b, int c) {{ asm volatile("{text}" : "+r"(a), "+r"(b) : "r"(c)); }}'
    )
    assert len(program.refusals) == 1
    assert not program.statements


@pytest.mark.parametrize(
    "operands",
    [
        '"+f"(d[99999999]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])',
        '"+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[99999999][0]), "+f"(d[99999999][1])',
        '"+f"(d[1]), "+f"(d[0]), "+f"(d[2]), "+f"(d[3])',
        '"+f"(d[0]), "+f"(d[0]), "+f"(d[2]), "+f"(d[3])',
    ],
)
def test_registers_that_are_no_array_in_order(operands: str) -> None:
    text = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
    program = program_of(f'__global__ void k() {{ asm volatile("{text}" : {operands} : "l"(a), "l"(b)); }}')
    assert [r.what for r in program.refusals] == ["D registers that are not one array in order"]


@pytest.mark.parametrize("broken", ["f(", "f(1", "mma(", "void g(", "void g(int"])
def test_parentheses_that_are_not_closed(broken: str) -> None:
    program_of(f"__global__ void k() {{ {broken} }}\n")
    program_of(f"{broken}\n__global__ void k() {{}}\n")
