# SPDX-License-Identifier: Apache-2.0
"""The instructions of asm statements that rules are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from porter.diagnostics import Code, Diagnostic
from porter.lang.asm import AsmStatement
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.program import Program
from porter.ptx.ast import Instruction
from porter.rules.ptx import PtxPattern
from porter.rules.rule import Rule


@dataclass(frozen=True)
class Match:
    """An instruction that a rule is for: which one of its statement, and what captures and operands are."""

    rule: Rule
    pattern: PtxPattern
    function: Function
    statement: AsmStatement
    instruction: Instruction
    number: int
    bound: Mapping[str, str]


def matches(rules: Sequence[Rule], program: Program) -> Iterator[Match | Diagnostic]:
    """The instructions that rules are for, each with the rule that is closest; what is said of a template that is not
    read as PTX and may hold one."""
    patterns = sorted(((r, p) for r in rules for p in r.instructions), key=lambda f: f[1].rank, reverse=True)
    seen: set[tuple[str, Span]] = set()
    for function in program.functions:
        for statement in function.asm:
            near = [(r, p) for r, p in patterns if p.may_be_in(statement.template)]
            if not near or (statement.path, statement.span) in seen:
                continue
            seen.add((statement.path, statement.span))
            if statement.ptx is None:
                what = f"`{near[0][1].word}` stands in an asm statement that is not read: {statement.ptx_error}"
                yield Diagnostic(Code.RULE_NOT_APPLIED, statement.where, {"rule": near[0][0].id, "what": what})
                continue
            yield from _in_statement(near, program, function, statement, statement.ptx.instructions())


def _in_statement(
    patterns: Sequence[tuple[Rule, PtxPattern]],
    program: Program,
    function: Function,
    statement: AsmStatement,
    instructions: Sequence[Instruction],
) -> Iterator[Match]:
    def value(text: str) -> int | None:
        number = text.removeprefix("%")
        operand = statement.operands[int(number)] if text != number and number.isdigit() else None
        return program.value(function, operand.expr if operand is not None else text)

    for i, instruction in enumerate(instructions):
        number = sum(other.text == instruction.text for other in instructions[:i])
        found = ((r, p, p.bind(instruction, value)) for r, p in patterns)
        best = next(((r, p, bound) for r, p, bound in found if bound is not None), None)
        if best is not None:
            yield Match(best[0], best[1], function, statement, instruction, number, best[2])
