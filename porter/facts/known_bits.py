# SPDX-License-Identifier: Apache-2.0
"""Bits of a word that are the same in all threads and in any run, where its number is not: of one that is put together
from constants and choices between them, as an instruction descriptor is whose bits a flag decides about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from porter.facts.code import Code
from porter.ptx import ast

_WORD = (1 << 32) - 1
_DEEPEST = 32
"""Steps from one register to another that are followed."""


@dataclass(frozen=True)
class Bits:
    """The bits of `known` are those of `value`; others may be either."""

    known: int = 0
    value: int = 0

    @property
    def ones(self) -> int:
        return self.known & self.value

    @property
    def zeros(self) -> int:
        return self.known & ~self.value

    @property
    def number(self) -> int | None:
        return self.value if self.known == _WORD else None


def known_bits(code: Code, number: Callable[[int, ast.Operand], int | None], at: int, operand: ast.Operand) -> Bits:
    """The bits of a 32-bit operand of the instruction at `at`. `number` says which one an operand is, if it is one in
    all threads."""
    return _Search(code, number).of(at, operand, _DEEPEST)


@dataclass(frozen=True)
class _Search:
    code: Code
    number: Callable[[int, ast.Operand], int | None]

    def of(self, at: int, operand: ast.Operand, depth: int) -> Bits:
        number = self.number(at, operand)
        if number is not None:
            return Bits(_WORD, number & _WORD)
        writers = self.code.definitions(at, operand) if depth else []
        return reduce(_either, (self._made(one, depth - 1) for one in writers)) if writers else Bits()

    def _made(self, at: int, depth: int) -> Bits:
        """What an instruction writes."""
        ins = self.code.code[at]
        name, width = ins.parts[0], ins.parts[-1]
        if name not in ("mov", "selp", "and", "or", "xor", "not", "shl", "shr") or width[1:] != "32":
            return Bits()
        if len(ins.operands) > 2 and name in ("shl", "shr"):
            by = self.number(at, ins.operands[2])
            return Bits() if by is None or width[0] == "s" else _shifted(self.of(at, ins.operands[1], depth), by, name)
        sources = [self.of(at, operand, depth) for operand in ins.operands[1:3]]
        if name in ("mov", "not"):
            found = sources[0]
            return found if name == "mov" else Bits(found.known, ~found.value & _WORD)
        one, other = sources
        if name == "selp":
            return _either(one, other)
        if name == "xor":
            return Bits(one.known & other.known, one.value ^ other.value)
        if name == "or":
            return Bits(one.ones | other.ones | (one.zeros & other.zeros), one.ones | other.ones)
        return Bits(one.zeros | other.zeros | (one.ones & other.ones), one.ones & other.ones)


def _either(one: Bits, other: Bits) -> Bits:
    return Bits(one.known & other.known & ~(one.value ^ other.value), one.value)


def _shifted(bits: Bits, by: int, name: str) -> Bits:
    """By how many places is clamped to the width (PTX ISA 9.7.8.8, 9.7.8.9: shl, shr)."""
    if by >= 32:
        return Bits(_WORD, 0)
    if name == "shl":
        return Bits((bits.known << by | (1 << by) - 1) & _WORD, (bits.value << by) & _WORD)
    return Bits(bits.known >> by | (_WORD & ~(_WORD >> by)), (bits.value & _WORD) >> by)
