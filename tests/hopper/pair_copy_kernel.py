# SPDX-License-Identifier: Apache-2.0
"""A kernel of two CTAs that load tiles by TMA with .cta_group::2: all bytes count on the even one's mbarrier."""

from __future__ import annotations

ROWS, COLUMNS = 16, 64
"""Of a tile: f16 elements, so 2048 bytes."""

TILES = 4

_TEXT = """.version 9.0
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dyn[];
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{{
.reg .b32 %r<40>; .reg .b64 %d<10>; .reg .pred %p<9>; .reg .b16 %h<4>;
.shared .align 8 .b8 full[8]; .shared .align 8 .b8 done[8]; .shared .align 4 .b8 slot[4];
mov.b64 %d0, map; cvta.param.u64 %d0, %d0; ld.param.u64 %d1, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; mov.u32 %r2, full; mov.u32 %r3, done; mov.u32 %r4, %cluster_ctarank;
mov.u32 %r9, slot; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r4, 0; shr.u32 %r5, %r0, 5; setp.eq.u32 %p2, %r5, 0;
@%p0 mbarrier.init.shared.b64 [%r2], 1;
@%p0 mbarrier.init.shared.b64 [%r3], 1;
@%p0 fence.mbarrier_init.release.cluster;
@!%p2 bra READY;
tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r9], 32;
READY:
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
ld.shared.u32 %r8, [%r9];
// The address of the even CTA's mbarrier.
and.b32 %r6, %r2, 0xFEFFFFFF;
mov.u32 %r10, 0;
TILE:
@!%p0 bra WAIT;
and.pred %p3, %p0, %p1;
@%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {bytes};
shl.b32 %r11, %r10, 1; add.u32 %r11, %r11, %r4; mul.lo.u32 %r11, %r11, {rows}; mov.u32 %r12, 0;
{copies}
WAIT:
// Only the even CTA waits for the bytes; it tells the other one.
@!%p1 bra ODD;
and.b32 %r13, %r10, 1;
POLL: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], %r13; @!%p4 bra POLL;
@!%p0 bra ODD;
mov.u16 %h1, 3;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r3], %h1;
ODD:
and.b32 %r13, %r10, 1;
POLL2: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3], %r13; @!%p4 bra POLL2;
// Each thread copies 16 bytes of what came to the output.
mov.u32 %r14, %ctaid.x; mad.lo.u32 %r15, %r10, 2, %r14; mul.lo.u32 %r15, %r15, {stage};
mov.u32 %r20, 0;
OUT:
shl.b32 %r16, %r0, 4; mad.lo.u32 %r16, %r20, 2048, %r16; add.u32 %r17, %r1, %r16;
ld.shared.v4.u32 {{%r21, %r22, %r23, %r24}}, [%r17];
add.u32 %r18, %r15, %r16; cvt.u64.u32 %d3, %r18; add.u64 %d3, %d3, %d1;
st.global.v4.u32 [%d3], {{%r21, %r22, %r23, %r24}};
add.u32 %r20, %r20, 1; setp.lt.u32 %p5, %r20, {pieces}; @%p5 bra OUT;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, {tiles}; @%p5 bra TILE;
@!%p2 bra END;
tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r8, 32;
tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
END: ret;
}}
"""

_COPY = "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes"
SINGLE = f"{_COPY} [%r1], [%d0, {{%r12, %r11}}], [%r6];"
"""Each CTA loads its own tile."""
MULTICAST = f"""mad.lo.u32 %r25, %r4, 2048, %r1; mov.u16 %h0, 3;
{_COPY}.multicast::cluster [%r25], [%d0, {{%r12, %r11}}], [%r6], %h0;"""
"""Each CTA loads one of two tiles for both."""
TILE_BYTES = ROWS * COLUMNS * 2


def text(multicast: bool) -> str:
    pieces = 2 if multicast else 1
    return _TEXT.format(
        bytes=2 * pieces * TILE_BYTES, rows=ROWS, copies=MULTICAST if multicast else SINGLE, pieces=pieces,
        stage=pieces * TILE_BYTES, tiles=TILES,
    )  # fmt: skip


def out_bytes(multicast: bool) -> int:
    return TILES * 2 * TILE_BYTES * (2 if multicast else 1)
