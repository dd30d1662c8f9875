# SPDX-License-Identifier: Apache-2.0
"""Asynchronous copies and wgmma: right with their waits under every schedule, visibly wrong without in `late`."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import module_text, run, upload

from porter.diagnostics import Code
from porter.ptx.tensormap import TensorMap, TensorMapSwizzle, TensorMapType
from porter.sim import GlobalMemory, Options, Outcome
from porter.sim.results import Schedule

REGS = ".reg .b32 %r<99>; .reg .b64 %d<20>; .reg .pred %p<10>; mov.u32 %r0, %tid.x; mov.u32 %r1, %warpid;"
POINTERS = "ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r0, 16;"
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "late", "random"])
POISON = 0xFFFFFFFF


def launch(body: str, source: np.ndarray, out_bytes: int, threads: int = 32, schedule: Schedule = "late",
           blocks: int = 1, cluster: int = 1, smem: int = 0) -> tuple[Outcome, np.ndarray]:  # fmt: skip
    memory = GlobalMemory()
    a, out = upload(memory, source), memory.alloc(out_bytes)
    extra = ".extern .shared .align 1024 .b8 dyn[];"
    outcome = run(module_text(["in", "out"], REGS + POINTERS + body, extra=extra), [a, out], memory, blocks, threads,
                  cluster, smem, Options(schedule=schedule, seed=7))  # fmt: skip
    return outcome, memory.read(out, out_bytes).view(np.uint32)


def words(*args: object, **more: object) -> np.ndarray:
    outcome, got = launch(*args, **more)  # type: ignore[arg-type]
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return got


DATA = np.arange(1, 4097, dtype=np.uint32)

CP_ASYNC = """.shared .align 16 .b8 tile[1024]; mov.u32 %r2, tile; mad.lo.u32 %r3, %r0, 16, %r2; add.u64 %d3, %d0, %d2;
cp.async.cg.shared.global [%r3], [%d3], 16; cp.async.commit_group;
cp.async.ca.shared.global [%r3+512], [%d3+512], 8, 4; cp.async.commit_group;
{wait}
ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3]; add.u64 %d4, %d1, %d2; st.global.v4.u32 [%d4], {{%r4, %r5, %r6, %r7}};
ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3+512]; st.global.v4.u32 [%d4+512], {{%r4, %r5, %r6, %r7}}; ret;"""


@SCHEDULES
def test_cp_async(schedule: Schedule) -> None:
    got = words(CP_ASYNC.format(wait="cp.async.wait_all;"), DATA, 1024, schedule=schedule)
    assert got[:128].tolist() == DATA[:128].tolist()
    second = got[128:].reshape(32, 4)
    assert second[:, 0].tolist() == DATA[128:256:4].tolist()
    assert set(second[:, 1].tolist()) == {0}  # beyond src-size: zeros
    assert set(second[:, 2].tolist()) == {POISON}


def test_cp_async_groups_complete_in_order() -> None:
    got = words(CP_ASYNC.format(wait="cp.async.wait_group 1;"), DATA, 1024)
    assert got[:128].tolist() == DATA[:128].tolist()
    assert set(got[128:].tolist()) == {POISON}
    got = words(CP_ASYNC.format(wait=""), DATA, 1024)
    assert set(got.tolist()) == {POISON}


CP_BARRIER = """.shared .align 16 .b8 tile[1024]; .shared .align 8 .b8 bar[8]; mov.u32 %r2, tile; mov.u32 %r8, bar;
setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r8], {count}; bar.sync 0;
mad.lo.u32 %r3, %r0, 16, %r2; add.u64 %d3, %d0, %d2; cp.async.cg.shared.global [%r3], [%d3], 16;
cp.async.mbarrier.arrive{noinc}.shared.b64 [%r8]; {arrive}
W: mbarrier.try_wait.parity.shared.b64 %p1, [%r8], 0; @!%p1 bra W;
xor.b32 %r4, %r0, 63; mad.lo.u32 %r3, %r4, 16, %r2; ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3];
add.u64 %d4, %d1, %d2; st.global.v4.u32 [%d4], {{%r4, %r5, %r6, %r7}}; ret;"""


@SCHEDULES
@pytest.mark.parametrize(("noinc", "count", "arrive"), [
    (".noinc", 64, ""), ("", 64, "mbarrier.arrive.shared.b64 _, [%r8];"),
])  # fmt: skip
def test_cp_async_arrives_on_an_mbarrier(schedule: Schedule, noinc: str, count: int, arrive: str) -> None:
    got = words(CP_BARRIER.format(noinc=noinc, count=count, arrive=arrive), DATA, 1024, 64, schedule=schedule)
    assert got.reshape(64, 4).tolist() == DATA[:256].reshape(64, 4)[np.arange(64) ^ 63].tolist()


BULK = """.shared .align 128 .b8 tile[512]; .shared .align 8 .b8 bar[8]; mov.u32 %r2, tile; mov.u32 %r8, bar;
setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r8], 1; bar.sync 0; @!%p0 bra W;
mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {bytes};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 512, [%r8];
W: {wait}
bar.sync 0; mad.lo.u32 %r3, %r0, 16, %r2; ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3]; add.u32 %r4, %r4, 5;
st.shared.u32 [%r3], %r4; fence.proxy.async.shared::cta; bar.sync 0; @!%p0 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 512; cp.async.bulk.commit_group;
cp.async.bulk.wait_group{read} 0; st.shared.u32 [%r2], 0;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1+512], [%r2+16], 16; cp.async.bulk.commit_group;
END: ret;"""
TRY = "mbarrier.try_wait.parity.shared.b64 %p1, [%r8], 0; @!%p1 bra W;"


@SCHEDULES
@pytest.mark.parametrize("read", ["", ".read"])
def test_bulk_copies(schedule: Schedule, read: str) -> None:
    got = words(BULK.format(bytes=512, wait=TRY, read=read), DATA, 528, schedule=schedule)
    want = DATA[:128].copy()
    want[::4] += 5
    assert got[:128].tolist() == want.tolist()
    assert got[128:].tolist() == [(int(w) + POISON) & POISON for w in want[4:8]]


def test_unwaited_bulk_copy_reads_poison() -> None:
    got = words(BULK.format(bytes=512, wait="", read=""), DATA, 528)
    assert got[4] == 4  # poison + 5
    assert got[5] == POISON


def test_wrong_transaction_count_is_a_deadlock_with_the_bytes() -> None:
    outcome, _ = launch(BULK.format(bytes=528, wait=TRY, read=""), DATA, 528)
    found = outcome.findings[0]
    assert found.code is Code.SIM_DEADLOCK
    assert "16 bytes pending" in found.message


MULTICAST = """.shared .align 128 .b8 tile[256]; .shared .align 8 .b8 bar[8]; mov.u32 %r2, tile; mov.u32 %r8, bar;
mov.u32 %r9, %cluster_ctarank; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r8], 1;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @!%p0 bra W;
mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256; .reg .b16 %h0; mov.u16 %h0, 3; mul.wide.u32 %d5, %r9, 128;
add.u64 %d6, %d0, %d5; mad.lo.u32 %r10, %r9, 128, %r2;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r10], [%d6], 128, [%r8], %h0;
W: mbarrier.try_wait.parity.shared.b64 %p1, [%r8], 0; @!%p1 bra W;
mad.lo.u32 %r3, %r0, 8, %r2; ld.shared.v2.u32 {%r4, %r5}, [%r3]; mov.u32 %r11, %ctaid.x; mad.lo.u32 %r12, %r11, 32, %r0;
mul.wide.u32 %d2, %r12, 8; add.u64 %d4, %d1, %d2; st.global.v2.u32 [%d4], {%r4, %r5};
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""


@SCHEDULES
def test_multicast_reaches_every_block_of_the_mask(schedule: Schedule) -> None:
    got = words(MULTICAST, DATA, 4 * 256, blocks=4, cluster=2, schedule=schedule)
    assert got.reshape(4, 64).tolist() == [DATA[:64].tolist()] * 4


TENSOR = """.reg .b64 %m; mov.b64 %m, map; cvta.param.u64 %m, %m; .shared .align 8 .b8 bar[8]; mov.u32 %r2, dyn;
mov.u32 %r8, bar; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r8], 1; bar.sync 0; @!%p0 bra W;
mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 2048; mov.u32 %r5, {x}; mov.u32 %r6, {y};
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%m, {{%r5, %r6}}], [%r8];
W: mbarrier.try_wait.parity.shared.b64 %p1, [%r8], 0; @!%p1 bra W;
mov.u32 %r10, 0;
COPY: mad.lo.u32 %r3, %r10, 512, %r2; mad.lo.u32 %r3, %r0, 16, %r3; ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3];
mul.wide.u32 %d5, %r10, 512; mul.wide.u32 %d2, %r0, 16; add.u64 %d4, %d1, %d2; add.u64 %d4, %d4, %d5;
st.global.v4.u32 [%d4], {{%r4, %r5, %r6, %r7}}; add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 4; @%p2 bra COPY;
bar.sync 0; fence.proxy.async; @!%p0 bra END; mov.u32 %r5, 8; mov.u32 %r6, 40;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {{%r5, %r6}}], [%r2];
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%m, {{%r5, %r6}}], [%r2];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END: ret;"""


@SCHEDULES
@pytest.mark.parametrize("swizzle", [TensorMapSwizzle.NONE, TensorMapSwizzle.B128])
def test_tensor_copies(schedule: Schedule, swizzle: TensorMapSwizzle) -> None:
    """A 16 x 64 tile of 16-bit numbers (one swizzle span wide), partly outside the tensor on load."""
    memory = GlobalMemory()
    data = np.random.default_rng(0).integers(-50, 50, (64, 128)).astype(np.float16)
    address = upload(memory, data)
    out = memory.alloc(2048)
    tensor = TensorMap(TensorMapType.FLOAT16, address, (128, 64), (256,), (64, 16), (1, 1), swizzle)
    text = module_text(["in", "out"], REGS + "ld.param.u64 %d1, [out];" + TENSOR.format(x=80, y=-3),
                       extra=".extern .shared .align 1024 .b8 dyn[];")  # fmt: skip
    text = text.replace(".param .u64 in", ".param .align 64 .b8 map[128]")
    outcome = run(text, [tensor.encode(), out], memory, smem=2048, options=Options(schedule=schedule))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    tile = np.zeros((16, 64), np.float16)
    tile[3:, :48] = data[:13, 80:]
    raw = memory.read(out, 2048).reshape(16, 8, 16)
    for row in range(16):
        for chunk in range(8):
            stored = chunk ^ (row % 8) if swizzle is TensorMapSwizzle.B128 else chunk
            assert raw[row, stored].view(np.float16).tolist() == tile[row, 8 * chunk : 8 * chunk + 8].tolist()
    after = memory.read(address, data.nbytes).view(np.float16).reshape(64, 128)
    want = data.copy()
    want[40:56, 8:72] = 2 * tile
    np.testing.assert_array_equal(after, want)


def test_bad_tensor_map() -> None:
    text = module_text(["in", "out"], REGS + "ld.param.u64 %d1, [out];" + TENSOR.format(x=0, y=0),
                       extra=".extern .shared .align 1024 .b8 dyn[];")  # fmt: skip
    text = text.replace(".param .u64 in", ".param .align 64 .b8 map[128]")
    outcome = run(text, [bytes(128), 0], GlobalMemory(), smem=2048)
    assert outcome.findings[0].code is Code.SIM_TENSOR_MAP


# wgmma m64n8k16: A [64, 16] and B [8, 16] f16 in shared memory without swizzle.
WGMMA = """mov.u32 %r2, dyn; mov.u32 %r10, 0;
COPY: mad.lo.u32 %r3, %r10, 2048, %r2; mad.lo.u32 %r3, %r0, 16, %r3; mul.wide.u32 %d5, %r10, 2048;
add.u64 %d6, %d0, %d2; add.u64 %d6, %d6, %d5; ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d6];
st.shared.v4.u32 [%r3], {{%r4, %r5, %r6, %r7}};
add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 2; @%p2 bra COPY; fence.proxy.async; bar.sync 0;
shr.u32 %r3, %r2, 4; cvt.u64.u32 %d7, %r3; or.b64 %d7, %d7, {a_desc}; add.u32 %r3, %r2, 2048; shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d8, %r3; or.b64 %d8, %d8, {b_desc};
mov.b32 %r40, 0f3F800000; mov.b32 %r41, %r40; mov.b32 %r42, %r40; mov.b32 %r43, %r40; setp.ne.u32 %p3, 1, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%r40, %r41, %r42, %r43}}, %d7, %d8, %p3, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%r40, %r41, %r42, %r43}}, %d7, %d8, %p3, -1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%r40, %r41, %r42, %r43}}, %d7, %d8, %p3, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; {wait}
mul.wide.u32 %d2, %r0, 16; add.u64 %d4, %d1, %d2; st.global.v4.u32 [%d4], {{%r40, %r41, %r42, %r43}}; ret;"""


def wgmma_case(wait: str, schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Canonical layout without swizzle: 8x16-byte core matrices, K chunks 1024 (A) or 128 (B) bytes apart."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (64, 16)).astype(np.float16), rng.integers(-4, 5, (8, 16)).astype(np.float16)
    image = np.zeros(4096, np.uint8)
    image[:2048] = np.ascontiguousarray(a.reshape(8, 8, 2, 8).transpose(2, 0, 1, 3)).view(np.uint8).reshape(-1)
    image[2048:2304] = np.ascontiguousarray(b.reshape(8, 2, 8).transpose(1, 0, 2)).view(np.uint8).reshape(-1)
    a_desc = 1024 >> 4 << 16 | 128 >> 4 << 32
    b_desc = 128 >> 4 << 16 | 128 >> 4 << 32
    body = WGMMA.format(a_desc=a_desc, b_desc=b_desc, wait=wait)
    got = words(body, image.view(np.uint32), 2048, 128, schedule=schedule, smem=4096).view(np.float32).reshape(128, 4)
    want = np.zeros((128, 4))
    product = a.astype(float) @ b.astype(float).T + 1
    for t in range(128):
        for v in range(4):
            want[t, v] = product[16 * (t // 32) + t % 32 // 4 + 8 * (v >> 1), 2 * (t % 4) + (v & 1)]
    return got, want


@SCHEDULES
def test_wgmma(schedule: Schedule) -> None:
    got, want = wgmma_case("wgmma.wait_group.sync.aligned 0;", schedule)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("wait", ["", "wgmma.wait_group.sync.aligned 1;"])
def test_unwaited_wgmma_reads_poison(wait: str) -> None:
    got, _ = wgmma_case(wait, "late")
    assert np.isnan(got).all()


def test_wgmma_needs_whole_warpgroups() -> None:
    body = WGMMA.format(a_desc=0, b_desc=0, wait="")
    outcome, _ = launch(body, DATA, 2048, 96, smem=4096)
    assert outcome.findings[0].code is Code.SIM_COLLECTIVE


def test_copies_of_a_wgmma_result_in_flight_get_it_too() -> None:
    """Compilers copy accumulators between a wgmma and its wait; the copy then holds the result, as on hardware."""
    copies = "".join(f"mov.b32 %r5{i}, %r4{i}; mov.b32 %r6{i}, %r5{i};" for i in range(4))
    back = "".join(f"mov.b32 %r4{i}, %r6{i};" for i in range(4))
    got, want = wgmma_case(copies + "wgmma.wait_group.sync.aligned 0;" + back, "late")
    np.testing.assert_array_equal(got, want)
    got, _ = wgmma_case(copies + back, "late")
    assert np.isnan(got).all()


ASYNC_STORE = """.shared .align 16 .b8 box[512]; .shared .align 8 .b8 bar[8]; mov.u32 %r2, box; mov.u32 %r8, bar;
mov.u32 %r9, %cluster_ctarank; xor.b32 %r10, %r9, 1; setp.eq.u32 %p0, %r0, 0; mad.lo.u32 %r11, %r0, 4, %r2;
st.shared.u32 [%r11+256], 1; @%p0 mbarrier.init.shared.b64 [%r8], 1;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {bytes};
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mapa.shared::cluster.u32 %r12, %r11, %r10; mapa.shared::cluster.u32 %r13, %r8, %r10; mad.lo.u32 %r14, %r9, 100, %r0;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r12], %r14, [%r13];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r12+256], %r14, [%r13];
W: mbarrier.try_wait.parity.shared.b64 %p1, [%r8], 0; @!%p1 bra W;
ld.shared.u32 %r4, [%r11]; ld.shared.u32 %r5, [%r11+256]; mov.u32 %r6, %ctaid.x; mad.lo.u32 %r6, %r6, 32, %r0;
mul.wide.u32 %d2, %r6, 8; add.u64 %d4, %d1, %d2; st.global.v2.u32 [%d4], {{%r4, %r5}};
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""


@SCHEDULES
def test_asynchronous_stores_to_another_block(schedule: Schedule) -> None:
    got = words(ASYNC_STORE.format(bytes=256), DATA, 512, blocks=2, cluster=2, schedule=schedule).reshape(2, 32, 2)
    for block in range(2):
        sent = [(1 - block) * 100 + t for t in range(32)]
        assert got[block].tolist() == [[x, x + 1] for x in sent]


@SCHEDULES
def test_elements_of_a_vector_register_have_names(schedule: Schedule) -> None:
    """As CuTe DSL stores the pieces of a tile coordinate."""
    body = """.shared .align 16 .b8 box[512]; .shared .align 8 .b8 bar[8]; mov.u32 %r2, box; mov.u32 %r8, bar;
    setp.eq.u32 %p0, %r0, 0; mad.lo.u32 %r11, %r0, 16, %r2; @%p0 mbarrier.init.shared.b64 [%r8], 1;
    @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 512; barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned; mapa.shared::cluster.u32 %r12, %r11, 0; mapa.shared::cluster.u32 %r13, %r8, 0;
    { .reg .v4 .s32 abcd; mov.s32 abcd.x, %r0; mov.s32 abcd.y, 7; mov.s32 abcd.z, -1; mov.s32 abcd.w, %r11;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%r12], abcd, [%r13]; }
    W: mbarrier.try_wait.parity.shared.b64 %p1, [%r8], 0; @!%p1 bra W;
    { .reg .v4 .u32 abcd; ld.shared.v4.u32 abcd, [%r11]; sub.u32 abcd.w, abcd.w, %r2;
    add.u64 %d4, %d1, %d2; st.global.v4.u32 [%d4], abcd; } ret;"""
    got = words(body, DATA, 512, schedule=schedule).reshape(32, 4)
    assert got.tolist() == [[t, 7, POISON, 16 * t] for t in range(32)]


def test_predicated_wait_holds_only_the_threads_of_its_guard() -> None:
    body = """.shared .align 8 .b8 bar[8]; mov.u32 %r8, bar; setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared.b64 [%r8], 4;
    bar.sync 0; setp.lt.u32 %p1, %r0, 4; setp.ne.u32 %p2, 0, 0;
    @!%p1 mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0; @%p1 mbarrier.arrive.shared.b64 _, [%r8];
    selp.u32 %r4, 1, 0, %p2; mul.wide.u32 %d2, %r0, 4; add.u64 %d4, %d1, %d2; st.global.u32 [%d4], %r4; ret;"""
    got = words(body, DATA, 128)
    assert got.tolist() == [0] * 4 + [1] * 28
