# SPDX-License-Identifier: Apache-2.0
"""tcgen05.ld.red: a load with the minimum or maximum of what each thread loads (sm_103a)."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import module_text, run, upload
from opcodes import given

from porter.ptx.tmem_access import TmemAccess
from porter.sim import GlobalMemory, Options

KERNEL = """.reg .b32 %r<99>; .reg .b64 %d<20>; .reg .pred %p<4>; .shared .align 4 .b8 slot[4];
mov.u32 %r0, %tid.x; mov.u32 %r9, slot; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32; ld.shared.u32 %r10, [%r9];
mul.wide.u32 %d2, %r0, 16; add.u64 %d3, %d0, %d2; ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%d3];
tcgen05.st.sync.aligned.32x32b.x4.b32 [%r10], {{%r20, %r21, %r22, %r23}}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.red.sync.aligned.32x32b.x4.{op} {{%r30, %r31, %r32, %r33}}, %r34, [%r10]; tcgen05.wait::ld.sync.aligned;
mul.wide.u32 %d4, %r0, 4; add.u64 %d4, %d1, %d4; st.global.u32 [%d4], %r34;
add.u64 %d3, %d1, %d2; st.global.v4.u32 [%d3+128], {{%r30, %r31, %r32, %r33}};
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32; ret;"""
NAN, INF = np.float32(np.nan), np.float32(np.inf)
ROWS = np.array([[1, -2, 3, -4], [NAN, -5, 2, NAN], [NAN] * 4, [-0.0, 0.0, -0.0, 0.0], [INF, -INF, NAN, 7]], np.float32)


def reduced(op: str, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    memory = GlobalMemory()
    source, out = upload(memory, words), memory.alloc(1024)
    text = module_text(["in", "out"], KERNEL.format(op=op), "sm_103a")
    outcome = run(text, [source, out], memory, options=Options(schedule="late"))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    found = memory.read(out, 640).view(np.uint32)
    return found[:32], found[32:].reshape(32, 4)


@pytest.mark.parametrize(("op", "want"), [
    ("min.f32", [-4, -5, NAN, -0.0, -INF]),
    ("max.f32", [3, 2, NAN, 0.0, INF]),
    ("max.abs.f32", [4, 5, NAN, 0.0, INF]),
    ("min.abs.f32", [1, 2, NAN, 0.0, 7]),
    ("max.NaN.f32", [3, NAN, NAN, 0.0, NAN]),
    ("min.abs.NaN.f32", [1, NAN, NAN, 0.0, NAN]),
])  # fmt: skip
def test_floats(op: str, want: list[float]) -> None:
    words = np.resize(ROWS, (32, 4))
    value, loaded = reduced(op, words)
    expected = np.resize(np.array(want, np.float32), 32).view(np.uint32).copy()
    expected[np.isnan(expected.view(np.float32))] = 0x7FFFFFFF
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(loaded, words.view(np.uint32))


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_integers(op: str, kind: str) -> None:
    words = np.random.default_rng(1).integers(0, 1 << 32, (32, 4), dtype=np.uint32)
    value, _ = reduced(f"{op}.{kind}", words)
    numbers = words.view(np.int32 if kind == "s32" else np.uint32)
    np.testing.assert_array_equal(value.view(numbers.dtype), getattr(numbers, op)(axis=1))


@pytest.mark.parametrize("opcode", [
    "tcgen05.ld.red.sync.aligned.16x64b.x4.min.u32", "tcgen05.ld.red.sync.aligned.32x32b.x1.min.u32",
    "tcgen05.ld.red.sync.aligned.32x32b.x4.u32", "tcgen05.ld.red.sync.aligned.32x32b.x4.min.b32",
])  # fmt: skip
def test_illegal(opcode: str) -> None:
    with pytest.raises(ValueError, match=r"tcgen05\.ld\.red"):
        TmemAccess.of(given(opcode))
