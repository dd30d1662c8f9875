# SPDX-License-Identifier: Apache-2.0
"""Small kernels of one warp with a loop of `n` turns, and whether two of them are equal for all numbers of turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from porter.equal.all_turns import AllTurns, Side
from porter.equal.forms import Forms
from porter.facts.code import Code
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL, Geometry, Launched, Symbols
from porter.facts.machine import Machine
from porter.ptx.parser import parse_module
from porter.sync.turns import Recorder, find_lasso

STEP = 64
"""Of the size with each turn."""
HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 input, .param .u64 output, .param .u32 size)
.reqntid 32
{
.reg .pred %p<9>;
.reg .b16 %h<9>;
.reg .b32 %r<20>;
.reg .f32 %f<99>;
.reg .b64 %d<9>;
.shared .align 1024 .b8 room[4096];
.local .align 4 .b8 own[512];
mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [input];
ld.param.u64 %d1, [output];
ld.param.u32 %r10, [size];
mul.wide.u32 %d2, %r0, 16;
add.s64 %d0, %d0, %d2;
add.s64 %d1, %d1, %d2;
shr.u32 %r1, %r10, 6;
mov.f32 %f4, 0f00000000;
ld.global.f32 %f9, [%d0+8];
mov.u32 %r2, 0;
mov.u32 %r5, 0;
mov.u64 %d3, %d0;
"""
LOOP = "LOOP:\n{}\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, %r1;\n@%p1 bra LOOP;\n"
END = "st.global.f32 [%d1], %f4;\nret;\n}\n"
LOAD = "mul.wide.u32 %d4, %r2, 512;\nadd.s64 %d4, %d0, %d4;\nld.global.f32 %f0, [%d4];\n"
ADD = "add.f32 %f4, %f4, %f0;"


def kernel(turn: str = LOAD + ADD, ahead: str = "", behind: str = "") -> str:
    """One whose turns are like this, with instructions ahead of the loop and behind it."""
    return HEAD + ahead + LOOP.format(turn) + behind + END


def _launches(flow: Flow, block: int, symbols: Symbols | None) -> Callable[[int], Launched]:
    def launched(turns: int) -> Launched:
        values = {"input": GLOBAL.to_bytes(8, "little"), "output": (GLOBAL + (1 << 34)).to_bytes(8, "little"),
                  "size": (STEP * turns).to_bytes(4, "little")}  # fmt: skip
        return Launched(flow, Geometry((32, 1, 1), (8, 1, 1), first=(block, 0, 0)), values, symbols=symbols)

    return launched


def side(name: str, text: str, block: int = 7, forms: Forms | None = None) -> Side:
    module = parse_module(text)
    flow = Flow(Code(module, module.entries()[0]))
    symbols = Symbols({}, "x") if forms is not None else None
    return Side(name, flow, STEP, _launches(flow, block, symbols), forms=forms)


class NotProvedError(Exception):
    """The synchronization of a kernel, or what its loop decides, is not known for all numbers of turns."""


@lru_cache
def _lasso(text: str, most: int = 12) -> tuple[int, int]:
    runs = []
    alone = side("", text)
    for turns in range(1, most + 1):
        machine = Machine(alone.launched(turns))
        runs.append(Recorder(machine))
        run(machine)
    found = find_lasso(runs, STEP)
    if found is None or found.why_not or found.needed > most:
        raise NotProvedError("" if found is None else found.why_not)
    return found.period, found.start


def period_of_all(original: str, port: str) -> int:
    """The period with which both go on leaving the same.

    Raises:
        NotProvedError, NotAllError, OtherError: that is not known, or they do not.
    """
    sides = [side("original", original), side("port", port)]
    (one, start), (other, later) = map(_lasso, (original, port))
    return AllTurns(sides, math.lcm(one, other), max(start, later)).period()


def are_blocks_alike(text: str) -> bool:
    """Whether the first block of eight does what the last one does."""
    first, last = (AllTurns([side("original", text, block), side("port", text, block)], 1, 1) for block in (0, 7))
    last.period()
    return first.is_like(last)


def are_alike_for_all_blocks(original: str, port: str) -> bool:
    """Whether both leave the same for all numbers of turns, whatever the index of the block is. Raises NotAllError."""
    forms = Forms()
    return AllTurns([side("original", original, forms=forms), side("port", port, forms=forms)], 1, 1).period() == 1
