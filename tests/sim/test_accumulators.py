# SPDX-License-Identifier: Apache-2.0
"""wgmma of many warpgroups at once, and accumulators that stay out of the registers between wgmmas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from core_ptx import download, module_text, run
from opcodes import given
from test_datapath_wgmma import place, random_tile

from porter.ptx.operand_errors import OperandError
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.types import ElementType as T
from porter.ptx.wgmma import WgmmaOp
from porter.sim import GlobalMemory, Options
from porter.sim.accumulators import span
from porter.sim.datapath.mma_arith import canonical
from porter.sim.datapath.wgmma import WgmmaForm, multiply, put_registers, take_registers, wgmma

FORMS = [
    ("m64n32k16", "f32.f16.f16", False, False),
    ("m64n8k16", "f32.bf16.bf16", False, True),
    ("m64n64k16", "f32.bf16.bf16", True, False),
    ("m64n24k16", "f16.f16.f16", False, False),
    ("m64n16k8", "f32.tf32.tf32", False, False),
    ("m64n40k32", "f32.e4m3.e5m2", False, False),
    ("m64n16k32", "f16.e5m2.e4m3", False, False),
    ("m64n32k32", "s32.s8.u8", False, False),
]


def parse(shape: str, types: str) -> WgmmaOp:
    return WgmmaOp.of(given(f"wgmma.mma_async.sync.aligned.{shape}.{types}"))


def accumulators(rng: np.random.Generator, d_type: T, shape: tuple[int, ...]) -> np.ndarray:
    if d_type is T.F16:
        return rng.normal(size=(*shape, 2)).astype(np.float16).view(np.uint32)[..., 0]
    if d_type is T.S32:
        return rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    return rng.normal(size=shape).astype(np.float32).view(np.uint32)


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize("mode", ["float64", "exact"])
@pytest.mark.parametrize(("shape", "types", "trans_a", "trans_b"), FORMS)
def test_many_as_one_by_one(shape: str, types: str, trans_a: bool, trans_b: bool, mode: str, registers: bool) -> None:
    """Three warpgroups in two blocks, two steps, the second one negated or not."""
    rng = np.random.default_rng(7)
    op = parse(shape, types)
    trans_a = trans_a and not registers
    smem = rng.integers(0, 256, (2, 32768), dtype=np.uint8)
    descs = []
    for step in range(2):
        for cta in range(2):
            a = place(smem[cta], 4096 * step, random_tile(rng, (64, op.k), op.a_type), SwizzleMode.NONE, trans_a)
            b = place(
                smem[cta], 16384 + 8192 * step, random_tile(rng, (op.n, op.k), op.b_type), SwizzleMode.NONE, trans_b
            )
        descs.append((a.encode("sm_90"), b.encode("sm_90")))
    ctas = [0, 1, 1]
    start = accumulators(rng, op.d_type, (3, 128, op.d_registers))
    fragments = rng.integers(0, 0x3C00, (2, 3, 128, 8), dtype=np.uint16).view(np.uint32)
    want = start.copy()
    bank = np.ascontiguousarray(start.reshape(12, 32, -1).transpose(2, 0, 1))
    words = take_registers(bank, op.n, op.d_type)
    np.testing.assert_array_equal(put_registers(words, op.d_type), bank)
    for step, (a_desc, b_desc) in enumerate(descs):
        negate = step == 1 and op.d_type is not T.S32
        a_regs = fragments[step] if registers else None
        for i, cta in enumerate(ctas):
            want[i] = wgmma(
                op, smem[cta], a_desc=None if registers else a_desc, a_regs=a_regs[i] if registers else None,
                b_desc=b_desc, d=want[i], scale_d=step == 0, negate_a=negate, trans_a=trans_a, trans_b=trans_b,
                mode=mode,
            )  # fmt: skip
        form = WgmmaForm(op, negate, trans_a, trans_b, mode, "sm_90")
        multiply(form, smem, ctas, a_regs if registers else a_desc, b_desc, words, step == 0, {})
    got = put_registers(canonical(words, op.d_type), op.d_type)
    np.testing.assert_array_equal(got, want.reshape(12, 32, -1).transpose(2, 0, 1))
    assert len(np.unique(got)) > 8


def test_shared_operands_are_read_once_and_only_while_they_last() -> None:
    rng = np.random.default_rng(0)
    op = parse("m64n8k16", "f32.f16.f16")
    smem = np.zeros((1, 8192), np.uint8)
    tile = random_tile(rng, (64, 16), T.F16)
    a = place(smem[0], 0, tile, SwizzleMode.NONE, False).encode("sm_90")
    words = np.zeros((1, 64, 8), np.uint32)
    form = WgmmaForm(op, False, False, False, "float64", "sm_90")
    seen: dict[object, np.ndarray] = {}
    b = place(smem[0], 4096, random_tile(rng, (8, 16), T.F16) + np.float16(1), SwizzleMode.NONE, False).encode("sm_90")
    multiply(form, smem, [0], a, b, words, False, seen)
    first = words.copy()
    assert first.any()
    smem[0, 4096:] = 0
    multiply(form, smem, [0], a, b, words, False, seen)
    np.testing.assert_array_equal(words, first)
    multiply(form, smem, [0], a, b, words, False, {})
    assert not words.any()


def test_bad_descriptors_leave_the_accumulators_alone() -> None:
    op = parse("m64n8k16", "f32.f16.f16")
    smem = np.zeros((2, 4096), np.uint8)
    words = np.full((2, 64, 8), 7, np.uint32)
    bad = SmemDescriptor(4096, 128, 128, SwizzleMode.NONE).encode("sm_90")
    form = WgmmaForm(op, False, False, False, "float64", "sm_90")
    with pytest.raises(OperandError, match="of 4096 bytes"):
        multiply(form, smem, [0, 1], 0, bad, words, True, {})
    fp8 = parse("m64n8k32", "f32.e4m3.e4m3")
    with pytest.raises(OperandError, match="K-major only"):
        multiply(replace(form, op=fp8, trans_b=True), smem, [0, 1], 0, 0, words, True, {})
    assert (words == 7).all()


def test_nan_results_are_canonical() -> None:
    words = np.array([[[0x7FC00001, 0xFF800001, 0x7F800000, 0x3F800000]]], np.uint32)
    assert canonical(words, T.F32).tolist() == [[[0x7FFFFFFF, 0x7FFFFFFF, 0x7F800000, 0x3F800000]]]
    assert canonical(words, T.S32) is words


def test_span() -> None:
    assert span([4]) == slice(4, 5)
    assert span([3, 5, 7]) == slice(3, 8, 2)
    assert span([3, 5, 8]) == [3, 5, 8]
    assert span([5, 3]) == [5, 3]


# Two warpgroups a block. A [64, 16] and B [8, 16] are ones, so that each wgmma adds 16 to every element.
KERNEL = """.reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %d<16>;
mov.u32 %r0, %tid.x; mov.u32 %r2, dyn; mad.lo.u32 %r3, %r0, 16, %r2;
mov.b32 %r4, 0x3C003C00; st.shared.v4.u32 [%r3], {{%r4, %r4, %r4, %r4}};
fence.proxy.async; bar.sync 0;
shr.u32 %r3, %r2, 4; cvt.u64.u32 %d7, %r3; or.b64 %d7, %d7, {desc};
mov.b32 %r40, 0f3F800000; mov.b32 %r41, %r40; mov.b32 %r42, %r40; mov.b32 %r43, %r40;
mov.b32 %r44, 0f40000000; mov.b32 %r45, %r44; setp.ne.u32 %p3, 1, 0; setp.ne.u32 %p4, 1, 1;
shr.u32 %r10, %r0, 7; setp.eq.u32 %p1, %r10, 1; and.b32 %r11, %r0, 1; setp.eq.u32 %p2, %r11, 1;
{body}
ld.param.u64 %d1, [out]; mov.u32 %r5, %ctaid.x; mad.lo.u32 %r5, %r5, 256, %r0; mul.wide.u32 %d2, %r5, 16;
add.u64 %d4, %d1, %d2; st.global.v4.u32 [%d4], {{%r40, %r41, %r42, %r43}}; ret;"""
ADD = """wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{{d}}}, %d7, %d7, {scale}, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;"""
WAIT = "wgmma.wait_group.sync.aligned 0;"
D = "%r40, %r41, %r42, %r43"


def results(body: str, options: Options) -> np.ndarray:
    """The last D registers [blocks, 256 threads, 4] of two blocks."""
    memory = GlobalMemory()
    out = memory.alloc(2 * 256 * 16)
    text = module_text(["out"], KERNEL.format(body=body, desc=128 >> 4 << 16 | 128 >> 4 << 32),
                       extra=".extern .shared .align 1024 .b8 dyn[];")  # fmt: skip
    outcome = run(text, [out], memory, grid=2, block=256, smem=4096, options=options)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return download(memory, out, 2 * 256 * 4, np.float32).reshape(2, 256, 4)


ALL = [
    Options(schedule=schedule, mode=mode, arithmetic=arithmetic, seed=3)
    for schedule, mode, arithmetic in (
        ("eager", "functional", "float64"), ("late", "functional", "float64"), ("random", "functional", "exact"),
        ("late", "checking", "exact"), ("random", "checking", "float64"),
    )
]  # fmt: skip


@pytest.mark.parametrize("options", ALL, ids=lambda o: f"{o.schedule}-{o.mode}-{o.arithmetic}")
class TestKernels:
    def add(self, d: str = D, scale: str = "%p3") -> str:
        return ADD.format(d=d, scale=scale)

    def test_a_chain_over_waits(self, options: Options) -> None:
        body = (self.add() + self.add() + WAIT) * 3
        np.testing.assert_array_equal(results(body, options), 97)

    def test_the_old_value_is_ignored_without_scale_d(self, options: Options) -> None:
        body = self.add() + WAIT + self.add(scale="%p4") + self.add() + WAIT
        np.testing.assert_array_equal(results(body, options), 32)

    def test_registers_changed_between(self, options: Options) -> None:
        """By all threads, by one warpgroup, by odd threads: what threads write is what the next wgmma adds to."""
        body = self.add() + WAIT + "add.f32 %r40, %r40, 0f3F800000;" + "@%p1 mov.b32 %r41, 0f00000000;"
        body += "@!%p2 bra SKIP; mov.b32 %r42, 0f41200000; SKIP: bar.warp.sync -1;" + self.add() + WAIT
        got = results(body, options)
        np.testing.assert_array_equal(got[..., 0], 34)
        np.testing.assert_array_equal(got[:, :128, 1], 33)
        np.testing.assert_array_equal(got[:, 128:, 1], 16)
        np.testing.assert_array_equal(got[:, ::2, 2], 33)
        np.testing.assert_array_equal(got[:, 1::2, 2], 26)
        np.testing.assert_array_equal(got[..., 3], 33)

    def test_read_after_each_wait(self, options: Options) -> None:
        body = (self.add() + WAIT + "add.f32 %r40, %r40, 0f3F800000;") * 3
        np.testing.assert_array_equal(results(body, options), np.full((2, 256, 4), (52, 49, 49, 49)))

    def test_an_instruction_in_flight_more_than_once(self, options: Options) -> None:
        body = "mov.u32 %r12, 0; LOOP:" + self.add() + "add.u32 %r12, %r12, 1; setp.lt.u32 %p5, %r12, 3;"
        np.testing.assert_array_equal(results(body + "@%p5 bra LOOP;" + WAIT, options), 49)

    def test_copies_in_flight_into_another_accumulator(self, options: Options) -> None:
        """Two of three wgmmas have copies to land before the registers are used anew."""
        body = self.add() + self.add() + "mov.b32 %r44, %r40;" + self.add() + "mov.b32 %r45, %r41;"
        body += self.add("%r44, %r45, %r46, %r47") + WAIT + "mov.b32 %r40, %r44; mov.b32 %r41, %r45;"
        np.testing.assert_array_equal(results(body, options), np.full((2, 256, 4), (49, 65, 49, 49)))

    def test_one_warpgroup_alone(self, options: Options) -> None:
        """The other one's accumulator stays out of the registers meanwhile."""
        body = self.add() + WAIT + "@!%p1 bra SKIP; add.f32 %r40, %r40, 0f3F800000;"
        body += self.add() + WAIT + "SKIP: bar.sync 0;" + self.add() + WAIT
        got = results(body, options)
        np.testing.assert_array_equal(got[:, :128], 33)
        np.testing.assert_array_equal(got[:, 128:, 0], 50)
        np.testing.assert_array_equal(got[:, 128:, 1:], 49)

    def test_accumulators_that_share_registers(self, options: Options) -> None:
        other = "%r44, %r45, %r40, %r41"
        body = self.add() + WAIT + self.add(other) + WAIT + self.add() + WAIT
        np.testing.assert_array_equal(results(body, options), np.full((2, 256, 4), (49, 49, 33, 33)))

    def test_both_in_flight(self, options: Options) -> None:
        other = "%r44, %r45, %r40, %r41"
        body = self.add() + self.add(other) + self.add() + WAIT
        np.testing.assert_array_equal(results(body, options), np.full((2, 256, 4), (49, 49, 33, 33)))

    def test_unwaited_results_are_poison_in_late_schedules_only(self, options: Options) -> None:
        body = self.add() + WAIT + self.add()
        got = results(body, options)
        if options.schedule == "late":
            assert np.isnan(got).all()
        if options.schedule == "eager":
            np.testing.assert_array_equal(got, 33)
