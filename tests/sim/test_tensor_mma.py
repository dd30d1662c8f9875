# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma of many blocks at once, and when operations may share their work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core_ptx import download, module_text, run
from test_datapath_wgmma import place
from umma_calls import empty_tmem, umma
from wgmma_as_umma import sm90_to_sm100

from porter.ptx import tmem
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.mma_cells import MmaArguments
from porter.ptx.operand_errors import OperandError
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind
from porter.sim import GlobalMemory, Options, tensor_mma
from porter.sim.datapath import tcgen05
from porter.sim.datapath.tcgen05_batch import can_batch, mma_many
from porter.sim.engine import Engine
from porter.sim.operation import Operation

DTYPES = {T.F16: np.float16, T.TF32: np.float32}
PLAIN = [
    ("cta_group::1.kind::f16", 64, 96, T.F16, False, False),
    ("cta_group::1.kind::f16", 128, 16, T.F16, True, False),
    ("cta_group::1.kind::f16", 128, 64, T.F16, False, True),
    ("cta_group::1.kind::tf32", 64, 24, T.TF32, False, False),
]


def arguments(d_addr: int, a_desc: int, b_desc: int, enable_d: bool) -> MmaArguments:
    return MmaArguments(d_addr=d_addr, a_desc=a_desc, a_tmem=None, b_desc=b_desc, enable_d=enable_d)


@pytest.mark.parametrize("mode", ["float64", "exact"])
@pytest.mark.parametrize(("opcode", "m", "n", "element", "a_mn", "b_mn"), PLAIN)
def test_many_as_one_by_one(opcode: str, m: int, n: int, element: T, a_mn: bool, b_mn: bool, mode: Any) -> None:
    """Two accumulations of three blocks out of four, the second with A negated."""
    op = umma(opcode)
    rng = np.random.default_rng(3)
    smem = rng.integers(0, 256, (4, 1 << 16), dtype=np.uint8)
    for cta in range(4):
        tiles = [rng.normal(size=(rows, op.k)).astype(DTYPES[element]) for rows in (m, n)]
        a = place(smem[cta], 1024, tiles[0], SwizzleMode.NONE, a_mn)
        b = place(smem[cta], 32768, tiles[1], SwizzleMode.NONE, b_mn)
    ctas = [3, 0, 1]
    memory = [empty_tmem() for _ in ctas]
    want = [part.copy() for part in memory]
    args = arguments(tmem.address(0, 32), *(sm90_to_sm100(x.encode("sm_90")) for x in (a, b)), enable_d=False)
    seen: dict[Any, Any] = {}
    for step in range(2):
        args = replace(args, enable_d=step == 1)
        idesc = InstructionDescriptor(
            op.kind, m, n, T.F32, element, element, negate_a=step == 1, a_mn_major=a_mn, b_mn_major=b_mn
        ).encode()
        assert can_batch(op, idesc, args)
        mma_many(op, idesc, args, smem, ctas, memory, mode, seen)
        for cta, part in zip(ctas, want, strict=True):
            tcgen05.mma(op, idesc, args, smem=[smem[cta]], tmem=[part], mode=mode)
        np.testing.assert_array_equal(memory, want)
    assert not np.array_equal(want[0], want[1])
    other = [empty_tmem()]
    mma_many(op, idesc, replace(args, enable_d=False), smem, [2], other, mode, seen)
    part = empty_tmem()
    tcgen05.mma(op, idesc, replace(args, enable_d=False), smem=[smem[2]], tmem=[part], mode=mode)
    np.testing.assert_array_equal(other[0], part)


def test_nan_results_are_canonical_and_errors_change_nothing() -> None:
    op = umma("cta_group::1.kind::f16")
    idesc = InstructionDescriptor(Kind.F16, 64, 8, T.F32, T.F16, T.F16).encode()
    smem = np.full((1, 1 << 14), 0xFF, np.uint8)
    desc = sm90_to_sm100(SmemDescriptor(0, 128, 128, SwizzleMode.NONE).encode("sm_90"))
    memory = [empty_tmem()]
    before = memory[0].copy()
    bad = sm90_to_sm100(SmemDescriptor((1 << 14) - 128, 128, 128, SwizzleMode.NONE).encode("sm_90"))
    with pytest.raises(OperandError):
        mma_many(op, idesc, arguments(0, bad, desc, False), smem, [0], memory, "float64", {})
    np.testing.assert_array_equal(memory[0], before)
    mma_many(op, idesc, arguments(0, desc, desc, False), smem, [0], memory, "float64", {})
    assert (memory[0][:16, :8] == 0x7FFFFFFF).all()


@pytest.mark.parametrize(
    "change",
    [{"a_tmem": 0, "a_desc": None}, {"scale_d": 1}, {"disable_lanes": 1}, {"metadata": 0}, {"zero_columns": 0}],
)
def test_other_forms_are_left_alone(change: dict[str, int]) -> None:
    op = umma("cta_group::1.kind::f16")
    idesc = InstructionDescriptor(Kind.F16, 64, 8, T.F32, T.F16, T.F16).encode()
    args = arguments(0, 0, 0, True)
    assert can_batch(op, idesc, args)
    assert not can_batch(op, idesc, replace(args, **change))
    wide = InstructionDescriptor(Kind.F16, 64, 64, T.F32, T.F16, T.F16).encode()
    assert can_batch(op, wide, args)
    assert not can_batch(umma("ws.cta_group::1.kind::f16"), wide, args)
    half = InstructionDescriptor(Kind.F16, 64, 8, T.F16, T.F16, T.F16).encode()
    assert not can_batch(op, half, args)
    assert not can_batch(op, 0xFFFFFFFF, args)


# Which operations share their work ------------------------------------------------------------------------


class Machine:
    late = True
    activity = 0
    observer = None


class Shared(Operation):
    __slots__ = ()
    calls: list[list[int]] = []  # noqa: RUF012  (emptied by each test)
    prepare = staticmethod(lambda ops: Shared.calls.append([op.number for op in ops]))


class Silent(Operation):
    __slots__ = ()
    silent = True


def engine_of(*kinds: tuple[type[Operation], tuple[int, ...]]) -> tuple[Engine, list[Operation], list[int]]:
    """An engine with operations in flight, each after those with the given places, and the order of landing."""
    engine = Engine(Machine())  # type: ignore[arg-type]
    Shared.calls = []
    landed: list[int] = []
    ops: list[Operation] = []
    for i, (kind, after) in enumerate(kinds):
        op = kind(0, 0, lambda i=i: landed.append(i), [ops[j] for j in after])  # type: ignore[misc]
        ops.append(engine.issue(op))
    return engine, ops, landed


def test_what_comes_before_is_shared_too_in_issue_order() -> None:
    engine, ops, landed = engine_of((Shared, ()), (Shared, (0,)), (Silent, (1,)), (Shared, ()), (Silent, (3,)))
    engine.land_all([ops[4], ops[2]])
    assert Shared.calls == [[1, 2, 4]]
    assert landed == [3, 4, 0, 1, 2]


@pytest.mark.parametrize("kinds", [
    [(Shared, ()), (Operation, (0,)), (Shared, (1,))],
    [(Operation, ()), (Shared, (0,)), (Shared, ())],
    [(Shared, ()), (Silent, (0,))],
    [(Operation, ()), (Operation, ())],
])  # fmt: skip
def test_nothing_is_shared_across_other_accesses_to_memory(kinds: list[Any]) -> None:
    engine, ops, landed = engine_of(*kinds)
    engine.land_all(ops)
    assert Shared.calls == []
    assert landed == list(range(len(kinds)))


# A whole kernel: each block multiplies A and B of ones, scaled by its number, twice into each of two tiles.
KERNEL = """.reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %d<16>;
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 base[4];
mov.u32 %r0, %tid.x; mov.u32 %r2, dyn; mov.u32 %r9, bar; mov.u32 %r12, base; mov.u32 %r1, %ctaid.x;
setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p2, %r0, 32; setp.ne.u32 %p3, 1, 0; setp.ne.u32 %p4, 1, 1;
cvt.rn.f16.u32 %h0, %r1; mov.b32 %r4, {{%h0, %h0}}; mad.lo.u32 %r3, %r0, 16, %r2;
st.shared.v4.u32 [%r3], {{%r4, %r4, %r4, %r4}}; mov.b32 %r5, 0x3C003C00;
st.shared.v4.u32 [%r3+2048], {{%r5, %r5, %r5, %r5}};
@%p1 mbarrier.init.shared.b64 [%r9], 1;
@!%p2 bra READY; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r12], 32;
READY: fence.proxy.async; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
ld.shared.u32 %r13, [%r12]; shr.u32 %r3, %r2, 4; cvt.u64.u32 %d7, %r3; or.b64 %d7, %d7, {desc}; add.u64 %d8, %d7, 128;
add.u32 %r14, %r13, 8; mov.u32 %r15, {idesc};
@!%p1 bra WAIT;
tcgen05.mma.cta_group::1.kind::f16 [%r13], %d7, %d8, %r15, %p4;
tcgen05.mma.cta_group::1.kind::f16 [%r14], %d7, %d8, %r15, %p4;
tcgen05.mma.cta_group::1.kind::f16 [%r13], %d7, %d8, %r15, %p3;
tcgen05.mma.cta_group::1.kind::f16 [%r14], %d8, %d8, %r15, %p3;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r9];
WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [%r9], 0; @!%p5 bra WAIT; tcgen05.fence::after_thread_sync;
shr.u32 %r16, %r0, 5; shl.b32 %r16, %r16, 21; add.u32 %r17, %r13, %r16; add.u32 %r18, %r14, %r16;
tcgen05.ld.sync.aligned.16x64b.x1.b32 {{%r20}}, [%r17]; tcgen05.ld.sync.aligned.16x64b.x1.b32 {{%r21}}, [%r18];
tcgen05.wait::ld.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0;
tcgen05.fence::after_thread_sync; ld.param.u64 %d1, [out];
mad.lo.u32 %r22, %r1, 128, %r0; mul.wide.u32 %d2, %r22, 8; add.u64 %d4, %d1, %d2;
st.global.v2.u32 [%d4], {{%r20, %r21}};
@!%p2 bra END; tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r13, 32; END: ret;"""


@pytest.mark.parametrize("mode", ["functional", "checking"])
@pytest.mark.parametrize("arithmetic", ["float64", "exact"])
@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
def test_blocks_of_a_kernel(schedule: Any, arithmetic: Any, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[int] = []
    inner = tensor_mma.mma_many

    def many(*args: Any) -> None:
        shared.append(len(args[4]))
        inner(*args)

    alone: list[Any] = []
    single = tcgen05.mma
    monkeypatch.setattr(tensor_mma, "mma_many", many)
    monkeypatch.setattr(tcgen05, "mma", lambda *args, **more: alone.append(args) or single(*args, **more))
    idesc = InstructionDescriptor(Kind.F16, 64, 8, T.F32, T.F16, T.F16).encode()
    desc = sm90_to_sm100(128 >> 4 << 16 | 128 >> 4 << 32)
    memory = GlobalMemory()
    out = memory.alloc(5 * 128 * 8)
    body = ".reg .b16 %h<2>;" + KERNEL.format(desc=desc, idesc=idesc)
    text = module_text(["out"], body, "sm_100a", extra=".extern .shared .align 1024 .b8 dyn[];")
    options = Options(schedule=schedule, arithmetic=arithmetic, mode=mode, seed=4)
    outcome = run(text, [out], memory, grid=5, block=128, smem=8192, options=options)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert not outcome.hazards
    got = download(memory, out, 5 * 128 * 2, np.float32).reshape(5, 128, 2)
    for block in range(5):
        np.testing.assert_array_equal(got[block, :, 0], 32 * block)
        np.testing.assert_array_equal(got[block, :, 1], 16 * block + 16)
    if schedule == "late":
        assert shared == [5] * 4
        assert not alone
    else:
        assert sum(shared) + len(alone) == 20
