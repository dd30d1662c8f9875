# SPDX-License-Identifier: Apache-2.0
"""Integers and bits: PTX ISA 9.0, sections 9.7.1, 9.7.2 (carry), 9.7.6 (comparison), 9.7.8, 9.7.9.7 (logic)."""

from __future__ import annotations

from porter.ptx.forms.grammar import Form, form

_D_A = "=d:type, a:type"
_D_A_B = "=d:type, a:type, b:type"
_D_A_B_C = "=d:type, a:type, b:type, c:type"
_WORDS = "<type:u32|s32|u64|s64>"
_CMP_ORDER = "<cmp:eq|ne|lt|le|gt|ge>"
_CMP_UNSIGNED = "<cmp:eq|ne|lt|le|gt|ge|lo|ls|hi|hs>"

FORMS: tuple[Form, ...] = (
    form("add.<type:u16|u32|u64|s16|s64>", _D_A_B, "9.7.1.1"),
    form("add.sat?.s32", "=d:s32, a:s32, b:s32", "9.7.1.1"),
    form("add.<type:u16x2|s16x2>", _D_A_B, "9.7.1.1", "sm_90@8.0"),
    form("sub.<type:u16|u32|u64|s16|s64>", _D_A_B, "9.7.1.2"),
    form("sub.sat?.s32", "=d:s32, a:s32, b:s32", "9.7.1.2"),
    form("mul.<mode:hi|lo>.<type:u16|u32|u64|s16|s32|s64>", _D_A_B, "9.7.1.3"),
    form("mul.wide.<type:u16|u32|s16|s32>", "=d:wide(type), a:type, b:type", "9.7.1.3"),
    form("mad.<mode:hi|lo>.<type:u16|u32|u64|s16|s32|s64>", _D_A_B_C, "9.7.1.4"),
    form("mad.hi.sat.s32", "=d:s32, a:s32, b:s32, c:s32", "9.7.1.4"),
    form("mad.wide.<type:u16|u32|s16|s32>", "=d:wide(type), a:type, b:type, c:wide(type)", "9.7.1.4"),
    form("mul24.<mode:hi|lo>.<type:u32|s32>", _D_A_B, "9.7.1.5"),
    form("mad24.<mode:hi|lo>.<type:u32|s32>", _D_A_B_C, "9.7.1.6"),
    form("mad24.hi.sat.s32", "=d:s32, a:s32, b:s32, c:s32", "9.7.1.6"),
    form("sad.<int>", "=d:int, a:int, b:int, c:int", "9.7.1.7"),
    form("div.<int>", "=d:int, a:int, b:int", "9.7.1.8"),
    form("rem.<int>", "=d:int, a:int, b:int", "9.7.1.9"),
    form("abs.<type:s16|s32|s64>", _D_A, "9.7.1.10"),
    form("neg.<type:s16|s32|s64>", _D_A, "9.7.1.11"),
    form("<op:min|max>.<type:u16|u32|u64|s16|s64>", _D_A_B, "9.7.1.12"),
    form("<op:min|max>.relu?.s32", "=d:s32, a:s32, b:s32", "9.7.1.12", "sm_50", "relu: sm_90@8.0"),
    form("<op:min|max>.u16x2", "=d:u16x2, a:u16x2, b:u16x2", "9.7.1.12", "sm_90@8.0"),
    form("<op:min|max>.relu?.s16x2", "=d:s16x2, a:s16x2, b:s16x2", "9.7.1.12", "sm_90@8.0"),
    form("popc.<type:b32|b64>", "=d:u32, a:type", "9.7.1.14"),
    form("clz.<type:b32|b64>", "=d:u32, a:type", "9.7.1.15"),
    form(f"bfind.shiftamt?.{_WORDS}", "=d:u32, a:type", "9.7.1.16"),
    form("fns.b32", "=d:b32, mask:b32, base:b32, offset:s32", "9.7.1.17"),
    form("brev.<type:b32|b64>", _D_A, "9.7.1.18"),
    form(f"bfe.{_WORDS}", "=d:type, a:type, b:u32, c:u32", "9.7.1.19"),
    form("bfi.<type:b32|b64>", "=f:type, a:type, b:type, c:u32, d:u32", "9.7.1.20"),
    form("szext.<mode:clamp|wrap>.<type:u32|s32>", "=d:type, a:type, b:u32", "9.7.1.21"),
    form("bmsk.<mode:clamp|wrap>.b32", "=d:b32, a:b32, b:b32", "9.7.1.22"),
    form("dp4a.<atype:u32|s32>.<btype:u32|s32>", "=d:b32, a:b32, b:b32, c:b32", "9.7.1.23"),
    form("dp2a.<mode:lo|hi>.<atype:u32|s32>.<btype:u32|s32>", "=d:b32, a:b32, b:b32, c:b32", "9.7.1.24"),
    # With the carry flag.
    form(f"add.cc.{_WORDS}", _D_A_B, "9.7.2.1"),
    form(f"addc.cc?.{_WORDS}", _D_A_B, "9.7.2.2"),
    form(f"sub.cc.{_WORDS}", _D_A_B, "9.7.2.3"),
    form(f"subc.cc?.{_WORDS}", _D_A_B, "9.7.2.4"),
    form(f"mad.<mode:hi|lo>.cc.{_WORDS}", _D_A_B_C, "9.7.2.5"),
    form(f"madc.<mode:hi|lo>.cc?.{_WORDS}", _D_A_B_C, "9.7.2.6"),
    # Logic and shifts.
    form("<op:and|or|xor>.<type:pred|b16|b32|b64>", _D_A_B, "9.7.8.1"),
    form("not.<type:pred|b16|b32|b64>", _D_A, "9.7.8.4"),
    form("cnot.<bits>", "=d:bits, a:bits", "9.7.8.5"),
    form("lop3.b32", "=d:b32, a:b32, b:b32, c:b32, lut:imm(0..255)", "9.7.8.6"),
    form(
        "lop3.<bool:or|and>.b32",
        "=d:b32|=p:pred, a:b32, b:b32, c:b32, lut:imm(0..255), q:pred",
        "9.7.8.6",
        "sm_70@8.2",
    ),
    form("shf.<dir:l|r>.<mode:clamp|wrap>.b32", "=d:b32, a:b32, b:b32, c:u32", "9.7.8.7"),
    form("shl.<bits>", "=d:bits, a:bits, b:u32", "9.7.8.8"),
    form("shr.<type:b16|b32|b64|u16|u32|u64|s16|s32|s64>", "=d:type, a:type, b:u32", "9.7.8.9"),
    form("prmt.b32.<mode:f4e|b4e|rc8|ecl|ecr|rc16>?", "=d:b32, a:b32, b:b32, c:b32", "9.7.9.7"),
    # Comparison and selection.
    form(
        "setp.<cmp:eq|ne>.<bool>?.<type:b16|b32|b64>",
        "=p:pred|=q:pred?, a:type, b:type, c:pred?bool",
        "9.7.6.2",
    ),
    form(
        f"setp.{_CMP_ORDER}.<bool>?.<type:s16|s32|s64>",
        "=p:pred|=q:pred?, a:type, b:type, c:pred?bool",
        "9.7.6.2",
    ),
    form(
        f"setp.{_CMP_UNSIGNED}.<bool>?.<type:u16|u32|u64>",
        "=p:pred|=q:pred?, a:type, b:type, c:pred?bool",
        "9.7.6.2",
    ),
    form(
        "set.<cmp:eq|ne>.<bool>?.<dtype:u32|s32|f32>.<stype:b16|b32|b64>",
        "=d:dtype, a:stype, b:stype, c:pred?bool",
        "9.7.6.1",
    ),
    form(
        f"set.{_CMP_ORDER}.<bool>?.<dtype:u32|s32|f32>.<stype:s16|s32|s64>",
        "=d:dtype, a:stype, b:stype, c:pred?bool",
        "9.7.6.1",
    ),
    form(
        f"set.{_CMP_UNSIGNED}.<bool>?.<dtype:u32|s32|f32>.<stype:u16|u32|u64>",
        "=d:dtype, a:stype, b:stype, c:pred?bool",
        "9.7.6.1",
    ),
    form("selp.<any_type>", "=d:any_type, a:any_type, b:any_type, c:pred", "9.7.6.3"),
    form("slct.<any_type>.s32", "=d:any_type, a:any_type, b:any_type, c:s32", "9.7.6.4"),
    form("slct.ftz?.<any_type>.f32", "=d:any_type, a:any_type, b:any_type, c:f32", "9.7.6.4"),
)
