# SPDX-License-Identifier: Apache-2.0
"""Instruction descriptors of tcgen05.mma: fields, codes, and which shapes are legal."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from cute_layout import cute_header
from opcodes import given

from porter.ptx.idesc import FIELDS, InstructionDescriptor
from porter.ptx.types import ElementType as T
from porter.ptx.umma import AB_TYPES, Kind, UmmaOp, legal_m, legal_n

F16_TILE = InstructionDescriptor(Kind.F16, 128, 128, T.F32, T.F16, T.F16)


def test_worked_value() -> None:
    assert F16_TILE.encode() == 0x08200010
    assert InstructionDescriptor.decode(0x08200010, Kind.F16) == F16_TILE


def test_round_trip_and_position_of_every_field() -> None:
    codes = {
        Kind.F16: {T.F16: 0, T.BF16: 1},
        Kind.TF32: {T.TF32: 2},
        Kind.F8F6F4: {T.E4M3: 0, T.E5M2: 1, T.E2M3: 3, T.E3M2: 4, T.E2M1: 5},
        Kind.I8: {T.U8: 0, T.S8: 1},
    }
    d_codes = {T.F16: 0, T.F32: 1, T.S32: 2}
    flags = list(itertools.product((False, True), repeat=4))
    for kind, types in codes.items():
        for (a, b), d, m, n, bits in itertools.product(
            itertools.product(types, types), d_codes, (32, 64, 128, 256), (8, 96, 256), flags
        ):
            idesc = InstructionDescriptor(kind, m, n, d, a, b, *bits)
            word = idesc.encode()
            want = d_codes[d] << 4 | types[a] << 7 | types[b] << 10 | n // 8 << 17 | m // 16 << 24
            for flag, position in zip(bits, (13, 14, 15, 16), strict=True):
                want |= flag << position
            assert word == want
            assert InstructionDescriptor.decode(word, kind) == idesc
    word = replace(F16_TILE, sparse=True, sparsity_selector=3, saturate=True, max_shift=2).encode()
    assert word == F16_TILE.encode() | 0b1111 | 2 << 30


def test_undefined_words() -> None:
    for bit, said in ((6, "reserved"), (23, "more than the field of N"), (29, "more than the field of M")):
        with pytest.raises(ValueError, match=said):
            InstructionDescriptor.decode(F16_TILE.encode() | 1 << bit, Kind.F16)
    with pytest.raises(ValueError, match="a_type code 2"):
        InstructionDescriptor.decode(F16_TILE.encode() | 2 << 7, Kind.F16)
    with pytest.raises(ValueError, match="d_type code 3"):
        InstructionDescriptor.decode(F16_TILE.encode() | 3 << 4, Kind.F16)
    with pytest.raises(ValueError, match="block-scaled"):
        InstructionDescriptor.decode(0, Kind.MXF4)
    with pytest.raises(ValueError, match="cannot be encoded"):
        replace(F16_TILE, n=100).encode()
    with pytest.raises(ValueError, match="no A type"):
        replace(F16_TILE, a_type=T.S8).encode()


# PTX ISA table 39, dense.
TABLE_M = {1: {64, 128}, 2: {128, 256}}
FLOAT_N = {1: set(range(8, 257, 8)), 2: set(range(16, 257, 16))}
INT_N = {1: {8, 16, 24, 32} | set(range(48, 257, 16)), 2: set(range(32, 257, 32))}


@pytest.mark.parametrize("cta_group", [1, 2])
@pytest.mark.parametrize("kind", [Kind.F16, Kind.TF32, Kind.F8F6F4, Kind.I8])
def test_legal_shapes(kind: Kind, cta_group: int) -> None:
    a_type = sorted(AB_TYPES[kind])[0]
    d_type = T.S32 if kind is Kind.I8 else T.F32
    table_n = INT_N if kind is Kind.I8 else FLOAT_N
    for m in range(16, 272, 16):
        for n in range(8, 264, 8):
            idesc = InstructionDescriptor(kind, m, n, d_type, a_type, a_type)
            legal = m in TABLE_M[cta_group] and n in table_n[cta_group]
            assert (idesc.problems(cta_group=cta_group) == []) == legal, (m, n)


def test_ws_shapes() -> None:
    for m, n in itertools.product(range(16, 272, 16), range(8, 264, 8)):
        legal = m in (32, 64, 128) and n in (64, 128, 256)
        assert (replace(F16_TILE, m=m, n=n).problems(ws=True) == []) == legal
    assert replace(F16_TILE, sparse=True, n=256).problems(ws=True)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"d_type": T.S32}, "no s32 accumulator"),
        ({"a_type": T.BF16, "b_type": T.BF16, "d_type": T.F16}, "no f16 accumulator"),
        ({"a_type": T.F16, "b_type": T.BF16, "d_type": T.F16}, "no f16 accumulator"),
        ({"m": 32}, "M=32"),
        ({"n": 264 - 8, "m": 256}, "M=256"),
        ({"saturate": True}, "saturate"),
        ({"max_shift": 1}, "maximum shift"),
        ({"sparsity_selector": 1}, "selector"),
        ({"kind": Kind.I8, "a_type": T.S8, "b_type": T.U8, "d_type": T.S32, "negate_a": True}, "negation"),
        ({"kind": Kind.TF32, "a_type": T.TF32, "b_type": T.TF32, "d_type": T.F16}, "no f16 accumulator"),
    ],
)
def test_problems(change: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(F16_TILE, **change).validate()


def test_byte_operands_mn_major_double_the_step_of_n() -> None:
    tile = InstructionDescriptor(Kind.F8F6F4, 128, 24, T.F32, T.E4M3, T.E5M2)
    assert tile.problems() == []
    assert replace(tile, b_mn_major=True).problems()
    assert replace(tile, b_mn_major=True, n=32).problems() == []
    assert legal_n(Kind.F8F6F4, 2, byte_b_mn_major=True) == tuple(range(32, 257, 32))


def test_block_scaled_rows() -> None:
    assert legal_m(Kind.MXF4, 1) == (128,)
    assert legal_m(Kind.MXF8F6F4, 2) == (128, 256)
    assert legal_m(Kind.MXF8F6F4, 2, sparse=True) == (256,)


def parse(text: str) -> UmmaOp:
    return UmmaOp.of(given(text))


def test_parse_opcode() -> None:
    assert parse("tcgen05.mma.cta_group::1.kind::f16") == UmmaOp(Kind.F16)
    op = parse("tcgen05.mma.sp.cta_group::2.kind::i8.collector::a::lastuse")
    assert (op.kind, op.cta_group, op.sparse, op.collector, op.k) == (Kind.I8, 2, True, "a::lastuse", 64)
    op = parse("tcgen05.mma.ws.cta_group::1.kind::tf32.collector::b0::fill")
    assert op.ws
    assert not op.has_disable_lanes
    assert op.k == 8
    op = parse("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X")
    assert op.scale_vector == "scale_vec::1X"
    for opcode in (
        "tcgen05.mma.cta_group::1",
        "tcgen05.mma.kind::f16",
        "tcgen05.mma.cta_group::3.kind::f16",
        "tcgen05.mma.cta_group::1.kind::f64",
        "tcgen05.mma.ws.cta_group::2.kind::f16",
        "tcgen05.mma.cta_group::1.kind::mxf4",
        "tcgen05.mma.cta_group::1.kind::f16.sync",
    ):
        with pytest.raises(ValueError, match="no row"):
            parse(opcode)


@pytest.mark.external
def test_fields_equal_cute() -> None:
    """Positions and widths of CuTe's InstrDescriptor bit fields."""
    names = {
        "sparse_id2_": "sparsity_selector",
        "sparse_flag_": "sparse",
        "saturate_": "saturate",
        "c_format_": "d_type",
        "a_format_": "a_type",
        "b_format_": "b_type",
        "a_negate_": "negate_a",
        "b_negate_": "negate_b",
        "a_major_": "a_major",
        "b_major_": "b_major",
        "n_dim_": "n",
        "m_dim_": "m",
        "max_shift_": "max_shift",
    }
    header = cute_header("arch/mma_sm100_desc.hpp")
    body = re.search(r"struct\s*\{([^{}]*:[^{}]*)\}", header[header.index("union InstrDescriptor\n") :])
    assert body
    position, found = 0, {}
    for declaration in re.findall(r"uint\d+_t([^;]*);", re.sub(r"//.*", "", body[1])):
        for member in declaration.split(","):
            field, width = member.split(":")
            found[field.strip()] = (position, int(width))
            position += int(width)
    assert position == 32
    for cute_name, name in names.items():
        assert (FIELDS[name].shift, FIELDS[name].width) == found[cute_name], name
