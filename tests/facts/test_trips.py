# SPDX-License-Identifier: Apache-2.0
"""How often loops run: over K, whatever else is compared and returns to its start in them."""

from __future__ import annotations

import pytest

from porter.facts.code import Code
from porter.facts.warps import Warps
from porter.ptx.parser import parse_module

STAGES, DEPTH, K = 4, 64, 1344
TURNS = K // DEPTH
HEAD = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry kernel(.param .u32 k)
{
.reg .pred %p<16>;
.reg .b32 %r<32>;
.reg .b64 %rd<8>;
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
ld.param.u32 %r3, [k];
mov.b32 %r4, 0;
mov.b32 %r5, 0;
mov.b32 %r6, 0;
"""
STEP = "add.s32 %r4, %r4, 64;\n"
MORE = "setp.lt.s32 %p2, %r4, %r3;\n@%p2 bra $L;\n"
SELECTED = ("add.s32 %r7, %r5, 1;\nsetp.eq.s32 %p1, %r7, 4;\nselp.b32 %r5, 0, %r7, %p1;\nselp.b32 %r8, 1, 0, %p1;\n"
            "xor.b32 %r6, %r6, %r8;\n")  # fmt: skip
BRANCHED = ("add.s32 %r5, %r5, 1;\nsetp.ne.s32 %p1, %r5, 4;\n@%p1 bra $ON;\nmov.b32 %r5, 0;\nxor.b32 %r6, %r6, 1;\n"
            "$ON:\n")  # fmt: skip
GUARDED = "add.s32 %r5, %r5, 1;\nsetp.eq.s32 %p1, %r5, 4;\n@%p1 xor.b32 %r6, %r6, 1;\n@%p1 mov.b32 %r5, 0;\n"
LAST = "setp.eq.s32 %p1, %r5, 3;\nadd.s32 %r7, %r5, 1;\nselp.b32 %r5, 0, %r7, %p1;\n"
TILES = "add.s32 %r9, %r3, 63;\nshr.u32 %r9, %r9, 6;\n"
WAIT = "$W:\nmbarrier.try_wait.parity.shared::cta.b64 %p5, [%r10], %r6;\n@!%p5 bra $W;\n"
LOAD = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 4096;\n"
LOOPS = {
    "the stage is selected": "$L:\n" + SELECTED + STEP + MORE,
    "the stage is selected behind the step": "$L:\n" + STEP + SELECTED + MORE,
    "the stage is selected by its last index": "$L:\n" + LAST + STEP + MORE,
    "a branch ends the ring": "$L:\n" + BRANCHED + STEP + MORE,
    "guards end the ring": "$L:\n" + GUARDED + STEP + MORE,
    "a wait stands ahead": "$L:\n" + WAIT + LOAD + SELECTED + STEP + MORE,
    "a count of tiles": TILES + "$L:\n" + SELECTED + "add.s32 %r4, %r4, 1;\nsetp.ne.s32 %p2, %r4, %r9;\n@%p2 bra $L;\n",
    "a count that falls": TILES + "$L:\n" + BRANCHED
    + "add.s32 %r9, %r9, -1;\nsetp.gt.s32 %p2, %r9, 0;\n@%p2 bra $L;\n",
    "a comparison with what came before": TILES + "$L:\n" + GUARDED
    + "mov.b32 %r11, %r9;\nadd.s32 %r9, %r11, -1;\nsetp.gt.s32 %p2, %r11, 1;\n@%p2 bra $L;\n",
    "a test ahead of the body": "bra $T;\n$L:\n" + SELECTED + STEP + "$T:\n"
    + "setp.ge.s32 %p2, %r4, %r3;\n@%p2 bra $OUT;\nbra $L;\n$OUT:\n",
    "64 bits": "cvt.u64.u32 %rd1, %r3;\nmov.b64 %rd2, 0;\n$L:\n" + BRANCHED
    + "add.s64 %rd2, %rd2, 64;\nsetp.lt.u64 %p2, %rd2, %rd1;\n@%p2 bra $L;\n",
    "a way out in the middle": TILES + "$L:\nadd.s32 %r4, %r4, 1;\nsetp.eq.s32 %p2, %r4, %r9;\n@%p2 bra $OUT;\n"
    + SELECTED + "bra $L;\n$OUT:\n",
    "the stage by a remainder": "$L:\nrem.u32 %r5, %r12, 4;\nadd.s32 %r12, %r12, 1;\nsetp.eq.s32 %p1, %r5, 3;\n" + STEP
    + MORE,
    "the first round does not wait": "$L:\nsetp.lt.s32 %p1, %r4, 256;\n@%p1 bra $ON;\n" + WAIT + "$ON:\n" + LOAD + STEP
    + MORE,
    "all but the first round wait": TILES
    + "$L:\nadd.s32 %r4, %r4, 1;\nsetp.gt.s32 %p1, %r4, 4;\n@!%p1 bra $ON;\n" + WAIT
    + "$ON:\n" + LOAD + "setp.lt.s32 %p2, %r4, %r9;\n@%p2 bra $L;\n",
    "the second round begins": "$L:\n" + STEP + "setp.eq.s32 %p1, %r4, 256;\nselp.b32 %r6, 1, %r6, %p1;\n" + MORE,
    "the first round ends behind the step": "$L:\n" + STEP + "setp.ne.s32 %p1, %r4, 256;\n@%p1 bra $ON;\n" + LOAD
    + "$ON:\n" + MORE,
    "in a loop over tiles": "$A:\nmov.b32 %r4, 0;\n$L:\n" + BRANCHED + STEP + MORE
    + "add.s32 %r13, %r13, 1;\nsetp.lt.s32 %p3, %r13, %r14;\n@%p3 bra $A;\n",
}  # fmt: skip


def inner_trips(text: str, block: tuple[int, ...] | None, k: int = K) -> int | None:
    module = parse_module(HEAD + text + "ret;\n}\n")
    code = Code(module, module.entries()[0], {"k": k.to_bytes(4, "little")})
    return Warps(code, block).trips(next(loop for loop in code.loops if not code.is_wait(loop)))


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_k_runs_as_often_as_k_has_tiles(name: str) -> None:
    # one that asks ahead of its body asks once more
    asked = TURNS + (name == "a test ahead of the body")
    assert inner_trips(LOOPS[name], (128,)) == asked
    assert inner_trips(LOOPS[name], None) == asked


def test_a_ring_that_ends_the_loop_is_its_count() -> None:
    text = "$L:\nadd.s32 %r5, %r5, 1;\nsetp.ne.s32 %p1, %r5, 4;\n@%p1 bra $L;\n"
    assert inner_trips(text, (128,)) == STAGES


UNKNOWN = {
    "data ends it": "ld.global.u32 %r3, [%rd1];\n$L:\n" + SELECTED + STEP + MORE,
    "data may end it earlier": "$L:\nld.global.u32 %r7, [%rd1];\nsetp.eq.s32 %p1, %r7, 4;\n@%p1 bra $OUT;\n" + STEP
    + MORE + "$OUT:\n",
    "the ring is a loop in the loop":
    "$R:\nmov.b32 %r5, 0;\n$L:\n" + STEP + "setp.ge.s32 %p2, %r4, %r3;\n@%p2 bra $OUT;\n"
    "add.s32 %r5, %r5, 1;\nsetp.ne.s32 %p1, %r5, 4;\n@%p1 bra $L;\nbra $R;\n$OUT:\n",
    "it begins anywhere": "ld.global.u32 %r4, [%rd1];\n$L:\n" + SELECTED + STEP + MORE,
    "it begins elsewhere in another tile": "$A:\n$L:\n" + STEP + MORE
    + "add.s32 %r4, %r13, 64;\nadd.s32 %r13, %r13, 1;\nsetp.lt.s32 %p3, %r13, %r14;\n@%p3 bra $A;\n",
    "warps count differently": "mov.b32 %r4, %r2;\n$L:\nadd.s32 %r4, %r4, 1;\nsetp.lt.s32 %p2, %r4, 9;\n@%p2 bra $L;\n",
    "lanes count differently": "mov.b32 %r4, %r1;\n$L:\n" + STEP + MORE,
    "the block counts": "mov.u32 %r4, %ctaid.x;\n$L:\n" + STEP + MORE,
    "it does not end": "$L:\n" + SELECTED + "setp.lt.s32 %p2, %r4, %r3;\n@%p2 bra $L;\n",
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_does_not_follow_is_not_known(name: str) -> None:
    assert inner_trips(UNKNOWN[name], (128,)) is None


def test_without_threads_nothing_of_their_index_is_known() -> None:
    text = "mov.b32 %r4, %r2;\n$L:\nadd.s32 %r4, %r4, 1;\nsetp.lt.s32 %p2, %r4, 9;\n@%p2 bra $L;\n"
    assert inner_trips(text, (32,)) == 9
    assert inner_trips(text, None) is None


def test_a_way_to_a_trap_does_not_end_a_loop() -> None:
    text = "$L:\nld.global.u32 %r7, [%rd1];\nsetp.eq.s32 %p1, %r7, 4;\n@%p1 bra $BAD;\n" + STEP + MORE
    assert inner_trips(text + "ret;\n$BAD:\ntrap;\n", (128,)) == TURNS
