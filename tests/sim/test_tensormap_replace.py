# SPDX-License-Identifier: Apache-2.0
"""Tensor maps that a kernel changes, publishes and uses, as grouped GEMMs do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core_ptx import download, module_text, run, upload

from porter.diagnostics import Code
from porter.ptx.tensormap import TensorMap, TensorMapInterleave, TensorMapSwizzle, TensorMapType, replaced
from porter.sim import GlobalMemory, Options

MAP = TensorMap(TensorMapType.FLOAT16, 0x1000, (64, 32, 8), (128, 4096), (64, 8, 1), swizzle=TensorMapSwizzle.B128)


@pytest.mark.parametrize(
    ("name", "value", "ordinal", "change"),
    [
        ("global_address", 0x123456780, 0, {"address": 0x123456780}),
        ("rank", 1, 0, {"sizes": (64, 32), "strides": (128,), "box": (64, 8), "element_strides": (1, 1)}),
        ("global_dim", 77, 1, {"sizes": (64, 77, 8)}),
        ("global_stride", 1 << 33, 1, {"strides": (128, 1 << 33)}),
        ("box_dim", 16, 2, {"box": (64, 8, 16)}),
        ("element_stride", 3, 1, {"element_strides": (1, 3, 1)}),
        ("elemtype", 10, 0, {"dtype": TensorMapType.BFLOAT16}),
        ("elemtype", 6, 0, {"dtype": TensorMapType.FLOAT16}),
        ("swizzle_mode", 1, 0, {"swizzle": TensorMapSwizzle.B32}),
        ("swizzle_atomicity", 1, 0, {"swizzle": TensorMapSwizzle.B128_ATOM_32B}),
        ("interleave_layout", 2, 0, {"interleave": TensorMapInterleave.B32}),
        ("fill_mode", 1, 0, {"oob_nan": True}),
    ],
)
def test_one_field(name: str, value: int, ordinal: int, change: dict[str, Any]) -> None:
    assert TensorMap.decode(replaced(MAP.encode(), name, value, ordinal)) == replace(MAP, **change)


@pytest.mark.parametrize(
    ("name", "value"),
    [("elemtype", 99), ("swizzle_mode", 4), ("box_dim", 1 << 20), ("box_dim", 0), ("global_stride", 24)],
)
def test_values_without_meaning(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        replaced(MAP.encode(), name, value)


KERNEL = """
.reg .b64 %d<8>; .reg .b32 %r<12>; .reg .pred %p<4>;
.shared .align 128 .b8 map[128]; .shared .align 128 .b8 tile[256]; .shared .align 8 .b8 bar[8];
ld.param.u64 %d0, [from]; ld.param.u64 %d1, [to]; ld.param.u64 %d2, [data]; ld.param.u64 %d3, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, map; mov.u32 %r2, tile; mov.u32 %r3, bar; shl.b32 %r4, %r0, 2;
setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
cvt.u64.u32 %d4, %r4; add.u64 %d5, %d0, %d4; ld.global.u32 %r5, [%d5]; add.u32 %r6, %r1, %r4; st.shared.u32 [%r6], %r5;
bar.warp.sync 0xffffffff;
@%p0 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1], %d2;
@%p0 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 1, 3;
@%p0 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1], 0, 64;
bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [%r1], 128;
FENCE
bar.sync 0; mov.u32 %r7, 0; @!%p0 bra W;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 256;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1, {%r7, %r7}], [%r3];
W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0; @!%p1 bra W;
shl.b32 %r8, %r0, 3; add.u32 %r9, %r2, %r8; ld.shared.b64 %d6, [%r9]; cvt.u64.u32 %d7, %r8; add.u64 %d7, %d7, %d3;
st.global.b64 [%d7], %d6; ret;
"""
FENCE = "fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;"


def launch(fence: str, options: Options) -> tuple[Any, np.ndarray, np.ndarray]:
    data = np.arange(16 * 8, dtype=np.uint32)
    memory = GlobalMemory()
    source = upload(memory, data)
    first = TensorMap(TensorMapType.UINT32, 0x1000, (16, 64), (1024,), (16, 4))
    where, to, out = upload(memory, np.frombuffer(first.encode(), np.uint8)), memory.alloc(128), memory.alloc(256)
    text = module_text(["from", "to", "data", "out"], KERNEL.replace("FENCE", fence))
    outcome = run(text, [where, to, source, out], memory, options=options)
    want = np.where(np.arange(64) < 48, data[:64], 0)
    return outcome, download(memory, out, 64, np.uint32), want


def test_a_changed_map_is_used() -> None:
    outcome, got, want = launch(FENCE, Options())
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    np.testing.assert_array_equal(got, want)


def test_the_checker_asks_for_the_acquire() -> None:
    outcome, got, want = launch(FENCE, Options(mode="checking", level="strict"))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    np.testing.assert_array_equal(got, want)
    assert not outcome.hazards, [str(h) for h in outcome.hazards]
    outcome, _, _ = launch("", Options(mode="checking", level="strict"))
    assert any("tensormap" in hazard.missing for hazard in outcome.hazards)


def test_changing_what_is_no_map() -> None:
    body = """
    .reg .b64 %d; .shared .align 128 .b8 map[128]; mov.b64 %d, 0;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [map], %d; ret;
    """
    outcome = run(module_text([], body), [], GlobalMemory(), block=1)
    assert outcome.findings[0].code is Code.SIM_TENSOR_MAP
