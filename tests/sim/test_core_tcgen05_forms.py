# SPDX-License-Identifier: Apache-2.0
"""PTX of every family of tcgen05.mma, cp and shift, from shared memory to registers, under every schedule.

The kernel copies an image to shared memory, one thread issues the test's instructions, and 128 threads read eight
columns of Tensor Memory each. `DESC(offset, lbo, sbo)` of a body becomes a register with that matrix descriptor.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from core_ptx import module_text, run, upload
from test_datapath_sparse import put_metadata, sparsify
from umma_calls import pairs, values

from porter.diagnostics import Code
from porter.ptx.block_scale import ScaleType
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.tmem import DLayout
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind
from porter.ptx.zero_columns import ZeroColumns
from porter.sim import GlobalMemory, Options, Outcome

KERNEL = """.reg .b32 %r<99>; .reg .b64 %d<99>; .reg .pred %p<10>;
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 slot[4];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, dyn; mov.u32 %r8, bar; mov.u32 %r9, slot;
ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; setp.eq.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r1, 0;
@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster;
@%p1 bra ALLOCATED; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 256;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED: mov.u32 %r11, 0;
COPY: mad.lo.u32 %r3, %r11, 2048, %r2; mad.lo.u32 %r3, %r0, 16, %r3; mad.lo.u32 %r4, %r11, 128, %r0;
mul.wide.u32 %d2, %r4, 16; add.u64 %d2, %d0, %d2; ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d2];
st.shared.v4.u32 [%r3], {{%r4, %r5, %r6, %r7}}; add.u32 %r11, %r11, 1; setp.lt.u32 %p2, %r11, 8; @%p2 bra COPY;
fence.proxy.async; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
ld.shared.u32 %r10, [%r9]; shr.u32 %r3, %r2, 4; cvt.u64.u32 %d7, %r3; add.u32 %r13, %r10, 128; add.u32 %r14, %r10, 160;
setp.ne.u32 %p3, 0, 0; setp.ne.u32 %p4, 1, 0; @!%p0 bra ISSUED;
{issue}
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];
ISSUED:
WAIT: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra WAIT;
tcgen05.fence::after_thread_sync; shl.b32 %r12, %r1, 21; add.u32 %r12, %r12, %r10;
tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%r40, %r41, %r42, %r43, %r44, %r45, %r46, %r47}}, [%r12+{column}];
tcgen05.wait::ld.sync.aligned; tcgen05.fence::before_thread_sync;
mul.wide.u32 %d2, %r0, 32; add.u64 %d4, %d1, %d2; st.global.v4.u32 [%d4], {{%r40, %r41, %r42, %r43}};
st.global.v4.u32 [%d4+16], {{%r44, %r45, %r46, %r47}};
bar.sync 0; tcgen05.fence::after_thread_sync; @%p1 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 256;
END: ret;"""
SCHEDULES = ["eager", "late", "random"]
A, B, SF, META = 0, 8192, 12288, 13312


def assemble(text: str) -> str:
    """Registers for the descriptors that the text asks for."""
    lines: list[str] = []

    def register(match: re.Match[str]) -> str:
        offset, lbo, sbo = (int(part) for part in match[1].split(","))
        word = SmemDescriptor(offset, lbo, sbo, SwizzleMode.NONE).encode("sm_100")
        lines.append(f"add.u64 %d{20 + len(lines)}, %d7, {word};")
        return f"%d{19 + len(lines)}"

    body = re.sub(r"DESC\(([^)]*)\)", register, text)
    return "\n".join([*lines, body])


def launch(issue: str, image: np.ndarray, column: int = 0, **options: object) -> tuple[Outcome, np.ndarray]:
    memory = GlobalMemory()
    source, out = upload(memory, image), memory.alloc(4096)
    text = module_text(
        ["in", "out"], KERNEL.format(issue=assemble(issue), column=column), "sm_100a",
        ".extern .shared .align 1024 .b8 dyn[];",
    )  # fmt: skip
    outcome = run(text, [source, out], memory, 1, 128, smem=16384, options=Options(seed=3, **options))
    return outcome, memory.read(out, 4096).view(np.uint32).reshape(128, 8)


def core_matrices(rows: np.ndarray) -> np.ndarray:
    """K-major without swizzle: 8 rows of 16 bytes together, groups of 8 rows along, chunks of K after all rows."""
    data = rows.view(np.uint8)
    return np.ascontiguousarray(data.reshape(len(data), -1, 16).transpose(1, 0, 2)).reshape(-1)


def image(**parts: np.ndarray) -> np.ndarray:
    out = np.zeros(16384, np.uint8)
    for name, data in parts.items():
        start = {"a": A, "b": B, "sf": SF, "meta": META}[name]
        flat = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        out[start : start + flat.size] = flat
    return out


def clean(issue: str, data: np.ndarray, want: np.ndarray, strictly: frozenset[str] = frozenset()) -> None:
    """The result is right under every schedule; checking finds no error, and only `strictly` at the strict level."""
    for schedule in SCHEDULES:
        outcome, got = launch(issue, data, schedule=schedule)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        np.testing.assert_array_equal(got.view(np.float32), want, err_msg=schedule)
    for level in ("practice", "strict"):
        outcome, _ = launch(issue, data, mode="checking", level=level, schedule="late")
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        found = {h.kind.id for h in outcome.hazards if level == "strict" or h.severity == "error"}
        assert found == (strictly if level == "strict" else set()), [str(h) for h in outcome.hazards]


OPERANDS = f"DESC({A},2048,128), DESC({B},128,128)"


def test_block_scaled_four_bit() -> None:
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, 16, shape) for shape in ((128, 64), (8, 64))]
    scales = rng.integers(0x30, 0x44, (128, 4)).astype(np.uint8)
    layout = scales.reshape(4, 32, 4).transpose(1, 0, 2)
    data = image(a=core_matrices(pairs(codes[0])), b=core_matrices(pairs(codes[1])), sf=layout)
    factors = np.repeat(values(scales, T.E4M3), 16, axis=1)
    want = (values(codes[0], T.E2M1) * factors) @ (values(codes[1], T.E2M1) * factors[:8]).T
    idesc = ScaledDescriptor(Kind.MXF4NVF4, 128, 8, T.F32, T.E2M1, T.E2M1, scale_type=ScaleType.UE4M3).encode()
    issue = f"""tcgen05.cp.cta_group::1.32x128b.warpx4 [%r13], DESC({SF},16,128);
    tcgen05.cp.cta_group::1.32x128b.warpx4 [%r14], DESC({SF},16,128);
    tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%r10], {OPERANDS}, {idesc},
    [%r13], [%r14], %p3;"""
    clean(issue, data, want)


def sparse_case(element: T, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Image with the metadata of rows as tcgen05.cp.128x128b takes them, and the product."""
    rng = np.random.default_rng(2)
    dense = rng.integers(-3, 4, (128, 64 if element.bits == 8 else 32)).astype(dtype)
    full, stored, nibbles = sparsify(rng, dense, 1)
    b = rng.integers(-3, 4, (8, dense.shape[1])).astype(dtype)
    cells = np.zeros((128, 4), np.uint32)
    put_metadata(cells, 0, nibbles, DLayout.D, element.bits >= 16)
    return image(a=core_matrices(stored), b=core_matrices(b), meta=core_matrices(cells)), full, b


@pytest.mark.parametrize("ws", [False, True])
def test_sparse(ws: bool) -> None:
    data, full, b = sparse_case(T.F16, np.float16)
    n = 64 if ws else 8
    idesc = InstructionDescriptor(Kind.F16, 128, n, T.F32, T.F16, T.F16, sparse=True).encode()
    # With .ws the columns beyond the eighth are zeros.
    mask = ZeroColumns((0, 0, 0, 0), (0, 0, 0, 0), True, 255, 7)
    head = "mma.ws.sp" if ws else "mma.sp"
    tail = ".collector::b1::fill" if ws else ""
    last = f", %p3, {mask.encode()}" if ws else ", {%r60, %r60, %r60, %r60}, %p3"
    issue = f"""mov.b32 %r60, 0;
    tcgen05.cp.cta_group::1.128x128b [%r13], DESC({META},0,128);
    tcgen05.{head}.cta_group::1.kind::f16{tail} [%r10], {OPERANDS}, [%r13], {idesc}{last};"""
    clean(issue, data, full.astype(float) @ b.astype(float).T)


def test_shift_between_copy_and_product() -> None:
    """A goes to Tensor Memory, one quarter of it is moved by a row, .ashift moves it again for the second MMA."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(-3, 4, (128, 16)).astype(np.float16), rng.integers(-3, 4, (8, 16)).astype(np.float16)
    data = image(a=core_matrices(a), b=core_matrices(b))
    idesc = InstructionDescriptor(Kind.F16, 128, 8, T.F32, T.F16, T.F16).encode()
    issue = f"""tcgen05.cp.cta_group::1.128x256b [%r13], DESC({A},2048,128);
    add.u32 %r15, %r13, {32 << 16}; tcgen05.shift.cta_group::1.down [%r15];
    tcgen05.mma.cta_group::1.kind::f16.ashift [%r10], [%r13], DESC({B},128,128), {idesc}, %p3;
    tcgen05.mma.cta_group::1.kind::f16 [%r10], [%r13], DESC({B},128,128), {idesc}, %p4;"""

    def moved(rows: np.ndarray, groups: list[int]) -> np.ndarray:
        out = rows.copy()
        for group in groups:
            out[32 * group : 32 * group + 31] = rows[32 * group + 1 : 32 * group + 32]
        return out

    first = moved(a.astype(float), [1])
    clean(issue, data, (first + moved(first, [0, 1, 2, 3])) @ b.astype(float).T, frozenset({"H12"}))
    _, got = launch(issue, data, 128)
    np.testing.assert_array_equal(got.view(np.float16).astype(float), moved(first, [0, 1, 2, 3]))


def test_disabled_lanes_keep_what_they_hold() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-3, 4, (128, 16)).astype(np.float16), rng.integers(-3, 4, (8, 16)).astype(np.float16)
    idesc = InstructionDescriptor(Kind.F16, 128, 8, T.F32, T.F16, T.F16).encode()
    mma = f"tcgen05.mma.cta_group::1.kind::f16 [%r10], {OPERANDS}, {idesc},"
    issue = f"""mov.b32 %r60, 0; mov.b32 %r61, 0xffff0000; mov.b32 %r62, 1;
    {mma} %p3; {mma} {{%r60, %r61, %r62, %r60}}, %p4, 1;"""
    product = a.astype(float) @ b.astype(float).T
    lanes = np.arange(128)
    off = ((lanes >= 48) & (lanes < 64)) | (lanes == 64)
    clean(issue, image(a=core_matrices(a), b=core_matrices(b)), np.where(off[:, None], product, 1.5 * product))


def test_scales_must_be_there() -> None:
    """Scale factors that nobody wrote are reported; without allocation the run stops."""
    idesc = ScaledDescriptor(Kind.MXF4, 128, 8, T.F32, T.E2M1, T.E2M1).encode()
    mma = f"tcgen05.mma.cta_group::1.kind::mxf4.block_scale [%r10], {OPERANDS}, {idesc},"
    outcome, got = launch(f"{mma} [%r13], [%r14], %p3;", image(), mode="checking", level="strict")
    assert "U2" in {h.kind.id for h in outcome.hazards}
    assert np.isnan(got.view(np.float32)).all()
    outcome, _ = launch(f"add.u32 %r15, %r10, 254; {mma} [%r13], [%r15], %p3;".replace("254", "256"), image())
    assert outcome.findings[0].code is Code.SIM_TMEM_UNALLOCATED


def test_copy_over_scales_in_use() -> None:
    """H10: by the letter a copy needs the MMA's completion before it overwrites its scale factors."""
    idesc = ScaledDescriptor(Kind.MXF4, 128, 8, T.F32, T.E2M1, T.E2M1).encode()
    copy = f"tcgen05.cp.cta_group::1.32x128b.warpx4 [%r13], DESC({SF},16,128);"
    issue = f"""{copy} tcgen05.mma.cta_group::1.kind::mxf4.block_scale [%r10], {OPERANDS}, {idesc},
    [%r13], [%r13], %p3; {copy}"""
    outcome, _ = launch(issue, image(), mode="checking", level="strict")
    assert {h.kind.id for h in outcome.hazards} == {"H10", "H12"}


def after_commit(first: str, second: str, column: int) -> set[str]:
    """Hazards at the strict level where `second` is issued after the commit that the loads wait for."""
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];"
    assert f"{{issue}}\n{commit}" in KERNEL
    body = KERNEL.replace(f"{{issue}}\n{commit}", f"{{issue}}\n{commit} {second}")
    memory = GlobalMemory()
    source, out = upload(memory, image()), memory.alloc(4096)
    text = module_text(
        ["in", "out"], body.format(issue=assemble(first), column=column), "sm_100a",
        ".extern .shared .align 1024 .b8 dyn[];",
    )  # fmt: skip
    options = Options(seed=3, mode="checking", level="strict", schedule="late")
    outcome = run(text, [source, out], memory, 1, 128, smem=16384, options=options)
    return {h.kind.id for h in outcome.hazards}


def test_load_of_shifted_rows_needs_completion() -> None:
    copy = f"tcgen05.cp.cta_group::1.128x256b [%r10], DESC({A},2048,128);"
    shift = "tcgen05.shift.cta_group::1.down [%r10];"
    outcome, _ = launch(f"{copy} {shift}", image(), mode="checking", level="strict")
    assert {h.kind.id for h in outcome.hazards} == {"H12"}
    assert "H13" in after_commit(copy, shift, 0)


def test_load_of_rows_that_an_mma_moves_needs_completion() -> None:
    """Other loads may read A beside an MMA, but not while .ashift writes it."""
    idesc = InstructionDescriptor(Kind.F16, 128, 8, T.F32, T.F16, T.F16).encode()
    copy = f"mov.b64 %d50, DESC({B},128,128); tcgen05.cp.cta_group::1.128x256b [%r13], DESC({A},2048,128);"
    mma = f"tcgen05.mma.cta_group::1.kind::f16{{}} [%r10], [%r13], %d50, {idesc}, %p3;"
    assert after_commit(copy, mma.format(""), 128) == {"H14", "X1"}
    assert after_commit(copy, mma.format(".ashift"), 128) == {"H1", "H14", "X1"}
