# SPDX-License-Identifier: Apache-2.0
"""Numbers of host code as expressions over its sizes, in the language of case files."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Value = int | float | bool

_STRENGTH = {
    "or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, ">": 4, "<=": 4, ">=": 4, "+": 6, "-": 6, "*": 7, "//": 7,
    "/": 7, "%": 7,
}  # fmt: skip


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


_RUN: dict[str, Callable[..., Value]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "/": operator.truediv,
    "%": operator.mod, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge, "and": lambda a, b: bool(a) and bool(b), "or": lambda a, b: bool(a) or bool(b),
    "not": operator.not_, "min": min, "max": max, "ceil_div": ceil_div, "if": lambda c, a, b: a if c else b,
}  # fmt: skip


@dataclass(frozen=True)
class Num:
    """A number: `op` is `const` with its `value`, `name` with the `name` of a size, or an operation on `args`."""

    op: str
    args: tuple[Num, ...] = ()
    value: Value = 0
    name: str = ""

    @property
    def known(self) -> Value | None:
        return self.value if self.op == "const" else None

    def run(self, names: Mapping[str, Value]) -> Value:
        """The value with numbers for the names.

        Raises:
            KeyError, ZeroDivisionError: a name has none, a divisor is zero.
        """
        if self.op == "const":
            return self.value
        if self.op == "name":
            return names[self.name]
        return _RUN[self.op](*(a.run(names) for a in self.args))

    def walk(self) -> Iterator[Num]:
        yield self
        for a in self.args:
            yield from a.walk()

    def names(self) -> set[str]:
        return {n.name for n in self.walk() if n.op == "name"}

    def written(self) -> Value | str:
        """As a case file has it: a number or the text of an expression."""
        return self.value if self.op == "const" else str(self)

    def __str__(self) -> str:
        if self.op in ("const", "name"):
            return str(self.value) if self.op == "const" else self.name
        if self.op == "not":
            return f"not ({self.args[0]})"
        if self.op == "if":
            return f"({self.args[1]} if {self.args[0]} else {self.args[2]})"
        if self.op in ("min", "max", "ceil_div"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        mine = _STRENGTH[self.op]
        left, right = self.args
        texts = [f"({a})" if _STRENGTH.get(a.op, 9) < mine + more else str(a) for a, more in ((left, 0), (right, 1))]
        return f"{texts[0]} {self.op} {texts[1]}"


def const(value: Value) -> Num:
    return Num("const", value=value)


def name(text: str) -> Num:
    return Num("name", name=text)


def apply(op: str, *args: Num) -> Num:
    """The operation, done at once where all numbers are known, and without what changes nothing."""
    if all(a.op == "const" for a in args):
        try:
            return const(_RUN[op](*(a.value for a in args)))
        except (ZeroDivisionError, TypeError, OverflowError):
            return Num(op, args)
    if op == "if":
        return _chosen(*args)
    if len(args) == 2:
        left, right = args
        if op in ("*", "//", "/") and right.known == 1:
            return left
        if op in ("+", "-") and right.known == 0:
            return left
        if (op == "*" and left.known == 1) or (op == "+" and left.known == 0):
            return right
        if op == "-" and isinstance(right.known, int):
            return apply("+", left, const(-right.known))
        if op == "+" and isinstance(left.known, int):
            return apply("+", right, left)
        if op == "+" and left.op == "+" and left.args[1].known is not None and right.known is not None:
            return apply("+", left.args[0], const(left.args[1].known + right.known))
        if op == "+" and isinstance(right.known, int) and right.known < 0:
            return Num("-", (left, const(-right.known)))
        if op == "+" and left.op == "-" and left.args[1].known is not None and right.known is not None:
            return apply("+", left.args[0], const(right.known - left.args[1].known))
        if op == "//" and isinstance(right.known, int):
            return _quotient(left, right.known)
    return Num(op, args)


def _quotient(left: Num, divisor: int) -> Num:
    """Rounded up where the code says so by what it adds; a factor of the dividend goes out of it."""
    if left.op == "+" and left.args[1].known == divisor - 1:
        return Num("ceil_div", (left.args[0], const(divisor)))
    if left.op == "*" and left.args[1].known == divisor:
        return left.args[0]
    if left.op == "*" and left.args[0].known == divisor:
        return left.args[1]
    return Num("//", (left, const(divisor)))


def _chosen(condition: Num, first: Num, second: Num) -> Num:
    if first == second:
        return first
    if condition.known is not None:
        return first if condition.known else second
    if condition.op in ("<", "<=", ">", ">=") and set(condition.args) == {first, second}:
        less = (condition.args[0] == first) == (condition.op in ("<", "<="))
        return apply("min" if less else "max", first, second)
    return Num("if", (condition, first, second))


def negated(condition: Num) -> Num:
    """What holds where a condition does not."""
    opposite = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
    if condition.op in opposite:
        return Num(opposite[condition.op], condition.args)
    if condition.op in ("or", "and"):
        return Num("and" if condition.op == "or" else "or", tuple(map(negated, condition.args)))
    if condition.op == "not":
        return condition.args[0]
    return Num("==", (condition, const(0))) if condition.op == "%" else Num("not", (condition,))


def divisors(expressions: list[Num], size: str) -> int:
    """The least common multiple of what a size is divided by."""
    found = 1
    for expression in expressions:
        for part in expression.walk():
            if part.op in ("%", "//", "ceil_div") and part.args[0] == name(size):
                by = part.args[1].known
                if isinstance(by, int) and by > 0:
                    found = math.lcm(found, by)
    return found
