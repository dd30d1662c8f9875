# SPDX-License-Identifier: Apache-2.0
"""Questions that the PTX ISA leaves open, asked of a GPU by kernels in PTX. What they answer is written down as it is;
where one answer alone would be right, it is expected."""

from __future__ import annotations

from collections.abc import Iterator

from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import PERIOD, SwizzleMode
from porter.ptx.tmem import LANES
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH
from porter.verify.kit.bare import BareRun, Filled
from porter.verify.kit.plan import PROBE

ENTRY = "asked"
_THREADS = LANES
"""One for each lane of Tensor Memory, a warpgroup."""
_ROUNDS = 64
_TILE = 8192
"""Bytes of shared memory of each operand."""
_FAR = 16384
"""A leading-dimension offset that leads to other bytes than the operands'."""
_UNTOUCHED = 0x7FC0ABCD
_ONE_ONE, _THREE_THREE = 0x3F803F80, 0x40404040
_SIXTEEN = 0x41800000
_REGISTERS = ".reg .pred %p<8>;\n.reg .b32 %r<96>;\n.reg .b64 %rd<16>;\n.reg .f32 %f<8>;\n.reg .f32 %g<32>;"
_PLAIN = SmemDescriptor(0, 128, 256, SwizzleMode.NONE).encode("sm_100")
"""K-major without swizzle: core matrices of 128 bytes, the next along K behind it, the next along M or N 256 on."""


def question_runs() -> list[BareRun]:
    """All of them."""
    return [*_of_blackwell(), *_of_hopper()]


def _of_blackwell() -> Iterator[BareRun]:
    yield _run("lane_bits", _text(_lane_bits()), _THREADS,
               "Q3: what each thread reads that loads from lane 0 of Tensor Memory, where warp w stored thread numbers "
               "from lane 32 w on. Its own number: bits 5 and 6 of the lane are ignored.")  # fmt: skip
    yield _run("ws_lanes", _text(_ws_lanes()), 2 * _THREADS,
               "Q4: where tcgen05.mma.ws with M = N = 64 puts D: words 2 n and 2 n + 1 are what lane n holds in "
               "columns 0 and 32, row + 256 x column of D as a float; 7fc0abcd was not written.")  # fmt: skip
    yield _run("mma_then_copy", _text(_mma_then_copy()), _THREADS,
               f"Q5: in how many of {_ROUNDS} rounds a tcgen05.cp that follows eight MMAs of the same thread into the "
               "same columns was not the last to write them, by lane.")  # fmt: skip
    yield _run("load_without_fence", _text(_load_without_fence()), _THREADS,
               f"Q5: in how many of {_ROUNDS} rounds a tcgen05.ld behind an mbarrier's wait, without "
               "tcgen05.fence::after_thread_sync, read what was there before the MMA, by lane.")  # fmt: skip
    yield _run("load_without_wait", _text(_load_without_wait()), _THREADS,
               f"Q8: in how many of {_ROUNDS} rounds a register held something else than its column when it was used "
               "without tcgen05.wait::ld, by lane.")  # fmt: skip
    yield _run("pair_columns", _text(_pair_columns(), pair=True), 4,
               "Q9: addresses of two allocations with cta_group::2, of block 0 and of block 1 of a pair. Equal: the "
               "columns are the same in both.", pair=True)  # fmt: skip


def _of_hopper() -> Iterator[BareRun]:
    for name, major in (("lbo_k_major", 0), ("lbo_mn_major", 1)):
        text = _text(_far_lbo(major), arch="sm_90a", version="8.0")
        tensors = {"out": Filled(4 * _THREADS, _UNTOUCHED, "out", _SIXTEEN)}
        asked = (
            f"Q7: wgmma ignores the leading-dimension offset of operands in the 128-byte swizzle, M = N = 64, {name}."
        )
        yield BareRun(f"probes:{name}", "M=64", PROBE, text, ENTRY, ORIGINAL_ARCH, (1, 1, 1), _THREADS, tensors,
                      ("out",), question=asked)  # fmt: skip


def _run(name: str, text: str, words: int, question: str, pair: bool = False) -> BareRun:
    tensors = {"out": Filled(4 * words, _UNTOUCHED, "answer")}
    ctas = 2 if pair else 1
    return BareRun(f"probes:{name}", "M=128", PROBE, text, ENTRY, PORT_ARCH, (ctas, 1, 1), _THREADS, tensors, ("out",),
                   cluster=ctas, question=question)  # fmt: skip


def _text(body: str, pair: bool = False, arch: str = "sm_100a", version: str = "8.7") -> str:
    cluster = "\n.explicitcluster\n.reqnctapercluster 2, 1, 1" if pair else ""
    return f""".version {version}
.target {arch}
.address_size 64
.visible .entry {ENTRY}(.param .u64 out)
.reqntid {_THREADS}{cluster}
{{
{_REGISTERS}
.shared .align {PERIOD} .b8 tiles[{5 * _TILE}];
.shared .align 8 .b64 done;
.shared .align 4 .b32 base, other;
ld.param.u64 %rd1, [out];
cvta.to.global.u64 %rd1, %rd1;
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd2, %rd2, %rd1;
mov.u32 %r3, tiles;
setp.ne.u32 %p1, %r1, 0;
setp.ne.u32 %p2, %r2, 0;
{body}
ret;
}}
"""


def _in_memory(columns: int, body: str) -> str:
    """`body` between allocation and release of columns: their address is %r4, of this warp's lanes %r5."""
    return f"""@%p2 bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], {columns};
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
{_handed_on()}
ld.shared.b32 %r4, [base];
shl.b32 %r5, %r2, 21;
add.u32 %r5, %r5, %r4;
{body}
{_handed_on()}
@%p2 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, {columns};
END:"""


def _handed_on() -> str:
    """From all threads to all: what is in shared memory and in Tensor Memory."""
    return ("fence.proxy.async.shared::cta;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
            "tcgen05.fence::after_thread_sync;")  # fmt: skip


def _stored(register: str, column: int = 0) -> str:
    return (f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5+{column}], {{{register}}};\n"
            "tcgen05.wait::st.sync.aligned;")  # fmt: skip


def _loaded(register: str, at: str, wait: bool = True) -> str:
    text = f"tcgen05.ld.sync.aligned.32x32b.x1.b32 {{{register}}}, [{at}];"
    return f"{text}\ntcgen05.wait::ld.sync.aligned;" if wait else text


def _filled(word: int, first: int, nbytes: int) -> str:
    """Every thread its part of some bytes of shared memory."""
    label = f"FILL_{first}"
    return f"""mov.u32 %r10, {word};
shl.b32 %r11, %r1, 2;
{label}:
add.u32 %r12, %r11, %r3;
st.shared.b32 [%r12+{first}], %r10;
add.u32 %r11, %r11, {4 * _THREADS};
setp.lt.u32 %p3, %r11, {nbytes};
@%p3 bra {label};"""


def _descriptors(word: int) -> str:
    """Of both operands, in %rd4 and %rd5."""
    return f"""shr.u32 %r13, %r3, 4;
cvt.u64.u32 %rd4, %r13;
or.b64 %rd4, %rd4, {word};
add.u64 %rd5, %rd4, {_TILE // 16};"""


def _barrier() -> str:
    return "@!%p1 mbarrier.init.shared::cta.b64 [done], 1;\n@!%p1 fence.mbarrier_init.release.cluster;"


def _wait(parity: str) -> str:
    return ("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [done], " + parity
            + ";\n@p bra DONE;\nbra WAIT;\nDONE:\n}")  # fmt: skip


_COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];"


def _idesc(m: int, n: int) -> int:
    return InstructionDescriptor(Kind.F16, m, n, ElementType.F32, ElementType.BF16, ElementType.BF16).encode()


def _lane_bits() -> str:
    return _in_memory(32, f"{_stored('%r1')}\n{_handed_on()}\n{_loaded('%r20', '%r4')}\nst.global.b32 [%rd2], %r20;")


def _ws_lanes() -> str:
    """Elements 0 and 1 of K say all: A has (row, 1), B (1, 256 x column)."""
    element = """cvt.rn.f32.u32 %f1, %r1;
mov.f32 %f2, 0f3F800000;
mul.f32 %f3, %f1, 0f43800000;
cvt.rn.bf16x2.f32 %r14, %f2, %f1;
cvt.rn.bf16x2.f32 %r15, %f3, %f2;
shr.u32 %r16, %r1, 3;
shl.b32 %r16, %r16, 8;
and.b32 %r17, %r1, 7;
shl.b32 %r17, %r17, 4;
add.u32 %r16, %r16, %r17;
add.u32 %r16, %r16, %r3;
setp.ge.u32 %p4, %r1, 64;
@%p4 bra WRITTEN;"""
    mma = f"""@%p1 bra ISSUED;
mov.u32 %r18, {_idesc(64, 64)};
setp.ne.u32 %p5, %r1, %r1;
tcgen05.mma.ws.cta_group::1.kind::f16 [%r4], %rd4, %rd5, %r18, %p5;
{_COMMIT}
ISSUED:
bar.warp.sync 0xffffffff;"""
    body = "\n".join([
        f"mov.u32 %r19, {_UNTOUCHED};", *(_stored("%r19", c) for c in range(64)),
        _filled(0, 0, 2 * _TILE), "bar.sync 0;",
        element, "st.shared.b32 [%r16], %r14;", f"st.shared.b32 [%r16+{_TILE}], %r15;", "WRITTEN:", _barrier(),
        _handed_on(), _descriptors(_PLAIN), mma, _wait("0"), "tcgen05.fence::after_thread_sync;",
        _loaded("%r20", "%r5"), _loaded("%r21", "%r5+32"), "mul.wide.u32 %rd6, %r1, 8;\nadd.u64 %rd6, %rd6, %rd1;",
        "st.global.v2.b32 [%rd6], {%r20, %r21};",
    ])  # fmt: skip
    return _in_memory(64, body)


def _rounds(before: str, issued: str, after: str) -> str:
    """Rounds with %r30 their number and %r31 the mbarrier's parity; %r32 counts what `after` finds wrong."""
    return f"""{_barrier()}
{_filled(_ONE_ONE, 0, 2 * _TILE)}
{_filled(_THREE_THREE, 2 * _TILE, _TILE)}
{_descriptors(_PLAIN)}
add.u64 %rd7, %rd5, {_TILE // 16};
mov.u32 %r18, {_idesc(LANES, 64)};
setp.ne.u32 %p5, %r1, %r1;
mov.u32 %r30, 0;
mov.u32 %r32, 0;
AGAIN:
and.b32 %r31, %r30, 1;
{before}
{_handed_on()}
@%p1 bra ISSUED;
{issued}
ISSUED:
bar.warp.sync 0xffffffff;
{after}
add.u32 %r30, %r30, 1;
setp.lt.u32 %p6, %r30, {_ROUNDS};
@%p6 bra AGAIN;
st.global.b32 [%rd2], %r32;"""


_MMA = "tcgen05.mma.cta_group::1.kind::f16 [%r4], %rd4, %rd5, %r18, %p5;\n"
_COUNTED = "setp.ne.b32 %p7, %r20, {};\n@%p7 add.u32 %r32, %r32, 1;"


def _mma_then_copy() -> str:
    issued = _MMA * 8 + "tcgen05.cp.cta_group::1.128x256b [%r4], %rd7;\n" + _COMMIT
    after = [_wait("%r31"), "tcgen05.fence::after_thread_sync;", _loaded("%r20", "%r5"), _COUNTED.format(_THREE_THREE)]
    return _in_memory(64, _rounds("", issued, "\n".join(after)))


def _load_without_fence() -> str:
    before = f"mov.u32 %r19, {_UNTOUCHED};\n{_stored('%r19')}"
    after = [_wait("%r31"), _loaded("%r20", "%r5"), _COUNTED.format(_SIXTEEN)]
    return _in_memory(64, _rounds(before, _MMA + _COMMIT, "\n".join(after)))


def _load_without_wait() -> str:
    before = f"add.u32 %r19, %r30, %r1;\n{_stored('%r19')}"
    after = [_loaded("%r20", "%r5", wait=False), _COUNTED.format("%r19"), "tcgen05.wait::ld.sync.aligned;"]
    return _in_memory(64, _rounds(before, "", "\n".join(after)))


def _pair_columns() -> str:
    meet = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"
    return f"""@%p2 bra ALLOCATED;
tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [other], 32;
tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [base], 64;
tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
ALLOCATED:
tcgen05.fence::before_thread_sync;
{meet}
tcgen05.fence::after_thread_sync;
ld.shared.b32 %r4, [base];
ld.shared.b32 %r6, [other];
mov.u32 %r7, %cluster_ctarank;
mul.wide.u32 %rd6, %r7, 8;
add.u64 %rd6, %rd6, %rd1;
@!%p1 st.global.v2.b32 [%rd6], {{%r6, %r4}};
tcgen05.fence::before_thread_sync;
{meet}
@%p2 bra END;
tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r6, 32;
tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r4, 64;
END:"""


def _far_lbo(major: int) -> str:
    """A product of ones whose leading-dimension offset leads to threes."""
    word = SmemDescriptor(0, _FAR, 8 * SwizzleMode.B128.span, SwizzleMode.B128).encode("sm_90")
    registers = ", ".join(f"%g{i}" for i in range(32))
    mma = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
    return f"""{_filled(_ONE_ONE, 0, 2 * _TILE)}
{_filled(_THREE_THREE, 2 * _TILE, 3 * _TILE)}
fence.proxy.async.shared::cta;
bar.sync 0;
{_descriptors(word)}
setp.ne.u32 %p5, %r1, %r1;
wgmma.fence.sync.aligned;
{mma} {{{registers}}}, %rd4, %rd5, %p5, 1, 1, {major}, {major};
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
st.global.f32 [%rd2], %g0;"""
