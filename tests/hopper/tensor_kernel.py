# SPDX-License-Identifier: Apache-2.0
"""A kernel that fills shared memory and Tensor Memory, runs some tcgen05 instructions, and gives Tensor Memory back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim import Launch

SMEM = 32768
"""Bytes of shared memory that every CTA fills, from a multiple of 1024 on."""

_TEXT = """.version 9.0
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dyn[];
.visible .entry k(.param .u64 image, .param .u64 cells, .param .u64 out)
{{
.reg .b32 %r<99>; .reg .b32 %w<33>; .reg .b64 %d<30>; .reg .pred %p<12>; .reg .b16 %h<4>;
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 slot[4];
ld.param.u64 %d0, [image]; ld.param.u64 %d1, [cells]; ld.param.u64 %d2, [out];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, dyn; mov.u32 %r8, bar; mov.u32 %r9, slot;
mov.u32 %r3, %cluster_ctarank; mov.u32 %r30, %ctaid.x;
setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r3, 0;
and.pred %p3, %p0, %p2;
@%p0 mbarrier.init.shared.b64 [%r8], 1;
@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r9], {columns};
NOALLOC:
mul.wide.u32 %d3, %r30, {smem}; add.u64 %d3, %d3, %d0; mul.wide.u32 %d4, %r0, 16; add.u64 %d3, %d3, %d4;
mad.lo.u32 %r4, %r0, 16, %r2; mov.u32 %r5, 0;
COPY: ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%d3]; st.shared.v4.u32 [%r4], {{%r10, %r11, %r12, %r13}};
add.u64 %d3, %d3, 2048; add.u32 %r4, %r4, 2048; add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, {copies};
@%p4 bra COPY;
fence.proxy.async; bar.sync 0; ld.shared.u32 %r6, [%r9];
mul.wide.u32 %d5, %r30, {cell_bytes}; mul.wide.u32 %d6, %r0, {row_bytes}; add.u64 %d5, %d5, %d6;
add.u64 %d7, %d1, %d5; add.u64 %d8, %d2, %d5; shl.b32 %r7, %r1, 21; add.u32 %r7, %r7, %r6;
{fill}
tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync;
{sync}
tcgen05.fence::after_thread_sync;
// Descriptors name shared memory from `dyn` on.
and.b32 %r16, %r2, 0x3FFFF; shr.u32 %r16, %r16, 4; cvt.u64.u32 %d9, %r16;
@!%p3 bra WAIT;
{body}
WAIT: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra WAIT;
tcgen05.fence::after_thread_sync;
{dump}
tcgen05.fence::before_thread_sync;
{sync}
@!%p1 bra END;
tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r6, {columns};
tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;
END: ret;
}}
"""


@dataclass(frozen=True)
class Tensor:
    """`body` runs in thread 0 of rank 0: %r6 is the address of Tensor Memory, %d9 that of `dyn` as descriptors hold
    it, %r8 the mbarrier that all wait for."""

    body: str
    group: int = 1
    columns: int = 64

    @property
    def text(self) -> str:
        words = "{" + ", ".join(f"%w{i}" for i in range(32)) + "}"
        fill, dump = [], []
        for first in range(0, self.columns, 32):
            for i in range(0, 32, 4):
                four = "{" + ", ".join(f"%w{i + j}" for j in range(4)) + "}"
                fill.append(f"ld.global.v4.u32 {four}, [%d7+{4 * (first + i)}];")
            fill.append(f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r7+{first}], {words};")
            dump.append(f"tcgen05.ld.sync.aligned.32x32b.x32.b32 {words}, [%r7+{first}];")
            dump.append("tcgen05.wait::ld.sync.aligned;")
            for i in range(0, 32, 4):
                four = "{" + ", ".join(f"%w{i + j}" for j in range(4)) + "}"
                dump.append(f"st.global.v4.u32 [%d8+{4 * (first + i)}], {four};")
        sync = "bar.sync 0;"
        if self.group == 2:
            sync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
        return _TEXT.format(
            group=self.group, columns=self.columns, smem=SMEM, copies=SMEM // 2048, sync=sync, body=self.body,
            cell_bytes=128 * self.columns * 4, row_bytes=self.columns * 4, fill="\n".join(fill), dump="\n".join(dump),
        )  # fmt: skip

    @property
    def launch(self) -> Launch:
        return Launch((self.group, 1, 1), (128, 1, 1), (self.group, 1, 1), SMEM)

    @property
    def out_bytes(self) -> int:
        return self.group * 128 * self.columns * 4


def descriptor(offset: int, lbo: int, sbo: int, swizzle: int) -> int:
    """A shared-memory descriptor of SM100 for `offset` bytes from `dyn`, whose address is still to be added."""
    return offset >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | 1 << 46 | swizzle << 61


COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];"
COMMIT_PAIR = """mov.u16 %h0, 3;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r8], %h0;"""


def mma(
    opcode: str, a: int | str, b: int, idesc: int, enable: int, extra: str = "", d: int = 0, disable: str = "",
    metadata: str = "",
) -> str:  # fmt: skip
    """One tcgen05.mma; `a` is a descriptor without its address, or an address in Tensor Memory as text. `metadata`
    and `disable` are operands before and after the instruction descriptor, `extra` one at the end."""
    operand = f"[%r6+{a}]" if isinstance(a, str) else "%d10"
    metadata = f"{metadata}, " if metadata else ""
    first = "" if isinstance(a, str) else f"add.u64 %d10, %d9, {a};"
    return f"""{first} add.u64 %d11, %d9, {b}; mov.u32 %r17, {idesc}; setp.ne.u32 %p5, {enable}, 0;
tcgen05.mma.{opcode} [%r6+{d}], {operand}, %d11, {metadata}%r17, {disable}%p5{extra};"""


def inputs(kernel: Tensor, seed: int, finite: str = "f16") -> list[npt.NDArray[Any]]:
    """Random contents of shared memory and of Tensor Memory, of numbers of a type."""
    rng = np.random.default_rng(seed)
    count = kernel.group * SMEM
    image: npt.NDArray[Any]
    if finite in ("f16", "bf16", "tf32"):
        values = rng.normal(size=count // 2)
        if finite == "f16":
            image = values.astype(np.float16).view(np.uint8)
        elif finite == "bf16":
            image = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        else:
            image = values[: count // 4].astype(np.float32).view(np.uint8)
    else:
        image = rng.integers(0, 256, count).astype(np.uint8)
        if finite == "f8":
            # Neither type of 8 bits has its special values here.
            image = (image & 0x80 | image & 0x7F) & np.uint8(0xBB)
    cells = rng.integers(-50, 50, kernel.out_bytes // 4).astype(np.float32)
    if finite == "i8":
        return [image, cells.astype(np.int32)]
    return [image, cells]
