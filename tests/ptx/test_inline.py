# SPDX-License-Identifier: Apache-2.0
"""Inline-asm templates as CUDA sources write them."""

from __future__ import annotations

import pytest

from porter.ptx.ast import (
    Block,
    Guard,
    Imm,
    Instruction,
    Label,
    Mem,
    Neg,
    Pair,
    Placeholder,
    Reg,
    SpecialReg,
    Sym,
    Vec,
)
from porter.ptx.inline import PtxSyntaxError, parse_template
from porter.ptx.printer import to_text


def one(text: str) -> Instruction:
    (found,) = parse_template(text).instructions()
    return found


def test_placeholders_in_every_place() -> None:
    found = one("@!%0 op %1|%2, {%3, %4}, [%5+8], [%6 + %7], [%8, {%9, %10}], !%11, -%12;")
    assert found.guard == Guard(Placeholder(0), True)
    assert found.operands == (
        Pair(Placeholder(1), Placeholder(2)),
        Vec((Placeholder(3), Placeholder(4))),
        Mem(Placeholder(5), 8),
        Mem(Placeholder(6), 0, (), Placeholder(7)),
        Mem(Placeholder(8), 0, (Vec((Placeholder(9), Placeholder(10))),)),
        Neg("!", Placeholder(11)),
        Neg("-", Placeholder(12)),
    )


def test_escaped_registers() -> None:
    found = one("mov.b32 %%r1, %%tid.x;")
    assert found.operands == (Reg("%r1"), SpecialReg("tid.x"))
    # Without operands an asm statement needs no second percent sign.
    assert one("mov.b32 %r1, %tid.x;").operands == (Reg("%r1"), SpecialReg("tid.x"))


def test_wait_loop_with_scope_labels_and_comments() -> None:
    text = (
        "{\n.reg .pred P1; // predicate\nLAB_WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1; /* spin\n*/ @P1 bra DONE;\n"
        "bra LAB_WAIT;\nDONE:\n}"
    )
    (scope,) = parse_template(text).body
    assert isinstance(scope, Block)
    labels = [s.name for s in scope.body if isinstance(s, Label)]
    assert labels == ["LAB_WAIT", "DONE"]
    wait, leave, again = parse_template(text).instructions()
    assert wait.operands[0] == Reg("P1")
    assert leave.guard == Guard(Reg("P1"))
    assert leave.operands == (Sym("DONE"),)
    assert again.operands == (Sym("LAB_WAIT"),)
    assert (wait.line, again.line) == (4, 6)


def test_unique_names() -> None:
    found = parse_template("WAIT_%=: bra WAIT_%=;")
    assert found.body[0] == Label("WAIT_%=", 1)
    assert found.instructions()[0].operands == (Sym("WAIT_%="),)


def test_last_semicolon_may_be_missing() -> None:
    assert one("membar.gl").opcode == "membar.gl"
    assert one("mov.b32 %0, 1").operands == (Placeholder(0), Imm(1))


def test_opcode_in_pieces() -> None:
    text = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes\n.L2::cache_hint"
        " [%0], [%1, {%3, %4}], [%2], %5;\n"
    )
    assert one(text).parts[-2:] == ("mbarrier::complete_tx::bytes", "L2::cache_hint")


def test_empty() -> None:
    assert parse_template(" // nothing\n").body == ()


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("{ mov.b32 %0, %1;", "expected '}'", 1),
        ("mov.b32 %0, %1; }", "expected an instruction", 1),
        ("nop;\nmov.b32 %0 %1;", "expected ';'", 2),
        ("ld.b32 %0, [%1 - %2];", "at most one operand", 1),
        ("mov.b32 %0, %[name];", "expected an operand", 1),
    ],
)
def test_errors(text: str, message: str, line: int) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse_template(text)
    assert message in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        "mov.b32 %0, %%tid.x;",
        "{ .reg .pred p; elect.sync _|p, %1; selp.b32 %0, 1, 0, p; }",
        "@%0 ld.shared.b32 %1, [%2+%3];",
        "WAIT%=: @!%0 bra WAIT%=;",
        "{ .reg .b32 %%t<3>; add.f32 %%t0, %0, 0f3F800000; }",
    ],
)
def test_printing_gives_the_template_back(text: str) -> None:
    first = parse_template(text)
    again = parse_template(to_text(first))
    assert [i.operands for i in again.instructions()] == [i.operands for i in first.instructions()]
    assert [i.guard for i in again.instructions()] == [i.guard for i in first.instructions()]
    assert to_text(again) == to_text(first)
