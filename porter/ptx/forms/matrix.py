# SPDX-License-Identifier: Apache-2.0
"""Warp and warpgroup matrix instructions: PTX ISA 9.0, sections 9.7.14 (`mma`) and 9.7.15 (`wgmma`).

Vector lengths follow from the shape: the 32-bit registers that hold a thread's share of the matrix.
"""

from __future__ import annotations

import re

from porter.ptx.forms.grammar import COUNTS, Completion, Form, Modifiers, form
from porter.ptx.types import ElementType
from porter.ptx.wgmma import legal_n

_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "e3m2": 8,
    "e2m3": 8, "e2m1": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip


def _mnk(modifiers: Modifiers) -> tuple[int, int, int]:
    m, n, k = re.findall(r"\d+", modifiers["shape"])
    return int(m), int(n), int(k)


def _registers(elements: int, type_: str, threads: int) -> int:
    """Registers of one thread; doubles fill 64-bit registers."""
    bits = _BITS[type_]
    return max(1, elements * bits // (threads * (64 if bits == 64 else 32)))


def _a_length(modifiers: Modifiers) -> int:
    m, _, k = _mnk(modifiers)
    return _registers(m * k, modifiers["atype"], 32)


def _b_length(modifiers: Modifiers) -> int:
    _, n, k = _mnk(modifiers)
    return _registers(n * k, modifiers["btype"], 32)


def _d_length(modifiers: Modifiers) -> int:
    m, n, _ = _mnk(modifiers)
    return _registers(m * n, modifiers["dtype"], 32)


def _c_length(modifiers: Modifiers) -> int:
    m, n, _ = _mnk(modifiers)
    return _registers(m * n, modifiers["ctype"], 32)


def _wgmma_d_length(modifiers: Modifiers) -> int:
    m, n, _ = _mnk(modifiers)
    return _registers(m * n, modifiers["dtype"], 128)


COUNTS["mma_a"] = _a_length
COUNTS["mma_a_sparse"] = lambda m: max(1, _a_length(m) // 2)
COUNTS["mma_b"] = _b_length
COUNTS["mma_c"] = _c_length
COUNTS["mma_d"] = _d_length
COUNTS["wgmma_d"] = _wgmma_d_length
# m8n8k4 is four products by quads of threads, so each thread holds more than a 32nd of an 8x8 matrix.
COUNTS["mma_8x8x4_d"] = lambda m: 8 if m["dtype"] == "f32" else 4
COUNTS["mma_8x8x4_c"] = lambda m: 8 if m["ctype"] == "f32" else 4

_MMA = "=d:packed(dtype)*mma_d, a:b32*mma_a, b:b32*mma_b, c:packed(ctype)*mma_c"
_MMA_F64 = "=d:f64*mma_d, a:f64*mma_a, b:f64*mma_b, c:f64*mma_c"
_F8 = "e4m3|e5m2"
_F8F6F4 = "e4m3|e5m2|e3m2|e2m3|e2m1"
_NARROW_FLOATS = (
    "atype=e3m2|e2m3|e2m1: sm_120a@8.7 sm_120f@8.8",
    "btype=e3m2|e2m3|e2m1: sm_120a@8.7 sm_120f@8.8",
    "dtype=f16: sm_89@8.7",
)
_BLACKWELL = "sm_100a@8.6 sm_101a@8.6 sm_120a@8.7 sm_100f@8.8 sm_101f@8.8 sm_120f@8.8 sm_110f@9.0"


def _one_width(modifiers: Modifiers) -> bool:
    """C and D have one type; the product of quads alone may widen C."""
    if modifiers["shape"] == "m8n8k4":
        return modifiers["dtype"] != "f16" or modifiers["ctype"] == "f16"
    return modifiers["dtype"] == modifiers["ctype"]


def _mma(pattern: str, needs: str, operands: str = _MMA, sparse: bool = False, *also: str) -> Form:
    name = "mma.<metadata:sp|sp::ordered_metadata>" if sparse else "mma"
    section = "9.7.14.6" if sparse else "9.7.14.5"
    if sparse:
        also = (*also, "metadata=sp::ordered_metadata: sm_80@8.5")
    return form(f"{name}.sync.aligned.{pattern}", operands, section, needs, *also, issue="warp", rule=_one_width)


def _scaled(shape: str, kind: str, size: str, types: str, scale: str) -> Form:
    """Block-scaled products; their scale factors sit in registers, with selectors of byte and thread."""
    return form(
        f"mma.sync.aligned.<shape:{shape}>.row.col.<kind:{kind}>.block_scale.{size}.<dtype:f32>.<atype:{types}>"
        f".<btype:{types}>.<ctype:f32>.<stype:{scale}>",
        "=d:f32*4, a:b32*4, b:b32*2, c:f32*4, scale_a:b32, select_a:u16*2, scale_b:b32, select_b:u16*2",
        "9.7.14.5",
        "sm_120a@8.7 sm_120f@8.8",
        issue="warp",
    )


_SPARSE = "=d:packed(dtype)*mma_d, a:b32*mma_a_sparse, b:b32*mma_b, c:packed(ctype)*mma_c, e:b32, f:imm(0..3)"

_WARP_FORMS: tuple[Form, ...] = (
    _mma(
        "<shape:m8n8k4>.<alayout:row|col>.<blayout:row|col>.<dtype:f16|f32>.<atype:f16>.<btype:f16>.<ctype:f16|f32>",
        "sm_70@6.4",
        "=d:packed(dtype)*mma_8x8x4_d, a:b32*2, b:b32*2, c:packed(ctype)*mma_8x8x4_c",
    ),
    _mma(
        "<shape:m16n8k8|m16n8k16>.row.col.<dtype:f16|f32>.<atype:f16>.<btype:f16>.<ctype:f16|f32>",
        "sm_75@6.5",
    ),
    _mma("<shape:m16n8k8|m16n8k16>.row.col.<dtype:f32>.<atype:bf16>.<btype:bf16>.<ctype:f32>", "sm_80@7.0"),
    _mma("<shape:m16n8k4|m16n8k8>.row.col.<dtype:f32>.<atype:tf32>.<btype:tf32>.<ctype:f32>", "sm_80@7.0"),
    _mma(
        f"<shape:m16n8k16|m16n8k32>.row.col.<dtype:f16|f32>.<atype:{_F8}>.<btype:{_F8}>.<ctype:f16|f32>",
        "sm_89@8.4", _MMA, False, "shape=m16n8k16: sm_89@8.7", "dtype=f16: sm_89@8.7",
    ),
    _mma(
        f"<shape:m16n8k32>.row.col.kind::f8f6f4.<dtype:f16|f32>.<atype:{_F8F6F4}>.<btype:{_F8F6F4}>.<ctype:f16|f32>",
        _BLACKWELL,
        _MMA,
        False,
        *_NARROW_FLOATS,
    ),
    _scaled("m16n8k64", "kind::mxf4", "scale_vec::2X?", "e2m1", "ue8m0"),
    _scaled("m16n8k64", "kind::mxf4nvf4", "<size:scale_vec::2X>", "e2m1", "ue8m0"),
    _scaled("m16n8k64", "kind::mxf4nvf4", "<size:scale_vec::4X>", "e2m1", "ue4m3"),
    _scaled("m16n8k32", "kind::mxf8f6f4", "scale_vec::1X?", _F8F6F4, "ue8m0"),
    _mma("<shape:m8n8k4>.row.col.<dtype:f64>.<atype:f64>.<btype:f64>.<ctype:f64>", "sm_80@7.0", _MMA_F64),
    _mma(
        "<shape:m16n8k4|m16n8k8|m16n8k16>.row.col.<dtype:f64>.<atype:f64>.<btype:f64>.<ctype:f64>",
        "sm_90@7.8", _MMA_F64,
    ),
    _mma(
        "<shape:m8n8k16|m16n8k16|m16n8k32>.row.col.satfinite?.<dtype:s32>.<atype:u8|s8>.<btype:u8|s8>.<ctype:s32>",
        "sm_80@7.0",
    ),
    _mma(
        "<shape:m8n8k32|m16n8k32|m16n8k64>.row.col.satfinite?.<dtype:s32>.<atype:u4|s4>.<btype:u4|s4>.<ctype:s32>",
        "sm_80@7.0",
    ),
    _mma(
        "<shape:m8n8k128|m16n8k128|m16n8k256>.row.col.<dtype:s32>.<atype:b1>.<btype:b1>.<ctype:s32>.<op:xor|and>.popc",
        "sm_80@7.1",
    ),
    # Sparse A.
    _mma(
        "<shape:m16n8k16|m16n8k32>.row.col.<dtype:f16|f32>.<atype:f16>.<btype:f16>"
        ".<ctype:f16|f32>",
        "sm_80@7.1", _SPARSE, True,
    ),
    _mma(
        "<shape:m16n8k16|m16n8k32>.row.col.<dtype:f32>.<atype:bf16>.<btype:bf16>.<ctype:f32>",
        "sm_80@7.1", _SPARSE, True,
    ),
    _mma(
        "<shape:m16n8k8|m16n8k16>.row.col.<dtype:f32>.<atype:tf32>.<btype:tf32>.<ctype:f32>",
        "sm_80@7.1", _SPARSE, True,
    ),
    _mma(
        "<shape:m16n8k32|m16n8k64>.row.col.satfinite?.<dtype:s32>.<atype:u8|s8>.<btype:u8|s8>"
        ".<ctype:s32>",
        "sm_80@7.1", _SPARSE, True,
    ),
    # Shared memory to fragments and back.
    form(
        "ldmatrix.sync.aligned.m8n8.<num:x1|x2|x4>.trans?.<space:shared|shared::cta>?.b16",
        "=r:b32*num, [p@space]", "9.7.14.5.15", "sm_75@6.5", issue="warp",
    ),
    form(
        "ldmatrix.sync.aligned.m16n16.<num:x1|x2>.trans.<space:shared|shared::cta>?.b8",
        "=r:b32*m16n16, [p@space]", "9.7.14.5.15",
        _BLACKWELL, issue="warp",
    ),
    form(
        "ldmatrix.sync.aligned.m8n16.<num:x1|x2|x4>.<space:shared|shared::cta>?.b8x16.<source:b6x16_p32|b4x16_p64>",
        "=r:b32*num, [p@space]", "9.7.14.5.15",
        _BLACKWELL, issue="warp",
    ),
    form(
        "ldmatrix.sync.aligned.m16n16.<num:x1|x2>.trans.<space:shared|shared::cta>?.b8x16.<source:b6x16_p32|b4x16_p64>",
        "=r:b32*m16n16, [p@space]", "9.7.14.5.15",
        _BLACKWELL, issue="warp",
    ),
    form(
        "stmatrix.sync.aligned.m8n8.<num:x1|x2|x4>.trans?.<space:shared|shared::cta>?.b16",
        "[=p@space], r:b32*num", "9.7.14.5.16", "sm_90@7.8", issue="warp",
    ),
    form(
        "stmatrix.sync.aligned.m16n8.<num:x1|x2|x4>.trans.<space:shared|shared::cta>?.b8",
        "[=p@space], r:b32*num", "9.7.14.5.16",
        _BLACKWELL, issue="warp",
    ),
    form("movmatrix.sync.aligned.m8n8.trans.b16", "=d:b32, a:b32", "9.7.14.5.17", "sm_75@7.8", issue="warp"),
)  # fmt: skip
COUNTS["m16n16"] = lambda m: 2 * int(m["num"][1:])


def _wgmma_shapes(type_: ElementType, k: int) -> str:
    return "|".join(f"m64n{n}k{k}" for n in legal_n(type_))


def _wgmma() -> list[Form]:
    """Every type with A in shared memory and in registers, dense and sparse."""
    families = (
        # A and B types, D types, K, whether the operands may be negated, whether they may be transposed
        (("f16",), "f16|f32", 16, True, True),
        (("bf16",), "f32", 16, True, True),
        (("tf32",), "f32", 8, True, False),
        (("e4m3", "e5m2"), "f16|f32", 32, True, False),
        (("s8", "u8"), "s32", 32, False, False),
        (("b1",), "s32", 256, False, False),
    )
    rows = []
    for types, d_types, dense_k, scales, transposes in families:
        for sparse in (False, True):
            if sparse and types == ("b1",):
                continue
            shapes = _wgmma_shapes(ElementType(types[0]), dense_k * (2 if sparse else 1))
            choices = "|".join(types)
            # The types of A and B are the same where there is one, any mix where there are two.
            pattern = f"wgmma.mma_async.{'sp.' if sparse else ''}sync.aligned.<shape:{shapes}>"
            pattern += ".satfinite?" if "s8" in types else ""
            pattern += f".<dtype:{d_types}>.<atype:{choices}>.<btype:{choices}>"
            pattern += ".and.popc" if types == ("b1",) else ""
            middle = ", meta:b32, select:imm(0..1)" if sparse else ""
            signs = ", scale_a:imm(-1|1), scale_b:imm(-1|1)" if scales else ""
            d = "+d:packed(dtype)*wgmma_d"
            for a, trans in (
                ("a:b64", ", trans_a:imm(0|1), trans_b:imm(0|1)"),
                ("a:b32*4", ", trans_b:imm(0|1)"),
            ):
                operands = f"{d}, {a}, b:b64{middle}, scale_d:pred{signs}{trans if transposes else ''}"
                rows.append(
                    form(
                        pattern, operands, "9.7.15.6" if sparse else "9.7.15.5",
                        "sm_90a@8.2" if sparse else "sm_90a@8.0",
                        "atype=u8&btype=s8: sm_90a@8.4", "atype=s8&btype=u8: sm_90a@8.4",
                        completion=Completion.WGMMA_GROUP, issue="warpgroup",
                    )
                )  # fmt: skip
    return rows


FORMS: tuple[Form, ...] = (
    *_WARP_FORMS,
    *_wgmma(),
    form("wgmma.fence.sync.aligned", "", "9.7.15.7.1", "sm_90a@8.0", issue="warpgroup"),
    form(
        "wgmma.commit_group.sync.aligned", "", "9.7.15.7.2", "sm_90a@8.0",
        commits=Completion.WGMMA_GROUP, issue="warpgroup",
    ),
    form(
        "wgmma.wait_group.sync.aligned", "n:imm", "9.7.15.7.3", "sm_90a@8.0",
        awaits=Completion.WGMMA_GROUP, issue="warpgroup",
    ),
)  # fmt: skip
