# SPDX-License-Identifier: Apache-2.0
"""Loads, stores, atomics and the errors of addresses."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import apply, download, module_text, run, upload

from porter.diagnostics import Code
from porter.sim import GlobalMemory, MemoryAccessError

REGS = ".reg .b16 %h<6>; .reg .b32 %r<24>; .reg .b64 %d<12>; .reg .pred %p<10>;"
POINTERS = """ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;"""


def test_global_memory_object() -> None:
    memory = GlobalMemory()
    a = memory.alloc(100, fill=7, name="a")
    b = memory.alloc(10, align=4096)
    assert b % 4096 == 0
    assert memory.read(a, 100).tolist() == [7] * 100
    memory.write(a + 4, b"\x01\x02")
    assert memory.view(a + 4, 2).tolist() == [1, 2]
    with pytest.raises(MemoryAccessError):
        memory.read(a, 101)
    with pytest.raises(MemoryAccessError):
        memory.read(a + 100, 1)
    own = np.zeros(64, np.uint8)
    memory.map(0x1000, own)
    memory.write(0x1010, b"\x09")
    assert own[16] == 9
    with pytest.raises(ValueError, match="taken"):
        memory.map(0x1020, np.zeros(8, np.uint8))
    memory.free(a)
    with pytest.raises(MemoryAccessError):
        memory.read(a, 1)
    with pytest.raises(MemoryAccessError):
        memory.free(a)


@pytest.mark.parametrize("space", ["global", "generic", "mapped"])
def test_all_widths_and_vectors(space: str) -> None:
    code = "" if space == "generic" else ".global"
    body = (
        REGS
        + POINTERS
        + f"""mul.wide.u32 %d2, %r0, 32; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    ld{code}.u8 %h0, [%d3]; ld{code}.s8 %r4, [%d3+1]; ld{code}.u16 %h1, [%d3+2]; ld{code}.b32 %r5, [%d3+4];
    ld{code}.v2.u16 {{%h2, %h3}}, [%d3+8]; ld{code}.v2.b32 {{%r6, %r7}}, [%d3+8];
    ld{code}.v4.u32 {{%r8, %r9, %r10, %r11}}, [%d3+16]; ld{code}.v2.b64 {{%d5, %d6}}, [%d3+16];
    st{code}.u8 [%d4], %h0; st{code}.u8 [%d4+1], %r4; st{code}.u16 [%d4+2], %h1; st{code}.b32 [%d4+4], %r5;
    st{code}.v2.u16 [%d4+8], {{%h2, %h3}}; st{code}.b32 [%d4+12], %r7;
    st{code}.v2.b64 [%d4+16], {{%d5, %d6}}; st{code}.v4.u32 [%d4+16], {{%r8, %r9, %r10, %r11}}; ret;"""
    )
    memory = GlobalMemory()
    data = np.random.default_rng(0).integers(0, 256, 32 * 128, dtype=np.uint8)
    source = upload(memory, data)
    if space == "mapped":
        out = 0x7F0000000010
        raw = np.zeros(32 * 128 + 16 + 64, np.uint8)
        start = -raw.ctypes.data % 64
        memory.map(out, raw[start : start + 32 * 128])
    else:
        out = memory.alloc(32 * 128)
    outcome = run(module_text(["in", "out"], body), [source, out], memory, 2, 64)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert memory.read(out, data.size).tolist() == data.tolist()


def test_sign_and_zero_extension() -> None:
    got = apply(".shared .b32 s; st.shared.b32 [s], %a; ld.shared.s8 %d, [s];", "b32",
                ("b32", np.full(32, 0x1280, np.uint32)))  # fmt: skip
    assert set(got.tolist()) == {0xFFFFFF80}


def test_shared_and_local_memory_belong_to_block_and_thread() -> None:
    body = (
        REGS
        + POINTERS
        + """.shared .align 16 .b8 tile[256]; .local .align 4 .b8 mine[16];
    mov.u32 %r3, %tid.x; mov.u32 %r4, tile; mad.lo.u32 %r5, %r3, 4, %r4; st.shared.u32 [%r5], %r0;
    mov.u64 %d2, mine; cvta.local.u64 %d3, %d2; mad.lo.u32 %r6, %r0, 3, 1; st.u32 [%d3+4], %r6;
    bar.sync 0; xor.b32 %r7, %r3, 63; mad.lo.u32 %r5, %r7, 4, %r4; cvta.shared.u64 %d4, %d4;
    cvt.u64.u32 %d5, %r5; cvta.shared.u64 %d5, %d5; ld.u32 %r8, [%d5]; ld.local.u32 %r9, [%d2+4];
    add.u32 %r10, %r8, %r9; mul.wide.u32 %d2, %r0, 4; add.u64 %d4, %d1, %d2; st.global.u32 [%d4], %r10; ret;"""
    )
    memory = GlobalMemory()
    out = memory.alloc(4 * 192)
    outcome = run(module_text(["in", "out"], body), [0, out], memory, 3, 64)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    want = [b * 64 + (t ^ 63) + 3 * (b * 64 + t) + 1 for b in range(3) for t in range(64)]
    assert download(memory, out, 192, np.uint32).tolist() == want


def test_dynamic_shared_memory_follows_static() -> None:
    body = (
        REGS
        + """.shared .align 4 .b8 small[20]; mov.u32 %r1, small; mov.u32 %r2, big; sub.u32 %r3, %r2, %r1;
    ld.param.u64 %d1, [out]; st.global.u32 [%d1], %r3; and.b32 %r4, %r2, 1023; st.global.u32 [%d1+4], %r4;
    ld.shared.u32 %r5, [big+60]; st.global.u32 [%d1+8], %r5; mov.u32 %r6, %dynamic_smem_size;
    st.global.u32 [%d1+12], %r6; ret;"""
    )
    memory = GlobalMemory()
    out = memory.alloc(16)
    text = module_text(["out"], body, extra=".extern .shared .align 1024 .b8 big[];")
    assert run(text, [out], memory, smem=64).status == "ok"
    distance, low, poison, size = download(memory, out, 4, np.uint32).tolist()
    assert low == 0
    assert distance == 1024
    assert poison == 0xFFFFFFFF  # never written: NaN in every float type
    assert size == 64


@pytest.mark.parametrize(("access", "code", "text"), [
    ("st.global.u32 [%d1+128], %r0;", Code.SIM_OUT_OF_BOUNDS, "past the end of allocation result"),
    ("ld.global.u32 %r4, [4096];", Code.SIM_OUT_OF_BOUNDS, "outside every allocation"),
    ("ld.global.u32 %r4, [%d1+2];", Code.SIM_MISALIGNED, "multiple of 4"),
    ("ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d1+8];", Code.SIM_MISALIGNED, "multiple of 16"),
    ("st.shared.u32 [s+60], %r0;", Code.SIM_OUT_OF_BOUNDS, "shared address"),
    ("ld.shared.u64 %d4, [s+4];", Code.SIM_MISALIGNED, "multiple of 8"),
    ("ld.local.u32 %r4, [1000];", Code.SIM_OUT_OF_BOUNDS, "local address"),
])  # fmt: skip
def test_bad_addresses(access: str, code: Code, text: str) -> None:
    """Only thread 9 makes the access, and is named."""
    body = REGS + POINTERS + f".shared .align 8 .b8 s[32]; setp.eq.u32 %p0, %r0, 9; @!%p0 bra END;\n{access}\nEND: ret;"
    memory = GlobalMemory()
    out = memory.alloc(128, name="result")
    outcome = run(module_text(["in", "out"], body), [0, out], memory)
    found = outcome.findings[0]
    assert outcome.status == "error"
    assert found.code is code
    assert text in found.message
    assert found.lane == 9
    assert body.splitlines().index(access) + 7 == found.ptx_line


@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomic_adds_give_every_thread_its_own_old_value(space: str) -> None:
    place = "[%d0]" if space == "global" else "[counter]"
    body = (
        REGS
        + POINTERS
        + f""".shared .u32 counter; setp.eq.u32 %p0, %r0, 0; mov.u32 %r3, 0;
    @%p0 st.shared.u32 [counter], %r3; bar.sync 0; add.u32 %r4, %r0, 1;
    atom.{space}.add.u32 %r5, {place}, %r4; mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r5; bar.sync 0; ld.shared.u32 %r6, [counter]; @%p0 st.global.u32 [%d3], %r6; ret;"""
    )
    memory = GlobalMemory()
    counter = upload(memory, np.zeros(1, np.uint32))
    out = memory.alloc(4 * 128)
    outcome = run(module_text(["in", "out"], body), [counter, out], memory, 1, 128)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    old = download(memory, out, 128, np.uint32).tolist()
    total = 128 * 129 // 2
    if space == "global":
        assert download(memory, counter, 1, np.uint32)[0] == total
        old = old[1:]
        assert len(set(old)) == 127
    else:
        assert old[0] == total


@pytest.mark.parametrize(("op", "start", "values", "want"), [
    ("min.s32", 5, [7, -3, 2], -3), ("max.u32", 5, [7, 3, 2], 7), ("and.b32", 0xFF, [0xF0, 0x3F, 0x7F], 0x30),
    ("or.b32", 1, [2, 4, 8], 15), ("xor.b32", 1, [3, 5, 9], 1 ^ 3 ^ 5 ^ 9), ("inc.u32", 0, [2, 2, 2], 0),
    ("dec.u32", 1, [9, 9, 9], 8), ("exch.b32", 1, [4, 5, 6], 6),
])  # fmt: skip
def test_atomic_operations(op: str, start: int, values: list[int], want: int) -> None:
    body = (
        REGS
        + POINTERS
        + f"""setp.ge.u32 %p0, %r0, {len(values)}; @%p0 bra END; mul.wide.u32 %d2, %r0, 4;
    add.u64 %d3, %d1, %d2; ld.global.u32 %r3, [%d3]; atom.global.{op} %r4, [%d0], %r3; END: ret;"""
    )
    memory = GlobalMemory()
    target = upload(memory, np.array([start], np.int64).astype(np.uint32))
    source = upload(memory, np.array(values, np.int64).astype(np.uint32))
    assert run(module_text(["in", "out"], body), [target, source], memory).status == "ok"
    assert int(download(memory, target, 1, np.int32)[0]) == want


def test_compare_and_swap_lock() -> None:
    """A spin lock: every thread of four blocks' warps adds to a counter that is not atomic."""
    body = (
        REGS
        + POINTERS
        + """mov.u32 %r6, 0;
    TRY: atom.global.acquire.gpu.cas.b32 %r3, [%d0], 0, 1; setp.ne.u32 %p0, %r3, 0; @%p0 bra AGAIN;
    ld.volatile.global.u32 %r4, [%d1]; add.u32 %r4, %r4, 1; st.volatile.global.u32 [%d1], %r4;
    atom.global.release.gpu.exch.b32 %r5, [%d0], 0; mov.u32 %r6, 1;
    AGAIN: setp.eq.u32 %p1, %r6, 0; @%p1 bra TRY; ret;"""
    )
    memory = GlobalMemory()
    lock, counter = upload(memory, np.zeros(1, np.uint32)), upload(memory, np.zeros(1, np.uint32))
    outcome = run(module_text(["in", "out"], body), [lock, counter], memory, 2, 64)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert download(memory, counter, 1, np.uint32)[0] == 128


def test_float_and_packed_reductions() -> None:
    body = (
        REGS
        + ".reg .f32 %f<4>;"
        + POINTERS
        + """cvt.rn.f32.u32 %f0, %r0; red.global.add.f32 [%d0], %f0;
    red.global.add.noftz.f16x2 [%d0+4], 1006632960; red.global.add.noftz.bf16x2 [%d0+8], 1065353216;
    red.global.add.f64 [%d0+16], 0d3FF8000000000000; ret;"""
    )
    memory = GlobalMemory()
    out = upload(memory, np.zeros(6, np.uint32))
    outcome = run(module_text(["in", "out"], body), [out, 0], memory, 1, 64)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    raw = memory.read(out, 24)
    assert raw[:4].view(np.float32)[0] == 64 * 63 / 2
    assert raw[4:8].view(np.float16).tolist() == [0, 64]
    assert raw[8:12].view(np.uint16).tolist() == [0, 0x4280]
    assert raw[16:].view(np.float64)[0] == 96.0


def test_address_predicates_and_windows() -> None:
    body = (
        REGS
        + POINTERS
        + """.shared .align 4 .b8 s[4]; .local .align 4 .b8 l[4]; mov.u64 %d2, s;
    cvta.shared.u64 %d2, %d2; mov.u64 %d3, l; cvta.local.u64 %d3, %d3;
    isspacep.shared %p0, %d2; isspacep.local %p1, %d3; isspacep.global %p2, %d1; isspacep.global %p3, %d2;
    cvta.to.shared.u64 %d4, %d2; cvt.u32.u64 %r5, %d4; mov.u32 %r6, s; setp.eq.u32 %p4, %r5, %r6;
    selp.u32 %r10, 1, 0, %p0; @%p1 add.u32 %r10, %r10, 2; @%p2 add.u32 %r10, %r10, 4; @%p3 add.u32 %r10, %r10, 8;
    @%p4 add.u32 %r10, %r10, 16; st.global.u32 [%d1], %r10; ret;"""
    )
    memory = GlobalMemory()
    out = memory.alloc(4)
    outcome = run(module_text(["in", "out"], body), [0, out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert download(memory, out, 1, np.uint32)[0] == 23


def test_a_variable_with_an_offset_in_bytes_is_that_address() -> None:
    memory = GlobalMemory()
    out = upload(memory, np.zeros(2, np.uint32))
    text = module_text(
        ["out"],
        """.reg .b64 %a, %b; .reg .b32 %w, %s; .shared .align 4 .b32 here[4];
        ld.param.u64 %a, [out]; mov.u64 %b, table+8; ld.global.u32 %w, [%b]; st.global.u32 [%a], %w;
        st.shared.u32 [here+12], 77; mov.u32 %s, here+12; ld.shared.u32 %w, [%s]; st.global.u32 [%a+4], %w; ret;""",
        extra=".global .align 4 .b32 table[4] = {5, 6, 7, 8};",
    )
    run(text, [out], memory)
    assert download(memory, out, 2, np.uint32).tolist() == [7, 77]
