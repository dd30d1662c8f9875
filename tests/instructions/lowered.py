# SPDX-License-Identifier: Apache-2.0
"""What lowering to Hopper makes of an instruction, asked of the lowering itself."""

from __future__ import annotations

from enum import StrEnum

from instructions.samples import HEAD, REGISTERS
from porter.hopper.lower import CannotLower, lower
from porter.ptx.ast import Block, Instruction, Statement
from porter.ptx.parser import parse_module


class Lowering(StrEnum):
    """`NATIVE`: stays as it is. `EMULATED`: becomes other instructions or calls. `LEFT_OUT`: has no effect there."""

    NATIVE = "native"
    EMULATED = "emulated"
    LEFT_OUT = "left out"
    REFUSED = "no"


def lowering(text: str, target: str) -> Lowering:
    """What becomes of one instruction of `instructions.samples`."""
    head = HEAD.format(version="9.0", target=target)
    entry = ".visible .entry k(.param .align 8 .b8 parameter[64]) {"
    module = parse_module("\n".join([head, entry, REGISTERS, text, "END: ret;", "}"]))
    before = _instructions(module.function("k").body or ())
    try:
        result = lower(module)
    except CannotLower:
        return Lowering.REFUSED
    after = _instructions(result.module.function("k").body or ())
    if before == after:
        return Lowering.NATIVE
    return Lowering.LEFT_OUT if len(after) < len(before) else Lowering.EMULATED


def _instructions(body: tuple[Statement, ...]) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for statement in body:
        if isinstance(statement, Block):
            found += _instructions(statement.body)
        elif isinstance(statement, Instruction):
            found.append((statement.opcode, statement.operands))
    return found
