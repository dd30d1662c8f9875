# SPDX-License-Identifier: Apache-2.0
"""Kernels to time: a product of bf16 matrices in PTX for sm_100a, with the tile, stages, roles and pairs of a rung.

They compute D = A B^T in f32 and write down clocks of their blocks. `Timed.shape` is what the model grades; a reader
finds the same in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from porter.grade.shape import Epilogue, Mma, Problem, Residency, Shape
from porter.ptx import tmem
from porter.ptx.arch import SM100A, WARP
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import PERIOD, SwizzleMode
from porter.ptx.tensormap import ALIGNMENT, ENCODED_BYTES
from porter.ptx.types import ElementType
from porter.ptx.umma import DENSE_K, Kind

ENTRY = "timed"
_ROWS = tmem.LANES
"""Of one block, each the business of one thread that stores results."""
_ROW_BYTES = SwizzleMode.B128.span
DEPTH = _ROW_BYTES // 2
"""Elements of K of a stage: rows of the widest swizzle."""
_DRAWN = 32
"""Columns of Tensor Memory that a thread loads at a time."""
STAMPS = ("start", "ready", "multiplied", "stored")
"""Clocks (u64) that thread 0 of a block writes: begun; barriers and Tensor Memory are there; all MMAs are done; all
results are in memory."""
STAMPED = 4
"""Blocks that write them."""


@dataclass(frozen=True)
class Timed:
    """`serial`: one thread loads, multiplies and waits. Otherwise a warp loads, another issues MMAs. `pair`: two blocks
    multiply together, 256 rows. `k` is the problem's; `alone`: one tile only, else 4096 x 4096."""

    n: int
    stages: int
    k: int
    serial: bool = False
    pair: bool = False
    alone: bool = False

    @property
    def name(self) -> str:
        roles = "serial" if self.serial else f"specialized-{self.stages}"
        extent = "one" if self.alone else "all"
        return f"{_ROWS * self.ctas}x{self.n}-{roles}-{extent}"

    @property
    def ctas(self) -> int:
        return 2 if self.pair else 1

    @property
    def threads(self) -> int:
        return _ROWS if self.serial else _ROWS + 2 * WARP

    @property
    def problem(self) -> Problem:
        return Problem(_ROWS * self.ctas, self.n, self.k) if self.alone else Problem(4096, 4096, self.k)

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along M, those of a pair beside each other, and along N."""
        return self.problem.m // _ROWS, self.problem.n // self.n

    @property
    def stage_bytes(self) -> int:
        """Of one block: its rows of A, and its share of those of B."""
        return (_ROWS + self.n // self.ctas) * _ROW_BYTES

    @property
    def smem(self) -> int:
        """Dynamic shared memory, with barriers behind the stages."""
        return self.stages * self.stage_bytes + 16 * self.stages + 16

    @property
    def shape(self) -> Shape:
        mma = Mma(_ROWS * self.ctas, self.n, Kind.F16, self.ctas)
        return Shape(SM100A.name, ((mma, DEPTH // DENSE_K[Kind.F16]),), mma.m, self.n, self.stage_bytes, self.stages,
                     "serial" if self.serial else "specialized", _ROW_BYTES, self.serial, 1, self.ctas,
                     epilogue=Epilogue(4, "rows", 1, False, _DRAWN),
                     residency=Residency(self.smem, self.columns, self.threads))  # fmt: skip

    @property
    def columns(self) -> int:
        """Of Tensor Memory, as they are allocated."""
        return max(tmem.MIN_ALLOCATION, self.n)

    def ptx(self) -> str:
        """The kernel. Parameters: maps of A and B, D, clocks, stages of K, columns of D."""
        return "\n".join(_Text(self).lines()) + "\n"


FITTED = (
    Timed(64, 2, 8192, alone=True), Timed(64, 6, 8192, alone=True), Timed(128, 2, 8192, alone=True),
    Timed(128, 4, 8192, alone=True), Timed(256, 2, 8192, alone=True), Timed(256, 4, 8192, alone=True),
    Timed(128, 6, 4096),
)  # fmt: skip
HELD_OUT = (
    Timed(64, 4, 8192, alone=True), Timed(128, 3, 8192, alone=True), Timed(128, 6, 8192, alone=True),
    Timed(256, 3, 8192, alone=True), Timed(128, 1, 4096, serial=True), Timed(128, 3, 4096), Timed(256, 4, 4096),
    Timed(256, 4, 4096, pair=True),
)  # fmt: skip
"""Single blocks over a long K, and the series of ThunderKittens and gau-nernst from serial to pairs."""


class _Text:
    def __init__(self, timed: Timed) -> None:
        self.timed = timed
        self.bars = timed.stages * timed.stage_bytes
        self.done = self.bars + 16 * timed.stages
        self.group = f"cta_group::{timed.ctas}"
        kind = InstructionDescriptor(Kind.F16, _ROWS * timed.ctas, timed.n, ElementType.F32, ElementType.BF16,
                                     ElementType.BF16)  # fmt: skip
        self.idesc = kind.encode()

    def lines(self) -> Iterator[str]:
        yield from self.head()
        yield from self.set_up()
        if self.timed.serial:
            yield "@%p1 bra $MULTIPLIED;"
            yield from self.loop(self.load(), self.multiply(), 0)
        else:
            yield f"setp.eq.u32 %p2, %r1, {_ROWS};\n@%p2 bra $LOAD;"
            yield f"setp.eq.u32 %p3, %r1, {_ROWS + WARP};\n@%p3 bra $MULTIPLY;"
            yield f"setp.ge.u32 %p4, %r1, {_ROWS};\n@%p4 bra $OUT;\nbra $MULTIPLIED;\n$LOAD:"
            yield from self.loop(self.load(), [], 1)
            yield "bra $OUT;\n$MULTIPLY:"
            if self.timed.pair:
                yield "setp.ne.u32 %p5, %r9, 0;\n@%p5 bra $OUT;"
            yield from self.loop([], self.multiply(), 2)
            yield "bra $OUT;"
        yield "$MULTIPLIED:"
        if self.timed.serial:
            yield "bar.warp.sync 0xffffffff;"
        yield from self.store()
        yield from self.close()

    def head(self) -> Iterator[str]:
        yield f".version 8.7\n.target sm_100a\n.address_size 64\n.extern .shared .align {PERIOD} .b8 smem[];"
        maps = ", ".join(f".param .align {ALIGNMENT} .b8 map_{x}[{ENCODED_BYTES}]" for x in "ab")
        yield f".visible .entry {ENTRY}({maps},"
        yield ".param .u64 out, .param .u64 clocks, .param .u32 steps, .param .u32 columns)"
        yield f".reqntid {self.timed.threads}"
        if self.timed.pair:
            yield ".explicitcluster\n.reqnctapercluster 2, 1, 1"
        yield "{\n.reg .pred %p<16>;\n.reg .b16 %rs<4>;\n.reg .b32 %r<96>;\n.reg .b64 %rd<32>;"
        yield "mov.u64 %rd10, %clock64;\nmov.u32 %r1, %tid.x;\nshr.u32 %r2, %r1, 5;\nmov.u32 %r3, smem;"
        yield "ld.param.u32 %r5, [steps];\nld.param.u32 %r6, [columns];"
        yield "mov.b64 %rd1, map_a;\ncvta.param.u64 %rd1, %rd1;\nmov.b64 %rd2, map_b;\ncvta.param.u64 %rd2, %rd2;"
        yield "ld.param.u64 %rd3, [out];\nld.param.u64 %rd4, [clocks];\ncvta.to.global.u64 %rd3, %rd3;"
        yield "cvta.to.global.u64 %rd4, %rd4;\nmov.u32 %r7, %ctaid.x;\nmov.u32 %r8, %ctaid.y;"
        yield f"shl.b32 %r10, %r7, 7;\nmul.lo.u32 %r11, %r8, {self.timed.n};"
        if self.timed.pair:
            # the half of B that this block loads
            yield f"mov.u32 %r9, %cluster_ctarank;\nmad.lo.u32 %r13, %r9, {self.timed.n // 2}, %r11;"
        else:
            yield "mov.u32 %r13, %r11;"

    def set_up(self) -> Iterator[str]:
        """Barriers, Tensor Memory (its address to %r4), and the clock then."""
        yield "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $BARRIERS;"
        for at in range(self.bars, self.done + 1, 8):
            yield f"mbarrier.init.shared::cta.b64 [%r3+{at}], 1;"
        yield "fence.mbarrier_init.release.cluster;\n$BARRIERS:\nbar.warp.sync 0xffffffff;"
        yield "setp.ne.u32 %p6, %r2, 0;\n@%p6 bra $ALLOCATED;"
        yield f"tcgen05.alloc.{self.group}.sync.aligned.shared::cta.b32 [%r3+{self.done + 8}], {self.timed.columns};"
        yield f"tcgen05.relinquish_alloc_permit.{self.group}.sync.aligned;\n$ALLOCATED:"
        yield "tcgen05.fence::before_thread_sync;"
        yield self.sync()
        yield f"tcgen05.fence::after_thread_sync;\nld.shared.b32 %r4, [%r3+{self.done + 8}];\nmov.u64 %rd11, %clock64;"

    def sync(self) -> str:
        return "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" if self.timed.pair else "bar.sync 0;"

    def loop(self, load: list[str], multiply: list[str], number: int) -> Iterator[str]:
        """Over stages of K: %r20 the index, %r21 the stage, %r22 its phase, %r23 and %r24 its barriers, %r25 its A."""
        yield f"mov.u32 %r20, 0;\nmov.u32 %r21, 0;\nmov.u32 %r22, 0;\nmov.u32 %r27, 0;\n$L_{number}:"
        yield "shl.b32 %r23, %r21, 3;\nadd.u32 %r23, %r23, %r3;"
        yield f"add.u32 %r24, %r23, {self.bars + 8 * self.timed.stages};"
        yield f"add.u32 %r23, %r23, {self.bars};\nmad.lo.u32 %r25, %r21, {self.timed.stage_bytes}, %r3;"
        yield from load
        yield from multiply
        yield f"add.u32 %r21, %r21, 1;\nsetp.eq.u32 %p7, %r21, {self.timed.stages};\nselp.u32 %r21, 0, %r21, %p7;"
        yield "selp.u32 %r26, 1, 0, %p7;\nxor.b32 %r22, %r22, %r26;\nadd.u32 %r20, %r20, 1;"
        yield f"setp.lt.u32 %p8, %r20, %r5;\n@%p8 bra $L_{number};"
        if multiply:
            yield self.commit(f"[%r3+{self.done}]")

    def wait(self, barrier: str, parity: str) -> str:
        return (
            f"{{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [{barrier}], {parity};\n"
            "@p bra DONE;\nbra WAIT;\nDONE:\n}"
        )

    def load(self) -> list[str]:
        free = [] if self.timed.serial else ["xor.b32 %r28, %r22, 1;", self.wait("%r24", "%r28")]
        tma = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        barrier = "%r23"
        expect = [f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r23], {self.timed.stage_bytes * self.timed.ctas};"]
        if self.timed.pair:
            # both blocks' loads count at the first one's barrier
            tma += ".cta_group::2"
            barrier = "%r31"
            expect = ["setp.eq.u32 %p9, %r9, 0;\nmapa.shared::cluster.u32 %r31, %r23, 0;", f"@%p9 {expect[0]}"]
        return [
            *free,
            *expect,
            f"shl.b32 %r29, %r20, 6;\nadd.u32 %r30, %r25, {_ROWS * _ROW_BYTES};",
            f"{tma} [%r25], [%rd1, {{%r29, %r10}}], [{barrier}];",
            f"{tma} [%r30], [%rd2, {{%r29, %r13}}], [{barrier}];",
        ]

    def multiply(self) -> list[str]:
        base = SmemDescriptor(0, 16, 8 * _ROW_BYTES, SwizzleMode.B128).encode("sm_100")
        mma = f"tcgen05.mma.{self.group}.kind::f16 [%r4], %rd6, %rd7, %r33, %p10;\n"
        products = []
        for step in range(DEPTH // DENSE_K[Kind.F16]):
            if step:
                products.append("add.u64 %rd6, %rd6, 2;\nadd.u64 %rd7, %rd7, 2;\nmov.u32 %r27, 1;\n")
            products.append("setp.ne.u32 %p10, %r27, 0;\n" + mma)
        waited = [self.wait("%r24", "%r22")] if self.timed.serial else []
        return [
            self.wait("%r23", "%r22"),
            "tcgen05.fence::after_thread_sync;",
            f"shr.u32 %r32, %r25, 4;\ncvt.u64.u32 %rd6, %r32;\nor.b64 %rd6, %rd6, {base};",
            f"add.u64 %rd7, %rd6, {_ROWS * _ROW_BYTES // 16};\nmov.u32 %r33, {self.idesc};",
            *products,
            "mov.u32 %r27, 1;",
            self.commit("[%r24]"),
            *waited,
        ]

    def commit(self, barrier: str) -> str:
        form = f"tcgen05.commit.{self.group}.mbarrier::arrive::one.shared::cluster"
        if self.timed.pair:
            return f"mov.b16 %rs1, 3;\n{form}.multicast::cluster.b64 {barrier}, %rs1;"
        return f"{form}.b64 {barrier};"

    def store(self) -> Iterator[str]:
        """Each thread a row, 16 bytes at a time."""
        yield self.wait(f"%r3+{self.done}", "0")
        yield "tcgen05.fence::after_thread_sync;\nmov.u64 %rd12, %clock64;"
        yield "shl.b32 %r34, %r2, 21;\nadd.u32 %r34, %r34, %r4;\nadd.u32 %r35, %r10, %r1;"
        yield "mad.lo.u32 %r35, %r35, %r6, %r11;\nmul.wide.u32 %rd8, %r35, 4;\nadd.u64 %rd8, %rd8, %rd3;"
        read = ", ".join(f"%r{40 + i}" for i in range(_DRAWN))
        for column in range(0, self.timed.n, _DRAWN):
            yield f"tcgen05.ld.sync.aligned.32x32b.x{_DRAWN}.b32 {{{read}}}, [%r34+{column}];"
            yield "tcgen05.wait::ld.sync.aligned;"
            for i in range(0, _DRAWN, 4):
                words = ", ".join(f"%r{40 + i + j}" for j in range(4))
                yield f"st.global.v4.b32 [%rd8+{4 * (column + i)}], {{{words}}};"

    def close(self) -> Iterator[str]:
        yield "membar.gl;\nmov.u64 %rd13, %clock64;\n@%p1 bra $OUT;"
        yield f"mov.u32 %r36, %nctaid.x;\nmad.lo.u32 %r36, %r8, %r36, %r7;\nsetp.ge.u32 %p11, %r36, {STAMPED};"
        yield f"@%p11 bra $OUT;\nmul.wide.u32 %rd9, %r36, {8 * len(STAMPS)};\nadd.u64 %rd9, %rd9, %rd4;"
        for i in range(len(STAMPS)):
            yield f"st.global.u64 [%rd9+{8 * i}], %rd{10 + i};"
        yield "$OUT:\nbar.warp.sync 0xffffffff;\ntcgen05.fence::before_thread_sync;"
        yield self.sync()
        yield "tcgen05.fence::after_thread_sync;\nsetp.ne.u32 %p12, %r2, 0;\n@%p12 bra $END;"
        yield f"tcgen05.dealloc.{self.group}.sync.aligned.b32 %r4, {self.timed.columns};\n$END:\nret;\n}}"
