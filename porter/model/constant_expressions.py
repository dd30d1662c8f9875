# SPDX-License-Identifier: Apache-2.0
"""Values of integer constant expressions of C++, as text. An operand that is not known does not matter where the rest
decides: the other arm of `?:`, the right of a decided `&&` or `||`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from porter.ptx.tensormap import ENCODED_BYTES

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F']+|0[bB][01']+|\d[\d']*)(?P<suffix>[uUlLzZ]*)(?![\w.])"
    r"|(?P<name>(?:::\s*)?[A-Za-z_]\w*(?:\s*::\s*(?:template\s+)?[A-Za-z_]\w*)*)"
    r"|(?P<sign><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^~!?:(),{}]))"
)
SIZES = {
    "bool": 1,
    "char": 1,
    "int8_t": 1,
    "uint8_t": 1,
    "__nv_fp8_e4m3": 1,
    "__nv_fp8_e5m2": 1,
    "short": 2,
    "int16_t": 2,
    "uint16_t": 2,
    "half": 2,
    "__half": 2,
    "__nv_bfloat16": 2,
    "nv_bfloat16": 2,
    "int": 4,
    "unsigned": 4,
    "uint": 4,
    "int32_t": 4,
    "uint32_t": 4,
    "float": 4,
    "half2": 4,
    "__half2": 4,
    "__nv_bfloat162": 4,
    "long": 8,
    "size_t": 8,
    "int64_t": 8,
    "uint64_t": 8,
    "double": 8,
    "float2": 8,
    "uint2": 8,
    "int2": 8,
    "CUtensorMap": ENCODED_BYTES,
    "float4": 16,
    "uint4": 16,
    "int4": 16,
}
"""Sizes in bytes (CUDA C++ Programming Guide, vector types; 64-bit Linux)."""
_INTEGER_WORDS = frozenset(
    (
        *("bool", "char", "short", "int", "long", "unsigned", "signed", "uint", "size_t", "const"),
        *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)
_LEVELS: Sequence[tuple[str, ...]] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_BINARY: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << _shift(b),
    ">>": lambda a, b: a >> _shift(b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: _quotient(a, b),
    "%": lambda a, b: a - b * _quotient(a, b),
}
_CASTS = ("static_cast",)
_EXTREMES = {"min": min, "max": max}

Value = "int | None"
Named = Callable[[str], "int | None"]
Called = Callable[[str, list["int | None"]], "int | None"]


class _NotAnExpressionError(ValueError):
    """The text is no integer constant expression that is read here."""


def evaluate(text: str, named: Named, called: Called) -> int | None:
    """The value of an expression, or None if it is not known or is no expression.

    `named` gives the value of a name, `called` that of a call of a function; None if they do not know.
    """
    try:
        parser = _Parser(_tokens(text), named, called)
        value = parser.conditional()
        return value if parser.at_end else None
    except (_NotAnExpressionError, ZeroDivisionError, OverflowError, ValueError):
        return None


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _NotAnExpressionError
        kind = match.lastgroup if match.lastgroup != "suffix" else "number"
        shown = match.group(kind or "sign")
        found.append((kind or "sign", "".join(shown.split()) if kind == "name" else shown))
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]], named: Named, called: Called) -> None:
        self.tokens, self.named, self.called = tokens, named, called
        self.at = 0

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.tokens)

    def _peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def _take(self, wanted: str) -> None:
        if self._peek() != wanted:
            raise _NotAnExpressionError
        self.at += 1

    def conditional(self) -> int | None:
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._take("?")
        then = self.conditional()
        self._take(":")
        other = self.conditional()
        if condition is None:
            return then if then == other else None
        return then if condition else other

    def _binary(self, level: int) -> int | None:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level] and self.tokens[self.at][0] == "sign":
            sign = self._peek()
            self.at += 1
            right = self._binary(level + 1)
            left = _combined(sign, left, right)
        return left

    def _unary(self) -> int | None:
        sign = self._peek()
        if sign in ("-", "+", "~", "!"):
            self.at += 1
            value = self._unary()
            if value is None:
                return None
            return {"-": -value, "+": value, "~": ~value, "!": int(not value)}[sign]
        if sign == "(" and self._is_type(self.at + 1):
            # a cast in C's style
            self._skip_type(")")
            return self._unary()
        return self._primary()

    def _is_type(self, at: int) -> bool:
        """Whether the tokens up to the next parenthesis name an integer type."""
        words = []
        while at < len(self.tokens) and self.tokens[at][0] == "name":
            words.append(self.tokens[at][1].removeprefix("std::"))
            at += 1
        closes = at < len(self.tokens) and self.tokens[at][1] == ")"
        return bool(words) and closes and all(w in _INTEGER_WORDS for w in words)

    def _skip_type(self, end: str) -> None:
        self.at += 1
        while self._peek() != end:
            if self.at_end:
                raise _NotAnExpressionError
            self.at += 1
        self.at += 1

    def _primary(self) -> int | None:
        if self.at_end:
            raise _NotAnExpressionError
        kind, shown = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return _number(shown)
        if shown == "(":
            value = self.conditional()
            self._take(")")
            return value
        if kind != "name":
            raise _NotAnExpressionError
        if shown in ("true", "false"):
            return int(shown == "true")
        if shown in _CASTS and self._peek() == "<":
            self._skip_type(">")
            return self._primary()
        if shown == "sizeof":
            return self._size()
        words = [shown.removeprefix("std::")]
        while words[-1] in _INTEGER_WORDS and not self.at_end and self.tokens[self.at][0] == "name":
            words.append(self._peek())
            self.at += 1
        if self._peek() in ("(", "{"):
            arguments = self._arguments()
            if all(w in _INTEGER_WORDS for w in words):
                return arguments[0] if len(arguments) == 1 else None
            last = shown.rsplit("::", 1)[-1]
            known = self.called(shown, arguments)
            if known is None and last in _EXTREMES and len(arguments) == 2:
                one, other = arguments
                return _EXTREMES[last](one, other) if one is not None and other is not None else None
            return known
        return self.named(shown)

    def _arguments(self) -> list[int | None]:
        end = ")" if self._peek() == "(" else "}"
        self.at += 1
        found: list[int | None] = []
        while self._peek() != end:
            found.append(self.conditional())
            if self._peek() != end:
                self._take(",")
        self.at += 1
        return found

    def _size(self) -> int | None:
        self._take("(")
        words = []
        while not self.at_end and self.tokens[self.at][0] == "name":
            words.append(self._peek().removeprefix("std::"))
            self.at += 1
        pointer = self._peek() == "*"
        while self._peek() == "*":
            self.at += 1
        self._take(")")
        if pointer:
            return 8
        return size_of(words)


def size_of(words: Sequence[str]) -> int | None:
    """Bytes of a type by the words of its name, None if that is not known."""
    words = [w for w in words if w not in ("const", "unsigned", "signed")] or ["int"]
    if words == ["long", "long"]:
        words = ["long"]
    return SIZES.get(words[0]) if len(words) == 1 else None


def _combined(sign: str, left: int | None, right: int | None) -> int | None:
    if sign in ("&&", "||"):
        decisive = sign == "||"
        if any(v is not None and bool(v) is decisive for v in (left, right)):
            return int(decisive)
        return None if left is None or right is None else int(not decisive)
    return _BINARY[sign](left, right) if left is not None and right is not None else None


def _number(text: str) -> int:
    text = text.replace("'", "")
    return int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0)


def _quotient(a: int, b: int) -> int:
    """Rounded towards zero, as C++ does."""
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


def _shift(count: int) -> int:
    if not 0 <= count < 64:
        raise ValueError("no shift of any integer type")
    return count
