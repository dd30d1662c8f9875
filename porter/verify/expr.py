# SPDX-License-Identifier: Apache-2.0
"""Expressions of case files: integer arithmetic over sizes and constants, and NumPy references.

Expressions are parsed with `ast` and only the node kinds listed here are evaluated, so a case file cannot run
code through its sizes or launch values. References may also call NumPy, but nothing in it that touches files.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

Number = int | float | bool


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

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ExpressionError(f"not an expression ({getattr(error, 'msg', error)})") from None


def names_in(text: str) -> frozenset[str]:
    """The names an expression uses, function names excluded.

    Raises:
        ExpressionError: the text is no expression.
    """
    tree = _parse(text)
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
        return _value(_parse(text), names)
    except (ZeroDivisionError, OverflowError, TypeError, MemoryError) as error:
        raise ExpressionError(str(error)) from None


def _value(node: ast.expr, names: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Name(id=name):
            if name not in names:
                known = ", ".join(sorted(names)) or "none"
                raise ExpressionError(f"unknown name {name} (known: {known})")
            return names[name]
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _divide(_value(left, names), _value(right, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _value(left, names), _value(right, names)
            if isinstance(op, ast.Pow | ast.LShift) and abs(b) > 64:
                raise ExpressionError(f"exponent {b} is too large")
            return _BINARY[type(op)](a, b)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand, names))
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(o) in _COMPARE for o in ops):
            values = [_value(n, names) for n in (left, *rights)]
            return all(_COMPARE[type(o)](a, b) for o, a, b in zip(ops, values, values[1:], strict=False))
        case ast.BoolOp(op=op, values=parts):
            decide = all if isinstance(op, ast.And) else any
            return decide(_value(part, names) for part in parts)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(arg, names) for arg in args))
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


_REFERENCE_NODES: tuple[type[ast.AST], ...] = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Call, ast.keyword,
    ast.Name,
    ast.Attribute, ast.Constant, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Dict, ast.operator,
    ast.unaryop,
    ast.cmpop, ast.boolop, ast.expr_context,
)  # fmt: skip

# NumPy attributes that reach files or other modules.
_FORBIDDEN_ATTRIBUTES = frozenset(
    {"load", "loads", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromfile",
     "fromregex", "tofile", "dump", "dumps", "memmap", "open_memmap", "DataSource", "ctypeslib", "ctypes",
     "lib", "f2py", "testing", "core", "os", "sys"}
)  # fmt: skip
_REFERENCE_BUILTINS: dict[str, Any] = {
    "min": min, "max": max, "abs": abs, "int": int, "float": float, "len": len, "range": range, "sum": sum,
    "ceil_div": ceil_div, "align_up": align_up,
}  # fmt: skip


def evaluate_reference(text: str, names: Mapping[str, Any], magnitude: bool = False) -> Any:
    """The value of a NumPy expression over arrays, sizes and constants; `np` is NumPy.

    With `magnitude`, differences and negations become sums: given the absolute values of the inputs the
    result then bounds the sum of the absolute values of all terms, for any expression made of sums and
    products.

    Raises:
        ExpressionError: a syntax error, an unknown name, or a construct that a reference may not use.
        Exception: whatever NumPy raises (wrong shapes, and so on).
    """
    tree = ast.Expression(_parse(text))
    scope = {**_REFERENCE_BUILTINS, "np": np, **names}
    for node in ast.walk(tree):
        if not isinstance(node, _REFERENCE_NODES):
            raise ExpressionError(f"{type(node).__name__} is not allowed in a reference")
        if isinstance(node, ast.Attribute) and (node.attr.startswith("_") or node.attr in _FORBIDDEN_ATTRIBUTES):
            raise ExpressionError(f"attribute {node.attr} is not allowed in a reference")
        if isinstance(node, ast.Name) and node.id not in scope:
            raise ExpressionError(f"unknown name {node.id} (known: {', '.join(sorted([*names, 'np']))})")
    if magnitude:
        arrays = frozenset(name for name, value in names.items() if isinstance(value, np.ndarray))
        tree = ast.fix_missing_locations(_ToMagnitude(arrays).visit(tree))
    # NumPy's C code looks into the builtins of whoever calls it and crashes without them. An expression cannot
    # name any: only names of its scope pass the check above.
    return eval(compile(tree, "<reference>", "eval"), {"__builtins__": builtins}, scope)


class _ToMagnitude(ast.NodeTransformer):
    """x - y becomes x + y, -x becomes x. Subscripts, comparisons, negative literals among a call's arguments, and
    whatever names no array are left alone: they are indices, conditions and axes."""

    def __init__(self, arrays: frozenset[str]) -> None:
        self._arrays = arrays

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and not any(
            isinstance(n, ast.Name) and n.id in self._arrays for n in ast.walk(node)
        ):
            return node
        return super().visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            node.left, node.right = self._positive(node.left), self._positive(node.right)
        return ast.BinOp(node.left, ast.Add(), node.right) if isinstance(node.op, ast.Sub) else node

    def _positive(self, node: ast.expr) -> ast.expr:
        """The absolute value of what names no array; the arrays are positive already."""
        if not _is_signed(node, self._arrays):
            return node
        absolute = ast.Attribute(ast.Name("np", ast.Load()), "abs", ast.Load())
        return ast.Call(absolute, [node], [])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return node.operand if isinstance(node.op, ast.USub) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.func = self.visit(node.func)
        node.args = [argument if _is_literal(argument) else self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            if not _is_literal(keyword.value):
                keyword.value = self.visit(keyword.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)
        return node


def _is_signed(node: ast.expr, arrays: frozenset[str]) -> bool:
    """Whether the value may be negative: no array in it, and no plain number."""
    if isinstance(node, ast.Constant):
        return False
    return not any(isinstance(n, ast.Name) and n.id in arrays for n in ast.walk(node))


def _is_literal(node: ast.expr) -> bool:
    """A number, with or without a sign, or a tuple of such."""
    if isinstance(node, ast.Tuple):
        return all(_is_literal(n) for n in node.elts)
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant)
