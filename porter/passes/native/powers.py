# SPDX-License-Identifier: Apache-2.0
"""Which floats are powers of two by the text that makes them: exponents that become floats, and products of such. Zero,
infinity and NaN count as powers here; a sign does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

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
_E8M0 = "__nv_fp8_e8m0"
_UNSIGNED = {"bool": 1, "unsigned char": 2**8 - 1, "unsigned short": 2**16 - 1, "unsigned int": 2**32 - 1}
_LIMITS = {**_UNSIGNED, "char": 2**7 - 1, "signed char": 2**7 - 1, "short": 2**15 - 1, "int": 2**31 - 1}
"""The largest value of types; unsigned ones keep what is larger modulo that, and are never negative."""
_DEEPEST = 24
_MEMORY = ("subscript_expression", "pointer_expression", "field_expression")


_Asked = Literal["power", "bits", "whole", "e8m0", ""]
"""What is asked of an expression: that it is a power of two, the bits of one, a whole number, or a ue8m0 as a bfloat16;
nothing where it is empty."""


@dataclass(frozen=True)
class _Question:
    """`kinds`: types of variables that may be what is asked for; `casts`: types to which a conversion keeps it, and
    `signs`: operators that keep it; `calls`: functions of the toolkit whose values are that, with what is asked of
    their arguments; `lacks`: what is said of an expression `{text}` that may be something else."""

    lacks: str
    kinds: tuple[str, ...] = ()
    casts: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    calls: Mapping[str, tuple[_Asked, ...]] = field(default_factory=dict)


def _calls(*functions: tuple[str, tuple[_Asked, ...]]) -> dict[str, tuple[_Asked, ...]]:
    return {name: asked for names, asked in functions for name in names.split()}


_BIT_CASTS = "bit_cast<float> std::bit_cast<float> cuda::std::bit_cast<float>"
_CLASSES = "__nv_bfloat16 nv_bfloat16"
_SHOWN = "that scales are powers of two: `{text}` may be something else"
_QUESTIONS: Mapping[str, _Question] = {
    "power": _Question(
        _SHOWN, ("float",), ("float", "double"), ("*", "/"),
        _calls(
            (f"__uint_as_float __int_as_float {_BIT_CASTS}", ("bits",)),
            ("exp2f exp2 std::exp2 std::exp2f cuda::std::exp2 cuda::std::exp2f", ("whole",)),
            ("ldexpf ldexp scalbnf scalbn scalblnf std::ldexp std::scalbn", ("power", "")),
            ("__fmul_rn __fmul_rz __fmul_ru __fmul_rd", ("power", "power")),
            ("__bfloat162float", ("e8m0",)),
        ),
    ),
    "bits": _Question(
        "that `{text}` is the exponent of a float, and nothing else of it", ("int", "unsigned int"),
        ("int", "unsigned int"),
    ),
    "whole": _Question(
        "that the exponent `{text}` is a whole number", ("float", "double"), ("float", "double"), ("+", "-", "*"),
        _calls(
            ("floorf ceilf rintf roundf truncf nearbyintf floor ceil rint round trunc", ("",)),
            ("__int2float_rn __int2float_rz __uint2float_rn __uint2float_rz", ("",)),
        ),
    ),
    "e8m0": _Question(_SHOWN, calls=_calls((_CLASSES, ("e8m0",)), ("__nv_cvt_e8m0_to_bf16raw", ("",)))),
}  # fmt: skip


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
        self._ask("power", at, node)

    def _ask(self, what: _Asked, at: At, node: Node) -> None:
        """Raises Left: the text does not show that an expression is what is asked for."""
        if self._depth > _DEEPEST:
            raise at.left(node, "a scale that is made in fewer steps")
        self._depth += 1
        try:
            for asked, where, part in self._parts(what, at, _plain(node)):
                self._ask(asked, where, part)
        finally:
            self._depth -= 1

    def _parts(self, what: _Asked, at: At, node: Node) -> Iterable[tuple[_Asked, At, Node]]:
        """What has to be asked of the parts of an expression. Raises Left: it is something else whatever they are."""
        question, name, args = _QUESTIONS[what], _callee(at, node), arguments(node)
        kind, value = self._cast(at, node)
        sign, sides = _operation(at, node)
        if what == "whole" and self._type(at, node) in INTEGERS:
            return ()
        if node.type == "number_literal":
            return self._literal(what, at, node)
        if node.type == "conditional_expression":
            arms = (node.child_by_field_name(n) for n in ("consequence", "alternative"))
            return [(what, at, arm or node) for arm in arms]
        if value is not None and kind in question.casts:
            of_e8m0 = what == "power" and self.program.names.type_of(at.function, _plain(value)).name == _E8M0
            return [] if of_e8m0 else [(what, at, value)]
        if sign in question.signs and self._type(at, node) not in INTEGERS:
            return [(what, at, side) for side in sides]
        if what == "bits" and self._is_exponent(at, sign, sides):
            return ()
        if what == "whole" and node.type == "unary_expression" and at.function.text(node.children[0]) in ("-", "+"):
            return [(what, at, node.named_children[-1])]
        if node.type == "identifier" and question.kinds:
            return self._named(what, at, node)
        asks = question.calls.get(name)
        if asks is not None and len(asks) == len(args) and self._is_toolkit(node, name):
            return [(asked, at, a) for asked, a in zip(asks, args, strict=True) if asked]
        if node.type == "call_expression" and value is None and name != "__ldg" and what != "e8m0":
            return [(what, *self._inside(at, node))]
        raise self._not_shown(what, at, node)

    def _not_shown(self, what: _Asked, at: At, node: Node) -> Left:
        text = " ".join(at.function.text(node).split())
        memory = node.type in _MEMORY or _callee(at, node) == "__ldg"
        lacks = _SHOWN.replace("may be something else", "is read as a float, and may be any")
        return at.left(node, (lacks if memory and what == "power" else _QUESTIONS[what].lacks).format(text=text))

    def _literal(self, what: _Asked, at: At, node: Node) -> Iterable[tuple[_Asked, At, Node]]:
        text, number, bits = at.text(node), _float(at.text(node)), self._number(at, node)
        if what == "bits":
            special = bits is not None and (bits == _SMALLEST or bits & _EXPONENT == _EXPONENT)
            if bits is None or bits >> 31 or (bits % (1 << MANTISSA) and not special):
                raise at.left(node, f"a scale that is a power of two: the bits {text} are none")
        elif what == "whole":
            if number is None or not number.is_integer():
                raise at.left(node, f"an exponent that is a whole number: {text} is none")
        elif number is None or number <= 0 or math.frexp(number)[0] != 0.5:
            raise at.left(node, f"a scale that is a power of two: {text} is none")
        return ()

    def _is_toolkit(self, node: Node, name: str) -> bool:
        """Whether a call is of one of the toolkit's functions, and not of one that the sources have by its name."""
        calls = self.program.calls_by_node.get(node.id, ())
        of_name = name in (*_BIT_CASTS.split(), *_CLASSES.split())
        return of_name or (
            name not in self.program.macros.by_name and all(is_toolkit(self.program, c) for c in calls)
        )  # fmt: skip

    # --- Integers

    def _is_exponent(self, at: At, sign: str, sides: Sequence[Node]) -> bool:
        """Whether an operation leaves the exponent of a float alone, without a sign."""
        if sign == "&":
            return _EXPONENT in (self._number(at, side) for side in sides)
        if sign != "<<" or self._number(at, sides[1]) != MANTISSA:
            return False
        most = self._most(at, sides[0])
        if most is None or most > _LARGEST:
            raise at.left(sides[0], f"that `{at.text(sides[0])}` is an exponent of eight bits: a ninth is the sign")
        return True

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
        if node.type == "conditional_expression":
            arms = [node.child_by_field_name(n) for n in ("consequence", "alternative")]
            most = [self._most(at, a) for a in arms if a is not None]
            return max(m for m in most if m is not None) if most and None not in most else None
        sign, sides = _operation(at, node)
        if sign:
            return self._combined(at, sign, *sides)
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

    def _named(self, what: _Asked, at: At, node: Node) -> Iterator[tuple[_Asked, At, Node]]:
        """What a variable is set to, of which all is as wanted."""
        function, name = at.function, at.text(node)
        variable = resolve(function, node, name)
        if variable is None or variable.ambiguous or variable.function is not function:
            raise self._not_shown(what, at, node)
        kind = self.program.names.expressions.variable(variable)
        known = kind.name in _QUESTIONS[what].kinds or _is_auto(variable)
        if not kind.is_plain or kind.reference or not known:
            raise at.left(node, f"that scales are powers of two: `{name}` may be something else")
        if variable.param is not None:
            if name not in at.bound or self._wording.changes(function, name):
                raise self._not_shown(what, at, node)
            yield what, *at.bound[name]
            return
        key = variable.key, what
        if key in self._asked:
            return
        self._asked.add(key)
        try:
            values = list(self._values(at, variable))
            if not values:
                raise self._not_shown(what, at, node)
            yield from ((what, at, value) for value in values)
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


def _operation(at: At, node: Node) -> tuple[str, tuple[Node, ...]]:
    """The sign of an operation of two, and these; an empty sign where it is none."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if node.type != "binary_expression" or left is None or right is None:
        return "", ()
    return at.function.text(node.children[1]), (left, right)


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
    callee = node.child_by_field_name("function") if node.type == "call_expression" else None
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
