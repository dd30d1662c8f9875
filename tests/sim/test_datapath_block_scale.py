# SPDX-License-Identifier: Apache-2.0
"""Block-scaled tcgen05.mma and narrow operands, against float64 products of dequantized operands.

Scale factors go through the layout that CUTLASS prescribes for shared memory (sm100_blockscaled_layout.hpp,
Sm1xxBlockScaledBasicChunk) and tcgen05.cp, as kernels do it.
"""

from __future__ import annotations

import numpy as np
import pytest
from opcodes import given
from test_datapath_tcgen05 import accumulator
from test_datapath_wgmma import place
from umma_calls import LIBRARY, WIDTH, empty_tmem, issue, padded, pairs, umma, values
from wgmma_as_umma import sm90_to_sm100

from porter.ptx import tmem
from porter.ptx.block_scale import ScaleType, scale_count
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.operand_errors import OperandError
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.tmem_copy import TmemCopy
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind, UmmaOp
from porter.sim.datapath.tcgen05_copy import copy

D, SFA, SFB, A_TMEM = 0, 256, 272, 300


def small_codes(rng: np.random.Generator, shape: tuple[int, int], element: T) -> np.ndarray:
    """Codes of small numbers of every sign and exponent near 1, so that sums stay exact."""
    codes = np.arange(1 << WIDTH[element])
    real = np.nan_to_num(values(codes, element), nan=99, posinf=99, neginf=99)
    return rng.choice(codes[(np.abs(real) <= 4) & (real * 4 % 1 == 0)], shape)


def scale_codes(rng: np.random.Generator, shape: tuple[int, int], scale_type: ScaleType) -> np.ndarray:
    if scale_type is ScaleType.UE8M0:
        return rng.integers(125, 131, shape).astype(np.uint8)
    return rng.integers(0x28, 0x48, shape).astype(np.uint8)


def scale_values(codes: np.ndarray, scale_type: ScaleType) -> np.ndarray:
    if scale_type is ScaleType.UE8M0:
        return 2.0 ** (codes.astype(float) - 127)
    return values(codes, T.E4M3)


def chunk(codes: np.ndarray) -> np.ndarray:
    """Factors [128 rows, 4] as the 512 bytes that CUTLASS keeps them in: ((32, 4), 4):((16, 4), 1)."""
    out = np.zeros(512, np.uint8)
    for row in range(128):
        for factor in range(4):
            out[row % 32 * 16 + row // 32 * 4 + factor] = codes[row, factor]
    return out


def put_scales(cells: list[np.ndarray], column: int, blocks: list[list[np.ndarray]], form: str) -> None:
    """Copy 512-byte blocks of each CTA to Tensor Memory."""
    op = TmemCopy.of(given(f"tcgen05.cp.cta_group::{len(cells)}.{form}"))
    memories = [np.concatenate(parts) for parts in blocks]
    copy(op, column, SmemDescriptor(0, 16, 128, SwizzleMode.NONE).encode("sm_100"), memories, cells)


CASES = [
    ("cta_group::1.kind::mxf8f6f4.block_scale", 128, 64, T.E4M3, T.E4M3, ScaleType.UE8M0, (0, 0)),
    ("cta_group::1.kind::mxf8f6f4.block_scale.block32", 128, 128, T.E5M2, T.E2M1, ScaleType.UE8M0, (3, 1)),
    ("cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X", 128, 40, T.E2M3, T.E3M2, ScaleType.UE8M0, (2, 3)),
    ("cta_group::2.kind::mxf8f6f4.block_scale", 256, 256, T.E3M2, T.E2M3, ScaleType.UE8M0, (1, 2)),
    ("cta_group::2.kind::mxf8f6f4.block_scale", 128, 256, T.E2M1, T.E4M3, ScaleType.UE8M0, (1, 2)),
    ("cta_group::1.kind::mxf4.block_scale", 128, 192, T.E2M1, T.E2M1, ScaleType.UE8M0, (0, 2)),
    ("cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::2X", 128, 8, T.E2M1, T.E2M1, ScaleType.UE8M0, (2, 0)),
    ("cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X", 128, 256, T.E2M1, T.E2M1, ScaleType.UE8M0, (0, 0)),
    ("cta_group::1.kind::mxf4nvf4.block_scale.block16", 128, 128, T.E2M1, T.E2M1, ScaleType.UE4M3, (0, 0)),
    ("cta_group::2.kind::mxf4nvf4.block_scale.block16", 256, 128, T.E2M1, T.E2M1, ScaleType.UE4M3, (0, 0)),
    ("cta_group::2.kind::mxf4nvf4.block_scale.block16", 128, 256, T.E2M1, T.E2M1, ScaleType.UE4M3, (0, 0)),
]


class Problem:
    """One instruction's operands in shared memory, Tensor Memory and float64."""

    def __init__(
        self, opcode: str, m: int, n: int, a_type: T, b_type: T, scale_type: ScaleType, ids: tuple[int, int]
    ) -> None:
        self.op, self.m, self.n = umma(opcode), m, n
        op, ctas = self.op, self.op.cta_group
        rng = np.random.default_rng(5)
        self.a, self.b = small_codes(rng, (m, op.k), a_type), small_codes(rng, (n, op.k), b_type)
        packed = op.kind is not Kind.MXF8F6F4
        tiles = [pairs(codes) if packed else padded(codes, t) for codes, t in ((self.a, a_type), (self.b, b_type))]
        self.smem = [rng.integers(0, 256, 1 << 15, dtype=np.uint8) for _ in range(ctas)]
        for cta, shared in enumerate(self.smem):
            a_part, b_part = (np.split(tile, ctas)[cta] for tile in tiles)
            self.a_desc = sm90_to_sm100(place(shared, 1024, a_part, SwizzleMode.B32, False).encode("sm_90"))
            self.b_desc = sm90_to_sm100(place(shared, 16384, b_part, SwizzleMode.NONE, False).encode("sm_90"))
        self.factors = [scale_codes(rng, (256, 4), scale_type) for _ in range(2)]
        self.tmem = [empty_tmem() for _ in range(ctas)]
        half = m // ctas
        local = [np.roll(self.factors[0], -half * cta, axis=0) for cta in range(ctas)]
        put_scales(self.tmem, SFA, [[chunk(codes[:128])] for codes in local], "32x128b.warpx4")
        blocks = [chunk(self.factors[1][:128]), chunk(self.factors[1][128:])]
        if (m, ctas) == (128, 2):
            put_scales(self.tmem, SFB, [blocks] * 2, "64x128b.warpx2::01_23")
        else:
            for i in range(2):
                put_scales(self.tmem, SFB + 4 * i, [[blocks[i]]] * ctas, "32x128b.warpx4")
        self.idesc = ScaledDescriptor(
            op.kind, m, n, T.F32, a_type, b_type, scale_type=scale_type, a_scale_id=ids[0], b_scale_id=ids[1]
        )
        count = scale_count(op.kind, op.scale_vector)
        real = [values(codes, t) for codes, t in ((self.a, a_type), (self.b, b_type))]
        for i, rows in enumerate((m, n)):
            used = scale_values(self.factors[i][:rows, ids[i] : ids[i] + count], scale_type)
            real[i] = real[i] * np.repeat(used, op.k // count, axis=1)
        self.product = real[0] @ real[1].T

    def run(self, mode: str = "exact", **changes: object) -> np.ndarray:
        arguments = {
            "smem": self.smem, "tmem": self.tmem, "d_addr": D, "a_desc": self.a_desc, "b_desc": self.b_desc,
            "enable_d": False, "scale_a": SFA, "scale_b": SFB, "mode": mode,
        }  # fmt: skip
        issue(self.op, self.idesc.encode(), **{**arguments, **changes})
        return accumulator(self.tmem, self.m, self.n, self.op, D, T.F32)


@pytest.mark.parametrize(("opcode", "m", "n", "a_type", "b_type", "scale_type", "ids"), CASES)
def test_product_of_scaled_operands(
    opcode: str, m: int, n: int, a_type: T, b_type: T, scale_type: ScaleType, ids: tuple[int, int]
) -> None:
    problem = Problem(opcode, m, n, a_type, b_type, scale_type, ids)
    np.testing.assert_array_equal(problem.run("float64"), problem.product)
    np.testing.assert_array_equal(problem.run("exact"), problem.product)
    np.testing.assert_array_equal(problem.run("exact", enable_d=True), 2 * problem.product)


@pytest.mark.parametrize("mode", ["exact", "float64"])
def test_factors_are_those_of_the_partition(mode: str) -> None:
    """Rows 32 to 63 read lanes 32 to 63; a program that fills only the first 32 lanes gets NaN elsewhere."""
    problem = Problem(*CASES[0])
    problem.tmem[0][32:64, SFB : SFB + 8] = 0xFFFFFFFF
    got = problem.run(mode)
    np.testing.assert_array_equal(np.isnan(got).all(axis=1), np.arange(128) // 32 == 1)
    np.testing.assert_array_equal(got[:32], problem.product[:32])
    np.testing.assert_array_equal(got[64:], problem.product[64:])
    problem.tmem[0][64, SFA + 2] = 0xFF
    assert np.flatnonzero(np.isnan(problem.run(mode)).any(axis=1)).tolist() == [*range(32, 65)]


@pytest.mark.parametrize("element", [T.E2M1, T.E2M3, T.E3M2, T.E4M3])
@pytest.mark.parametrize("kind", [Kind.F8F6F4, Kind.MXF8F6F4])
def test_narrow_a_in_tensor_memory(element: T, kind: Kind) -> None:
    """Values sit in the middle of bytes; what is around them does not matter."""
    rng = np.random.default_rng(7)
    codes = small_codes(rng, (128, 32), element)
    shift = {4: 2, 6: 1, 8: 0}[WIDTH[element]]
    around = 0 if shift == 0 else 0xFF & ~(((1 << WIDTH[element]) - 1) << shift)
    held = (codes << shift | rng.integers(0, 256, codes.shape) & around).astype(np.uint8)
    b = small_codes(rng, (64, 32), T.E5M2)
    smem, memory = np.zeros(8192, np.uint8), empty_tmem()
    b_desc = sm90_to_sm100(place(smem, 0, padded(b, T.E5M2), SwizzleMode.B32, False).encode("sm_90"))
    memory[:, A_TMEM : A_TMEM + 8] = held.view(np.uint32)
    scales: dict[str, int] = {}
    if kind is Kind.MXF8F6F4:
        memory[:, SFA : SFA + 8] = memory[:, SFB : SFB + 8] = 0x7F7F7F7F
        scales = {"scale_a": SFA, "scale_b": SFB}
        idesc = ScaledDescriptor(kind, 128, 64, T.F32, element, T.E5M2).encode()
    else:
        idesc = InstructionDescriptor(kind, 128, 64, T.F32, element, T.E5M2).encode()
    op = umma(f"cta_group::1.kind::{kind}{'.block_scale' if scales else ''}")
    issue(op, idesc, smem=[smem], tmem=[memory], d_addr=0, a_tmem=A_TMEM, b_desc=b_desc, enable_d=False, **scales)
    want = values(codes, element) @ values(b, T.E5M2).T
    np.testing.assert_array_equal(accumulator([memory], 128, 64, op, 0, T.F32), want)


def test_packed_a_in_tensor_memory() -> None:
    problem = Problem(*CASES[7])
    problem.tmem[0][:, A_TMEM : A_TMEM + 8] = pairs(problem.a).view(np.uint32)
    np.testing.assert_array_equal(problem.run(a_desc=None, a_tmem=A_TMEM), problem.product)


@pytest.mark.parametrize("element", LIBRARY)
@pytest.mark.parametrize("a_major", [False, True])
@pytest.mark.parametrize("b_major", [False, True])
def test_unscaled_narrow_operands(element: T, a_major: bool, b_major: bool) -> None:
    """Both majors: 16 elements share 16 bytes along the major dimension."""
    rng = np.random.default_rng(8)
    a, b = small_codes(rng, (64, 32), element), small_codes(rng, (48, 32), element)
    smem, memory = np.zeros(1 << 14, np.uint8), empty_tmem()
    descriptors = []
    for start, codes, major in ((0, a, a_major), (8192, b, b_major)):
        tile = padded(codes.T, element).T if major else padded(codes, element)
        mode = SwizzleMode.NONE if major else SwizzleMode.B32
        descriptors.append(sm90_to_sm100(place(smem, start, tile, mode, major).encode("sm_90")))
    op = umma("cta_group::1.kind::f8f6f4")
    idesc = InstructionDescriptor(Kind.F8F6F4, 64, 48, T.F32, element, element, a_mn_major=a_major, b_mn_major=b_major)
    issue(
        op, idesc.encode(), smem=[smem], tmem=[memory], d_addr=0, a_desc=descriptors[0], b_desc=descriptors[1],
        enable_d=False,
    )  # fmt: skip
    np.testing.assert_array_equal(
        accumulator([memory], 64, 48, op, 0, T.F32), values(a, element) @ values(b, element).T
    )


@pytest.mark.parametrize(("changes", "text"), [
    ({"a_scale_id": 1}, "scale factor id 1 of A"),
    ({"b_scale_id": 3}, "scale factor id 3 of B"),
    ({"scale_type": ScaleType.UE4M3}, "no ue4m3 factors"),
    ({"k96": True}, "sm_103a"),
    ({"a_mn_major": True}, "K-major only"),
    ({"m": 64}, "M=64"),
])  # fmt: skip
def test_illegal_scale_descriptors(changes: dict[str, object], text: str) -> None:
    problem = Problem(*CASES[5])
    fields = {"kind": Kind.MXF4, "m": 128, "n": 64, "d_type": T.F32, "a_type": T.E2M1, "b_type": T.E2M1, **changes}
    problem.idesc = ScaledDescriptor(**fields)
    with pytest.raises(OperandError, match=text):
        problem.run()


def test_illegal_scale_addresses_and_vectors() -> None:
    problem = Problem(*CASES[5])
    with pytest.raises(OperandError, match="lane 32"):
        problem.run(scale_a=tmem.address(32, SFA))
    with pytest.raises(OperandError, match="pass column"):
        problem.run(scale_b=508)
    problem.op = UmmaOp(Kind.MXF4NVF4, block_scale=True)
    with pytest.raises(OperandError, match="no scale vector"):
        problem.run()
    # CuTe keeps the id in the top bits of its pointers, which are no part of the lane.
    problem = Problem(*CASES[5])
    got = problem.run(scale_a=SFA | 1 << 31)
    np.testing.assert_array_equal(got, problem.product)
