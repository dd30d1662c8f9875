# SPDX-License-Identifier: Apache-2.0
"""What products of the tensor cores, copies to Tensor Memory and shifts leave: the same in another way, and something
else."""

from __future__ import annotations

import pytest
from written import are_equal

from porter.ptx.block_scale import ScaleType
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
from porter.ptx.zero_columns import ZeroColumns

T = ElementType
OUT = "st.global.v4.f32 [%d1], {%f4, %f5, %f6, %f7};\n"
GIVEN = "st.global.v4.f32 [%d1], {%f0, %f1, %f2, %f3};\n"
# rows of 32 bytes: two core matrices of eight rows side by side, and the next eight rows behind them
ROWS = SmemDescriptor(0, lbo=128, sbo=256, swizzle=SwizzleMode.NONE)
NARROW = SmemDescriptor(0, lbo=0, sbo=128, swizzle=SwizzleMode.NONE)
"""Rows of 16 bytes."""
INTO_SHARED = (
    "mov.u32 %r5, room;\nshl.b32 %r6, %r0, 4;\nadd.u32 %r6, %r5, %r6;\n"
    "st.shared.v4.f32 [%r6], {%f0, %f1, %f2, %f3};\nbar.sync 0;\n"
    "shr.u32 %r7, %r5, 4;\ncvt.u64.u32 %d4, %r7;\nsetp.eq.u32 %p1, %r0, 0;\n"
    f"or.b64 %d5, %d4, {ROWS.encode('sm_100')};\nor.b64 %d6, %d4, {NARROW.encode('sm_100')};\n"
    f"or.b64 %d7, %d4, {ROWS.encode('sm_90')};\n"
)


def loaded(column: int = 0) -> str:
    names = ", ".join(f"%r{20 + i}" for i in range(4))
    moves = "".join(f"mov.b32 %f{4 + i}, %r{20 + i};\n" for i in range(4))
    return f"bar.sync 0;\ntcgen05.ld.sync.aligned.32x32b.x4.b32 {{{names}}}, [{column}];\n{moves}"


def put(column: int, *names: str) -> str:
    """tcgen05.st of registers of floats."""
    moves = "".join(f"mov.b32 %r{30 + i}, {name};\n" for i, name in enumerate(names))
    registers = ", ".join(f"%r{30 + i}" for i in range(len(names)))
    return f"{moves}tcgen05.st.sync.aligned.32x32b.x{len(names)}.b32 [{column}], {{{registers}}};\nbar.sync 0;\n"


def copied(shape: str, column: int = 0, descriptor: str = "%d6") -> str:
    return f"@%p1 tcgen05.cp.cta_group::1.{shape} [{column}], {descriptor};\n"


# Copies and shifts ------------------------------------------------------------------------------------

DOWN = "".join(f"shfl.sync.down.b32 %f{4 + i}, %f{i}, 1, 31, -1;\n" for i in range(4))
WIDE = put(0, "%f0", "%f1", "%f2", "%f3", "%f0", "%f1", "%f2", "%f3")
SHIFT = "@%p1 tcgen05.shift.cta_group::1.down [0];\n"
NUMBERS = "mov.b32 %f0, {0:#x};\nmov.b32 %f1, {1:#x};\nmov.b32 %f2, 0;\nmov.b32 %f3, 0;\n"
FOURS, SIXES = ".b8x16.b4x16_p64", ".b8x16.b6x16_p32"
OF_LANE_0 = OUT.replace("st.", "@%p1 st.")
FROM_ROW_0 = "ld.shared.v4.f32 {%f4, %f5, %f6, %f7}, [%r5+128];\n"

SAME = {
    "128x128b": (copied("128x128b") + loaded() + OUT, GIVEN),
    "64x128b, 02_13": (copied("64x128b.warpx2::02_13") + loaded() + OUT, GIVEN),
    "64x128b, 01_23": (copied("64x128b.warpx2::01_23") + loaded() + OUT, GIVEN),
    "32x128b": (copied("32x128b.warpx4") + loaded() + OUT, GIVEN),
    "32x128b at a column": (copied("32x128b.warpx4", 8) + loaded(8) + OUT, GIVEN),
    "128x256b, the right half": (copied("128x256b", 0, "%d5") + loaded(4) + OF_LANE_0, FROM_ROW_0 + OF_LANE_0),
    "4x256b, the right half": (copied("4x256b", 0, "%d5") + loaded(4) + OF_LANE_0, FROM_ROW_0 + OF_LANE_0),
    "by way of a store": (
        copied("32x128b.warpx4") + loaded() + OUT,
        put(0, "%f0", "%f1", "%f2", "%f3") + loaded() + OUT,
    ),
    "a shift": (WIDE + SHIFT + loaded() + OUT, DOWN + OUT),
    "a greatest value": (
        put(0, "%f0", "%f1") + "tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {%r20, %r21}, %f4, [0];\n"
        "st.global.f32 [%d1], %f4;\n",
        "max.f32 %f4, %f1, %f0;\nst.global.f32 [%d1], %f4;\n",
    ),
}
OTHER = {
    "another column": (copied("32x128b.warpx4") + loaded() + OUT, copied("32x128b.warpx4", 1) + loaded() + OUT),
    "other rows": (copied("32x128b.warpx4") + loaded() + OUT, copied("32x128b.warpx4", 0, "%d5") + loaded() + OUT),
    "lanes of other warps": (
        copied("64x128b.warpx2::02_13") + loaded() + OUT,
        copied("4x256b", 0, "%d5") + loaded() + OUT,
    ),
    "packed and unpacked": (
        copied("32x128b.warpx4") + loaded() + OUT,
        copied("32x128b.warpx4" + FOURS) + loaded() + OUT,
    ),
    "4 and 6 bits": (
        copied("32x128b.warpx4" + FOURS) + loaded() + OUT,
        copied("32x128b.warpx4" + SIXES) + loaded() + OUT,
    ),
    "no shift": (WIDE + SHIFT + loaded() + OUT, WIDE + loaded() + OUT),
    "two shifts": (WIDE + SHIFT + loaded() + OUT, WIDE + SHIFT + SHIFT + loaded() + OUT),
    "a shift of other columns": (WIDE + SHIFT + loaded() + OUT, WIDE + SHIFT.replace("[0]", "[2]") + loaded() + OUT),
    "the greatest and the least": (SAME["a greatest value"][0], SAME["a greatest value"][0].replace("max", "min")),
    "the greatest magnitude": (
        SAME["a greatest value"][0],
        SAME["a greatest value"][0].replace("max.f32", "max.abs.f32"),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_copies_that_leave_the_same(name: str) -> None:
    assert are_equal(*(INTO_SHARED + body for body in SAME[name]))


@pytest.mark.parametrize("name", OTHER)
def test_copies_that_leave_something_else(name: str) -> None:
    assert not are_equal(*(INTO_SHARED + body for body in OTHER[name]))


@pytest.mark.parametrize(("source", "width", "shift"), [(FOURS, 4, 2), (SIXES, 6, 1)])
def test_elements_that_a_copy_unpacks(source: str, width: int, shift: int) -> None:
    """Four bits become 0b00xxxx00, six bits 0b0xxxxxx0."""
    given = 0xFEDC_BA98_7654_3210
    elements = [given >> width * i & (1 << width) - 1 for i in range(16)]
    expected = [sum(e << shift + 8 * i for i, e in enumerate(elements[n : n + 4])) for n in range(0, 16, 4)]
    numbers = NUMBERS.format(given & 0xFFFFFFFF, given >> 32)
    copy = numbers + INTO_SHARED + copied("32x128b.warpx4" + source) + loaded() + OUT
    plain = "".join(f"mov.b32 %f{4 + i}, {number:#x};\n" for i, number in enumerate(expected)) + OUT
    assert are_equal(copy, plain)


# Products ---------------------------------------------------------------------------------------------


def scaled(
    op: str = "kind::mxf8f6f4.block_scale", a: int = 64, b: int = 68, a_id: int = 0, b_id: int = 0,
    scale: ScaleType = ScaleType.UE8M0, types: tuple[ElementType, ElementType] = (T.E4M3, T.E4M3),
) -> str:  # fmt: skip
    """A product with scale factors at columns of Tensor Memory."""
    kind = Kind(op.split(".")[0].removeprefix("kind::"))
    idesc = ScaledDescriptor(kind, 128, 8, T.F32, *types, scale_type=scale, a_scale_id=a_id, b_scale_id=b_id).encode()
    return (
        f"mov.b32 %r40, {idesc};\nsetp.eq.u32 %p2, %r0, 77;\n"
        f"@%p1 tcgen05.mma.cta_group::1.{op} [0], %d5, %d5, %r40, [{a}], [{b}], %p2;\n" + loaded() + OUT
    )


SCALES = put(64, "%f0", "%f1", "%f2", "%f3") + put(68, "%f1", "%f0", "%f3", "%f2")
NVF4 = {"op": "kind::mxf4nvf4.block_scale.scale_vec::4X", "types": (T.E2M1, T.E2M1), "scale": ScaleType.UE4M3}
MXF4 = {"op": "kind::mxf4.block_scale.scale_vec::2X", "types": (T.E2M1, T.E2M1)}
PLAIN = InstructionDescriptor(Kind.F8F6F4, 128, 8, T.F32, T.E4M3, T.E4M3).encode()
UNSCALED = (
    f"mov.b32 %r40, {PLAIN};\nsetp.eq.u32 %p2, %r0, 77;\n"
    "@%p1 tcgen05.mma.cta_group::1.kind::f8f6f4 [0], %d5, %d5, %r40, %p2;\n" + loaded() + OUT
)
SAME_SCALED = {
    "factors by a copy": (
        copied("32x128b.warpx4", 64) + put(68, "%f1", "%f0", "%f3", "%f2") + scaled(),
        SCALES + scaled(),
    ),
    "factors at another place": (SCALES + put(80, "%f0") + scaled(a=80), SCALES + scaled()),
    "1X by name": (SCALES + scaled("kind::mxf8f6f4.block_scale.scale_vec::1X"), SCALES + scaled()),
    "the factor of another byte, moved there": (
        SCALES + "mov.b32 %r41, %f0;\nshr.u32 %r41, %r41, 8;\nmov.b32 %f8, %r41;\n" + put(80, "%f8") + scaled(a=80),
        SCALES + scaled(a_id=1),
    ),
    "two factors": (SCALES + put(80, "%f0") + scaled(**MXF4, a=80), SCALES + scaled(**MXF4)),
    "four factors": (SCALES + scaled(**NVF4 | {"op": "kind::mxf4nvf4.block_scale.block16"}), SCALES + scaled(**NVF4)),
    "factors that this product does not take": (
        SCALES + "mov.b32 %r41, %f0;\nand.b32 %r41, %r41, 255;\nmov.b32 %f8, %r41;\n" + put(80, "%f8") + scaled(a=80),
        SCALES + scaled(),
    ),
}
OTHER_SCALED = {
    "no factors": (SCALES + scaled(), UNSCALED),
    "other factors of A": (SCALES + scaled(), SCALES + scaled(a=65)),
    "other factors of B": (SCALES + scaled(), SCALES + scaled(b=69)),
    "factors that change places": (SCALES + scaled(), SCALES + scaled(a=68, b=64)),
    "another byte of A's": (SCALES + scaled(), SCALES + scaled(a_id=2)),
    "another byte of B's": (SCALES + scaled(), SCALES + scaled(b_id=3)),
    "another pair of bytes": (SCALES + scaled(**MXF4), SCALES + scaled(**MXF4, a_id=2)),
    "other types": (SCALES + scaled(), SCALES + scaled(types=(T.E5M2, T.E4M3))),
    "another type of factors": (SCALES + scaled(**NVF4), SCALES + scaled(**NVF4 | {"scale": ScaleType.UE8M0})),
    "factors that come too late": (SCALES + scaled(), SCALES + put(64, "%f3") + scaled()),
}


@pytest.mark.parametrize("name", SAME_SCALED)
def test_scaled_products_that_leave_the_same(name: str) -> None:
    assert are_equal(*(INTO_SHARED + body for body in SAME_SCALED[name]))


@pytest.mark.parametrize("name", OTHER_SCALED)
def test_scaled_products_that_leave_something_else(name: str) -> None:
    assert not are_equal(*(INTO_SHARED + body for body in OTHER_SCALED[name]))


def product(
    op: str = "cta_group::1.kind::f16", m: int = 128, n: int = 64, a: str = "%d5", more: str = "", meta: str = "",
    **fields: object,
) -> str:  # fmt: skip
    """`meta`: ", [address]" of the metadata; `more`: operands behind enable-input-d."""
    idesc = InstructionDescriptor(Kind.F16, m, n, T.F32, T.F16, T.F16, **fields).encode()
    lanes, _, behind = more.partition("|")
    return (
        f"mov.b32 %r40, {idesc};\nsetp.eq.u32 %p2, %r0, 77;\nsetp.ne.u32 %p3, %r0, 77;\n"
        f"@%p1 tcgen05.mma.{op} [0], {a}, %d5{meta}, %r40{lanes}, %p2{behind};\n"
    )


END = loaded() + OUT
WS = "ws.cta_group::1.kind::f16"
OLD = put(0, "%f0", "%f1", "%f2", "%f3")
AGAIN = product().replace("%p2;", "%p3;")
MASK = f"mov.b64 %d8, {ZeroColumns(first_spans=(1, 1, 1, 1), skip_span=1, use_span=30).encode()};\n"
NO_MASK = f"mov.b64 %d8, {ZeroColumns(enabled=False).encode()};\n"
META = put(96, "%f0", "%f1")
SPARSE = {"op": "sp.cta_group::1.kind::f16", "sparse": True, "meta": ", [96]"}
A_THERE = "ld.shared.v4.f32 {%f10, %f11, %f12, %f13}, [%r42];\nld.shared.v4.f32 {%f14, %f15, %f16, %f17}, [%r42+128];\n"
A_IN_TENSOR = (
    "shr.u32 %r41, %r0, 3;\nshl.b32 %r41, %r41, 8;\nand.b32 %r42, %r0, 7;\nshl.b32 %r42, %r42, 4;\n"
    f"add.u32 %r42, %r42, %r41;\nadd.u32 %r42, %r42, %r5;\n{A_THERE}" + put(200, *(f"%f{10 + i}" for i in range(8)))
)
FIRST_16 = "setp.lt.u32 %p4, %r0, 16;\n"
END_16 = FIRST_16 + END.replace("st.global", "@%p4 st.global")
NEGATED = {"negate_a": True}

SAME_PRODUCT = {
    "64 rows of 128": (product() + END_16, product(m=64) + END_16),
    "another width": (product() + END, product(n=8) + END),
    "A in Tensor Memory": (product() + END, A_IN_TENSOR + product(a="[200]") + END),
    ".ws with 128 rows": (product() + END, product(WS) + END),
    ".ws with 64 rows": (product() + END, product(WS, m=64) + END),
    ".ws with 32 rows": (product() + END, product(WS, m=32) + END),
    "no columns that are zero": (product(WS) + END, NO_MASK + product(WS, more="|, %d8") + END),
    "no lanes that are left out": (
        product() + END,
        "mov.b32 %r43, 0;\n" + product(more=", {%r43, %r43, %r43, %r43}") + END,
    ),
    "all lanes left out": (
        OLD + END,
        OLD + "mov.b32 %r43, -1;\n" + product(more=", {%r43, %r43, %r43, %r43}") + END,
    ),
    "not scaled": (OLD + AGAIN + END, OLD + AGAIN.replace("%p3;", "%p3, 0;") + END),
    "metadata at another place": (
        META + product(**SPARSE) + END,
        put(98, "%f0") + product(**SPARSE | {"meta": ", [98]"}) + END,
    ),
    "a sparse .ws": (
        META + product(**SPARSE) + END,
        META + product(**SPARSE | {"op": "ws.sp.cta_group::1.kind::f16"}) + END,
    ),
}
OTHER_PRODUCT = {
    "columns that are zero": (product(WS) + END, MASK + product(WS, more="|, %d8") + END),
    "columns that come later": (
        NO_MASK + product(WS, more="|, %d8") + END,
        f"mov.b64 %d8, {ZeroColumns(enabled=False, shift=8).encode()};\n" + product(WS, more="|, %d8") + END,
    ),
    "lanes that are left out": (
        OLD + product() + END,
        OLD + "mov.b32 %r43, 0xFFFF;\n" + product(more=", {%r43, %r43, %r43, %r43}") + END,
    ),
    "an accumulator that is scaled": (OLD + AGAIN + END, OLD + AGAIN.replace("%p3;", "%p3, 1;") + END),
    "scaled by another power": (
        OLD + AGAIN.replace("%p3;", "%p3, 2;") + END,
        OLD + AGAIN.replace("%p3;", "%p3, 1;") + END,
    ),
    "dense and sparse": (product() + END, META + product(**SPARSE) + END),
    "other metadata": (META + product(**SPARSE) + END, META + product(**SPARSE | {"meta": ", [97]"}) + END),
    "another selector": (META + product(**SPARSE) + END, META + product(**SPARSE, sparsity_selector=1) + END),
    "a sign": (product() + END, product(**NEGATED) + END),
    "an A that was shifted": (
        A_IN_TENSOR + product(a="[200]") + END,
        A_IN_TENSOR + SHIFT.replace("[0]", "[200]") + product(a="[200]") + END,
    ),
    "an A that the product has shifted": (
        A_IN_TENSOR + product(a="[200]") + product(a="[200]") + END,
        A_IN_TENSOR + product("cta_group::1.kind::f16.ashift", a="[200]") + product(a="[200]") + END,
    ),
}


@pytest.mark.parametrize("name", SAME_PRODUCT)
def test_products_that_leave_the_same(name: str) -> None:
    assert are_equal(*(INTO_SHARED + body for body in SAME_PRODUCT[name]))


@pytest.mark.parametrize("name", OTHER_PRODUCT)
def test_products_that_leave_something_else(name: str) -> None:
    assert not are_equal(*(INTO_SHARED + body for body in OTHER_PRODUCT[name]))


# Sparse products of both generations ------------------------------------------------------------------

SPARSE_64 = InstructionDescriptor(Kind.F16, 64, 8, T.F32, T.F16, T.F16, sparse=True)
NARROW_B = SmemDescriptor(1024, lbo=128, sbo=512, swizzle=SwizzleMode.NONE)
BOTH = INTO_SHARED + "mov.b32 %r50, %f3;\n"
WGMMA = (
    BOTH + f"or.b64 %d9, %d4, {NARROW_B.encode('sm_90')};\nsetp.eq.u32 %p2, %r0, 777;\n"
    "wgmma.fence.sync.aligned;\n"
    "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f4, %f5, %f6, %f7}, %d7, %d9, %r50, "
    "SELECT, %p2, 1, 1, 0, 0;\n"
    "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" + OUT
)
# lane l of a warp has for the metadata what thread 4 * (l % 8) + 2 * SELECT + l / 8 has in its register
TCGEN05 = (
    BOTH + f"or.b64 %d9, %d4, {NARROW_B.encode('sm_100')};\nsetp.eq.u32 %p2, %r0, 777;\n"
    "and.b32 %r51, %r0, 7;\nshl.b32 %r51, %r51, 2;\nshr.u32 %r52, %r0, 3;\nand.b32 %r52, %r52, 1;\n"
    "add.u32 %r51, %r51, %r52;\nadd.u32 %r51, %r51, FROM;\nshfl.sync.idx.b32 %r53, %r50, %r51, 31, -1;\n"
    "mov.b32 %f9, %r53;\n" + put(96, "%f9") + f"mov.b32 %r40, {SPARSE_64.encode()};\n"
    "@%p1 tcgen05.mma.sp.cta_group::1.kind::f16 [0], %d5, %d9, [96], %r40, %p2;\nbar.sync 0;\n"
    "tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r20, %r21, %r22, %r23}, [0];\n"
    + "".join(f"mov.b32 %f{4 + i}, %r{20 + i};\n" for i in range(4)) + OUT
)  # fmt: skip


@pytest.mark.parametrize(("selector", "taken_from"), [(0, 0), (1, 2), (0, 2), (1, 0)])
def test_a_sparse_wgmma_and_its_port(selector: int, taken_from: int) -> None:
    wgmma, port = WGMMA.replace("SELECT", str(selector)), TCGEN05.replace("FROM", str(taken_from))
    assert are_equal(wgmma, port, threads=128) is (taken_from == 2 * selector)


# Warps of a warpgroup --------------------------------------------------------------------------------

DENSE = (
    INTO_SHARED + f"or.b64 %d9, %d4, {NARROW_B.encode('sm_90')};\nsetp.eq.u32 %p2, %r0, 777;\n"
    "wgmma.fence.sync.aligned;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f4, %f5, %f6, %f7}, %d7, %d9, %p2, 1, 1, 0, 0;\n"
    "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nMEET"
    "st.shared.v4.f32 [%r6], {%f3, %f3, %f3, %f3};\nAGAIN" + OUT
)


def test_operands_are_those_of_the_warpgroup() -> None:
    """What a warp stores behind its own wait is not what a warp that comes later multiplies (docs/rulings.md,
    warpgroup-wait); where all have come again, it is."""
    apart, together = DENSE.replace("MEET", ""), DENSE.replace("MEET", "bar.sync 0;\n")
    assert are_equal(apart.replace("AGAIN", ""), together.replace("AGAIN", ""), threads=128)
    product = DENSE[DENSE.index("wgmma.fence") : DENSE.index("MEET")]
    again = together.replace("AGAIN", "bar.sync 0;\n" + product)
    assert not are_equal(again, together.replace("AGAIN", ""), threads=128)


# Products of a warp -----------------------------------------------------------------------------------

BITS = "".join(f"mov.b32 %r{20 + i}, %f{i};\n" for i in range(4))
OF_LANE_5 = "setp.eq.u32 %p5, %r0, 5;\n@%p5 mov.b32 %r{}, %r22;\n"
MMA = (
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f4, %f5, %f6, %f7}, {%r20, %r21}, {%r23}, "
    "{%f0, %f1, %f2, %f3};\n"
)
MMA_INT8 = (
    "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r30, %r31, %r32, %r33}, {%r20, %r21}, {%r23}, {0, 0, 0, 0};\n"
)
MMA_SPARSE = (
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f4, %f5, %f6, %f7}, {%r20, %r21}, {%r23, %r22}, "
    "{%f0, %f1, %f2, %f3}, %r24, 0x0;\n"
)
OF_FIRST = "setp.eq.u32 %p1, %r0, 0;\n@%p1 st.global.f32 [%d1], %f4;\n"
OF_INT8 = "mov.b32 %f4, %r30;\n" + OF_FIRST
TURNED = "movmatrix.sync.aligned.m8n8.trans.b16 %r24, %r20;\n"
HALF = "st.global.b32 [%d1], %r24;\n"
META_5 = "mov.b32 %r24, %r22;\n" + OF_LANE_5.format(24).replace("%r22;", "%r20;")

SAME_WARP = {
    "lanes of other columns": (MMA + OF_FIRST, OF_LANE_5.format(23) + MMA + OF_FIRST),
    "lanes of other rows": (MMA + OF_FIRST, OF_LANE_5.format(20) + MMA + OF_FIRST),
    "registers of other rows": (MMA + OF_FIRST, "mov.b32 %r21, %r22;\n" + MMA + OF_FIRST),
    "turned twice": (TURNED + TURNED.replace("%r20", "%r24") + HALF, "mov.b32 %r24, %r20;\n" + HALF),
    "the first element turned": (
        TURNED + "setp.eq.u32 %p1, %r0, 0;\n@%p1 st.global.b16 [%d1], %r24;\n",
        "setp.eq.u32 %p1, %r0, 0;\n@%p1 st.global.b16 [%d1], %r20;\n",
    ),
}
LANE_1, LANE_4 = (OF_LANE_5.replace("%r0, 5", f"%r0, {lane}") for lane in (1, 4))
OTHER_WARP = {
    "a lane of the same column": (MMA + OF_FIRST, LANE_1.format(23) + MMA + OF_FIRST),
    "a lane of the same row": (MMA + OF_FIRST, LANE_1.format(20) + MMA + OF_FIRST),
    "another accumulator": (MMA + OF_FIRST, MMA.replace("{%f0, %f1, %f2", "{%f1, %f0, %f2") + OF_FIRST),
    "A and B": (MMA + OF_FIRST, MMA.replace("%r20, %r21", "%r23, %r21").replace("{%r23}", "{%r20}") + OF_FIRST),
    "another element": (MMA + OF_FIRST, MMA + OF_FIRST.replace("%f4", "%f5")),
    "another type": (MMA + OF_FIRST, MMA.replace("f32.f16.f16", "f32.bf16.bf16") + OF_FIRST),
    "a lane of the same row of bytes": (MMA_INT8 + OF_INT8, LANE_1.format(20) + MMA_INT8 + OF_INT8),
    "other metadata": (META_5 + MMA_SPARSE + OF_FIRST, "mov.b32 %r24, %r22;\n" + MMA_SPARSE + OF_FIRST),
    "not turned": (TURNED + HALF, "mov.b32 %r24, %r20;\n" + HALF),
    "another lane turned": (TURNED + HALF, LANE_4.format(20) + TURNED + HALF),
}


@pytest.mark.parametrize("name", SAME_WARP)
def test_products_of_a_warp_that_leave_the_same(name: str) -> None:
    assert are_equal(*(BITS + body for body in SAME_WARP[name]))


@pytest.mark.parametrize("name", OTHER_WARP)
def test_products_of_a_warp_that_leave_something_else(name: str) -> None:
    assert not are_equal(*(BITS + body for body in OTHER_WARP[name]))
