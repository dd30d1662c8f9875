# SPDX-License-Identifier: Apache-2.0
"""The module parser on PTX written by hand: every construct once, every kind of error once."""

from __future__ import annotations

import math
import time

import pytest

from porter.ptx.ast import (
    Block,
    BranchTargets,
    Guard,
    Imm,
    Instruction,
    Label,
    Mem,
    Module,
    Neg,
    Operand,
    Pair,
    Param,
    Reg,
    RegDecl,
    SpecialReg,
    Statement,
    Sym,
    VarDecl,
    Vec,
)
from porter.ptx.parser import PtxSyntaxError, parse_module

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def module(text: str) -> Module:
    return parse_module(HEADER + text)


def body(text: str) -> tuple[Statement, ...]:
    found = module(f".entry k() {{\n{text}\n}}").function("k").body
    assert found is not None
    return found


def instruction(text: str) -> Instruction:
    found = body(text)[-1]
    assert isinstance(found, Instruction)
    return found


def operands(text: str) -> tuple[Operand, ...]:
    return instruction(f"op {text};").operands


def test_header() -> None:
    found = parse_module('.version 8.7\n.target sm_100a, debug\n.address_size 64\n.file 1 "a.cu", 12, 34\n')
    assert (found.version, found.target, found.address_size) == ((8, 7), "sm_100a", 64)
    assert found.files == {1: "a.cu"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%r1", Reg("%r1")),
        ("%tid.x", SpecialReg("tid.x")),
        ("%clock64", SpecialReg("clock64")),
        ("%cluster_ctarank", SpecialReg("cluster_ctarank")),
        ("%tidy", Reg("%tidy")),
        ("name", Sym("name")),
        ("table+8", Sym("table", 8)),
        ("table-8", Sym("table", -8)),
        ("_", Sym("_")),
        ("WARP_SZ", Imm(32)),
        ("-5", Imm(-5)),
        ("0x1F", Imm(31)),
        ("0b101", Imm(5)),
        ("017", Imm(15)),
        ("4294967295U", Imm(4294967295)),
        ("1.5", Imm(1.5, True)),
        ("-2.0e3", Imm(-2000.0, True)),
        ("0f3F800000", Imm(1.0, True, 0x3F800000)),
        ("0d4000000000000000", Imm(2.0, True, 0x4000000000000000)),
        ("(1 << 4) | 3", Imm(19)),
        ("7 / -2", Imm(-3)),
        ("7 % -2", Imm(1)),
        ("1 ? 2 : 3", Imm(2)),
        ("~0", Imm(-1)),
        ("!%p1", Neg("!", Reg("%p1"))),
        ("-%f1", Neg("-", Reg("%f1"))),
        ("%r1|%p1", Pair(Reg("%r1"), Reg("%p1"))),
        ("_|%p1", Pair(Sym("_"), Reg("%p1"))),
        ("{%r1, _, 3}", Vec((Reg("%r1"), Sym("_"), Imm(3)))),
        ("{}", Vec(())),
        ("[%rd1]", Mem(Reg("%rd1"))),
        ("[%rd1+16]", Mem(Reg("%rd1"), 16)),
        ("[%rd1+-16]", Mem(Reg("%rd1"), -16)),
        ("[%rd1-16]", Mem(Reg("%rd1"), -16)),
        ("[smem+4*8+2]", Mem(Sym("smem"), 34)),
        ("[128]", Mem(Imm(128))),
        ("[%rd1, {%r1, %r2}]", Mem(Reg("%rd1"), 0, (Vec((Reg("%r1"), Reg("%r2"))),))),
        ("[tex, sampler, {%f1}]", Mem(Sym("tex"), 0, (Sym("sampler"), Vec((Reg("%f1"),))))),
    ],
)
def test_operand(text: str, expected: Operand) -> None:
    assert operands(text) == (expected,)


def test_nan_keeps_its_bits() -> None:
    (found,) = operands("0f7FC00001")
    assert isinstance(found, Imm)
    assert math.isnan(found.value)
    assert found.bits == 0x7FC00001


def test_guards_and_opcodes() -> None:
    found = instruction("@!%p1 cp.async.bulk .L2::cache_hint\n.tile [%rd1], %r1;")
    assert found.guard == Guard(Reg("%p1"), True)
    assert found.opcode == "cp.async.bulk.L2::cache_hint.tile"
    assert found.parts == ("cp", "async", "bulk", "L2::cache_hint", "tile")
    assert found.line == 5
    assert instruction("ret;").operands == ()


def test_calls() -> None:
    assert instruction("call.uni (result), f, (a, %r1), proto;").operands == (
        Vec((Sym("result"),)),
        Sym("f"),
        Vec((Sym("a"), Reg("%r1"))),
        Sym("proto"),
    )
    assert instruction("call f;").operands == (Sym("f"),)


def test_tables_and_labels() -> None:
    found = body("L: .branchtargets A, B;\nP: .callprototype (.param .b32 _) _ (.param .b64 _);\nA: ret;\nB:\nret;")
    assert found[0] == BranchTargets("branchtargets", "L", ("A", "B"))
    assert found[1] == BranchTargets("callprototype", "P", ("( .param .b32 _ )", "_", "( .param .b64 _ )"))
    assert found[2] == Label("A", 7)
    assert found[4] == Label("B", 8)


def test_registers_of_an_asm_scope_are_found_by_name() -> None:
    found = body("{ .reg .pred p, q; .reg .b32 t<2>;\n { setp.eq.u32 p|q, t1, t2; }\n @p bra p; }\nmov.b32 %r1, p;")
    assert isinstance(found[0], Block)
    assert found[0].body[:3] == (RegDecl("pred", "p"), RegDecl("pred", "q"), RegDecl("b32", "t", 2))
    inner = found[0].body[3]
    assert isinstance(inner, Block)
    compare = inner.body[0]
    assert isinstance(compare, Instruction)
    # `t<2>` declares t0 and t1 only, and `p` is unknown behind the scope.
    assert compare.operands == (Pair(Reg("p"), Reg("q")), Reg("t1"), Sym("t2"))
    last = found[1]
    assert isinstance(last, Instruction)
    assert last.operands[1] == Sym("p")


def test_variables() -> None:
    found = module(
        ".visible .global .align 4 .u32 a[2][3] = {{1, 2}, {3, 4, 5}};\n"
        ".extern .shared .align 128 .b8 smem[];\n"
        ".const .f32 pi = 0f40490FDB;\n"
        ".global .v2 .f32 pair = {1.0, 2.0};\n"
        ".global .u64 pointers[3] = {generic(a)+8, a-4, 0};\n"
        ".weak .global .align 1 .b8 open[] = {1, 2, 0xFF(a)};\n"
    )
    assert found.variables == (
        VarDecl("global", "a", "u32", 24, 4, False, (1, 2, 0, 3, 4, 5), 1, "visible"),
        VarDecl("shared", "smem", "b8", 0, 128, True),
        VarDecl("const", "pi", "f32", 4, 4, False, (0x40490FDB,)),
        VarDecl("global", "pair", "f32", 8, 8, False, (1.0, 2.0), 2),
        VarDecl("global", "pointers", "u64", 24, 8, False, ("generic(a)+8", "a+-4", 0)),
        VarDecl("global", "open", "b8", 3, 1, False, (1, 2, "0xFF(a)"), 1, "weak"),
    )


def test_functions() -> None:
    found = module(
        ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);\n"
        ".func helper (.reg .f32 x) .noreturn { add.f32 x, x, x; }\n"
        ".visible .entry k(\n.param .align 64 .b8 map[128],\n.param .u64 .ptr .global .align 16 p\n)\n"
        ".maxntid 384, 1, 1\n.minnctapersm 1\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{ ret; }"
    )
    extern, helper, kernel = found.functions
    assert extern.body is None
    assert extern.returns == (Param("r", "b32", 4, 4),)
    assert helper.directives == {"noreturn": ()}
    assert helper.params == (Param("x", "f32", 4, 4, space="reg"),)
    add = helper.body[0] if helper.body else None
    assert isinstance(add, Instruction)
    assert add.operands[0] == Reg("x")
    assert kernel.params == (
        Param("map", "b8", 128, 64),
        Param("p", "u64", 8, 8, True, "param", "global", 16),
    )
    assert kernel.directives == {
        "maxntid": (384, 1, 1),
        "minnctapersm": (1,),
        "explicitcluster": (),
        "reqnctapercluster": (2, 1, 1),
    }
    assert kernel.linkage == "visible"
    assert found.entries() == (kernel,)


def test_source_positions_follow_inlining() -> None:
    text = (
        ".entry k() {\n.loc 1 10 3\nmov.b32 %r1, 0;\n"
        ".loc 1 20 5, function_name $L__info_string0, inlined_at 1 10 3\nmov.b32 %r1, 1;\n"
        ".loc 1 30 7, function_name $L__info_string1+4, inlined_at 1 20 5\nmov.b32 %r1, 2;\n}\n"
        ".section .debug_str { .b8 1 }\n"
        ".entry other() { mov.b32 %r1, 3; }\n"
        '.file 1 "a.cu"\n'
    )
    found = module(text)
    first, second, third = (s for s in found.function("k").body or () if isinstance(s, Instruction))
    assert first.loc is not None
    assert (first.loc.file, first.loc.line, first.loc.column) == ("a.cu", 10, 3)
    assert second.loc is not None
    assert second.loc.inlined_at == first.loc
    assert third.loc is not None
    assert third.loc.inlined_at == second.loc
    (other,) = found.function("other").body or ()
    assert isinstance(other, Instruction)
    assert other.loc is None


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("", "version or .target is missing", 1, 1),
        (HEADER + ".entry k() {\n  mov.b32 %r1, ;\n}", "expected an operand", 5, 16),
        (HEADER + ".entry k() {\n  mov.b32 %r1\n}", "expected ';'", 6, 1),
        (HEADER + ".entry k() {\n", "expected '}'", 5, 1),
        (HEADER + ".entry k() {\n  #\n}", "unexpected character '#'", 5, 3),
        (HEADER + "/* open", "comment is not closed", 4, 1),
        (HEADER + '.file 1 "open', "string is not closed", 4, 9),
        (HEADER + ".entry k() { op 1 / 0; }", "division by zero", 4, 21),
        (HEADER + ".entry k() { op 1 << 99; }", "shift by more than 63", 4, 22),
        (HEADER + ".entry k() { op 09; }", "malformed number", 4, 17),
        (HEADER + ".entry k() { .reg .what %r1; }", "unknown type .what", 4, 19),
        (HEADER + ".entry k() { .strange 1; }", "unknown directive '.strange'", 4, 14),
        (HEADER + ".entry k() { ld.b32 %r1, [%rd1+1.5]; }", "an address offset is an integer", 4, 32),
        (HEADER + "nonsense", "expected a declaration", 4, 1),
        (HEADER + ".entry k() {" + "{" * 5000, "nested too deeply", 4, 112),
        (HEADER + ".entry k() { op " + "(" * 5000, "nested too deeply", 4, 118),
        (HEADER + ".entry k() { op " + "1 ? " * 5000, "nested too deeply", 4, 421),
        (HEADER + ".global .u32 v[1] = " + "{" * 5000, "nested too deeply", 4, 122),
        (HEADER + ".entry k() { op " + "{" * 5000, "nested too deeply", 4, 118),
    ],
)
def test_errors_have_a_place(text: str, message: str, line: int, column: int) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse_module(text)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_every_truncation_is_an_error_with_a_place() -> None:
    text = HEADER + (
        '.file 1 "a.cu"\n.global .u32 v[2] = {1, 2};\n.entry k(.param .u64 p) .maxntid 128, 1, 1 {\n'
        ".loc 1 2 3\n.reg .b32 %r<4>;\n@!%p1 ld.global.v2.b32 {%r1, %r2}, [%rd1+8];\n"
        "call.uni (r), f, (a);\nL: .branchtargets A, B;\n{ .reg .pred p; setp.eq.b32 p|q, %r1, -1; }\n}\n"
    )
    for end in range(len(HEADER), len(text)):
        place = 1
        try:
            parse_module(text[:end])
        except PtxSyntaxError as error:
            place = error.line
        assert 1 <= place <= text[:end].count("\n") + 1


def test_speed_of_a_large_module() -> None:
    line = "\tfma.rn.f32 \t%f1, %f2, %f3, 0f3F800000;\n\t@%p1 ld.v4.b32 \t{%r1, %r2, %r3, %r4}, [%rd1+16];\n"
    text = HEADER + ".entry k() {\n" + line * 10000 + "}"
    start = time.perf_counter()
    parse_module(text)
    assert time.perf_counter() - start < 3
