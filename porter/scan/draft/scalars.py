# SPDX-License-Identifier: Apache-2.0
"""Functions of one number, told by their values: device code that computes one is run on a few numbers.

Spelling says little: GELU is written in a dozen ways, and a function that is named so may be another. What is not
understood has no value, and nothing is concluded from it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from tree_sitter import Node

from porter.model.functions import Function

_SAMPLES = (-5.5, -3.0, -1.7, -0.6, -0.11, 0.0, 0.13, 0.7, 1.9, 3.3, 4.6)
_FAR = 1e6
_CLOSE = 2e-3
"""What hardware's approximations may be apart from the function, relative to 1 and the value."""
_MOST_STEPS = 4000
_TAKES_TWO = 2


class NotUnderstood(Exception):
    """Code that is no function of numbers."""


_SIGNS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&&": lambda a, b: bool(a) and bool(b), "||": lambda a, b: bool(a) or bool(b),
}  # fmt: skip
_ONE: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh, "exp": math.exp, "exp2": lambda x: 2.0**x, "erf": math.erf, "erfc": math.erfc, "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x), "log": math.log, "log2": math.log2, "log1p": math.log1p, "abs": abs,
    "expm1": math.expm1, "rcp": lambda x: 1 / x, "normcdf": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)),
    "frcp_rn": lambda x: 1 / x, "frsqrt_rn": lambda x: 1 / math.sqrt(x), "ex2": lambda x: 2.0**x, "lg2": math.log2,
    "neg": operator.neg, "saturate": lambda x: min(max(x, 0.0), 1.0),
}  # fmt: skip
_TWO: dict[str, Callable[[float, float], float]] = {
    "max": max, "min": min, "fdividef": operator.truediv, "fdiv_rn": operator.truediv, "pow": math.pow,
    "fmul_rn": operator.mul, "fadd_rn": operator.add,
}  # fmt: skip
_NAMED = {"M_PI": math.pi, "M_SQRT2": math.sqrt(2), "M_SQRT1_2": math.sqrt(0.5), "M_2_SQRTPI": 2 / math.sqrt(math.pi),
          "M_2_PI": 2 / math.pi, "M_1_PI": 1 / math.pi, "M_LOG2E": math.log2(math.e), "M_LN2": math.log(2)}  # fmt: skip
_NUMBER = re.compile(r"(?P<digits>[-+]?(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[fFlLuU]*")
_OPCODE = re.compile(r"(tanh|ex2|lg2|rcp|rsqrt|sqrt|neg|max|min|add|mul)\.[\w.]*f(?:32|64)\s+%0\s*,")
_NONLINEAR = frozenset({*_ONE, *_TWO}) - {"fmul_rn", "fadd_rn", "neg", "abs"}


def plain_name(text: str) -> str:
    """`exp` of `__expf`, `std::exp`, `cutlass::fast_exp` and `expf`."""
    name = re.sub(r"<.*", "", text, flags=re.DOTALL).rpartition("::")[2].lstrip("_").removeprefix("fast_")
    for known in (name, name.removesuffix("f"), name.removeprefix("f"), name.removeprefix("f").removesuffix("f")):
        if known in _ONE or known in _TWO:
            return known
    return name


def is_nonlinear(name: str) -> bool:
    return plain_name(name) in _NONLINEAR


class Scalars:
    """Runs expressions of functions. `functions` are those that they may call, by name, `constants` numbers of the
    sources."""

    def __init__(self, functions: Mapping[str, Function], constants: Mapping[str, float]) -> None:
        self._functions = functions
        self._constants = {**_NAMED, **constants}
        self._steps = 0

    def is_constant(self, name: str) -> bool:
        return name in self._constants

    def run(self, function: Function, node: Node, names: Mapping[str, float]) -> float:
        """The value of an expression of a function, with numbers for texts of it. Raises NotUnderstood."""
        return self._told(partial(self._value, function, node, dict(names)))

    def call(self, name: str, x: float) -> float:
        """A function of one number by its name. Raises NotUnderstood."""
        return self._told(partial(self._called, name, [x]))

    def _told(self, value: Callable[[], float]) -> float:
        self._steps = 0
        try:
            return float(value())
        except (ArithmeticError, ValueError, KeyError, RecursionError):
            raise NotUnderstood from None

    def _value(self, function: Function, node: Node, names: dict[str, float]) -> float:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise NotUnderstood
        text = function.text(node)
        if text in names:
            return names[text]
        match node.type:
            case "number_literal":
                return number(text)
            case "identifier" | "qualified_identifier" if text.rpartition("::")[2] in self._constants:
                return self._constants[text.rpartition("::")[2]]
            case "true" | "false":
                return float(node.type == "true")
            case "parenthesized_expression" | "condition_clause":
                return self._value(function, node.named_children[-1], names)
            case "unary_expression":
                return self._unary(function, node, names)
            case "binary_expression":
                sign = _SIGNS.get(_sign(node))
                left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
                if sign is not None and left is not None and right is not None:
                    return float(sign(self._value(function, left, names), self._value(function, right, names)))
            case "conditional_expression":
                parts = [node.child_by_field_name(n) for n in ("condition", "consequence", "alternative")]
                condition, yes, no = parts
                if condition is not None and yes is not None and no is not None:
                    return self._value(function, yes if self._value(function, condition, names) else no, names)
            case "cast_expression":
                value = node.child_by_field_name("value")
                if value is not None:
                    return self._value(function, value, names)
            case "call_expression":
                called = node.child_by_field_name("function")
                if called is not None:
                    given = [self._value(function, a, names) for a in arguments(node)]
                    if len(given) == 1 and function.text(called) in function.template_params:
                        return given[0]
                    return self._called(function.text(called), given)
        raise NotUnderstood

    def _unary(self, function: Function, node: Node, names: dict[str, float]) -> float:
        value = node.child_by_field_name("argument")
        if value is None:
            raise NotUnderstood
        found = self._value(function, value, names)
        match _sign(node):
            case "-":
                return -found
            case "+":
                return found
            case "!":
                return float(not found)
        raise NotUnderstood

    def _called(self, name: str, given: list[float]) -> float:
        last = re.sub(r"<.*", "", name, flags=re.DOTALL).rpartition("::")[2].rpartition(".")[2]
        if last in self._functions:
            return self._body(self._functions[last], given)
        plain = plain_name(name)
        if len(given) == 1 and re.search(r"(?:2float|float2\w*|_cast|__ldg|^float$|^double$|float2bfloat)", name):
            return given[0]
        if len(given) == 1 and plain in _ONE:
            return _without_end(_ONE[plain], given[0])
        if len(given) == _TAKES_TWO and plain in _TWO:
            return _TWO[plain](*given)
        if plain in ("fma", "fmaf_rn", "fmaf"):
            a, b, c = given
            return a * b + c
        raise NotUnderstood

    def _body(self, function: Function, given: list[float]) -> float:
        if len(function.params) != len(given):
            raise NotUnderstood
        names = dict(zip((p.name for p in function.params), given, strict=True))
        found = self._statements(function, function.body.named_children, names)
        if found is None:
            # what is handed by reference
            found = names.get(function.params[0].name) if len(function.params) == 1 else None
        if found is None:
            raise NotUnderstood
        return found

    def _statements(self, function: Function, nodes: list[Node], names: dict[str, float]) -> float | None:
        """What the statements return; None where they do not."""
        for node in nodes:
            match node.type:
                case "return_statement":
                    return self._value(function, node.named_children[0], names)
                case "declaration":
                    self._declared(function, node, names)
                case "expression_statement":
                    self._done(function, node.named_children[0], names)
                case "compound_statement":
                    found = self._statements(function, node.named_children, names)
                    if found is not None:
                        return found
                case "if_statement":
                    condition = node.child_by_field_name("condition")
                    if condition is None:
                        raise NotUnderstood
                    arm = "consequence" if self._value(function, condition, names) else "alternative"
                    taken = node.child_by_field_name(arm)
                    inside = taken.named_children if taken is not None and taken.type == "else_clause" else [taken]
                    found = self._statements(function, [n for n in inside if n is not None], names)
                    if found is not None:
                        return found
                case "comment":
                    pass
                case _:
                    raise NotUnderstood
        return None

    def _declared(self, function: Function, node: Node, names: dict[str, float]) -> None:
        for one in node.children_by_field_name("declarator"):
            name, value = one.child_by_field_name("declarator"), one.child_by_field_name("value")
            if one.type == "init_declarator" and name is not None and value is not None:
                inside = value.named_children[0] if value.type == "initializer_list" else value
                names[function.text(name)] = self._value(function, inside, names)

    def _done(self, function: Function, node: Node, names: dict[str, float]) -> None:
        if node.type == "assignment_expression":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            sign = _sign(node)
            if left is not None and right is not None:
                name, value = function.text(left), self._value(function, right, names)
                if sign != "=":
                    value = _SIGNS[sign.removesuffix("=")](names[name], value)
                names[name] = value
                return
        if node.type == "gnu_asm_expression":
            opcode = _OPCODE.search(function.text(node))
            outputs = [_operand(n) for n in _all(node, "gnu_asm_output_operand")]
            inputs = [_operand(n) for n in _all(node, "gnu_asm_input_operand")]
            if opcode is not None and len(outputs) == 1 and all(n is not None for n in inputs):
                given = [self._value(function, n, names) for n in inputs if n is not None]
                target = outputs[0]
                if target is not None:
                    names[function.text(target)] = self._called(opcode[1], given)
                    return
        raise NotUnderstood


def _without_end(function: Callable[[float], float], x: float) -> float:
    """As device code has it: what is too large is infinite."""
    try:
        return function(x)
    except OverflowError:
        return math.inf


def number(text: str) -> float:
    """The value of a literal. Raises NotUnderstood."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise NotUnderstood
    return float(found["digits"].replace("'", ""))


def arguments(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    return [n for n in listed.named_children if n.type != "comment"] if listed is not None else []


def _sign(node: Node) -> str:
    sign = node.child_by_field_name("operator")
    return sign.type if sign is not None else ""


def _operand(node: Node) -> Node | None:
    return node.child_by_field_name("value")


def _all(node: Node, kind: str) -> Iterator[Node]:
    for child in node.named_children:
        if child.type == kind:
            yield child
        else:
            yield from _all(child, kind)


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


KNOWN: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "erf": math.erf,
    "exp": math.exp,
}
"""Functions of references by their names there."""


def told(function: Callable[[float], float]) -> str | None:
    """The expression of a function in references, with `{}` for its argument: one of `KNOWN`, or bounds that clip. None
    for others, for what is no function, and for what changes nothing.

    The two forms of GELU are closer to each other than some approximations are to either: of several that fit, the
    nearest is taken.
    """
    try:
        values = [function(x) for x in _SAMPLES]
        low, high = function(-_FAR), function(_FAR)
    except NotUnderstood:
        return None
    if not all(map(math.isfinite, values)):
        return None
    apart = {name: max(_apart(v, f(x)) for v, x in zip(values, _SAMPLES, strict=True)) for name, f in KNOWN.items()}
    nearest = min(apart, key=lambda name: apart[name])
    if apart[nearest] < _CLOSE:
        return f"{nearest}({{}})"
    clipped = [min(max(x, low), high) for x in _SAMPLES]
    is_clip = -_FAR < low < high < _FAR and all(map(_same, values, clipped))
    return f"np.clip({{}}, {low:.10g}, {high:.10g})" if is_clip else None


def _apart(a: float, b: float) -> float:
    return abs(a - b) / (1 + abs(b))


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
