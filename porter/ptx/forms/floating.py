# SPDX-License-Identifier: Apache-2.0
"""Floating-point arithmetic of all widths and its comparisons: PTX ISA 9.0, sections 9.7.3 to 9.7.7."""

from __future__ import annotations

from porter.ptx.forms.grammar import Form, form


def _unary(pattern: str, section: str, needs: str = "sm_50", type_: str = "type") -> Form:
    return form(pattern, f"=d:{type_}, a:{type_}", section, needs)


def _binary(pattern: str, section: str, needs: str = "sm_50", type_: str = "type") -> Form:
    return form(pattern, f"=d:{type_}, a:{type_}, b:{type_}", section, needs)


def _ternary(pattern: str, section: str, needs: str = "sm_50", type_: str = "type") -> Form:
    return form(pattern, f"=d:{type_}, a:{type_}, b:{type_}, c:{type_}", section, needs)


_F16 = "<type:f16|f16x2>"
_BF16 = "<type:bf16|bf16x2>"
_PACKED = "sm_100@8.6"
_CMP_FLOAT = "<cmp:eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan>"
_SETP = "=p:pred|=q:pred?, a:type, b:type, c:pred?bool"
_SETP_ONE = "=p:pred, a:type, b:type, c:pred?bool"
_SET = "=d:dtype, a:stype, b:stype, c:pred?bool"

FORMS: tuple[Form, ...] = (
    form(
        "testp.<op:finite|infinite|number|notanumber|normal|subnormal>.<type:f32|f64>",
        "=p:pred, a:type",
        "9.7.3.1",
    ),
    _binary("copysign.<type:f32|f64>", "9.7.3.2"),
    _binary("<op:add|sub|mul>.<rnd>?.ftz?.sat?.f32", "9.7.3.3", type_="f32"),
    _binary("<op:add|sub|mul>.<rnd>?.ftz?.f32x2", "9.7.3.3", _PACKED, "f32x2"),
    _binary("<op:add|sub|mul>.<rnd>?.f64", "9.7.3.3", type_="f64"),
    _ternary("fma.<rnd>.ftz?.sat?.f32", "9.7.3.6", type_="f32"),
    _ternary("fma.<rnd>.ftz?.f32x2", "9.7.3.6", _PACKED, "f32x2"),
    _ternary("fma.<rnd>.f64", "9.7.3.6", type_="f64"),
    _ternary("mad.<rnd>.ftz?.sat?.f32", "9.7.3.7", type_="f32"),
    _ternary("mad.<rnd>.f64", "9.7.3.7", type_="f64"),
    _binary("div.<rnd:approx|full|rn|rz|rm|rp>.ftz?.f32", "9.7.3.8", type_="f32"),
    _binary("div.<rnd>.f64", "9.7.3.8", type_="f64"),
    _unary("<op:abs|neg>.ftz?.f32", "9.7.3.9", type_="f32"),
    _unary("<op:abs|neg>.f64", "9.7.3.9", type_="f64"),
    _binary("<op:min|max>.ftz?.NaN?.f32", "9.7.3.11", type_="f32"),
    _binary("<op:min|max>.ftz?.NaN?.xorsign.abs.f32", "9.7.3.11", "sm_86@7.2", "f32"),
    _ternary("<op:min|max>.ftz?.NaN?.abs?.f32", "9.7.3.11", "sm_100@8.8", "f32"),
    _binary("<op:min|max>.f64", "9.7.3.11", type_="f64"),
    _unary("<op:rcp|sqrt>.<rnd:approx|rn|rz|rm|rp>.ftz?.f32", "9.7.3.13", type_="f32"),
    _unary("<op:rcp|sqrt>.<rnd>.f64", "9.7.3.13", type_="f64"),
    _unary("<op:rcp|rsqrt>.approx.ftz.f64", "9.7.3.14", type_="f64"),
    _unary("rsqrt.approx.ftz?.f32", "9.7.3.16", type_="f32"),
    _unary("rsqrt.approx.f64", "9.7.3.16", type_="f64"),
    _unary("<op:sin|cos|lg2|ex2>.approx.ftz?.f32", "9.7.3.18", type_="f32"),
    _unary("tanh.approx.f32", "9.7.3.22", "sm_75@7.0", "f32"),
    # Half precision.
    _binary(f"<op:add|sub|mul>.rn?.ftz?.sat?.{_F16}", "9.7.4.1"),
    _binary(f"<op:add|sub|mul>.rn?.{_BF16}", "9.7.4.1", "sm_90@7.8"),
    _ternary(f"fma.rn.ftz?.sat?.{_F16}", "9.7.4.4"),
    _ternary(f"fma.rn.ftz?.relu.{_F16}", "9.7.4.4", "sm_80@7.0"),
    _ternary(f"fma.rn.relu?.{_BF16}", "9.7.4.4", "sm_80@7.0"),
    _ternary("fma.rn.oob.relu?.<type:f16|f16x2|bf16|bf16x2>", "9.7.4.4", "sm_90@8.1"),
    _unary(f"<op:neg|abs>.ftz?.{_F16}", "9.7.4.5"),
    _unary(f"<op:neg|abs>.{_BF16}", "9.7.4.5", "sm_80@7.0"),
    _binary(f"<op:min|max>.ftz?.NaN?.{_F16}", "9.7.4.7", "sm_80@7.0"),
    _binary(f"<op:min|max>.ftz?.NaN?.xorsign.abs.{_F16}", "9.7.4.7", "sm_86@7.2"),
    _binary(f"<op:min|max>.NaN?.{_BF16}", "9.7.4.7", "sm_80@7.0"),
    _binary(f"<op:min|max>.NaN?.xorsign.abs.{_BF16}", "9.7.4.7", "sm_86@7.2"),
    _unary(f"tanh.approx.{_F16}", "9.7.4.9", "sm_75@7.0"),
    _unary(f"tanh.approx.{_BF16}", "9.7.4.9", "sm_90@7.8"),
    _unary(f"ex2.approx.{_F16}", "9.7.4.10", "sm_75@7.0"),
    _unary(f"ex2.approx.ftz.{_BF16}", "9.7.4.10", "sm_90@7.8"),
    # Mixed precision: one operand is narrower.
    form("<op:add|sub>.<rnd>?.sat?.f32.<atype:f16|bf16>", "=d:f32, a:atype, c:f32", "9.7.5.1", "sm_100@8.6"),
    form("fma.<rnd>.sat?.f32.<atype:f16|bf16>", "=d:f32, a:atype, b:atype, c:f32", "9.7.5.3", "sm_100@8.6"),
    # Comparison.
    form(f"setp.{_CMP_FLOAT}.<bool>?.ftz?.<type:f32>", _SETP, "9.7.6.2"),
    form(f"setp.{_CMP_FLOAT}.<bool>?.<type:f64>", _SETP, "9.7.6.2"),
    form(f"setp.{_CMP_FLOAT}.<bool>?.ftz?.<type:f16>", _SETP_ONE, "9.7.7.2"),
    form(f"setp.{_CMP_FLOAT}.<bool>?.ftz?.<type:f16x2>", _SETP, "9.7.7.2"),
    form(f"setp.{_CMP_FLOAT}.<bool>?.<type:bf16>", _SETP_ONE, "9.7.7.2", "sm_90@7.8"),
    form(f"setp.{_CMP_FLOAT}.<bool>?.<type:bf16x2>", _SETP, "9.7.7.2", "sm_90@7.8"),
    form(f"set.{_CMP_FLOAT}.<bool>?.ftz?.<dtype:u32|s32|f32>.<stype:f32>", _SET, "9.7.6.1"),
    form(f"set.{_CMP_FLOAT}.<bool>?.<dtype:u32|s32|f32>.<stype:f64>", _SET, "9.7.6.1"),
    form(f"set.{_CMP_FLOAT}.<bool>?.ftz?.<dtype:f16>.<stype:f16|f32|f64>", _SET, "9.7.7.1"),
    form(f"set.{_CMP_FLOAT}.<bool>?.ftz?.<dtype:u16|s16|u32|s32>.<stype:f16>", _SET, "9.7.7.1"),
    form(f"set.{_CMP_FLOAT}.<bool>?.ftz?.<dtype:f16x2|u32|s32>.<stype:f16x2>", _SET, "9.7.7.1"),
    form(f"set.{_CMP_FLOAT}.<bool>?.<dtype:bf16>.<stype:bf16|f32|f64>", _SET, "9.7.7.1", "sm_90@7.8"),
    form(f"set.{_CMP_FLOAT}.<bool>?.<dtype:u16|s16|u32|s32>.<stype:bf16>", _SET, "9.7.7.1", "sm_90@7.8"),
    form(f"set.{_CMP_FLOAT}.<bool>?.<dtype:bf16x2|u32|s32>.<stype:bf16x2>", _SET, "9.7.7.1", "sm_90@7.8"),
)
