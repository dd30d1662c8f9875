# SPDX-License-Identifier: Apache-2.0
"""Expressions of case files: arithmetic over sizes and constants.

Expressions are parsed with `ast` and only the node kinds listed here are evaluated, so a case file cannot run
code through its sizes or launch values. Their length, depth and numbers are bounded, so that each is evaluated at once.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

Number = int | float | bool


LONGEST = 10_000
"""Characters of an expression."""
DEEPEST = 100
"""Levels of nesting in an expression."""
WIDEST = 128
"""Bits of an integer."""


class ExpressionError(ValueError):
    """The text is no expression, or cannot be evaluated with these names."""


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up, for integers."""
    return -(-a // b)


def align_up(a: int, b: int) -> int:
    """The smallest multiple of b that is at least a."""
    return -(-a // b) * b


FUNCTIONS: dict[str, Callable[..., Number]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "int": int,
    "ceil_div": ceil_div,
    "align_up": align_up,
}

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


def parse(text: str) -> ast.expr:
    """The tree of an expression that is neither too long nor too deep to go through.

    Raises:
        ExpressionError: it is, or the text is no expression.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"{len(text)} characters; an expression has at most {LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ExpressionError(f"not an expression ({getattr(error, 'msg', error)})") from None
    except (RecursionError, MemoryError):
        raise ExpressionError(f"nested more than {DEEPEST} deep") from None
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise ExpressionError(f"nested more than {DEEPEST} deep")


def arithmetic(op: ast.operator, a: Any, b: Any) -> Any:
    """`a op b` for an operator of BINARY. Integers stay within WIDEST bits.

    Raises:
        ExpressionError: the result would not; a shift or power whose integers are too large to try.
    """
    if isinstance(op, ast.Pow | ast.LShift) and isinstance(a, int) and isinstance(b, int):
        bits = abs(b) * a.bit_length() if isinstance(op, ast.Pow) else a.bit_length() + abs(b)
        if bits > 2 * WIDEST:
            raise ExpressionError("the exponent is too large")
    return bounded(BINARY[type(op)](a, b))


def bounded(value: Any) -> Any:
    """The value, which is no integer of more than WIDEST bits and no complex number.

    Raises:
        ExpressionError: it is.
    """
    if isinstance(value, complex):
        raise ExpressionError("the result is a complex number")
    if isinstance(value, int) and value.bit_length() > WIDEST:
        raise ExpressionError(f"an integer of {value.bit_length()} bits; at most {WIDEST} are worked with")
    return value


def names_in(text: str) -> frozenset[str]:
    """The names an expression uses, function names excluded.

    Raises:
        ExpressionError: the text is no expression.
    """
    tree = parse(text)
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called)


def evaluate(text: str | Number, names: Mapping[str, Number]) -> Number:
    """The value of an expression over `names`. Numbers are returned as they are.

    `/` between integers must come out even; with a float operand it is ordinary division.

    Raises:
        ExpressionError: unknown name or function, uneven division, or anything but arithmetic.
    """
    if isinstance(text, bool | int | float):
        return text
    try:
        return _value(parse(text), names)
    except (ZeroDivisionError, OverflowError, TypeError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(str(error)) from None


def _value(node: ast.expr, names: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            number: Number = bounded(value)
            return number
        case ast.Name(id=name):
            if name not in names:
                known = ", ".join(sorted(names)) or "none"
                raise ExpressionError(f"unknown name {name} (known: {known})")
            known_number: Number = bounded(names[name])
            return known_number
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _divide(_value(left, names), _value(right, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            found: Number = arithmetic(op, _value(left, names), _value(right, names))
            return found
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
            return UNARY[type(op)](_value(operand, names))
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(o) in COMPARE for o in ops):
            values = [_value(n, names) for n in (left, *rights)]
            return all(COMPARE[type(o)](a, b) for o, a, b in zip(ops, values, values[1:], strict=False))
        case ast.BoolOp(op=op, values=parts):
            decide = all if isinstance(op, ast.And) else any
            return decide(_value(part, names) for part in parts)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            result: Number = bounded(FUNCTIONS[name](*(_value(arg, names) for arg in args)))
            return result
        case ast.Call(func=func):
            raise ExpressionError(f"unknown function {ast.unparse(func)} (known: {', '.join(sorted(FUNCTIONS))})")
    raise ExpressionError(f"`{ast.unparse(node)}` is not allowed here")


def _divide(a: Number, b: Number) -> Number:
    if b == 0:
        raise ExpressionError(f"{a} / {b} divides by zero")
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    quotient = Fraction(int(a), int(b))
    if quotient.denominator != 1:
        raise ExpressionError(f"{a} / {b} does not come out even (use ceil_div or //)")
    return int(quotient)
