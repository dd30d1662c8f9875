# SPDX-License-Identifier: Apache-2.0
"""Operands of PTX instructions, and the token cursor that the statement parser shares.

Source: PTX ISA 9.0, sections 4.5 (constants and constant expressions) and 6 (operands).
"""

from __future__ import annotations

from porter.ptx.ast import Imm, Mem, Neg, Operand, Pair, Placeholder, Reg, SpecialReg, Sym, Vec
from porter.ptx.bits import signed
from porter.ptx.lexer import PtxSyntaxError, Tokens, number
from porter.ptx.special import SPECIAL_REGISTERS

_BINARY = {
    "*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "==": 6, "!=": 6, "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1,
}  # fmt: skip
_WORD_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")
_DIGITS = frozenset("0123456789")
_MAX_NESTING = 100


class Cursor:
    """A position in a token list, the registers in scope, and the parsing of operands."""

    def __init__(self, tokens: Tokens, template: bool) -> None:
        self.tokens = tokens
        self.template = template
        self.texts = tokens.texts
        self.at = 0
        # Names without a percent sign that `.reg` declared, innermost scope last.
        self.scopes: list[set[str]] = [set()]
        self._depth = 0
        self._known: dict[str, Operand] = {}

    # Token access -------------------------------------------------------------------------------------

    def fail(self, message: str, at: int | None = None) -> PtxSyntaxError:
        index = self.at if at is None else at
        return self.tokens.error(message, self.tokens.starts[min(index, len(self.texts) - 1)])

    def expected(self, what: str) -> PtxSyntaxError:
        found = self.texts[self.at]
        return self.fail(f"expected {what}, found {found!r}" if found else f"expected {what} before the end")

    def take(self, token: str) -> None:
        if self.texts[self.at] != token:
            raise self.expected(repr(token))
        self.at += 1

    def accept(self, token: str) -> bool:
        if self.texts[self.at] == token:
            self.at += 1
            return True
        return False

    def word(self, what: str) -> str:
        """An identifier: a name, also with a percent sign."""
        token = self.texts[self.at]
        if not token or (token[0] not in _WORD_START and token[0] != "%") or token == "%" or "." in token:
            raise self.expected(what)
        self.at += 1
        return self.unescaped(token)

    def string(self, what: str) -> str:
        token = self.texts[self.at]
        if not token.startswith('"'):
            raise self.expected(what)
        self.at += 1
        return token[1:-1]

    def integer(self, what: str) -> int:
        """A constant expression with an integer value."""
        value = self.constant()
        if not isinstance(value.value, int):
            raise self.expected(what)
        return value.value

    def unescaped(self, token: str) -> str:
        return token[1:] if self.template and token.startswith("%%") else token

    # Operands -----------------------------------------------------------------------------------------

    def operand(self) -> Operand:
        """One operand, with a second part after `|`."""
        first = self._simple()
        following = self.texts[self.at]
        if following == "|":
            self.at += 1
            return Pair(first, self._simple())
        if (following == "+" or following == "-") and isinstance(first, Sym):
            self.at += following == "+"
            return Sym(first.name, self.integer("an offset"))
        return first

    def _simple(self) -> Operand:
        token = self.texts[self.at]
        if not token:
            raise self.expected("an operand")
        known = self._known.get(token)
        if known is not None:
            self.at += 1
            return known
        lead = token[0]
        if lead == "%" and len(token) > 1:
            self.at += 1
            return self._known.setdefault(token, self._percent(token))
        if lead in _DIGITS or lead == "(" or lead == "~":
            return self.constant()
        if lead in _WORD_START:
            self.at += 1
            return self._name(token)
        if lead == "[":
            return self._memory()
        if lead == "{":
            return self._vector("{", "}")
        if lead == "-" or lead == "!" or lead == "+":
            if self.texts[self.at + 1][:1] in _DIGITS or self.texts[self.at + 1] == "(":
                return self.constant()
            self.at += 1
            self._enter()
            inner = self._simple()
            self._depth -= 1
            return inner if lead == "+" else Neg(lead, inner)
        raise self.expected("an operand")

    def _percent(self, token: str) -> Operand:
        if token[1] in _DIGITS:
            return Placeholder(int(token[1:]))
        name = self.unescaped(token)[1:]
        return SpecialReg(name) if name in SPECIAL_REGISTERS else Reg("%" + name)

    def _name(self, token: str) -> Operand:
        if token == "WARP_SZ":
            return Imm(32)
        stem, dot, component = token.partition(".")
        for scope in reversed(self.scopes):
            if stem in scope:
                return Reg(token)
        if dot and component in ("x", "y", "z", "w", "r", "g", "b", "a"):
            return Reg(token)
        if dot:
            raise self.fail(f"{token!r} is not an operand", self.at - 1)
        return Sym(token)

    def _vector(self, opening: str, closing: str) -> Vec:
        self.take(opening)
        self._enter()
        items: list[Operand] = []
        if not self.accept(closing):
            items.append(self.operand())
            while self.accept(","):
                items.append(self.operand())
            self.take(closing)
        self._depth -= 1
        return Vec(tuple(items))

    def parenthesised(self) -> Vec:
        """The argument list of a call."""
        return self._vector("(", ")")

    def _memory(self) -> Mem:
        self.take("[")
        self._enter()
        base = self._simple()
        offset, displacement = 0, None
        while self.texts[self.at] in ("+", "-"):
            following = self.texts[self.at + 1]
            if self.template and following[:1] == "%" and following[1:].isdigit():
                if self.texts[self.at] == "-" or displacement is not None:
                    raise self.fail("an address takes at most one operand as its offset, added")
                displacement = Placeholder(int(following[1:]))
                self.at += 2
                continue
            # `a+-8` and `a-8` both occur; the constant takes its own sign.
            if self.texts[self.at] == "+":
                self.at += 1
            value = self._binary(self._unary(), _BINARY["+"])
            if not isinstance(value, int):
                raise self.fail("an address offset is an integer", self.at - 1)
            offset += value
        parts: list[Operand] = []
        while self.accept(","):
            parts.append(self._simple())
        self.take("]")
        self._depth -= 1
        return Mem(base, offset, tuple(parts), displacement)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise self.fail("nested too deeply")

    # Constant expressions -----------------------------------------------------------------------------

    def constant(self) -> Imm:
        """A number, or an expression of integers as in section 4.5.3."""
        token = self.texts[self.at]
        if token[:1] in _DIGITS and self.texts[self.at + 1] in (",", ";", "}", "]"):
            self.at += 1
            return Imm(*self._number(token))
        start = self.at
        value = self._binary(self._unary(), 0)
        if isinstance(value, float) and self.at - start == 2:  # a signed literal keeps its sign only
            return Imm(value, True)
        return Imm(value, isinstance(value, float))

    def _number(self, token: str) -> tuple[int | float, bool, int | None]:
        try:
            return number(token)
        except ValueError:
            raise self.fail(f"malformed number {token!r}", self.at - 1) from None

    def _unary(self) -> int | float:
        token = self.texts[self.at]
        self.at += 1
        if token == "(":
            self._enter()
            if self.texts[self.at] in (".s64", ".u64"):  # a cast
                cast = self.texts[self.at]
                self.at += 1
                self.take(")")
                value = self._integer(self._unary())
                self._depth -= 1
                return signed(value, 64) if cast == ".s64" else value & 0xFFFFFFFFFFFFFFFF
            inner = self._binary(self._unary(), 0)
            self.take(")")
            self._depth -= 1
            return inner
        if token in ("-", "+", "~", "!"):
            self._enter()
            inner = self._unary()
            self._depth -= 1
            if token == "-":
                return -inner
            if token == "+":
                return inner
            whole = self._integer(inner)
            return ~whole if token == "~" else int(not whole)
        if token[:1] in _DIGITS:
            return self._number(token)[0]
        if token == "WARP_SZ":
            return 32
        self.at -= 1
        raise self.expected("a number")

    def _integer(self, value: int | float) -> int:
        if not isinstance(value, int):
            raise self.fail("the operator takes integers", self.at - 1)
        return value

    def _binary(self, left: int | float, floor: int) -> int | float:
        while True:
            operator = self.texts[self.at]
            rank = _BINARY.get(operator, -1)
            if rank <= floor:
                break
            self.at += 1
            right = self._unary()
            while _BINARY.get(self.texts[self.at], -1) > rank:
                right = self._binary(right, rank)
            left = self._apply(operator, self._integer(left), self._integer(right))
        if floor == 0 and self.texts[self.at] == "?":
            self.at += 1
            self._enter()
            chosen = self._binary(self._unary(), 0)
            self.take(":")
            other = self._binary(self._unary(), 0)
            self._depth -= 1
            return chosen if left else other
        return left

    def _apply(self, operator: str, a: int, b: int) -> int:
        if operator in ("/", "%"):
            if b == 0:
                raise self.fail("division by zero", self.at - 1)
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if operator == "/" else a - b * quotient
        if operator in ("<<", ">>"):
            if not 0 <= b < 64:
                raise self.fail("shift by more than 63", self.at - 1)
            return a << b if operator == "<<" else a >> b
        if operator in ("&&", "||"):
            return int(bool(a) and bool(b)) if operator == "&&" else int(bool(a) or bool(b))
        results = {
            "*": a * b, "+": a + b, "-": a - b, "&": a & b, "|": a | b, "^": a ^ b,
            "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "==": a == b, "!=": a != b,
        }  # fmt: skip
        return int(results[operator])
