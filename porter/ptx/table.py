# SPDX-License-Identifier: Apache-2.0
"""The instruction table: every PTX instruction form that Hopper and Blackwell kernels use, as data.

`decode` reads an instruction as its row has it, modifiers and operands by name; `lookup` finds the row alone;
`destinations` and `sources` say which registers it writes and reads; `check` whether a target has it. Source
of the rows: PTX ISA 9.0 and the behaviour of ptxas 13.0; each row names its section. Special registers and
types stand in `porter.ptx.special`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from typing import cast

from porter.ptx.ast import Imm, Instruction, Mem, Neg, Operand, Pair, Placeholder, Reg, Sym, Vec
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
from porter.ptx.requirement import Requirement, TargetName
from porter.ptx.special import FORMAT_BYTES, SPECIAL_REGISTERS, TYPE_BYTES

__all__ = [
    "FORMAT_BYTES",
    "FORMS",
    "SPECIAL_REGISTERS",
    "TYPE_BYTES",
    "Access",
    "Completion",
    "Decoded",
    "Form",
    "OperandForm",
    "UnknownInstruction",
    "check",
    "decode",
    "destinations",
    "find",
    "items",
    "lookup",
    "opcode_modifiers",
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


Bound = tuple[tuple[OperandForm, Operand], ...]
"""Operands with their descriptions, in the order of the text."""

UNKNOWN = Form("", "", (), (), "", Requirement.parse("sm_50"))
"""Stands for the row of an instruction that has none."""


@dataclass(frozen=True, eq=False)
class Decoded(Instruction):
    """An instruction as its row describes it. `ins["a"]` is the operand of that name in the row."""

    form: Form = UNKNOWN
    modifiers: Modifiers = field(default_factory=dict)
    bound: Bound = ()

    @cached_property
    def rows(self) -> dict[str, tuple[OperandForm, Operand]]:
        """Each operand that is there with its description, by name: those inside brackets and behind `|` too."""
        found = {}
        for part in self.bound:
            for named in _named(*part) if isinstance(part[1], Pair | Mem) else (part,):
                found[named[0].name] = named
        return found

    def __getitem__(self, name: str) -> Operand:
        return self.rows[name][1]

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def get(self, name: str) -> Operand | None:
        return self.rows[name][1] if name in self.rows else None

    def type(self, name: str) -> str:
        """The PTX type of an operand's elements."""
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = operand_type(self.rows[name][0], self.modifiers)
        return found

    @cached_property
    def _types(self) -> dict[str, str]:
        return {}

    def space(self, name: str) -> str:
        """The state space of a memory operand, empty if it is generic."""
        space = self.rows[name][0].space
        named = any(part.group and part.name == space for part in self.form.parts)
        return self.modifiers.get(space, "" if named else space)

    def registers(self, name: str) -> tuple[str, ...]:
        """The registers of an operand, none if it is not there."""
        return tuple(r.name for r in _registers(self[name]) if isinstance(r, Reg)) if name in self.rows else ()

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Names of the registers it writes; of an instruction without a row none are known."""
        return tuple(r.name for r in destinations(self) if isinstance(r, Reg))

    @cached_property
    def uses(self) -> tuple[str, ...]:
        """Names of the registers whose values matter to it: those it reads, and those that a guard may keep."""
        read = tuple(r.name for r in sources(self) if isinstance(r, Reg))
        return read if self.guard is None else (*read, *self.writes)


def items(operand: Operand) -> tuple[Operand, ...]:
    """The elements of a vector; another operand is its only one."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def _named(row: OperandForm, operand: Operand) -> Iterator[tuple[OperandForm, Operand]]:
    for half, part in _halves(row, operand):
        yield half, part
        if isinstance(part, Mem):
            yield from zip(half.inner, part.parts, strict=False)


def find(instruction: Instruction, any_value: bool = False) -> Decoded | None:
    """The instruction as its row has it, or None if no row describes it.

    `any_value`: a constant may be one that the row does not allow, as if a register held it.
    """
    if isinstance(instruction, Decoded):
        return instruction if instruction.form is not UNKNOWN else None
    operands = instruction.operands
    shapes = (Placeholder(0) if any_value and isinstance(o, Imm) else _shape(o) for o in operands)
    found = _row(instruction.parts, tuple(shapes))
    if found is None:
        bare = tuple(o.items[0] if isinstance(o, Vec) and len(o.items) == 1 else o for o in operands)
        # Without `.v` ptxas takes {r} for r.
        return None if bare == operands else find(replace(instruction, operands=bare), any_value)
    row, given, forms = found
    return Decoded(**vars(instruction), form=row, modifiers=given, bound=tuple(zip(forms, operands, strict=True)))


_REGISTER = Reg("")


def _constants(forms: Iterable[OperandForm]) -> Iterator[int]:
    for form in forms:
        yield from form.values or ()
        yield from _constants(form.inner)
        yield from _constants(() if form.second is None else (form.second,))


_TOLD_APART = frozenset(value for row in FORMS for value in _constants(row.operands))
"""Constants that some row asks for."""
_CONSTANT = Imm(next(value for value in range(len(_TOLD_APART) + 1) if value not in _TOLD_APART))
"""Stands for all others."""


def _shape(operand: Operand) -> Operand:
    """What rows ask of an operand, whatever its registers, offsets and symbols are called."""
    match operand:
        case Reg():
            return _REGISTER
        case Vec():
            return Vec((_REGISTER,) * len(operand.items))
        case Mem():
            return Mem(_REGISTER, 0, tuple(map(_shape, operand.parts)))
        case Pair(first, second):
            return Pair(_shape(first), _shape(second))
        case Sym(name):
            return Sym("_") if name == "_" else Sym("")
        case Imm(value):
            return operand if value in _TOLD_APART else _CONSTANT
    return operand


@lru_cache(maxsize=65536)
def _row(parts: tuple[str, ...], shapes: tuple[Operand, ...]) -> tuple[Form, Modifiers, tuple[OperandForm, ...]] | None:
    for row, given in _candidates(parts):
        bound = row.bind(shapes, given)
        if bound is not None:
            return row, given, tuple(form for form, _ in bound)
    return None


def decode(instruction: Instruction, any_value: bool = False) -> Decoded:
    """The instruction as its row has it (`find`). Raises UnknownInstruction."""
    found = find(instruction, any_value)
    if found is None:
        raise UnknownInstruction(instruction)
    return found


_LIKE = 0.75
"""How much of two names is the same, of 1, where one may be meant by the other."""


def nearest(instruction: Instruction) -> Form | None:
    """Of an instruction that no row describes, the row that is likest: the one that most of its parts are of, among
    those with the likest name; None where no name is like it."""
    rows, given = _BY_FIRST_PART.get(instruction.parts[0], ()), set(instruction.parts)
    if not rows:
        return None

    def likeness(row: Form) -> tuple[float, int]:
        own, name = (text[len(instruction.parts[0]) :] for text in (row.name, instruction.opcode[: len(row.name)]))
        known = {choice for part in row.parts for choice in part.choices}
        lacking = sum(not part.optional and not given.intersection(part.choices) for part in row.parts)
        return SequenceMatcher(None, own, name, autojunk=False).ratio(), len(known & given) - lacking

    found = max(rows, key=likeness)
    return found if likeness(found)[0] > _LIKE else None


def lookup(instruction: Instruction) -> Form | None:
    """The row that describes the instruction, opcode and operands, or None."""
    found = find(instruction)
    return None if found is None else found.form


def opcode_modifiers(opcode: str) -> Modifiers | None:
    """The modifiers of an opcode by group name, in whatever order they are written; None if no row has it."""
    found = _candidates(tuple(opcode.split(".")))
    return found[0][1] if found else None


_WRITTEN = (Access.WRITE, Access.READ_WRITE)


def destinations(instruction: Instruction) -> tuple[Reg | Placeholder, ...]:
    """The registers it writes, in the order of the text, vectors and `d|p` pairs taken apart, `_` left out.

    In a template these may be placeholders; a placeholder for a vector register does not exist.

    Raises:
        UnknownInstruction: no row describes the instruction.
    """
    found: list[Reg | Placeholder] = []
    for row, operand in _bound(instruction):
        if isinstance(operand, Reg):  # As most are: there is nothing to take apart.
            if row.access in _WRITTEN and row.kind != "memory":
                found.append(operand)
            continue
        for half, part in _halves(row, operand):
            if half.access in _WRITTEN and half.kind != "memory":
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
    for row, operand in _bound(instruction):
        if isinstance(operand, Reg):
            if row.access is not Access.WRITE or row.kind == "memory":
                found.append(operand)
            continue
        for half, part in _halves(row, operand):
            if half.access is not Access.WRITE or half.kind == "memory":
                found.extend(_registers(part))
    return tuple(found)


def _bound(instruction: Instruction) -> Bound:
    return instruction.bound if isinstance(instruction, Decoded) else decode(instruction).bound


def _halves(row: OperandForm, operand: Operand) -> Iterator[tuple[OperandForm, Operand]]:
    if isinstance(operand, Pair):
        assert row.second is not None
        yield row, operand.first
        yield row.second, operand.second
    else:
        yield row, operand


def _registers(operand: Operand) -> tuple[Reg | Placeholder, ...]:
    match operand:
        case Reg() | Placeholder():
            return (operand,)
        case Vec(items):
            # Accumulators are long.
            return cast("tuple[Reg, ...]", items) if {*map(type, items)} == {Reg} else _all(items)
        case Neg(_, inner):
            return _registers(inner)
        case Mem(base, _, parts):
            shift = () if operand.displacement is None else (operand.displacement,)
            return (*_registers(base), *shift, *_all(parts))
        case Pair(first, second):
            return _all((first, second))
    return ()


def _all(operands: Iterable[Operand]) -> tuple[Reg | Placeholder, ...]:
    return tuple(register for operand in operands for register in _registers(operand))


def check(instruction: Instruction, target: str, version: tuple[int, int] = (9, 0)) -> str | None:
    """Why the instruction is not legal on a target such as `sm_100a` with a PTX version, or None if it is.

    Raises:
        ValueError: `target` is not the name of a target.
        UnknownInstruction: no row describes the instruction.
    """
    found = decode(instruction)
    row, given = found.form, found.modifiers
    chip = TargetName.parse(target)
    missing = row.requirement.unmet(chip, version)
    if missing is not None:
        return f"{row.name} {missing}"
    for when, requirement in row.also:
        if when in (f"@{name}" for name in found.rows) or present(when, given):
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
