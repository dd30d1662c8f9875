# SPDX-License-Identifier: Apache-2.0
"""What the rarer forms of tcgen05.mma and TMA read and write is followed: right uses are clean, wrong ones found."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import module_text, run, upload
from test_core_tcgen05_forms import META, OPERANDS, SF, A, B, image, launch
from test_tma_modes import BASE, HEAD, WAIT, dense
from umma_calls import umma

from porter.ptx.block_scale import ScaleType
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.tensormap import TensorMap, TensorMapInterleave, TensorMapType
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind
from porter.ptx.zero_columns import ZeroColumns
from porter.sim import GlobalMemory, Options, Outcome
from porter.sim.datapath.tcgen05 import MmaArguments
from porter.sim.footprints import range_bits
from porter.sim.tensor_mma import DecodedMma

U8, U4 = ScaleType.UE8M0, ScaleType.UE4M3
SCALED = [
    ("mxf8f6f4.block_scale", T.E4M3, U8),
    ("mxf8f6f4.block_scale.scale_vec::1X", T.E5M2, U8),
    ("mxf8f6f4.block_scale.block32", T.E2M3, U8),
    ("mxf4.block_scale", T.E2M1, U8),
    ("mxf4.block_scale.scale_vec::2X", T.E2M1, U8),
    ("mxf4.block_scale.block32", T.E2M1, U8),
    ("mxf4nvf4.block_scale.scale_vec::2X", T.E2M1, U8),
    ("mxf4nvf4.block_scale.scale_vec::4X", T.E2M1, U4),
    ("mxf4nvf4.block_scale.scale_vec::4X", T.E2M1, U8),
    ("mxf4nvf4.block_scale.block16", T.E2M1, U4),
    ("mxf4nvf4.block_scale.block32", T.E2M1, U8),
]
FACTORS_A = f"tcgen05.cp.cta_group::1.32x128b.warpx4 [%r13], DESC({SF},16,128);"
FACTORS_B = FACTORS_A.replace("%r13", "%r14")


def kinds(issue: str, status: str = "ok") -> set[str]:
    # Metadata that names the first two of four, or the upper of two tf32.
    meta = np.full(2048, 0x44, np.uint8)
    outcome, _ = launch(issue, image(meta=meta), mode="checking", level="strict", schedule="late")
    assert outcome.status == status, [str(f) for f in outcome.findings]
    return {h.kind.id for h in outcome.hazards}


def scaled(vector: str, element: T, scale_type: ScaleType, sparse: bool = False) -> str:
    kind = Kind(vector.partition(".")[0])
    idesc = ScaledDescriptor(kind, 128, 8, T.F32, element, element, sparse=sparse, scale_type=scale_type).encode()
    meta = "[%r15], " if sparse else ""
    return (
        f"tcgen05.mma{'.sp' if sparse else ''}.cta_group::1.kind::{vector} [%r10], {OPERANDS}, {meta}{idesc},"
        " [%r13], [%r14], %p3;"
    )


@pytest.mark.parametrize(("vector", "element", "scale_type"), SCALED)
def test_scale_factors(vector: str, element: T, scale_type: ScaleType) -> None:
    mma = scaled(vector, element, scale_type)
    assert not kinds(FACTORS_A + FACTORS_B + mma)
    assert kinds(FACTORS_A + mma) == {"U2"}
    assert kinds(FACTORS_B + mma) == {"U2"}
    # The copy of the next factors into the same cells.
    assert kinds(FACTORS_A + FACTORS_B + mma + FACTORS_A) == {"H10", "H12"}
    assert kinds(FACTORS_A + FACTORS_B + mma + FACTORS_B) == {"H10", "H12"}
    # Another MMA's result over the factors.
    assert "H7" in kinds(FACTORS_A + FACTORS_B + mma + mma.replace("[%r10]", "[%r14]"))


@pytest.mark.parametrize(("vector", "element", "scale_type"), SCALED)
def test_scale_factors_of_a_sparse_product(vector: str, element: T, scale_type: ScaleType) -> None:
    mma = scaled(vector, element, scale_type, True).replace(OPERANDS, f"DESC({A},2048,128), DESC({B},128,256)")
    meta = f"add.u32 %r15, %r10, 192; tcgen05.cp.cta_group::1.128x128b [%r15], DESC({META},0,128);"
    assert not kinds(FACTORS_A + FACTORS_B + meta + mma) - {"U1"}
    # Cells that were never written are metadata without meaning.
    assert "U2" in kinds(FACTORS_A + FACTORS_B + meta[: meta.index(";") + 1] + mma, "error")
    assert {"H10", "H12"} <= kinds(FACTORS_A + FACTORS_B + meta + mma + meta)


SPARSE = [
    (Kind.F16, T.F16), (Kind.F16, T.BF16), (Kind.TF32, T.TF32), (Kind.F8F6F4, T.E4M3), (Kind.F8F6F4, T.E2M1),
    (Kind.I8, T.S8),
]  # fmt: skip


@pytest.mark.parametrize("ws", [False, True])
@pytest.mark.parametrize(("kind", "element"), SPARSE)
def test_metadata(kind: Kind, element: T, ws: bool) -> None:
    d_type = T.S32 if kind is Kind.I8 else T.F32
    idesc = InstructionDescriptor(kind, 128, 64 if ws else 8, d_type, element, element, sparse=True).encode()
    mma = (
        f"tcgen05.mma{'.ws' if ws else ''}.sp.cta_group::1.kind::{kind.value} [%r10], {OPERANDS}, [%r13], {idesc}, %p3;"
    )
    meta = f"tcgen05.cp.cta_group::1.128x128b [%r13], DESC({META},0,128);"
    assert not kinds(meta + mma)
    assert kinds(mma, "error") == {"U2"}
    assert kinds(meta + mma + meta) == {"H10", "H12"}


@pytest.mark.parametrize("form", ["kind::f16.ashift", "kind::f16", "kind::f16.ashift.collector::a::lastuse"])
def test_a_that_is_shifted_is_written(form: str) -> None:
    idesc = InstructionDescriptor(Kind.F16, 128, 8, T.F32, T.F16, T.F16).encode()
    filled = f"tcgen05.cp.cta_group::1.128x256b [%r13], DESC({A},2048,128);"
    mma = f"tcgen05.mma.cta_group::1.{form} [%r10], [%r13], DESC({B},128,128), {idesc}, %p3;"
    other = mma.replace("[%r10]", "[%r14]")
    assert not kinds(filled + mma)
    # Two MMAs of different accumulators may read the same A, and keep no order where one moves it.
    assert kinds(filled + mma + other) == set()
    assert kinds(mma) == {"U2"}


@pytest.mark.parametrize("shift", [0, 8, 16])
def test_columns_that_are_shifted_past_are_read(shift: int) -> None:
    """A zero-column mask with a shift reads as many more columns of B: 8 of them are 256 bytes here."""
    mask = ZeroColumns((0, 0, 0, 0), (0, 0, 0, 0), True, 0, 7, shift).encode()
    op = umma("ws.cta_group::1.kind::f16")
    code = InstructionDescriptor(Kind.F16, 128, 64, T.F32, T.F16, T.F16).encode()
    b_desc = SmemDescriptor(4096, 128, 256, SwizzleMode.NONE).encode("sm_100")
    arguments = MmaArguments(0, None, 128, b_desc, False, zero_columns=mask)
    read = DecodedMma(op, code, arguments).source(arguments)
    assert read == range_bits(4096, 2048 + 32 * shift)


# TMA ------------------------------------------------------------------------------------------------------


def tensor_copy(body: str, tensor_map: TensorMap, memory: GlobalMemory, level: str = "strict") -> Outcome:
    where = upload(memory, np.frombuffer(tensor_map.encode(), np.uint8))
    options = Options(mode="checking", level=level, schedule="late")
    return run(module_text(["map", "out"], HEAD + body, "sm_100a"), [where, 0], memory, options=options)


IM2COL = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("wait", [True, False])
def test_im2col(rank: int, wait: bool) -> None:
    sizes = [8, 4, 3, 2, 2][:rank]
    memory = GlobalMemory()
    source = upload(memory, np.arange(int(np.prod(sizes)), dtype=np.uint32))
    corners = (0,) * (rank - 2)
    tensor_map = TensorMap(TensorMapType.UINT32, source, tuple(sizes), dense(sizes, 4), (8, 4),
                           lower=corners, upper=corners)  # fmt: skip
    zeros, offsets = ", ".join(["%r3"] * rank), ", ".join(["%h0"] * (rank - 2))
    body = f"""@!%p0 bra W; mov.u32 %r3, 0; mov.u16 %h0, 0;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
    {IM2COL.format(rank=rank)} [%r1], [%d0, {{{zeros}}}], [%r2], {{{offsets}}};
    {WAIT if wait else "W:"} ld.shared.u32 %r4, [%r1+124]; {"" if wait else WAIT.replace("W", "X")} ret;"""
    outcome = tensor_copy(body, tensor_map, memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert {h.kind.id for h in outcome.hazards} == (set() if wait else {"H17"})


SCATTER = "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"
STORED = {
    "fenced": ("fence.proxy.async.shared::cta; bar.sync 0;", set()),
    "not_fenced": ("bar.sync 0;", {"H27"}),
    "no_barrier": ("fence.proxy.async.shared::cta;", {"G8", "H27"}),
}


@pytest.mark.parametrize("name", STORED)
def test_scattered_rows(name: str) -> None:
    between, hazards = STORED[name]
    memory = GlobalMemory()
    source = memory.alloc(20 * 128, fill=0)
    tensor_map = TensorMap(TensorMapType.UINT16, source, (64, 20), (128,), (64, 1))
    body = f"""mad.lo.u32 %r8, %r0, 8, %r1; st.shared.v2.u32 [%r8], {{%r0, %r0}}; {between}
    @!%p0 bra END; mov.u32 %r3, 0; mov.u32 %r4, 4; mov.u32 %r5, 9; mov.u32 %r6, 2; mov.u32 %r7, 11;
    {SCATTER} [%d0, {{%r3, %r4, %r5, %r6, %r7}}], [%r1]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    END: ret;"""
    where = upload(memory, np.frombuffer(tensor_map.encode(), np.uint8))
    options = Options(mode="checking", level="strict", schedule="late")
    text = module_text(["map", "out"], HEAD + body, "sm_100a")
    outcome = run(text, [where, 0], memory, 1, 64, options=options)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert {h.kind.id for h in outcome.hazards} == hazards


@pytest.mark.parametrize("interleave", [TensorMapInterleave.B16, TensorMapInterleave.B32])
def test_a_layout_that_is_not_executed_is_incomplete(interleave: TensorMapInterleave) -> None:
    tensor_map = TensorMap(TensorMapType.UINT32, BASE, (8, 4, 4), (32, 128), (8, 4, 1), interleave=interleave)
    copy = "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    body = f"""@!%p0 bra W; mov.u32 %r3, 0; {copy} [%r1], [%d0, {{%r3, %r3, %r3}}], [%r2]; W: ret;"""
    assert tensor_copy(body, tensor_map, GlobalMemory()).status == "incomplete"
