# SPDX-License-Identifier: Apache-2.0
"""Small kernels of one warp, or of some, in PTX, and whether two of them leave the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from porter.equal.meaning import Follower
from porter.equal.outcome import Outcome, by_description, difference, of_cluster
from porter.facts.code import Code
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL, Geometry, Launched
from porter.facts.machine import Machine
from porter.ptx.parser import parse_module
from porter.ptx.tensormap import ENCODED_BYTES, TensorMap

HEAD = """.version 8.8
.target sm_100a
.address_size 64
{variables}
.visible .entry k(.param .u64 input, .param .u64 output, .param .u32 n)
{
.reg .pred %p<9>;
.reg .b8 %c<9>;
.reg .b16 %h<9>;
.reg .b32 %r<60>;
.reg .f32 %f<60>;
.reg .b64 %d<20>;
.shared .align 1024 .b8 room[16384];
.local .align 4 .b8 own[64];
mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [input];
ld.param.u64 %d1, [output];
ld.param.u32 %r1, [n];
mul.wide.u32 %d2, %r0, 16;
add.s64 %d0, %d0, %d2;
add.s64 %d1, %d1, %d2;
ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d0];
"""


INPUT = GLOBAL
MAPS = GLOBAL + (1 << 42)
"""Where tensor maps lie."""


def launched(
    body: str, n: int = 4, threads: int = 32, variables: str = "", maps: Sequence[TensorMap] = (),
    scratch: Sequence[tuple[int, int]] = (),
) -> Launched:  # fmt: skip
    """The kernel with a body: it has four values in %f0 to %f3, and room for as many at %d1."""
    module = parse_module(f"{HEAD.replace('{variables}', variables)}{body}ret;\n}}\n")
    flow = Flow(Code(module, module.entries()[0]))
    values = {"input": INPUT.to_bytes(8, "little"), "output": (GLOBAL + (1 << 34)).to_bytes(8, "little"),
              "n": n.to_bytes(4, "little")}  # fmt: skip
    placed = {MAPS + number * ENCODED_BYTES: one.encode() for number, one in enumerate(maps)}
    return Launched(flow, Geometry((threads, 1, 1)), values, placed, scratch=scratch)


def left(body: str, *others: Any, **named: Any) -> Outcome:
    """What such a kernel leaves."""
    machine = Machine(launched(body, *others, **named))
    follower = Follower(machine)
    run(machine)
    return by_description(of_cluster(follower.contents.stored), machine.maps.in_scratch())


def are_equal(one: str, other: str, n: int = 4, threads: int = 32) -> bool:
    first, second = left(one, n, threads), left(other, n, threads)
    assert len(first.addresses) or first.reductions
    return difference(first, second) is None
