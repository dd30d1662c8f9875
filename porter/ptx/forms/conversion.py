# SPDX-License-Identifier: Apache-2.0
"""Conversions: PTX ISA 9.0, sections 9.7.9.21 (`cvt`), 9.7.9.22 (`cvt.pack`)."""

from __future__ import annotations

from porter.ptx.forms.grammar import Form, Modifiers, form

_INT = "u8|u16|u32|u64|s8|s16|s32|s64"
_FLOAT = "f16|bf16|f32|f64"
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
# FP8 pairs came with sm_89; FP6, FP4, power-of-two scales and stochastic rounding with chip-specific sm_100.
_FP8 = "sm_90@7.8 sm_89@8.1"
_NARROW = "sm_100a@8.6 sm_101a@8.6 sm_120a@8.7 sm_100f@8.8 sm_101f@8.8 sm_120f@8.8 sm_110f@9.0"
_STOCHASTIC = "sm_100a@8.7 sm_103a@8.7"
_PAIR = "=d:dtype, a:f32, b:f32"
_FROM_PAIR = "=d:dtype, a:atype"
_FOUR = "=d:dtype, a:f32*4, rbits:b32"


def _narrows(modifiers: Modifiers) -> bool:
    return _BITS[modifiers["dtype"]] < _BITS[modifiers["atype"]]


def _widens(modifiers: Modifiers) -> bool:
    return _BITS[modifiers["dtype"]] > _BITS[modifiers["atype"]]


def _can_saturate(modifiers: Modifiers) -> bool:
    """`.sat` is refused where every value of the source fits."""
    to, source = modifiers["dtype"], modifiers["atype"]
    to_bits, source_bits = int(to[1:]), int(source[1:])
    same_sign = to[0] == source[0]
    fits = to_bits >= source_bits if same_sign else to[0] == "s" and to_bits > source_bits
    return "sat" not in modifiers or not fits


FORMS: tuple[Form, ...] = (
    form(f"cvt.sat?.<dtype:{_INT}>.<atype:{_INT}>", _FROM_PAIR, "9.7.9.21", rule=_can_saturate),
    form(
        f"cvt.<irnd:rni|rzi|rmi|rpi>.ftz?.sat?.<dtype:{_INT}>.<atype:{_FLOAT}>",
        _FROM_PAIR,
        "9.7.9.21",
        "sm_50",
        "atype=bf16: sm_90@7.8",
        rule=lambda m: "ftz" not in m or m["atype"] == "f32",
    ),
    form(
        f"cvt.<rnd>.ftz?.sat?.<dtype:{_FLOAT}>.<atype:{_INT}>",
        _FROM_PAIR,
        "9.7.9.21",
        "sm_50",
        "dtype=bf16: sm_90@7.8",
        rule=lambda m: "ftz" not in m or m["dtype"] == "f32",
    ),
    # Between floats: rounding where bits are lost, none where they are not.
    form(
        "cvt.<rnd>.ftz?.sat?.<dtype:f16|f32>.<atype:f32|f64>",
        _FROM_PAIR,
        "9.7.9.21",
        rule=lambda m: _narrows(m) and ("ftz" not in m or "f32" in (m["dtype"], m["atype"])),
    ),
    form(
        "cvt.ftz?.sat?.<dtype:f32|f64>.<atype:f16|bf16|f32>",
        _FROM_PAIR,
        "9.7.9.21",
        "sm_50",
        "atype=bf16: sm_90@7.8",
        rule=lambda m: _widens(m) and ("ftz" not in m or "f32" in (m["dtype"], m["atype"])),
    ),
    form(
        "cvt.<irnd:rni|rzi|rmi|rpi>?.ftz?.sat?.<dtype:f16|f32|f64>.<atype:f16|f32|f64>",
        _FROM_PAIR,
        "9.7.9.21",
        rule=lambda m: m["dtype"] == m["atype"] and ("ftz" not in m or m["dtype"] == "f32"),
    ),
    form("cvt.<irnd:rni|rzi|rmi|rpi>?.<dtype:bf16>.<atype:bf16>", _FROM_PAIR, "9.7.9.21", "sm_90@7.8"),
    form("cvt.<rnd>?.<dtype:bf16>.<atype:f16>", _FROM_PAIR, "9.7.9.21", "sm_90@7.8"),
    form("cvt.<rnd>.<dtype:bf16>.<atype:f64>", _FROM_PAIR, "9.7.9.21", "sm_90@7.8"),
    form("cvt.<rnd>?.<dtype:f16>.<atype:bf16>", _FROM_PAIR, "9.7.9.21", "sm_90@7.8"),
    form(
        "cvt.<rnd:rn|rz>.relu?.satfinite?.<dtype:f16|bf16>.f32",
        "=d:dtype, a:f32",
        "9.7.9.21",
        "sm_80@7.0",
        "satfinite: sm_80@8.1",
    ),
    form("cvt.<rnd:rm|rp>.<dtype:bf16>.f32", "=d:dtype, a:f32", "9.7.9.21", "sm_90@7.8"),
    form(
        "cvt.<rnd:rn|rz>.relu?.satfinite?.<dtype:f16x2|bf16x2>.f32",
        _PAIR,
        "9.7.9.21",
        "sm_80@7.0",
        "satfinite: sm_80@8.1",
    ),
    form(
        "cvt.rs.relu?.satfinite?.<dtype:f16x2|bf16x2>.f32",
        "=d:dtype, a:f32, b:f32, rbits:b32",
        "9.7.9.21",
        _STOCHASTIC,
    ),
    form("cvt.rna.satfinite?.tf32.f32", "=d:b32, a:f32", "9.7.9.21", "sm_80@7.0", "satfinite: sm_80@8.1"),
    form(
        "cvt.<rnd:rn|rz>.satfinite?.relu?.tf32.f32",
        "=d:b32, a:f32",
        "9.7.9.21",
        "sm_90@7.8",
        "satfinite: sm_100@8.6",
    ),
    # Pairs of 8-, 6- and 4-bit floats.
    form("cvt.rn.satfinite.relu?.<dtype:e4m3x2|e5m2x2>.f32", _PAIR, "9.7.9.21", _FP8),
    form("cvt.rn.satfinite.relu?.<dtype:e4m3x2|e5m2x2>.<atype:f16x2>", _FROM_PAIR, "9.7.9.21", _FP8),
    form("cvt.rn.relu?.<dtype:f16x2>.<atype:e4m3x2|e5m2x2>", _FROM_PAIR, "9.7.9.21", _FP8),
    form("cvt.rs.relu?.satfinite.<dtype:e4m3x4|e5m2x4|e2m3x4|e3m2x4>.f32", _FOUR, "9.7.9.21", _STOCHASTIC),
    form("cvt.rs.relu?.satfinite.<dtype:e2m1x4>.f32", _FOUR, "9.7.9.21", _STOCHASTIC),
    form("cvt.rn.satfinite.relu?.<dtype:e2m1x2|e2m3x2|e3m2x2>.f32", _PAIR, "9.7.9.21", _NARROW),
    form("cvt.rn.relu?.<dtype:f16x2>.<atype:e2m1x2|e2m3x2|e3m2x2>", _FROM_PAIR, "9.7.9.21", _NARROW),
    form("cvt.<rnd:rz|rp>.satfinite?.<dtype:ue8m0x2>.f32", _PAIR, "9.7.9.21", _NARROW),
    form("cvt.<rnd:rz|rp>.satfinite?.<dtype:ue8m0x2>.<atype:bf16x2>", _FROM_PAIR, "9.7.9.21", _NARROW),
    form("cvt.rn.<dtype:bf16x2>.<atype:ue8m0x2>", _FROM_PAIR, "9.7.9.21", _NARROW),
    # Packing with saturation.
    form("cvt.pack.sat.<dtype:u16|s16>.s32", "=d:b32, a:s32, b:s32", "9.7.9.22", "sm_72@6.5"),
    form(
        "cvt.pack.sat.<dtype:u2|s2|u4|s4|u8|s8>.s32.b32",
        "=d:b32, a:s32, b:s32, c:b32",
        "9.7.9.22",
        "sm_72@6.5",
        "dtype=u2|s2|u4|s4: sm_75@6.5",
    ),
)
