# SPDX-License-Identifier: Apache-2.0
"""NumPy references of case files, evaluated node by node over what `array_functions` lists.

Nothing else of NumPy or Python can be named: an attribute is looked up in a table, never in a module or an object.
Texts stand only where einsum takes one and as the names of outputs. What is made is bounded before it is made.
"""

from __future__ import annotations

import ast
import copy
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from porter.verify.activations import ACTIVATIONS
from porter.verify.array_functions import (
    CONSTANTS,
    DTYPES,
    FUNCTIONS,
    GATHER_STEPS,
    METHODS,
    VARIADIC,
    elementwise,
    size,
)
from porter.verify.expr import BINARY, COMPARE, DEEPEST, UNARY, ExpressionError, arithmetic, bounded, parse
from porter.verify.expr import FUNCTIONS as NUMBER_FUNCTIONS

LARGEST = 1 << 27
"""Elements of an array."""
MOST_HELD = 1 << 28
"""Elements of all arrays at one time, inputs left out."""
MOST_STEPS = 5 * 10**9 // 2
"""Elementary operations of a whole expression: no more nanoseconds on a slow core. NumPy cannot be stopped in an
operation, so this is what keeps the evaluation of an expression below ten seconds on a busy one."""
LONGEST_LOOP = 1 << 16
"""Items that Python goes through one by one."""

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    **BINARY,
    ast.Div: operator.truediv,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_COSTLY: dict[type[ast.operator], str] = {
    ast.MatMult: "matmul", ast.Pow: "power", ast.Mod: "mod", ast.FloorDiv: "floor_divide"
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {**UNARY, ast.Invert: operator.invert}
_BUILTINS: dict[str, Callable[..., Any]] = {
    **NUMBER_FUNCTIONS, "float": float, "len": len, "sum": sum, "range": lambda *ends: list(range(*ends))
}  # fmt: skip
_ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "T": lambda array: array.T,
    "shape": lambda array: array.shape,
    "ndim": lambda array: array.ndim,
    "size": lambda array: array.size,
}
_MARK = "'"
"""No name of an expression ends so."""


def _signed_name(name: str) -> str:
    return name + _MARK


_KINDS = "biuf"
"""NumPy's letters for truth values, integers and floating-point numbers."""


def evaluate_reference(
    text: str, names: Mapping[str, Any], magnitude: bool = False, signed: Mapping[str, Any] | None = None
) -> Any:
    """The value of a NumPy expression over arrays, sizes and constants; `np` is NumPy. Arrays are not changed.
    Functions of `ACTIVATIONS` need no `np.`.

    With `magnitude`, differences and negations become sums: given the absolute values of the inputs the
    result then bounds the sum of the absolute values of all terms, for any expression made of sums and
    products. `signed`: the inputs as they are, by which activations tell what errors of their arguments make of theirs.

    Raises:
        ExpressionError: no expression, an unknown name, a construct that a reference may not use, or one that takes
            more memory or time than it may.
        Exception: whatever NumPy raises (wrong shapes, and so on).
    """
    tree = parse(text)
    if magnitude:
        arrays = frozenset(name for name, value in names.items() if isinstance(value, np.ndarray))
        tree = _ToMagnitude(arrays, frozenset(names)).visit(tree)
        names = {**names, **{_signed_name(n): v for n, v in {**names, **(signed or {})}.items()}}
    try:
        return _Evaluation(names).value(tree)
    except MemoryError:
        raise ExpressionError("not enough memory") from None
    except RecursionError:
        raise ExpressionError(f"nested more than {DEEPEST} deep") from None


class _Evaluation:
    """One expression: what it may still cost, and how many elements are held while others are computed."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = {name: _read_only(value) for name, value in names.items()}
        self._steps = 0
        self._held = 0

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | None as value):
                return bounded(value)
            case ast.Constant(value=value) if value is Ellipsis:
                return value
            case ast.Name(id=name):
                return self._named(name)
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if "np" not in self._names:
                if name in CONSTANTS:
                    return CONSTANTS[name]
                if name in DTYPES:
                    return DTYPES[name]
            case ast.Attribute(value=base, attr=name):
                return _attribute(self.value(base), name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                with self._all((left, right)) as (a, b):
                    return self._binary(op, a, b)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                with self._all((operand,)) as (a,):
                    return self._made(elementwise, _UNARY[type(op)], [_operand(a)])
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(o) in COMPARE for o in ops):
                return self._compared(left, ops, rights)
            case ast.BoolOp(op=op, values=parts):
                return self._decided(isinstance(op, ast.And), parts)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if _truth(self.value(test)) else orelse)
            case ast.Call(func=func, args=args, keywords=keywords):
                return self._called(func, args, keywords)
            case ast.Subscript(value=base, slice=index):
                with self._all((base, index)) as (a, i):
                    return self._item(a, i)
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*(None if part is None else self._whole(part) for part in (lower, upper, step)))
            case ast.Tuple(elts=items) | ast.List(elts=items):
                with self._all(items) as values:
                    return tuple(values) if isinstance(node, ast.Tuple) else list(values)
            case ast.Dict(keys=keys, values=items):
                names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
                if len(names) == len(items):
                    with self._all(items) as values:
                        return dict(zip(names, values, strict=True))
        raise ExpressionError(f"`{ast.unparse(node)}` is not allowed in a reference")

    @contextmanager
    def _all(self, nodes: Sequence[ast.expr]) -> Iterator[list[Any]]:
        """The values of several expressions; those that are there count while further ones are computed."""
        values: list[Any] = []
        before = self._held
        try:
            for node in nodes:
                values.append(self.value(node))
                if not isinstance(node, ast.Name):
                    self._hold(size(values[-1]))
            yield values
        finally:
            self._held = before

    def _hold(self, elements: int) -> None:
        self._held += elements
        if self._held > MOST_HELD:
            raise ExpressionError(f"more than {MOST_HELD} elements at one time")

    def _named(self, name: str) -> Any:
        if name not in self._names:
            raise ExpressionError(f"unknown name {name} (known: {', '.join(sorted([*self._names, 'np']))})")
        return bounded(self._names[name])

    def _whole(self, node: ast.expr) -> Any:
        found = self.value(node)
        return found if found is None else operator.index(found)

    def _made(
        self, cost: Callable[..., tuple[int, int]], call: Callable[..., Any], args: list[Any], **kwargs: Any
    ) -> Any:
        """What a call gives, if it may be made."""
        made, steps = cost(*args, **kwargs)
        self._steps += max(steps, 0)
        if made > LARGEST:
            raise ExpressionError(f"an array of {made} elements; one has at most {LARGEST}")
        if self._held + made > MOST_HELD:
            raise ExpressionError(f"more than {MOST_HELD} elements at one time")
        if self._steps > MOST_STEPS:
            raise ExpressionError(f"more than {MOST_STEPS} operations")
        return _checked(call(*args, **kwargs))

    def _binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        a, b = _operand(a), _operand(b)
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            cost = FUNCTIONS[_COSTLY[type(op)]].cost if type(op) in _COSTLY else elementwise
            return self._made(cost, _OPERATORS[type(op)], [a, b])
        return arithmetic(op, a, b) if type(op) in BINARY else bounded(_OPERATORS[type(op)](a, b))

    def _compared(self, left: ast.expr, ops: Sequence[ast.cmpop], rights: Sequence[ast.expr]) -> Any:
        with self._all((left, *rights)) as values:
            found: Any = True
            for i, op in enumerate(ops):
                found = self._made(elementwise, COMPARE[type(op)], [_operand(values[i]), _operand(values[i + 1])])
                if len(ops) > 1 and not (found := _truth(found)):
                    return False
            return found

    def _decided(self, every: bool, parts: Sequence[ast.expr]) -> Any:
        found: Any = None
        for part in parts:
            found = self.value(part)
            if _truth(found) is not every:
                break
        return found

    def _called(self, func: ast.expr, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> Any:
        named = [k.arg or "**" for k in keywords]
        given = [*args, *(k.value for k in keywords)]
        numpy_name = _numpy_name(func) if "np" not in self._names else None
        match func:
            case ast.Name(id=name) if name in _BUILTINS and name not in self._names and not keywords:
                with self._all(args) as values:
                    return self._builtin(name, values)
            case ast.Name(id=name) if name.removesuffix(_MARK) in ACTIVATIONS and name not in self._names:
                with self._all(given) as values:
                    count = len(values) - len(named)
                    return self._activated(name, values[:count], dict(zip(named, values[count:], strict=True)))
            case _ if numpy_name is not None:
                text: list[Any] = []
                if numpy_name == "einsum" and args and isinstance(args[0], ast.Constant):
                    text, given = [args[0].value], given[1:]
                with self._all(given) as values:
                    count = len(values) - len(named)
                    positional, kwargs = [*text, *values[:count]], dict(zip(named, values[count:], strict=True))
                    if numpy_name in DTYPES:
                        return self._function("asarray", [*positional, DTYPES[numpy_name]], kwargs)
                    return self._function(numpy_name, positional, kwargs)
            case ast.Attribute(value=base, attr=name) if name in METHODS:
                with self._all([base, *given]) as values:
                    array = np.asarray(_operand(values[0]))
                    count = len(values) - len(named)
                    positional = values[1:count]
                    if name in VARIADIC and positional and not isinstance(positional[0], tuple | list):
                        positional = [tuple(positional)]
                    kwargs = dict(zip(named, values[count:], strict=True))
                    return self._function(METHODS[name], [array, *positional], kwargs)
        raise ExpressionError(f"{ast.unparse(func)} may not be called like this in a reference")

    def _activated(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A function of `ACTIVATIONS`, or with the mark its magnitude, which takes values and their magnitudes."""
        function = ACTIVATIONS[name.removesuffix(_MARK)]
        wanted = 1 + name.endswith(_MARK)
        if len(args) != wanted or not kwargs.keys() <= function.keywords:
            said = ", ".join(["x", *(f"{k}=..." for k in sorted(function.keywords))])
            raise ExpressionError(f"{function.name} is called as {function.name}({said}) in a reference")
        call = function.magnitude if name.endswith(_MARK) else function.call
        arrays = [np.asarray(_operand(a), dtype=np.float64) for a in args]
        return self._made(function.cost, call, arrays, **{k: _argument(v) for k, v in kwargs.items()})

    def _builtin(self, name: str, values: list[Any]) -> Any:
        if name == "range":
            length = len(range(*(operator.index(v) for v in values)))
        else:
            length = max((len(v) for v in values if np.ndim(v)), default=1)
        if length > LONGEST_LOOP and name != "len":
            raise ExpressionError(f"{name} of {length} items; at most {LONGEST_LOOP} are gone through one by one")
        read = size(values)
        return self._made(lambda *_: (read, 10 * read), _BUILTINS[name], values)

    def _function(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        function = FUNCTIONS.get(name)
        if function is None:
            raise ExpressionError(f"np.{name} is not among the functions that a reference may use")
        if len(args) > function.positional:
            raise ExpressionError(f"np.{name} takes at most {function.positional} arguments in a reference")
        unknown = [k for k in kwargs if k not in function.keywords]
        if unknown:
            raise ExpressionError(f"np.{name} takes no {unknown[0]} in a reference")
        text = args[:1] if name == "einsum" and isinstance(args[0], str) else []
        given = [*text, *(_argument(value) for value in args[len(text) :])]
        return self._made(function.cost, function.call, given, **{k: _argument(v) for k, v in kwargs.items()})

    def _item(self, base: Any, index: Any) -> Any:
        if not isinstance(base, np.ndarray):
            if not isinstance(base, tuple | list):
                raise ExpressionError("only arrays, tuples and lists have items in a reference")
            return base[index]
        return self._made(_items, operator.getitem, [base, index])


def _numpy_name(node: ast.expr) -> str | None:
    """`sum` for `np.sum`, `add.outer` for `np.add.outer`."""
    match node:
        case ast.Attribute(value=ast.Name(id="np"), attr=name):
            return name
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="np"), attr=name), attr="outer"):
            return f"{name}.outer"
    return None


def _items(base: np.ndarray, index: Any) -> tuple[int, int]:
    """What an index picks: the cost function of a subscript."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [np.asarray(part) if isinstance(part, list) else part for part in parts]
    used = sum(p.ndim if isinstance(p, np.ndarray) and p.dtype == bool else 1 for p in parts if p is not None)
    used -= sum(p is Ellipsis for p in parts)
    kept: list[int] = []
    picked: list[tuple[int, ...]] = []
    axis = 0
    for part in (*parts, *([] if any(p is Ellipsis for p in parts) else [Ellipsis])):
        extent = base.shape[axis] if axis < base.ndim else 1
        if part is Ellipsis:
            kept += base.shape[axis : axis + base.ndim - used]
            axis += max(base.ndim - used, 0)
        elif isinstance(part, slice):
            kept.append(len(range(*part.indices(extent))))
            axis += 1
        elif isinstance(part, np.ndarray) and part.dtype == bool:
            picked.append((int(np.count_nonzero(part)),))
            axis += part.ndim
        elif part is not None:
            picked.append(np.shape(part))
            axis += 1
    made = math.prod(kept) * math.prod(np.broadcast_shapes(*picked))
    return made, (1 if not any(picked) else GATHER_STEPS * made)


def _read_only(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _operand(value: Any) -> Any:
    """A number or an array, as operators take them."""
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        return value
    raise ExpressionError(f"an operator takes numbers and arrays, not a {type(value).__name__}")


def _argument(value: Any) -> Any:
    """A number, an array, an element type, None, or tuples and lists of these, as functions take them."""
    if isinstance(value, tuple | list):
        return type(value)(_argument(item) for item in value)
    return value if value is None or isinstance(value, np.dtype) else _operand(value)


def _truth(value: Any) -> bool:
    return bool(_operand(value)) if value is not None else False


def _checked(value: Any) -> Any:
    """A result that is made of numbers.

    Raises:
        ExpressionError: it is anything else.
    """
    if isinstance(value, tuple | list):
        return type(value)(_checked(item) for item in value)
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in _KINDS:
            return value
    elif isinstance(value, bool | int | float):
        return bounded(value)
    raise ExpressionError("a result that is not made of real numbers")


def _attribute(base: Any, name: str) -> Any:
    if name in _ATTRIBUTES and isinstance(base, np.ndarray | np.generic):
        return _ATTRIBUTES[name](base)
    raise ExpressionError(f"attribute {name} is not allowed in a reference")


class _ToMagnitude(ast.NodeTransformer):
    """x - y becomes x + y, -x becomes x. Subscripts, comparisons, negative literals among a call's arguments, and
    whatever names no array are left alone: they are indices, conditions and axes."""

    def __init__(self, arrays: frozenset[str], names: frozenset[str]) -> None:
        self._arrays = arrays
        self._names = names

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
        if isinstance(node.func, ast.Name) and node.func.id in ACTIVATIONS and node.func.id not in self._names:
            values = [_Signed(self._arrays).visit(copy.deepcopy(a)) for a in node.args]
            node.func.id += _MARK
            node.args = [*values, *(self.visit(a) for a in node.args)]
            return node
        node.func = self.visit(node.func)
        node.args = [argument if _is_literal(argument) else self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            if not _is_literal(keyword.value):
                keyword.value = self.visit(keyword.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)
        return node


class _Signed(ast.NodeTransformer):
    """The same expression over the inputs as they are."""

    def __init__(self, arrays: frozenset[str]) -> None:
        self._arrays = arrays

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(_signed_name(node.id), node.ctx) if node.id in self._arrays else node


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
