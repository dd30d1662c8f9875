# SPDX-License-Identifier: Apache-2.0
"""Which floats are powers of two by the text that makes them: exponents that become floats, and products of such. Zero,
infinity and NaN count as powers here; a sign does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import arguments, inside
from porter.model.functions import Function, Style
from porter.model.names.types import INTEGERS
from porter.model.pipeline.frames import Wording, first_value
from porter.model.program import Program
from porter.model.pure import is_toolkit
from porter.model.scopes import Variable, resolve
from porter.model.settings import settings_of
from porter.passes.native.sites import Left, OfFunction

MANTISSA = 23
"""Bits of a float below its exponent."""
_EXPONENT = 0xFF << MANTISSA
_LARGEST = 0xFF
"""What the bits of an exponent hold."""
_SMALLEST = 1 << MANTISSA - 1
"""The bits of 2^-127, which is no normal number."""
_OF_BITS = ("__uint_as_float", "__int_as_float")
_BIT_CASTS = ("bit_cast", "std::bit_cast", "cuda::std::bit_cast")
_EXP2 = ("exp2f", "exp2", "std::exp2", "std::exp2f", "cuda::std::exp2", "cuda::std::exp2f")
_SCALED = ("ldexpf", "ldexp", "scalbnf", "scalbn", "scalblnf", "std::ldexp", "std::scalbn")
_PRODUCTS = ("__fmul_rn", "__fmul_rz", "__fmul_ru", "__fmul_rd")
_WHOLE = ("floorf", "ceilf", "rintf", "roundf", "truncf", "nearbyintf", "floor", "ceil", "rint", "round", "trunc")
_FROM_INTEGER = ("__int2float_rn", "__int2float_rz", "__uint2float_rn", "__uint2float_rz")
_E8M0 = "__nv_fp8_e8m0"
_E8M0_TO_BF16 = "__nv_cvt_e8m0_to_bf16raw"
_UNSIGNED = {"bool": 1, "unsigned char": 2**8 - 1, "unsigned short": 2**16 - 1, "unsigned int": 2**32 - 1}
_LIMITS = {**_UNSIGNED, "char": 2**7 - 1, "signed char": 2**7 - 1, "short": 2**15 - 1, "int": 2**31 - 1}
"""The largest value of types; unsigned ones keep what is larger modulo that, and are never negative."""
_DEEPEST = 24


@dataclass(frozen=True, eq=False)
class At(OfFunction):
    """Where an expression stands: in a function, whose parameters are what a call of it hands over."""

    function: Function
    bound: Mapping[str, tuple[At, Node]] = field(default_factory=dict)

    def text(self, node: Node) -> str:
        return "".join(self.function.text(node).split())


class Powers:
    """Asks about one program."""

    def __init__(self, program: Program) -> None:
        self.program, self._wording, self._depth = program, Wording(program), 0
        self._asked: set[tuple[tuple[int, int, str], str]] = set()

    def power(self, at: At, node: Node) -> None:
        """That a float is a power of two.

        Raises:
            Left: the text does not show it.
        """
        self._deeper(at, node, self._power)

    def _deeper(self, at: At, node: Node, ask: Callable[[At, Node], None]) -> None:
        if self._depth > _DEEPEST:
            raise at.left(node, "a scale that is made in fewer steps")
        self._depth += 1
        try:
            ask(at, _plain(node))
        finally:
            self._depth -= 1

    def _power(self, at: At, node: Node) -> None:
        sides = node.child_by_field_name("left"), node.child_by_field_name("right")
        if node.type == "number_literal":
            value = _float(at.text(node))
            if value is None or value <= 0 or math.frexp(value)[0] != 0.5:
                raise at.left(node, f"a scale that is a power of two: {at.text(node)} is none")
        elif node.type == "conditional_expression":
            self._both_arms(at, node, self.power)
        elif node.type == "cast_expression":
            self._converted(at, node, *self._cast(at, node))
        elif node.type == "binary_expression" and at.function.text(node.children[1]) in ("*", "/"):
            if self._type(at, node) in INTEGERS:
                raise self._not_shown(at, node)
            for side in sides:
                self.power(at, side or node)
        elif node.type == "identifier":
            self._named(at, node, "power", ("float",), self.power)
        elif node.type == "call_expression":
            self._called(at, node)
        else:
            raise self._not_shown(at, node)

    def _not_shown(self, at: At, node: Node) -> Left:
        memory = node.type in ("subscript_expression", "pointer_expression", "field_expression")
        what = "is read as a float, and may be any" if memory else "may be something else"
        return at.left(node, f"that scales are powers of two: `{' '.join(at.function.text(node).split())}` {what}")

    def _converted(self, at: At, node: Node, kind: str, value: Node | None) -> None:
        """`float(x)` of a power, or of a ue8m0."""
        if value is None or kind not in ("float", "double"):
            raise self._not_shown(at, node)
        if self.program.names.type_of(at.function, _plain(value)).name != _E8M0:
            self.power(at, value)

    def _called(self, at: At, node: Node) -> None:
        name, args = _callee(at, node), arguments(node)
        cast, value = self._cast(at, node)
        if value is not None:
            self._converted(at, node, cast, value)
        elif self._is_bits(node, name) and len(args) == 1:
            self._deeper(at, args[0], self._exponent)
        elif self._is_toolkit(node, name, _EXP2) and len(args) == 1:
            self._deeper(at, args[0], self._whole)
        elif self._is_toolkit(node, name, _SCALED) and len(args) == 2:
            self.power(at, args[0])
        elif self._is_toolkit(node, name, _PRODUCTS) and len(args) == 2:
            for argument in args:
                self.power(at, argument)
        elif self._is_toolkit(node, name, ("__bfloat162float",)) and len(args) == 1:
            self._from_e8m0(at, args[0])
        elif name in ("__ldg",):
            raise at.left(node, f"that scales are powers of two: `{at.text(node)}` is read as a float, and may be any")
        else:
            inner, value = self._inside(at, node)
            self.power(inner, value)

    def _is_bits(self, node: Node, name: str) -> bool:
        bit_cast = any(name == f"{b}<float>" for b in _BIT_CASTS)
        return bit_cast or self._is_toolkit(node, name, _OF_BITS)

    def _is_toolkit(self, node: Node, name: str, names: tuple[str, ...]) -> bool:
        """Whether a call is of one of the toolkit's functions, and not of one that the sources have by its name."""
        calls = self.program.calls_by_node.get(node.id, ())
        return (
            name in names
            and name not in self.program.macros.by_name
            and all(is_toolkit(self.program, c) for c in calls)
        )

    def _from_e8m0(self, at: At, node: Node) -> None:
        """`__nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(x))`, or without the class around it."""
        node = _plain(node)
        while node.type == "call_expression" and _callee(at, node) in ("__nv_bfloat16", "nv_bfloat16"):
            inner = arguments(node)
            if len(inner) != 1:
                break
            node = _plain(inner[0])
        if node.type != "call_expression" or not self._is_toolkit(node, _callee(at, node), (_E8M0_TO_BF16,)):
            raise self._not_shown(at, node)

    def _both_arms(self, at: At, node: Node, ask: Callable[[At, Node], None]) -> None:
        for name in ("consequence", "alternative"):
            arm = node.child_by_field_name(name)
            ask(at, arm if arm is not None else node)

    # --- Bits of a float

    def _exponent(self, at: At, node: Node) -> None:
        """That the bits of a float are those of a power of two without a sign."""
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = at.function.text(node.children[1]) if node.type == "binary_expression" else ""
        if node.type == "number_literal":
            value = self._number(at, node)
            special = value is not None and (value == _SMALLEST or value & _EXPONENT == _EXPONENT)
            if value is None or value >> 31 or (value % (1 << MANTISSA) and not special):
                raise at.left(node, f"a scale that is a power of two: the bits {at.text(node)} are none")
        elif node.type == "conditional_expression":
            self._both_arms(at, node, lambda where, arm: self._deeper(where, arm, self._exponent))
        elif sign == "<<" and left is not None and right is not None and self._number(at, right) == MANTISSA:
            most = self._most(at, left)
            if most is None or most > _LARGEST:
                raise at.left(left, f"that `{at.text(left)}` is an exponent of eight bits: a ninth is the sign")
        elif sign == "&" and _EXPONENT in (self._number(at, left), self._number(at, right)):
            return
        elif node.type == "identifier":
            words = ("int", "unsigned int")
            self._named(at, node, "bits", words, lambda where, n: self._deeper(where, n, self._exponent))
        elif (value_of := self._same_bits(at, node)) is not None:
            self._deeper(at, value_of, self._exponent)
        elif node.type == "call_expression":
            inner, returned = self._inside(at, node)
            self._deeper(inner, returned, self._exponent)
        else:
            raise at.left(node, f"that `{at.text(node)}` is the exponent of a float, and nothing else of it")

    def _same_bits(self, at: At, node: Node) -> Node | None:
        """What a cast to an integer of 32 bits is of."""
        kind, value = self._cast(at, node)
        return value if kind in ("int", "unsigned int") else None

    def _cast(self, at: At, node: Node) -> tuple[str, Node | None]:
        """The type and the value of a cast to a type of numbers."""
        kind, value = "", None
        if node.type == "cast_expression":
            written, value = node.child_by_field_name("type"), node.child_by_field_name("value")
            kind = at.function.text(written) if written is not None else ""
        elif node.type == "call_expression" and len(args := arguments(node)) == 1:
            kind, value = _cast_of(_callee(at, node)) or _callee(at, node), args[0]
        found = self.program.names.declared.from_text(kind, self.program.names.lookup.site(at.function, node))
        arithmetic = kind and found.is_plain and not found.reference and found.kind == "arithmetic"
        return (found.name, value) if arithmetic else ("", None)

    def _number(self, at: At, node: Node | None) -> int | None:
        return self.program.constants_in(at.function).evaluate(at.function.text(node)) if node is not None else None

    def _most(self, at: At, node: Node) -> int | None:
        """The largest value that an integer can have which is never negative; None where that is not known."""
        node = _plain(node)
        known = self._number(at, node)
        if known is not None:
            return known if known >= 0 else None
        kind, value = self._cast(at, node)
        if value is not None:
            return _held(kind, self._most(at, value))
        found = self._most_of(at, node)
        return found if found is not None else _held(self._type(at, node), None)

    def _most_of(self, at: At, node: Node) -> int | None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if node.type == "conditional_expression":
            arms = [node.child_by_field_name(n) for n in ("consequence", "alternative")]
            most = [self._most(at, a) for a in arms if a is not None]
            return max(m for m in most if m is not None) if most and None not in most else None
        if node.type == "binary_expression" and left is not None and right is not None:
            return self._combined(at, at.function.text(node.children[1]), left, right)
        name = at.text(node) if node.type == "identifier" else ""
        variable = resolve(at.function, node, name) if name else None
        if variable is None or variable.ambiguous or self._wording.changes(variable.function, name):
            return None
        if name in at.bound:
            return _held(self._type(at, node), self._most(*at.bound[name]))
        first = first_value(variable)
        if first is None or variable.function is not at.function or inside(first, node):
            return None
        return _held(self._type(at, node), self._most(at, first))

    def _combined(self, at: At, sign: str, left: Node, right: Node) -> int | None:
        a, b = self._most(at, left), self._most(at, right)
        if sign == "&":
            return min((v for v in (a, b) if v is not None), default=None)
        by = self._number(at, right)
        if sign == ">>" and a is not None and by is not None and 0 <= by < 32:
            return a >> by
        if sign == "%" and a is not None and by is not None and by > 0:
            return min(a, by - 1)
        if sign == "+" and a is not None and b is not None and a + b < 1 << 31:
            return a + b
        return None

    def _type(self, at: At, node: Node) -> str:
        """The name of an expression's type; empty for a pointer, or where nobody knows."""
        if node.type == "call_expression" and _callee(at, node) == "__ldg" and len(arguments(node)) == 1:
            found = self.program.names.type_of(at.function, arguments(node)[0])
            return found.pointed().name if found.is_pointer else ""
        found = self.program.names.type_of(at.function, node)
        return found.name if found.is_plain else ""

    # --- Whole numbers

    def _whole(self, at: At, node: Node) -> None:
        """That a float is a whole number."""
        sign = at.function.text(node.children[1]) if node.type == "binary_expression" else ""
        name = _callee(at, node) if node.type == "call_expression" else ""
        kind, value = self._cast(at, node)

        def ask(where: At, inner: Node) -> None:
            self._deeper(where, inner, self._whole)

        if node.type == "number_literal":
            number = _float(at.text(node))
            if number is None or not number.is_integer():
                raise at.left(node, f"an exponent that is a whole number: {at.text(node)} is none")
        elif self._type(at, node) in INTEGERS:
            return
        elif value is not None and kind in ("float", "double"):
            ask(at, value)
        elif node.type == "conditional_expression":
            self._both_arms(at, node, ask)
        elif sign in ("+", "-", "*"):
            for side in (node.child_by_field_name("left"), node.child_by_field_name("right")):
                ask(at, side or node)
        elif node.type == "unary_expression" and at.function.text(node.children[0]) in ("-", "+"):
            ask(at, node.named_children[-1])
        elif self._is_toolkit(node, name, (*_WHOLE, *_FROM_INTEGER)):
            return
        elif node.type == "identifier":
            self._named(at, node, "whole", ("float", "double"), ask)
        elif node.type == "call_expression" and name != "__ldg":
            inner, returned = self._inside(at, node)
            self._deeper(inner, returned, self._whole)
        else:
            raise at.left(node, f"that the exponent `{at.text(node)}` is a whole number")

    # --- Names and functions

    def _inside(self, at: At, node: Node) -> tuple[At, Node]:
        """What a function of the sources returns, that does nothing else. Raises Left: it is no such call."""
        calls = self.program.calls_by_node.get(node.id, ())
        targets = [t for c in calls for t in self.program.targets(c)]
        name = _callee(at, node)
        if len(calls) != 1 or len(targets) != 1 or name in self.program.macros.by_name:
            raise at.left(node, f"that scales are powers of two: what `{name}` gives may be something else")
        call, target = calls[0], targets[0]
        statements = [c for c in target.body.named_children if c.type not in ("comment", "static_assert_declaration")]
        last = statements[-1] if statements else None
        plain = target.style is Style.DEVICE and not target.variadic and len(call.args) == len(target.params)
        inner = [c for c in last.named_children if c.type != "comment"] if last is not None else []
        only = plain and all(s.type == "declaration" for s in statements[:-1])
        if last is None or last.type != "return_statement" or len(inner) != 1 or not only:
            raise at.left(node, f"that `{name}` only returns an expression")
        return At(target, {p.name: (at, a) for p, a in zip(target.params, call.args, strict=True) if p.name}), inner[0]

    def _named(
        self, at: At, node: Node, what: str, kinds: tuple[str, ...], ask: Callable[[At, Node], None]
    ) -> None:  # fmt: skip
        """That all values of a variable are as wanted."""
        function, name = at.function, at.text(node)
        variable = resolve(function, node, name)
        if variable is None or variable.ambiguous or variable.function is not function:
            raise self._not_shown(at, node)
        kind = self.program.names.expressions.variable(variable)
        if not kind.is_plain or kind.reference not in ("",) or not (kind.name in kinds or _is_auto(variable)):
            raise at.left(node, f"that scales are powers of two: `{name}` may be something else")
        if variable.param is not None:
            if name not in at.bound or self._wording.changes(function, name):
                raise self._not_shown(at, node)
            ask(*at.bound[name])
            return
        key = variable.key, what
        if key in self._asked:
            return
        self._asked.add(key)
        try:
            values = list(self._values(at, variable))
            if not values:
                raise self._not_shown(at, node)
            for value in values:
                ask(at, value)
        finally:
            self._asked.discard(key)

    def _values(self, at: At, variable: Variable) -> Iterator[Node]:
        """What a local variable is set to. Raises Left: something else may set it."""
        for one in settings_of(self.program, variable):
            if one.sign not in ("=", "*=") or one.value is None:
                raise at.left(one.node, f"what `{variable.name}` is set to")
            yield one.value


def _plain(node: Node) -> Node:
    """The expression inside of parentheses, or of braces with one value."""
    while node.type in ("parenthesized_expression", "initializer_list", "argument_list"):
        inner = [c for c in node.named_children if c.type != "comment"]
        if len(inner) != 1:
            break
        node = inner[0]
    return node


def _is_auto(variable: Variable) -> bool:
    kind = variable.declaration.child_by_field_name("type") if variable.declaration is not None else None
    return kind is not None and kind.type == "placeholder_type_specifier"


def _held(kind: str, value: int | None) -> int | None:
    """The largest value of a type that holds a value up to `value`; None where it may be negative."""
    limit = _LIMITS.get(kind)
    if value is not None and limit is not None and value <= limit:
        return value
    return _UNSIGNED.get(kind)


def _callee(at: At, node: Node) -> str:
    callee = node.child_by_field_name("function")
    return at.text(callee).removeprefix("::") if callee is not None else ""


def _cast_of(name: str) -> str:
    """The type that `static_cast<float>(x)` is of."""
    head, _, rest = name.partition("<")
    return rest[:-1] if head == "static_cast" and rest.endswith(">") else ""


def _float(text: str) -> float | None:
    word = text.replace("'", "").lower()
    try:
        if word.startswith("0x"):
            return float.fromhex(word.removesuffix("f") if "p" in word else word)
        return float(word.rstrip("flu"))
    except ValueError:
        return None
