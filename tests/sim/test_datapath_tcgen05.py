# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma, ld and st on Tensor Memory, against plain matrix products and wgmma."""

from __future__ import annotations

import numpy as np
import pytest
from test_datapath_wgmma import DTYPES, MODES, place, random_tile
from umma_calls import POISON, empty_tmem, issue, umma
from wgmma_as_umma import a_fragment_pieces, accumulator_pieces, sm90_to_sm100, wgmma_to_umma

from porter.ptx import tmem
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.mma_cells import mma_cells
from porter.ptx.operand_errors import OperandError
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.tmem_access import Shape
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind, UmmaOp, legal_d_types
from porter.ptx.wgmma import WgmmaOp, legal_n, umma_kind
from porter.sim.datapath import tmem_access
from porter.sim.datapath.wgmma import wgmma


def accumulator(memory: list[np.ndarray], m: int, n: int, op: UmmaOp, d_addr: int, d_type: T) -> np.ndarray:
    """D [m, n] read at the places that the layout tables give."""
    row, col = np.indices((m, n))
    cta, lane, column = tmem.d_cell(tmem.d_layout(m, op.cta_group, ws=op.ws, sparse=op.sparse), row, col, n)
    words = np.stack(memory)[cta + 0 * col, tmem.lane_of(d_addr) + lane + 0 * col, tmem.column_of(d_addr) + column]
    if d_type is T.F16:
        return (words & 0xFFFF).astype(np.uint16).view(np.float16).astype(float)
    return words.view(np.int32 if d_type is T.S32 else np.float32).astype(float)


TILES = [
    ("cta_group::1.kind::f16", 64, 96, T.F32, T.F16, T.F16),
    ("cta_group::1.kind::f16", 128, 256, T.F32, T.BF16, T.BF16),
    ("cta_group::1.kind::f16", 64, 8, T.F16, T.F16, T.F16),
    ("cta_group::1.kind::tf32", 128, 64, T.F32, T.TF32, T.TF32),
    ("cta_group::1.kind::f8f6f4", 64, 40, T.F32, T.E4M3, T.E5M2),
    ("cta_group::1.kind::f8f6f4", 128, 16, T.F16, T.E5M2, T.E5M2),
    ("cta_group::1.kind::i8", 128, 48, T.S32, T.S8, T.U8),
    ("cta_group::2.kind::f16", 256, 64, T.F32, T.F16, T.F16),
    ("cta_group::2.kind::f16", 128, 96, T.F32, T.BF16, T.BF16),
    ("ws.cta_group::1.kind::f16", 32, 64, T.F32, T.F16, T.F16),
    ("ws.cta_group::1.kind::f16", 64, 128, T.F32, T.F16, T.F16),
    ("ws.cta_group::1.kind::f16", 128, 64, T.F32, T.F16, T.F16),
]


@pytest.mark.parametrize(("opcode", "m", "n", "d_type", "a_type", "b_type"), TILES)
@pytest.mark.parametrize("mode", ["float64", "exact"])
def test_product_from_shared_memory(opcode: str, m: int, n: int, d_type: T, a_type: T, b_type: T, mode: str) -> None:
    op = umma(opcode)
    rng = np.random.default_rng(1)
    ctas = op.cta_group
    a, b = random_tile(rng, (m, op.k), a_type), random_tile(rng, (n, op.k), b_type)
    smem = [rng.integers(0, 256, 1 << 15, dtype=np.uint8) for _ in range(ctas)]
    for cta in range(ctas):
        a_part, b_part = np.split(a, ctas)[cta], np.split(b, ctas)[cta]
        a_desc = sm90_to_sm100(place(smem[cta], 1024, a_part, SwizzleMode.B32, False).encode("sm_90"))
        b_desc = sm90_to_sm100(place(smem[cta], 16384, b_part, SwizzleMode.NONE, False).encode("sm_90"))
    idesc = InstructionDescriptor(op.kind, m, n, d_type, a_type, b_type)
    memory = [empty_tmem() for _ in range(ctas)]
    d_addr = tmem.address(0, 64)
    arguments = {
        "smem": smem, "tmem": memory, "d_addr": d_addr, "a_desc": a_desc, "a_tmem": None,
        "b_desc": b_desc, "mode": mode,
    }  # fmt: skip
    product = a.astype(np.float64) @ b.astype(np.float64).T
    issue(op, idesc.encode(), enable_d=False, **arguments)
    np.testing.assert_array_equal(accumulator(memory, m, n, op, d_addr, d_type), product)
    issue(op, idesc.encode(), enable_d=True, **arguments)
    np.testing.assert_array_equal(accumulator(memory, m, n, op, d_addr, d_type), 2 * product)
    lanes, columns = mma_cells(op, idesc.encode(), d_addr)
    touched = np.zeros((128, 512), bool)
    touched[lanes, columns] = True
    for part in memory:
        assert (part[~touched] == POISON).all()


@pytest.mark.parametrize("half", [0, 16])
@pytest.mark.parametrize("a_type", [T.F16, T.BF16, T.TF32, T.E4M3, T.S8])
def test_port_of_wgmma_gives_the_same_registers(a_type: T, half: int) -> None:
    """For every N and D type: shared-memory operands, the accumulator loaded as a fragment."""
    rng = np.random.default_rng(2)
    for n in legal_n(a_type)[:: 3 if a_type is T.F16 else 7]:
        for d_type in legal_d_types(umma_kind(a_type), a_type):
            k = 256 // a_type.bits
            op = WgmmaOp(n, k, d_type, a_type, a_type)
            a, b = random_tile(rng, (64, k), a_type), random_tile(rng, (n, k), a_type)
            smem = np.zeros(1 << 15, np.uint8)
            a_desc = place(smem, 0, a, SwizzleMode.B32, False).encode("sm_90")
            b_desc = place(smem, 8192, b, SwizzleMode.B32, False).encode("sm_90")
            start = rng.integers(0, 4, (128, op.d_registers)).astype(np.uint32) * 0x3C003C00
            if d_type is not T.F16:
                start = rng.integers(0, 4, (128, op.d_registers)).astype(
                    np.int32 if d_type is T.S32 else np.float32
                ).view(np.uint32)  # fmt: skip
            want = wgmma(
                op, smem, a_desc=a_desc, a_regs=None, b_desc=b_desc, d=start, scale_d=True, mode="exact",
                rules="sm_100",
            )  # fmt: skip
            kind, idesc = wgmma_to_umma(op)
            memory = empty_tmem()
            base = tmem.address(half, 100)
            got = np.zeros_like(want)
            for warp in range(4):
                rows = slice(32 * warp, 32 * warp + 32)
                for piece in accumulator_pieces(n, d_type, store=True):
                    taddr = base + tmem.address(32 * warp, piece.column)
                    columns = slice(piece.register, piece.register + piece.registers)
                    access = piece.access
                    tmem_access.store(
                        memory, taddr, access.shape, access.count, access.packed, warp, start[rows, columns]
                    )  # fmt: skip
            issue(
                UmmaOp(kind), idesc.encode(), smem=[smem], tmem=[memory], d_addr=base,
                a_desc=sm90_to_sm100(a_desc), a_tmem=None, b_desc=sm90_to_sm100(b_desc), enable_d=True,
                mode="exact",
            )  # fmt: skip
            for warp in range(4):
                rows = slice(32 * warp, 32 * warp + 32)
                for piece in accumulator_pieces(n, d_type):
                    taddr = base + tmem.address(32 * warp, piece.column)
                    columns = slice(piece.register, piece.register + piece.registers)
                    access = piece.access
                    got[rows, columns] = tmem_access.load(
                        memory, taddr, access.shape, access.count, access.packed, warp
                    )  # fmt: skip
            np.testing.assert_array_equal(got, want, err_msg=f"n={n} {d_type}")


@pytest.mark.parametrize("a_type", [T.F16, T.BF16, T.TF32, T.E4M3, T.U8])
def test_port_of_a_in_registers(a_type: T) -> None:
    """wgmma's A registers, stored to Tensor Memory warp by warp, give the same product."""
    rng = np.random.default_rng(3)
    k = 256 // a_type.bits
    d_type = T.S32 if a_type is T.U8 else T.F32
    op = WgmmaOp(32, k, d_type, a_type, a_type)
    b = random_tile(rng, (32, k), a_type)
    smem = np.zeros(8192, np.uint8)
    b_desc = place(smem, 0, b, SwizzleMode.B32, False).encode("sm_90")
    blocks = random_tile(rng, (128 * 3, 16 // np.dtype(DTYPES[a_type]).itemsize), a_type)
    a_regs = np.ascontiguousarray(blocks).view(np.uint32).reshape(3, 128, 4)
    memory = empty_tmem()
    a_base, d_base = tmem.address(16, 40), tmem.address(16, 256)
    registers = np.concatenate(list(a_regs), axis=1)
    for warp in range(4):
        for piece in a_fragment_pieces(3):
            columns = slice(piece.register, piece.register + piece.registers)
            tmem_access.store(
                memory, a_base + tmem.address(32 * warp, piece.column), piece.access.shape,
                piece.access.count, False, warp, registers[32 * warp : 32 * warp + 32, columns],
            )  # fmt: skip
    kind, idesc = wgmma_to_umma(op)
    want = np.zeros((128, 16), np.uint32)
    for block in range(3):
        want = wgmma(
            op, smem, a_desc=None, a_regs=a_regs[block], b_desc=b_desc, d=want, scale_d=True, rules="sm_100"
        )  # fmt: skip
        issue(
            UmmaOp(kind), idesc.encode(), smem=[smem], tmem=[memory], d_addr=d_base, a_desc=None,
            a_tmem=a_base + 8 * block, b_desc=sm90_to_sm100(b_desc), enable_d=block > 0,
        )  # fmt: skip
    got = np.concatenate(
        [tmem_access.load(memory, d_base + tmem.address(32 * w, 0), "16x256b", 4, False, w) for w in range(4)]
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("opcode", "m"),
    [("cta_group::1.kind::f16", 128), ("ws.cta_group::1.kind::f16", 64), ("cta_group::2.kind::f16", 128)],
)
def test_a_in_tensor_memory(opcode: str, m: int) -> None:
    """A lies in D's lanes, once for each lane range over which D's columns are split."""
    op = umma(opcode)
    rng = np.random.default_rng(4)
    a, b = random_tile(rng, (m, 16), T.F16), random_tile(rng, (64, 16), T.F16)
    ctas = op.cta_group
    smem, memory = [np.zeros(8192, np.uint8) for _ in range(ctas)], [empty_tmem() for _ in range(ctas)]
    for cta in range(ctas):
        words = np.ascontiguousarray(np.split(a, ctas)[cta]).view(np.uint32)
        for first in range(0, 128, len(words)):
            memory[cta][first : first + len(words), 8:16] = words
        part = np.split(b, ctas)[cta]
        b_desc = sm90_to_sm100(place(smem[cta], 0, part, SwizzleMode.B32, False).encode("sm_90"))
    idesc = InstructionDescriptor(Kind.F16, m, 64, T.F32, T.F16, T.F16)
    issue(
        op, idesc.encode(), smem=smem, tmem=memory, d_addr=64, a_desc=None, a_tmem=8, b_desc=b_desc,
        enable_d=False,
    )  # fmt: skip
    product = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_array_equal(accumulator(memory, m, 64, op, 64, T.F32), product)


@pytest.mark.parametrize("swizzle", MODES)
def test_mn_major_and_negation(swizzle: SwizzleMode) -> None:
    rng = np.random.default_rng(5)
    a, b = random_tile(rng, (128, 16), T.F16), random_tile(rng, (64, 16), T.F16)
    smem = np.full(1 << 15, 0xFF, np.uint8)
    a_desc = sm90_to_sm100(place(smem, 0, a, swizzle, True).encode("sm_90"))
    b_desc = sm90_to_sm100(place(smem, 16384, b, swizzle, True).encode("sm_90"))
    product = a.astype(np.float64) @ b.astype(np.float64).T
    for negate_a, negate_b in ((False, False), (True, False), (False, True), (True, True)):
        idesc = InstructionDescriptor(Kind.F16, 128, 64, T.F32, T.F16, T.F16, negate_a, negate_b, True, True)
        memory = empty_tmem()
        op = umma("cta_group::1.kind::f16")
        issue(
            op, idesc.encode(), smem=[smem], tmem=[memory], d_addr=0, a_desc=a_desc, a_tmem=None,
            b_desc=b_desc, enable_d=False,
        )  # fmt: skip
        sign = -1 if negate_a != negate_b else 1
        np.testing.assert_array_equal(accumulator([memory], 128, 64, op, 0, T.F32), sign * product)


def simple_mma(**changes: object) -> np.ndarray:
    """A·B = 16 everywhere, M=64, N=16; the accumulator before it is 8 everywhere."""
    smem = np.full(8192, 0, np.uint8)
    smem[:] = np.frombuffer(np.full(4096, 1, np.float16).tobytes(), np.uint8)
    memory = np.full((128, 512), np.float32(8).view(np.uint32), np.uint32)
    desc = 1 << 46 | 3 << 62 | 16 << 32
    arguments = {
        "op": umma("cta_group::1.kind::f16"), "idesc": 0x04040010, "smem": [smem], "tmem": [memory],
        "d_addr": 0, "a_desc": desc, "a_tmem": None, "b_desc": desc, "enable_d": True,
    }  # fmt: skip
    arguments.update(changes)
    issue(arguments.pop("op"), arguments.pop("idesc"), **arguments)
    return memory.view(np.float32)


def test_scale_and_disabled_lanes() -> None:
    assert simple_mma()[0, 0] == 24
    assert simple_mma(scale_d=2)[0, 15] == 18
    assert simple_mma(scale_d=2, enable_d=False)[0, 15] == 16
    result = simple_mma(disable_lanes=1 << 3 | 1 << 33)
    assert [result[lane, 5] for lane in (2, 3, 4, 32, 33, 34)] == [24, 8, 24, 24, 8, 24]
    assert result[0, 16] == result[16, 0] == 8


def test_f16_results_leave_the_upper_half_unspecified() -> None:
    result = simple_mma(idesc=0x04040000, enable_d=False).view(np.uint32)
    assert result[0, 0] & 0xFFFF == np.float16(16).view(np.uint16)
    assert np.isnan(result[0, 0].view(np.float32))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"idesc": 0x04040010 | 1 << 23}, "N = 528, more than the field of N holds"),
        ({"idesc": 0x04040090 | 1 << 8}, "a_type code 3"),
        ({"idesc": 0x02040010}, "M=32"),
        ({"idesc": 0x04000010}, "N=0"),
        ({"idesc": 0x04040010 | 1 << 2}, "sparse bit"),
        ({"a_desc": 16 << 32}, "0b001"),
        ({"d_addr": 8 << 16}, "lane 8; it must be 0 or 16"),
        ({"d_addr": 500}, "passes column 512"),
        ({"a_desc": None}, "without an A"),
        ({"a_desc": None, "a_tmem": 32 << 16}, "lane 32"),
        ({"a_desc": None, "a_tmem": 505}, "passes column"),
        ({"smem": []}, "memories of 1"),
    ],
)
def test_invalid_operands(change: dict, complaint: str) -> None:
    with pytest.raises(OperandError, match=complaint):
        simple_mma(**change)


@pytest.mark.parametrize("m", [128, 256])
def test_disabled_lanes_of_a_pair(m: int) -> None:
    """The second half of the mask is the odd CTA's; with M=128 a lane holds a row's half of the columns."""
    op, n, rng = umma("cta_group::2.kind::f16"), 32, np.random.default_rng(9)
    a, b = (rng.integers(1, 4, (rows, 16)).astype(np.float16) for rows in (m, n))
    smem, memory = [np.zeros(1 << 14, np.uint8) for _ in range(2)], [np.zeros((128, 512), np.uint32) for _ in range(2)]
    for cta, shared in enumerate(smem):
        parts = [np.split(x, 2)[cta] for x in (a, b)]
        descriptors = [
            sm90_to_sm100(place(shared, start, part, SwizzleMode.B32, False).encode("sm_90"))
            for start, part in zip((0, 8192), parts, strict=True)
        ]
    off = np.zeros((2, 128), bool)
    off[0, 5] = off[1, 70] = True
    mask = sum(1 << int(lane) for lane in np.flatnonzero(off))
    idesc = InstructionDescriptor(Kind.F16, m, n, T.F32, T.F16, T.F16).encode()
    issue(
        op, idesc, smem=smem, tmem=memory, d_addr=0, a_desc=descriptors[0], b_desc=descriptors[1], enable_d=False,
        disable_lanes=mask,
    )  # fmt: skip
    columns = n if m == 256 else n // 2
    for cta in range(2):
        np.testing.assert_array_equal(memory[cta][:, :columns].any(axis=1), ~off[cta])


def test_operands_that_do_not_belong_to_the_instruction() -> None:
    for changes, text in (
        ({"op": umma("cta_group::1.kind::mxf4.block_scale"), "idesc": 0x08840480}, "scale factors go with"),
        ({"metadata": 0}, "go.* with .sp"),
        ({"scale_a": 0, "scale_b": 0}, "scale factors go with"),
        ({"zero_columns": 0}, "goes with .ws"),
        ({"op": umma("sp.cta_group::1.kind::f16"), "idesc": 0x04040014}, "go.* with .sp"),
        ({"op": umma("cta_group::1.kind::f16.ashift"), "idesc": 0x08040010}, "needs A in Tensor Memory"),
        ({"op": umma("cta_group::1.kind::f16.ashift"), "idesc": 0x04040010}, "M=128 and M=256"),
    ):
        with pytest.raises(OperandError, match=text):
            simple_mma(**changes)


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("warp", [0, 1, 3, 6])
def test_store_then_load(shape: Shape, packed: bool, warp: int) -> None:
    rng = np.random.default_rng(6)
    for count in (1, 4):
        memory = empty_tmem()
        registers = rng.integers(0, 1 << 32, (32, count * shape.registers_per_repeat), dtype=np.uint32)
        taddr = tmem.address(warp % 4 * 32, 24)
        split = 40 if shape is Shape.S16X32BX2 else 0
        tmem_access.store(memory, taddr, shape, count, packed, warp, registers, split)
        np.testing.assert_array_equal(tmem_access.load(memory, taddr, shape, count, packed, warp, split), registers)
        lanes, columns = tmem_access.cells(taddr, shape, count, warp_rank=warp, packed=packed, half_split=split)
        quarter = warp % 4 * 32
        assert lanes.min() >= quarter
        assert lanes.max() < quarter + 32
        touched = np.zeros((128, 512), bool)
        touched[lanes, columns] = True
        assert touched.sum() == registers.size * (2 if packed else 1)
        assert (memory[~touched] == POISON).all()
        # A lane field of zero means the warp's own quarter as well.
        np.testing.assert_array_equal(tmem_access.load(memory, 24, shape, count, packed, warp, split), registers)


def test_load_reads_the_cells_of_the_map() -> None:
    """Cells that name themselves, read by every shape."""
    lanes, columns = np.meshgrid(np.arange(128), np.arange(512), indexing="ij")
    memory = (lanes << 16 | columns).astype(np.uint32)
    assert tmem_access.load(memory, tmem.address(96, 10), "32x32b", 2, False, 3)[5].tolist() == [
        101 << 16 | 10,
        101 << 16 | 11,
    ]
    assert tmem_access.load(memory, tmem.address(16, 0), "16x256b", 1, False, 4)[6].tolist() == [
        17 << 16 | 4,
        17 << 16 | 5,
        25 << 16 | 4,
        25 << 16 | 5,
    ]
    assert tmem_access.load(memory, 0, "16x32bx2", 1, False, 0, 7)[[3, 19], 0].tolist() == [3 << 16, 3 << 16 | 7]
    assert tmem_access.load(memory, 0, "16x64b", 1, True, 0)[3, 0] == 2 | 3 << 16


@pytest.mark.parametrize(
    ("taddr", "shape", "count", "warp", "complaint"),
    [
        (tmem.address(32, 0), "32x32b", 1, 0, "warp 0 reaches lanes 0 to 31"),
        (tmem.address(64, 0), "16x256b", 1, 7, "lanes 96 to 127"),
        (tmem.address(16, 0), "32x32b", 1, 0, "multiple of 32"),
        (tmem.address(0, 510), "32x32b", 4, 0, "passes column 512"),
        (tmem.address(128, 0), "32x32b", 1, 0, "not one of the 128"),
        (0, "16x256b", 64, 0, "no repetition"),
    ],
)
def test_unreachable_cells(taddr: int, shape: str, count: int, warp: int, complaint: str) -> None:
    with pytest.raises(OperandError, match=complaint):
        tmem_access.load(empty_tmem(), taddr, shape, count, False, warp)
