# SPDX-License-Identifier: Apache-2.0
"""Instructions between the threads of a warp."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import apply, download, module_text, run

from porter.sim import GlobalMemory

LANES = np.arange(64, dtype=np.uint32)


def shuffled(mode: str, b: int, c: int) -> list[int]:
    """PTX ISA 9.7.9.6, lane by lane."""
    out = []
    for warp in range(2):
        for lane in range(32):
            segment, clamp = c >> 8 & 31, c & 31
            low, high = lane & segment, lane & segment | clamp & ~segment & 31
            j, ok = {
                "up": (lane - b, lane - b >= high), "down": (lane + b, lane + b <= high),
                "bfly": (lane ^ b, (lane ^ b) <= high), "idx": (low | b & ~segment & 31, True),
            }[mode]  # fmt: skip
            if mode == "idx":
                ok = j <= high
            out.append((warp * 32 + (j if ok else lane)) * 2 + ok)
    return out


@pytest.mark.parametrize(("mode", "b", "c"), [
    ("up", 1, 0), ("up", 3, 0x1800), ("down", 1, 31), ("down", 5, 0x1F | 0x1000), ("bfly", 16, 31), ("bfly", 3, 31),
    ("idx", 7, 31), ("idx", 2, 0x181F), ("idx", 20, 0x0F),
])  # fmt: skip
def test_shuffles(mode: str, b: int, c: int) -> None:
    code = f"shfl.sync.{mode}.b32 %t4|%q1, %a, {b}, {c}, -1; shl.b32 %d, %t4, 1; @%q1 add.u32 %d, %d, 1;"
    assert apply(code, "b32", ("b32", LANES)).tolist() == shuffled(mode, b, c)


def test_votes() -> None:
    odd = LANES % 2
    assert set(apply("vote.sync.ballot.b32 %d, %a, -1;", "b32", ("pred", odd)).tolist()) == {0xAAAAAAAA}
    assert set(apply("vote.sync.any.pred %d, %a, -1;", "pred", ("pred", odd)).tolist()) == {1}
    assert set(apply("vote.sync.all.pred %d, %a, -1;", "pred", ("pred", odd)).tolist()) == {0}
    assert set(apply("vote.sync.uni.pred %d, %a, -1;", "pred", ("pred", odd * 0)).tolist()) == {1}


def test_match_and_redux() -> None:
    key = LANES // 3 % 4
    got = apply("match.any.sync.b32 %d, %a, -1;", "b32", ("b32", key))
    for lane in range(64):
        same = [i for i in range(32) if key[lane // 32 * 32 + i] == key[lane]]
        assert got[lane] == sum(1 << i for i in same)
    signed = (LANES.astype(np.int32) - 20).astype(np.uint32)
    assert set(apply("redux.sync.min.s32 %d, %a, -1;", "b32", ("b32", signed)).tolist()) == {0xFFFFFFEC, 12}
    assert set(apply("redux.sync.add.u32 %d, %a, -1;", "b32", ("b32", LANES)).tolist()) == {496, 1520}
    assert set(apply("redux.sync.xor.b32 %d, %a, -1;", "b32", ("b32", LANES | 1 << 9)).tolist()) == {0}
    values = np.float32(LANES) - 3
    got = apply("redux.sync.max.abs.f32 %d, %a, -1;", "b32", ("b32", values), target="sm_100a").view(np.float32)
    assert set(got.tolist()) == {28.0, 60.0}


def test_elect_and_activemask() -> None:
    got = apply("elect.sync %t4|%q1, -1; selp.b32 %d, 100, %t4, %q1;", "b32", ("b32", LANES))
    assert got.tolist() == ([100] + [0] * 31) * 2
    code = "mov.u32 %d, 0; setp.lt.u32 %q1, %a, 5; @!%q1 bra S; activemask.b32 %d; S:"
    assert apply(code, "b32", ("b32", LANES)).tolist() == [31] * 5 + [0] * 59


def test_members_of_a_mask_meet_across_branches() -> None:
    """Both sides of a branch reach the same kind of shuffle; each side only waits for its own members."""
    body = """.reg .b32 %r<10>; .reg .b64 %d<4>; .reg .pred %p<4>; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16;
    mov.u32 %r3, %r0; @%p0 bra LOW;
    L1: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 60; @%p1 bra L1;
    shfl.sync.idx.b32 %r1, %r3, 20, 31, 0xFFFF0000; bra JOIN;
    LOW: shfl.sync.idx.b32 %r1, %r0, 3, 31, 0x0000FFFF;
    JOIN: shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;
    ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r2; ret;"""
    memory = GlobalMemory()
    out = memory.alloc(128)
    outcome = run(module_text(["out"], body), [out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert download(memory, out, 32, np.uint32).tolist() == [60] * 16 + [3] * 16


def test_movmatrix_transposes() -> None:
    matrices = np.arange(128, dtype=np.uint16).reshape(2, 8, 8)
    got = apply("movmatrix.sync.aligned.m8n8.trans.b16 %d, %a;", "b32", ("b32", matrices.reshape(-1).view(np.uint32)))
    np.testing.assert_array_equal(got.view(np.uint16).reshape(2, 8, 8), matrices.swapaxes(1, 2))


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_and_stmatrix_are_inverse(trans: str) -> None:
    body = f""".reg .b32 %r<20>; .reg .b64 %d<6>; .shared .align 16 .b8 a[512]; .shared .align 16 .b8 b[512];
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r0, 16;
    add.u64 %d3, %d0, %d2; ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%d3]; mov.u32 %r5, a; mov.u32 %r6, b;
    mad.lo.u32 %r5, %r0, 16, %r5; mad.lo.u32 %r6, %r0, 16, %r6; st.shared.v4.u32 [%r5], {{%r1, %r2, %r3, %r4}};
    bar.sync 0; ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r7, %r8, %r9, %r10}}, [%r5];
    stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r6], {{%r7, %r8, %r9, %r10}}; bar.sync 0;
    ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r6]; add.u64 %d4, %d1, %d2;
    st.global.v4.u32 [%d4], {{%r1, %r2, %r3, %r4}}; mul.wide.u32 %d2, %r0, 4; add.u64 %d4, %d1, %d2;
    st.global.u32 [%d4+512], %r8; ret;"""
    memory = GlobalMemory()
    data = np.arange(256, dtype=np.uint16)
    source, out = memory.alloc(512), memory.alloc(640)
    memory.write(source, data.view(np.uint8))
    outcome = run(module_text(["in", "out"], body), [source, out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert download(memory, out, 256, np.uint16).tolist() == data.tolist()
    matrix = data[64:128].reshape(8, 8)
    fragment = memory.read(out + 512, 128).view(np.uint16).reshape(32, 2)
    for t in range(32):
        for h in range(2):
            row, column = t // 4, t % 4 * 2 + h
            assert fragment[t, h] == (matrix[column, row] if trans else matrix[row, column])


def test_mma_sync() -> None:
    """m16n8k16 with index-coded small integers."""
    regs = " ".join(f"ld.global.u32 %r{i}, [%d3+{4 * i}];" for i in range(10))
    body = f""".reg .b32 %r<20>; .reg .b64 %d<6>; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r15, %tid.x;
    mul.wide.u32 %d2, %r15, 40; add.u64 %d3, %d0, %d2; {regs}
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%r10, %r11, %r12, %r13}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}},
    {{%r6, %r7, %r8, %r9}}; mul.wide.u32 %d2, %r15, 16; add.u64 %d3, %d1, %d2;
    st.global.v4.u32 [%d3], {{%r10, %r11, %r12, %r13}}; ret;"""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (16, 16)), rng.integers(-4, 5, (16, 8))
    c = rng.integers(-9, 9, (16, 8))
    words = np.zeros((32, 10), np.uint32)
    for t in range(32):
        g, q = t // 4, t % 4
        for r in range(4):
            row, k = g + 8 * (r & 1), 2 * q + 8 * (r >> 1)
            words[t, r] = np.float16(a[row, k : k + 2]).view(np.uint32)[0]
        for r in range(2):
            k = 2 * q + 8 * r
            words[t, 4 + r] = np.float16(b[k : k + 2, g]).view(np.uint32)[0]
        for r in range(4):
            words[t, 6 + r] = np.float32([c[g + 8 * (r >> 1), 2 * q + (r & 1)]]).view(np.uint32)[0]
    memory = GlobalMemory()
    source, out = memory.alloc(words.nbytes), memory.alloc(512)
    memory.write(source, words.view(np.uint8).reshape(-1))
    outcome = run(module_text(["in", "out"], body), [source, out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    got = memory.read(out, 512).view(np.float32).reshape(32, 4)
    want = a @ b + c
    for t in range(32):
        for r in range(4):
            assert got[t, r] == want[t // 4 + 8 * (r >> 1), 2 * (t % 4) + (r & 1)]
