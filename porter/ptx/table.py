# SPDX-License-Identifier: Apache-2.0
"""The instruction table: every PTX instruction form that Hopper and Blackwell kernels use, as data.

`lookup` finds the row of an instruction; `destinations` and `sources` say which registers it writes and
reads; `check` whether a target has it. Source of the rows: PTX ISA 9.0 and the behaviour of ptxas 13.0; each
row names its section. Special registers and types stand in `porter.ptx.special`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from porter.ptx.ast import Instruction, Mem, Neg, Operand, Pair, Placeholder, Reg, Vec
from porter.ptx.forms import bulk, control, conversion, floating, integer, matrix, memory, sync, tcgen05
from porter.ptx.forms.grammar import (
    Access,
    Completion,
    Form,
    Modifiers,
    OperandForm,
    expanded,
    operand_type,
    present,
    vector_length,
)
from porter.ptx.requirement import TargetName
from porter.ptx.special import FORMAT_BYTES, SPECIAL_REGISTERS, TYPE_BYTES

__all__ = [
    "FORMAT_BYTES",
    "FORMS",
    "SPECIAL_REGISTERS",
    "TYPE_BYTES",
    "Access",
    "Completion",
    "Form",
    "OperandForm",
    "UnknownInstruction",
    "bind",
    "check",
    "destinations",
    "known_opcode",
    "lookup",
    "modifiers",
    "operand_type",
    "sources",
    "vector_length",
]

FORMS: tuple[Form, ...] = tuple(
    row
    for family in (integer, floating, conversion, memory, bulk, sync, matrix, tcgen05, control)
    for written in family.FORMS
    for row in expanded(written)
)

_BY_FIRST_PART: dict[str, list[Form]] = {}
for _form in FORMS:
    _BY_FIRST_PART.setdefault(_form.name.partition(".")[0], []).append(_form)


class UnknownInstruction(LookupError):
    """An instruction that no row of the table describes."""

    def __init__(self, instruction: Instruction) -> None:
        super().__init__(f"unknown instruction: {instruction.text or instruction.opcode}")
        self.instruction = instruction


@lru_cache(maxsize=65536)
def _candidates(parts: tuple[str, ...]) -> tuple[tuple[Form, Modifiers], ...]:
    found = []
    for row in _BY_FIRST_PART.get(parts[0], ()):
        given = row.modifiers(parts)
        if given is not None:
            found.append((row, given))
    return tuple(found)


def _match(
    instruction: Instruction,
) -> tuple[Form, Modifiers, tuple[tuple[OperandForm, Operand], ...]] | None:
    for row, given in _candidates(instruction.parts):
        bound = row.bind(instruction.operands, given)
        if bound is not None:
            return row, given, bound
    return None


def _matched(instruction: Instruction) -> tuple[Form, Modifiers, tuple[tuple[OperandForm, Operand], ...]]:
    found = _match(instruction)
    if found is None:
        raise UnknownInstruction(instruction)
    return found


def lookup(instruction: Instruction) -> Form | None:
    """The row that describes the instruction, opcode and operands, or None."""
    found = _match(instruction)
    return None if found is None else found[0]


def known_opcode(opcode: str) -> bool:
    """True if some row has this opcode, whatever the operands."""
    return bool(_candidates(tuple(opcode.split("."))))


def modifiers(instruction: Instruction) -> Modifiers:
    """The modifiers by group name, in whatever order they are written. Raises UnknownInstruction."""
    return _matched(instruction)[1]


def bind(instruction: Instruction) -> tuple[tuple[OperandForm, Operand], ...]:
    """Each operand with its description, in order. Raises UnknownInstruction."""
    return _matched(instruction)[2]


def operands(instruction: Instruction) -> dict[str, Operand]:
    """The operands that are there, by the names of the table. Raises UnknownInstruction."""
    return {row.name: operand for row, operand in _matched(instruction)[2]}


def destinations(instruction: Instruction) -> tuple[Reg | Placeholder, ...]:
    """The registers it writes, in the order of the text, vectors and `d|p` pairs taken apart, `_` left out.

    In a template these may be placeholders; a placeholder for a vector register does not exist.

    Raises:
        UnknownInstruction: no row describes the instruction.
    """
    found: list[Reg | Placeholder] = []
    for row, operand in _matched(instruction)[2]:
        for half, part in _halves(row, operand):
            if half.access in (Access.WRITE, Access.READ_WRITE) and half.kind != "memory":
                found.extend(_registers(part))
    return tuple(found)


def sources(instruction: Instruction) -> tuple[Reg | Placeholder, ...]:
    """The registers it reads: operands, addresses, coordinates, accumulators read and written, and the guard.

    Raises:
        UnknownInstruction: no row describes the instruction.
    """
    found: list[Reg | Placeholder] = []
    if instruction.guard is not None:
        found.extend(_registers(instruction.guard.operand))
    for row, operand in _matched(instruction)[2]:
        for half, part in _halves(row, operand):
            if half.access is not Access.WRITE or half.kind == "memory":
                found.extend(_registers(part))
    return tuple(found)


def _halves(row: OperandForm, operand: Operand) -> Iterator[tuple[OperandForm, Operand]]:
    if isinstance(operand, Pair):
        assert row.second is not None
        yield row, operand.first
        yield row.second, operand.second
    else:
        yield row, operand


def _registers(operand: Operand) -> Iterator[Reg | Placeholder]:
    match operand:
        case Reg() | Placeholder():
            yield operand
        case Vec(items):
            for item in items:
                yield from _registers(item)
        case Neg(_, inner):
            yield from _registers(inner)
        case Mem():
            yield from _registers(operand.base)
            if operand.displacement is not None:
                yield operand.displacement
            for part in operand.parts:
                yield from _registers(part)
        case Pair(first, second):
            yield from _registers(first)
            yield from _registers(second)


def check(instruction: Instruction, target: str, version: tuple[int, int] = (9, 0)) -> str | None:
    """Why the instruction is not legal on a target such as `sm_100a` with a PTX version, or None if it is.

    Raises:
        ValueError: `target` is not the name of a target.
        UnknownInstruction: no row describes the instruction.
    """
    row, given, bound = _matched(instruction)
    chip = TargetName.parse(target)
    missing = row.requirement.unmet(chip, version)
    if missing is not None:
        return f"{row.name} {missing}"
    operands = {form.name for form, _ in bound}
    for when, requirement in row.also:
        if when in (f"@{name}" for name in operands) or present(when, given):
            missing = requirement.unmet(chip, version)
            if missing is not None:
                return f"{row.name} with {_described(when, given)} {missing}"
    return None


def _described(when: str, given: Modifiers) -> str:
    if when.startswith("@"):
        return f"operand {when[1:].replace('_', '-')}"
    words = []
    for part in when.split("&"):
        group = part.partition("=")[0]
        words.append(f"no .{group[1:]}" if group[0] == "!" else f".{given[group]}")
    return " and ".join(words)
