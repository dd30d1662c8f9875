# SPDX-License-Identifier: Apache-2.0
"""Small kernels of one warp whose sizes and indices of blocks are symbols, or are numbers."""

from __future__ import annotations

from porter.equal.forms import Forms, Noted, implied
from porter.equal.meaning import Follower
from porter.equal.outcome import Outcome, difference, of_cluster
from porter.facts.code import Code
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL, Geometry, Launched, Symbols
from porter.facts.machine import Machine
from porter.ptx.parser import parse_module

HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 input, .param .u64 output, .param .u32 rows, .param .u32 columns)
.reqntid 32
{
.reg .pred %p<9>;
.reg .b32 %r<40>;
.reg .f32 %f<9>;
.reg .b64 %d<40>;
mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [input];
ld.param.u64 %d1, [output];
ld.param.u32 %r1, [rows];
ld.param.u32 %r2, [columns];
mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ctaid.y;
mov.u32 %r5, %nctaid.x;
ld.global.f32 %f0, [%d0];
"""
SIZE = 128
"""The rows and the columns, where they are numbers."""


def _left(body: str, forms: Forms | None) -> tuple[Outcome, Noted]:
    """What a block leaves with the body: the index of its column and row are %r3 and %r4, sizes %r1 and %r2."""
    module = parse_module(f"{HEAD}{body}ret;\n}}\n")
    flow = Flow(Code(module, module.entries()[0]))
    values = {"input": GLOBAL.to_bytes(8, "little"), "output": (GLOBAL + (1 << 34)).to_bytes(8, "little"),
              "rows": SIZE.to_bytes(4, "little"), "columns": SIZE.to_bytes(4, "little")}  # fmt: skip
    symbols = Symbols({("rows", 0): "M", ("columns", 0): "N"}, "xy") if forms is not None else None
    machine = Machine(Launched(flow, Geometry((32, 1, 1)), values, symbols=symbols))
    follower = Follower(machine, forms)
    run(machine)
    return of_cluster(follower.contents.stored), follower.contents.noted


def are_equal_at_one_size(one: str, other: str) -> bool:
    (first, _), (second, _) = _left(one, None), _left(other, None)
    assert len(first.addresses)
    return difference(first, second) is None


def are_equal_for_all(original: str, port: str) -> bool:
    """As far as no number of the original wraps."""
    forms = Forms()
    (first, ours), (second, theirs) = _left(original, forms), _left(port, forms)
    assert len(first.addresses)
    return difference(first, second) is None and all(implied(bound, ours.bounds) for bound in theirs.bounds)
