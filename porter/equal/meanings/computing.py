# SPDX-License-Identifier: Apache-2.0
"""Instructions that compute. What moves bytes moves words; what else is made of data is a word of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from porter.equal.contents import Contents, Taken, fitted
from porter.equal.meaning import Means, Then, in_a_row, meaning, read, width
from porter.equal.meanings.moving import MOVES, Result, moved, number_of
from porter.equal.rows import Given, Made, Read
from porter.equal.words import (
    REGISTER,
    Words,
    chosen,
    constant,
    extended,
    in_order,
    is_number,
    joined,
    mixed,
    of_predicates,
    opposite,
    spread,
    word,
)
from porter.facts.instructions.registry import COMPUTES, Step
from porter.facts.state import Group, Warp
from porter.facts.values import is_known
from porter.ptx import ast, table

_COMMUTE = frozenset(("add", "mul", "min", "max", "and", "or", "xor", "fma", "mad", "mul24", "mad24"))
"""In their first two operands."""
_CARRY = frozenset(("addc", "subc", "madc"))
"""They also take what an instruction before them has left of its sum."""
_FLAG = "the carry flag"
"""The name that it has among registers."""


@meaning(COMPUTES)
def compute(step: Step) -> Means | None:
    rows = list(step.ins.bound)
    if not rows or not step.flow.writes[step.at]:
        return None
    kinds = _kinds(step)
    targets = _parts(rows[0][1])
    names = [step.flow.code.renamed(step.at, p.name) if isinstance(p, ast.Reg) else None for p in targets]
    size = width(kinds[0])
    given = [read(step, operand, width(kind)) for (_, operand), kind in zip(rows[1:], kinds[1:], strict=True)]
    if step.has("cc") or step.ins.parts[0] in _CARRY:
        return _carrying(step, names[0], given, size)
    if step.ins.parts[0] == "setp":
        compared = _compared(step.ins.parts) if not kinds[-1].endswith("x2") else _both_compared(step.ins.parts)
        return _putting(step, names, given, lambda contents, data: compared(data)[: len(names)])
    if step.ins.parts[0] == "lop3" and isinstance(rows[0][1], ast.Pair):
        return _putting(step, names, given, _with_predicate(step))
    each = size // len(names) if isinstance(rows[0][1], ast.Vec) else size
    result = _result(step, kinds)
    # what a conversion makes stands as a number of its type in a register that may be wider
    is_signed = step.ins.parts[0] == "cvt" and kinds[0][0] == "s"

    # bytes that are moved as they are remain the sum that they were
    of_integers = len(names) == 1 and all(_is_integer(kind) for kind in kinds) and step.ins.parts[0] != "mov"

    def results(contents: Contents, data: list[Words]) -> list[Words]:
        sums = None
        if contents.forms is not None and of_integers:
            sums = contents.forms.computed(step.ins.parts, data, size, contents.lanes, contents.noted)
        if sums is not None and sums.is_all:
            found = sums.data
        else:
            found = result(data) if result is not None else contents.in_any_order(".".join(step.ins.parts), size, data)
        if sums is not None and not sums.is_all and len(sums.lanes):
            found = found.copy()
            found[sums.lanes] = sums.data[sums.lanes]
        pieces = [found[:, i * each : (i + 1) * each] for i in range(len(names))]
        return [extended(piece) for piece in pieces] if is_signed else pieces

    return _putting(step, names, given, results)


@in_a_row(COMPUTES)
def made(step: Step) -> Made | None:
    """Elements of packed ones apart, and integers, whose sums may be of symbols, are none of those."""
    (_, target), *rows = step.ins.bound
    kinds = _kinds(step)
    if not isinstance(target, ast.Reg) or all(_is_integer(kind) for kind in kinds):
        return None
    if _moving(step, kinds) is not None or (step.ins.parts[0] == "cvt" and kinds[0][0] == "s"):
        return None
    sizes = [width(kind) for kind in kinds]
    given = tuple(
        Given(step.flow.code.register(step.at, operand), size, read(step, operand, size))
        for (_, operand), size in zip(rows, sizes[1:], strict=True)
    )  # fmt: skip
    register = step.flow.code.renamed(step.at, target.name)
    if step.ins.parts[0] == "setp":
        if kinds[-1].endswith("x2"):
            return None
        compared = _compared(step.ins.parts)
        return Made(register, given, lambda contents, data: compared(data)[0])
    if _is_in_any_order(step, kinds):
        opcode = ".".join(step.ins.parts)
        return Made(register, given, lambda contents, data: contents.in_any_order(opcode, sizes[0], data))
    of_each = _of_each(step, kinds)
    return Made(register, given, lambda contents, data: of_each(data), (step.ins.parts, *kinds))


def _carrying(step: Step, name: str | None, given: list[Read], size: int) -> Means:
    """Sums that leave a carry, or take one (PTX ISA 9.7.2)."""
    parts = tuple(p for p in step.ins.parts if p != "cc")
    result, leaves, takes = _opaque(parts, size), step.has("cc"), parts[0] in _CARRY
    key = word(f"carry of {'.'.join(parts)}")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        if taken.where is not None:
            raise step.not_understood("a carry behind a branch on data, which is not followed,")
        data = [g(contents, warp, group) for g in given]
        data += [contents.value(warp, _FLAG, None, 1)] if takes else []
        found = result(data)

        def then() -> None:
            if name is not None and not is_known(group.registers.get(name), taken.mask):
                contents.put(warp, name, taken, found)
            if leaves:
                contents.put(warp, _FLAG, taken, spread(mixed(key, *(joined(d) for d in data)), 1))

        return then

    return means


def _parts(operand: ast.Operand) -> tuple[ast.Operand, ...]:
    return (operand.first, operand.second) if isinstance(operand, ast.Pair) else table.items(operand)


def _kinds(step: Step) -> list[str]:
    """The type of each operand; of a vector that of all of it, of a number without a type any."""
    names = [row.name for row, _ in step.ins.bound]
    found = [step.ins.type(name) or "b32" for name in names]
    if step.ins.parts[0] == "mov":
        return [step.ins.parts[-1]] * len(found)
    return found


def _putting(
    step: Step, names: list[str | None], given: list[Read], results: Callable[[Contents, list[Words]], list[Words]]
) -> Means:
    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        before = [g(contents, warp, group) for g in given] if not _all_numbers(step, group) else None

        def then() -> None:
            values = [group.registers.get(n) if n is not None else 0 for n in names]
            if taken.where is None and all(is_known(v, taken.mask) for v in values):
                return
            data = before if before is not None else [g(contents, warp, group) for g in given]
            contents.lanes, contents.noted.place = taken.mask, (warp.name, step.at)
            for name, piece in zip(names, results(contents, data), strict=True):
                if name is not None:
                    contents.put(warp, name, taken, piece)

        return then

    return means


def _all_numbers(step: Step, group: Group) -> bool:
    """Whether all operands are numbers, and remain so where the result is another register."""
    uses = step.flow.uses[step.at]
    registers, lanes = group.registers, group.lanes
    for name in uses:
        value = registers.get(name)
        if value.__class__ is not int and not is_known(value, lanes):
            return False
    return uses.isdisjoint(step.flow.writes[step.at])


# Results ----------------------------------------------------------------------------------------------


def _result(step: Step, kinds: list[str]) -> Result | None:
    """How the result follows from the operands; None for the greatest or least of them."""
    moves = _moving(step, kinds)
    return moves if moves is not None or _is_in_any_order(step, kinds) else _of_each(step, kinds)


def _moving(step: Step, kinds: list[str]) -> Result | None:
    """The same of what may move bytes, or make numbers of some."""
    head, parts = step.ins.parts[0], step.ins.parts
    size = width(kinds[0])
    if head in ("mov", "cvta"):
        return lambda given: fitted(given[0], size)
    if head == "selp":
        return lambda given: chosen(given[2], given[0], given[1])
    if head == "cvt" and len(parts) == 3 and _is_integer(kinds[0]) and _is_integer(kinds[1]):
        return lambda given: _as_number(given[0], kinds[1], size)
    if head in ("and", "or", "xor", "not") and kinds[0] == "pred":
        return lambda given: opposite(given[0]) if head == "not" else of_predicates(head, given[0], given[1])
    if head in MOVES:
        return moved(parts, _opaque(parts, size))
    if head in ("add", "mul", "mad") and _is_integer(parts[-1]) and not {"sat", "hi"} & set(parts):
        return _summed(step, size)
    return None


def _is_in_any_order(step: Step, kinds: list[str]) -> bool:
    return step.ins.parts[0] in ("max", "min") and kinds[0] in ("f32", "f16", "bf16", "s32", "u32")


def _of_each(step: Step, kinds: list[str]) -> Result:
    """How the results of instructions that make data [..., bytes] follow from the operands."""
    head, parts, size = step.ins.parts[0], step.ins.parts, width(kinds[0])
    if head == "cvt" and len(kinds) == 2 and _is_integer(kinds[1]):
        return _from_integer(step, kinds[1], size)
    if head == "cvt" and kinds[0].endswith("x2") and len(kinds) == 3 and size > 1:
        key = word(".".join(parts).replace("x2", ""))
        return lambda given: np.concatenate([_made(key, [g], size // 2) for g in (given[1], given[0])], axis=-1)
    if kinds[0].endswith("x2") and head != "cvt":
        return _by_halves(step, size)
    return _opaque(parts, size)


def _is_integer(kind: str) -> bool:
    return kind[0] in "bus" and kind[1:].isdigit()


def _as_number(data: Words, kind: str, size: int) -> Words:
    """The lowest bytes of a number of a type; above it stands its sign, if it has one, or zeros."""
    return fitted(extended(data, size) if kind[0] == "s" else data, size)


def _from_integer(step: Step, kind: str, size: int) -> Result:
    """The same of a number of whatever width."""
    of_any = _opaque((*step.ins.parts[:-1], "integer"), size)
    return lambda given: of_any([_as_number(given[0], kind, REGISTER + 1)])


def _with_predicate(step: Step) -> Callable[[Contents, list[Words]], list[Words]]:
    """lop3 with a predicate: whether there is a bit in the result, and another predicate (PTX ISA 9.7.8.6)."""
    parts = step.ins.parts
    of_bits = moved(("lop3", parts[-1]), _opaque(parts, 4))
    nothing = joined(constant(0, 4))

    def results(contents: Contents, given: list[Words]) -> list[Words]:
        found = of_bits(given[:4])
        left, right = in_order(joined(found), nothing)
        any_bit = opposite(mixed(word(f"setp.eq.{parts[-1]}"), left, right)[:, None])
        known = is_number(found).all(axis=1, keepdims=True)
        any_bit = np.where(known, (found != 0).any(axis=1, keepdims=True).astype(np.uint64), any_bit)
        return [found, of_predicates(parts[1], any_bit, given[4])]

    return results


def _made(key: np.uint64, given: list[Words], size: int) -> Words:
    return spread(mixed(key, *(joined(g) for g in given)), size)


def _opaque(parts: tuple[str, ...], size: int) -> Result:
    key, commutes = word(".".join(parts)), parts[0] in _COMMUTE

    def result(given: list[Words]) -> Words:
        values = [joined(g) for g in given]
        if commutes and len(values) > 1:
            values[:2] = in_order(values[0], values[1])
        return spread(mixed(key, *values), size)

    return result


def _by_halves(step: Step, size: int) -> Result:
    """Packed elements, each for itself."""
    parts = tuple(p.replace("x2", "") for p in step.ins.parts)
    of_half = _opaque(parts, size // 2)

    def result(given: list[Words]) -> Words:
        halves = [of_half([g[..., i * g.shape[-1] // 2 : (i + 1) * g.shape[-1] // 2] for g in given]) for i in (0, 1)]
        return np.concatenate(halves, axis=-1)

    return result


def _summed(step: Step, size: int) -> Result:
    """Products by powers of two that move whole bytes, and sums of numbers whose bytes do not meet."""
    head, kind = step.ins.parts[0], step.ins.parts[-1]
    opaque, zero = _opaque(step.ins.parts, size), np.uint64(0)

    def product(one: Words, other: Words) -> Words | None:
        for data, factor in ((one, number_of(other)), (other, number_of(one))):
            if factor is not None and factor.bit_count() == 1 and factor.bit_length() % 8 == 1:
                zeros = np.zeros((len(data), factor.bit_length() // 8), np.uint64)
                return np.concatenate((zeros, _as_number(data, kind, size)), axis=1)[:, :size]
        return None

    def result(given: list[Words]) -> Words:
        first = given[0] if head == "add" else product(given[0], given[1])
        if first is None or head == "mul":
            return opaque(given) if first is None else first
        apart = ((first == zero) | (given[-1] == zero)).all(axis=1, keepdims=True)
        return np.where(apart, np.where(first == zero, given[-1], first), opaque(given))

    return result


# Comparisons ------------------------------------------------------------------------------------------

_SWAPPED = {"gt": "lt", "ge": "le", "hi": "lo", "hs": "ls", "gtu": "ltu", "geu": "leu"}
_OPPOSITES = {"ltu": "le", "leu": "lt", "neu": "eq", "equ": "ne"}
"""Of floats: what does not hold where one of these does; the sides change places for the first two."""
_OF_INTEGERS = {"le": "lt", "ls": "lo", "ne": "eq"}


def _one_more(data: Words, signed: bool) -> Words | None:
    """The number behind one that all lanes have, if there is one."""
    number, bits = number_of(data), 8 * data.shape[1]
    largest = (1 << bits - 1) - 1 if signed else (1 << bits) - 1
    return None if number in (None, largest) else constant(number + 1, data.shape[1])


def _both_compared(parts: tuple[str, ...]) -> Callable[[list[Words]], list[Words]]:
    """Of two elements in a register, each for itself."""
    compared = _compared(tuple(p.replace("x2", "") for p in parts))

    def result(given: list[Words]) -> list[Words]:
        halves = [
            [*(g[:, i : i + g.shape[1] // 2] for g in given[:2]), *given[2:]] for i in (0, given[0].shape[1] // 2)
        ]
        return [compared(half)[0] for half in halves]

    return result


def _compared(parts: tuple[str, ...]) -> Callable[[list[Words]], list[Words]]:
    """The result, and that behind `|`: the same of what does not hold."""
    is_float = parts[-1][0] == "f" or parts[-1].startswith("bf")
    signed = parts[-1][0] == "s"
    combined = next((p for p in parts[2:] if p in ("and", "or", "xor")), None)

    def result(given: list[Words]) -> list[Words]:
        how, flips, swapped = parts[1], False, given[:2]
        if how in _SWAPPED:
            how, swapped = _SWAPPED[how], swapped[::-1]
        opposites = _OPPOSITES if is_float else _OF_INTEGERS
        if how in opposites:
            flips, how = True, opposites[how]
            swapped = swapped[::-1] if how in ("le", "lt", "lo") else swapped
        left, right = joined(swapped[0]), joined(swapped[1])
        if not is_float and how in ("lt", "lo") and (number := _one_more(swapped[0], signed)) is not None:
            # more than a number is not less than the next one
            flips, left, right = not flips, right, joined(number)
        if how in ("eq", "ne"):
            left, right = in_order(left, right)
        rest = [p for p in parts[2:] if p not in ("and", "or", "xor")]
        found = mixed(word(".".join(("setp", how, *rest))), left, right)[:, None]
        both = [opposite(found), found] if flips else [found, opposite(found)]
        return both if combined is None else [of_predicates(combined, one, given[2]) for one in both]

    return result
