# SPDX-License-Identifier: Apache-2.0
"""A ring of stages between two warps, in PTX, with as many turns as its parameter says: right, and with mistakes."""

from __future__ import annotations

from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import Geometry, Launched
from porter.ptx.parser import parse_module

HEAD = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry ring(.param .u32 turns)
.reqntid 64
{
.reg .pred %p<16>;
.reg .b32 %r<48>;
.shared .align 16 .b8 slots[256];
.shared .align 8 .b64 full[4];
.shared .align 8 .b64 empty[4];
ld.param.u32 %r1, [turns];
mov.u32 %r2, %tid.x;
mov.u32 %r5, slots;
mov.u32 %r6, full;
mov.u32 %r7, empty;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra $READY;
"""
READY = """$READY:
bar.sync 0;
and.b32 %r3, %r2, 31;
setp.ne.u32 %p2, %r3, 0;
@%p2 bra $OUT;
mov.u32 %r10, 0;
mov.u32 %r11, 0;
mov.u32 %r12, 0;
setp.eq.u32 %p3, %r1, 0;
@%p3 bra $OUT;
setp.ne.u32 %p3, %r2, 0;
@%p3 bra $READ;
"""
STAGE = """shl.b32 %r13, %r11, 3;
add.u32 %r14, %r6, %r13;
add.u32 %r15, %r7, %r13;
shl.b32 %r16, %r11, 2;
add.u32 %r17, %r5, %r16;
"""
NEXT = """add.u32 %r11, %r11, 1;
setp.eq.u32 %p5, %r11, {stages};
selp.b32 %r11, 0, %r11, %p5;
selp.b32 %r18, 1, 0, %p5;
xor.b32 %r12, %r12, %r18;
add.u32 %r10, %r10, 1;
setp.lt.u32 %p6, %r10, %r1;
"""


def wait(label: str, barrier: str, parity: str) -> str:
    return f"{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [{barrier}], {parity};\n@!%p4 bra {label};\n"


def ring(
    *, stages: int = 2, arrive: str = "mbarrier.arrive.shared::cta.b64 _, [%r14];\n", before_wait: str = "",
    wait_empty: str | None = None, before_release: str = "",
    release: str = "mbarrier.arrive.shared::cta.b64 _, [%r15];\n",
    store: str = "st.shared.u32 [%r17], %r10;\n", count: int = 1,
) -> str:  # fmt: skip
    """`before_wait` stands ahead of the producer's wait for an empty stage, and may jump over it to $GO;
    `before_release` ahead of the reader's arrival, and may jump over it to $ON."""
    inits = "".join(
        f"mbarrier.init.shared::cta.b64 [full+{8 * i}], 1;\nmbarrier.init.shared::cta.b64 [empty+{8 * i}], {count};\n"
        for i in range(stages)
    )
    empty = wait("$EMPTY", "%r15", "%r19") if wait_empty is None else wait_empty
    write = "$WRITE:\n" + STAGE + "xor.b32 %r19, %r12, 1;\n" + before_wait + empty + "$GO:\n" + store + arrive
    write += NEXT.format(stages=stages) + "@%p6 bra $WRITE;\nbra $OUT;\n"
    read = "$READ:\n" + STAGE + wait("$FULL", "%r14", "%r12") + "ld.shared.u32 %r20, [%r17];\n" + before_release
    read += release + "$ON:\n" + NEXT.format(stages=stages) + "@%p6 bra $READ;\n"
    return HEAD + inits + READY + write + read + "$OUT:\nret;\n}\n"


def flow_of(text: str) -> Flow:
    module = parse_module(text)
    return Flow(Code(module, module.entries()[0]))


def launched(flow: Flow, turns: int) -> Launched:
    return Launched(flow, Geometry((64, 1, 1)), {"turns": turns.to_bytes(4, "little")})
