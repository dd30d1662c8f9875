# SPDX-License-Identifier: Apache-2.0
"""wgmma in asm statements: what each instruction of a statement multiplies, commits or waits for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from porter.lang.asm import AsmOperand, AsmStatement
from porter.model.functions import Function
from porter.model.registers import RegisterList, register_list
from porter.ptx.ast import Imm, Instruction, Neg, Operand, Placeholder, Reg, Template, Vec
from porter.ptx.table import Decoded, find, items
from porter.ptx.wgmma import WgmmaOp


class Step(Enum):
    MMA = "mma"
    FENCE = "fence"
    COMMIT = "commit"
    WAIT = "wait"


@dataclass(frozen=True, eq=False)
class MmaStep:
    """One `wgmma.mma_async`. Operands are C++ expressions; `negate`/`transpose` are None where the type has
    no such operand. `scale_d` is an expression that is true to accumulate."""

    op: WgmmaOp
    d: RegisterList
    a: str
    b: str
    scale_d: str
    negate_a: str | None
    negate_b: str | None
    transpose_a: str | None
    transpose_b: str | None
    element: str
    """Register constraint of D: `f` or `r`."""
    a_registers: tuple[str, ...] = ()
    """Expressions of the four registers of A, if it comes from registers; `a` is empty then."""

    kind = Step.MMA


@dataclass(frozen=True, eq=False)
class SyncStep:
    """`wgmma.fence`, `commit_group` or `wait_group`; `pending` is the expression that wait_group names."""

    kind: Step
    pending: str = "0"


class Unsupported(Exception):
    """A wgmma statement that the port has no translation for yet; the text says which form."""


class Sparse(Unsupported):
    """wgmma.mma_async.sp."""


def mentions_wgmma(statement: AsmStatement) -> bool:
    return "wgmma." in statement.template


def tensor_core_steps(function: Function, statement: AsmStatement) -> list[MmaStep | SyncStep]:
    """The tensor-core operations of one asm statement, in order; empty if it has none.

    Raises:
        Unsupported: the statement holds wgmma in a form that is not understood, or beside other instructions.
    """
    if not mentions_wgmma(statement):
        return []
    template: Template | None = statement.ptx
    if template is None:
        raise Unsupported(f"the asm text cannot be read: {statement.ptx_error}")
    steps: list[MmaStep | SyncStep] = []
    predicates: dict[str, str] = {}
    for instruction in template.instructions():
        found = find(instruction)
        if instruction.parts[0] not in ("setp", "wgmma"):
            raise Unsupported(f"wgmma and `{instruction.opcode}` in one asm statement")
        if "sp" in instruction.parts:
            raise Sparse("sparse wgmma")
        if found is None:
            raise Unsupported(f"`{instruction.opcode}` with these operands is no instruction of the PTX ISA")
        if found.guard is not None:
            raise Unsupported(f"a predicated `{instruction.opcode}`")
        match found.parts[:2]:
            case ("setp", _):
                name, text = _predicate(statement, found)
                predicates[name] = text
            case (_, "mma_async"):
                steps.append(_mma(function, statement, found, predicates))
            case (_, "fence"):
                steps.append(SyncStep(Step.FENCE))
            case (_, "commit_group"):
                steps.append(SyncStep(Step.COMMIT))
            case _:
                steps.append(SyncStep(Step.WAIT, _value(statement, found["n"])))
    return steps


def _operand(statement: AsmStatement, operand: Operand) -> AsmOperand | None:
    return statement.operand(operand.index) if isinstance(operand, Placeholder) else None


def _value(statement: AsmStatement, operand: Operand) -> str:
    bound = _operand(statement, operand)
    if bound is not None:
        return " ".join(bound.expr.split())
    if isinstance(operand, Imm):
        return str(operand.value)
    raise Unsupported("an operand that is neither an immediate nor an asm operand")


def without_cast(expression: str) -> str:
    """The expression without an integer cast around the whole of it."""
    text = " ".join(expression.split())
    match = re.fullmatch(r"(?:u?int(?:8|16|32|64)_t|int|unsigned|static_cast\s*<\s*\w+\s*>)\s*\((.*)\)", text)
    if match and _balanced(match.group(1)):
        return match.group(1).strip()
    return text


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


def _predicate(statement: AsmStatement, instruction: Instruction) -> tuple[str, str]:
    destination = instruction.operands[0]
    comparison = instruction.parts[1]
    if not isinstance(destination, Reg) or comparison not in ("ne", "eq") or len(instruction.operands) != 3:
        raise Unsupported(f"scale-d computed by `{instruction.opcode}`")
    left, right = (_value(statement, o) for o in instruction.operands[1:])
    if right == "0":
        return destination.name, left if comparison == "ne" else f"!({left})"
    return destination.name, f"({left}) {'!=' if comparison == 'ne' else '=='} ({right})"


def _mma(function: Function, statement: AsmStatement, found: Decoded, predicates: dict[str, str]) -> MmaStep:
    op = WgmmaOp.of(found.modifiers)
    bound = [_operand(statement, item) for item in items(found["d"])]
    registers = register_list(function, [o.expr_node if o is not None else None for o in bound])
    if registers is None:
        raise Unsupported("D registers that are not one array in order")
    constraints = {o.kind for o in bound if o is not None}
    if len(constraints) != 1:
        raise Unsupported("D registers of mixed constraints")

    def value(name: str) -> str | None:
        return _value(statement, found[name]) if name in found else None

    a = found["a"]
    a_registers = tuple(_value(statement, item) for item in a.items) if isinstance(a, Vec) else ()
    return MmaStep(
        op,
        registers,
        "" if a_registers else _value(statement, a),
        _value(statement, found["b"]),
        _scale(statement, found["scale_d"], predicates),
        value("scale_a"),
        value("scale_b"),
        value("trans_a"),
        value("trans_b"),
        constraints.pop(),
        a_registers,
    )


def _scale(statement: AsmStatement, operand: Operand, predicates: dict[str, str]) -> str:
    if isinstance(operand, Reg):
        if operand.name not in predicates:
            raise Unsupported("a scale-d predicate set outside the statement")
        return predicates[operand.name]
    if isinstance(operand, Neg) and operand.op == "!":
        return f"!({_scale(statement, operand.operand, predicates)})"
    return _value(statement, operand)
