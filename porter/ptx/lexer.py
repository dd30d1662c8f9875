# SPDX-License-Identifier: Apache-2.0
"""Tokens of PTX text. Source: PTX ISA 9.0, section 4 (syntax)."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right

# `.section` holds DWARF bytes only, most of the text of a `-lineinfo` module: passed over like a comment.
_SKIP = r"(?:[ \t\r\n\f\v]+|//[^\n]*|/\*.*?\*/|\.section\s+\.?\w+\s*\{[^}]*\})*+"

_NUMBER = (
    r"0[fF][0-9a-fA-F]{8}(?![\w$])|0[dD][0-9a-fA-F]{16}(?![\w$])|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?"
    r"|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?"
)
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_PUNCTUATION = r"<<|>>|&&|\|\||==|!=|<=|>=|/(?!\*)|[-{}()\[\],;:|@!<>=+*%&^~?]"


def _pattern(word: str, percent: str) -> re.Pattern[str]:
    # Order matters: a percent name before the operator `%`, numbers before words.
    token = "|".join(
        (
            percent,
            rf"{word}(?:(?:\.|::)\w+)*",
            r"\.[A-Za-z0-9_]+(?:::\w+)*",
            _NUMBER,
            _STRING,
            _PUNCTUATION,
        )
    )
    return re.compile(rf"{_SKIP}(?:({token})|(.)|\Z)", re.DOTALL)


_MODULE = _pattern(r"[A-Za-z_$][\w$]*", r"%[A-Za-z_$][\w$]*(?:\.\w+)?")
# In a template `%%x` is the register `%x`, `%0` an operand, and `%=` a number unique to the statement.
_TEMPLATE = _pattern(r"[A-Za-z_$][\w$]*(?:%=[\w$]*)*", r"%%?[A-Za-z_$][\w$]*(?:\.\w+)?|%\d+(?![\w$])")


class PtxSyntaxError(Exception):
    """PTX text that cannot be parsed. `line` and `column` are 1-based."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.message, self.line, self.column = message, line, column


class Tokens:
    """The tokens of a text with their offsets.

    `texts` ends with an empty string, which is the end of the text.

    Raises:
        PtxSyntaxError: a character that begins no token, an unterminated comment or string.
    """

    def __init__(self, text: str, template: bool = False) -> None:
        self.text = text
        self.texts: list[str] = []
        self.starts: list[int] = []
        self._line_starts: list[int] | None = None
        texts, starts = self.texts, self.starts
        for match in (_TEMPLATE if template else _MODULE).finditer(text):
            token = match[1]
            if token is None:
                if match[2] is not None:
                    raise self.error(_stray(text, match.start(2)), match.start(2))
                break
            texts.append(token)
            starts.append(match.start(1))
        texts.append("")
        starts.append(len(text))

    def line(self, offset: int) -> int:
        """1-based line of an offset."""
        if self._line_starts is None:
            self._line_starts = [0, *(m.end() for m in re.finditer("\n", self.text))]
        return bisect_right(self._line_starts, offset)

    def error(self, message: str, offset: int) -> PtxSyntaxError:
        line = self.line(offset)
        assert self._line_starts is not None
        return PtxSyntaxError(message, line, offset - self._line_starts[line - 1] + 1)


def _stray(text: str, offset: int) -> str:
    if text.startswith("/*", offset):
        return "comment is not closed"
    if text[offset] == '"':
        return "string is not closed"
    return f"unexpected character {text[offset]!r}"


def number(token: str) -> tuple[int | float, bool, int | None]:
    """Value, whether it is a float, and the bits of a `0f`/`0d` literal, of a numeric token.

    `0f7FC00000` and the like give a NaN value; the exact pattern is in the bits.
    """
    lead = token[:2].lower()
    if lead == "0f":
        bits = int(token[2:], 16)
        return struct.unpack("<f", struct.pack("<I", bits))[0], True, bits
    if lead == "0d":
        bits = int(token[2:], 16)
        return struct.unpack("<d", struct.pack("<Q", bits))[0], True, bits
    digits = token.rstrip("U")
    if lead == "0x":
        return int(digits[2:], 16), False, None
    if lead == "0b":
        return int(digits[2:], 2), False, None
    if "." in token or "e" in token or "E" in token:
        return float(token), True, None
    if len(digits) > 1 and digits[0] == "0":
        return int(digits, 8), False, None
    return int(digits), False, None
