# SPDX-License-Identifier: Apache-2.0
"""C++ source below the grammar: what is comment, string or directive, and what `#define` says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from porter.lang.text import MARK, Span, as_text

_RAW = rb'R"([^\s()\\]{0,16})\(.*?\)\%d"'
_CHARACTER = rb"(?:[^'\\\n]|\\[^\n][^'\n]{0,8})'"
# Every branch begins with a byte of its own and looks behind after it: the search then skips all other bytes.
_OPAQUE = re.compile(
    rb"/(?:/[^\\\n]*(?:\\(?:\r?\n)?[^\\\n]*)*|\*.*?(?:\*/|\Z))"
    rb'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    # A quote after a digit separates digits (1'000), after a word character it is no literal at all.
    rb"|'(?<![0-9A-Za-z_]')" + _CHARACTER + rb"|R(?<![0-9A-Za-z_]R)" + (_RAW % 1)[1:]
    + rb"|u(?<![0-9A-Za-z_]u)(?:8?" + _RAW % 2 + rb"|8?'" + _CHARACTER + rb")"
    + rb"|U(?<![0-9A-Za-z_]U)(?:" + _RAW % 3 + rb"|8?'" + _CHARACTER + rb")"
    + rb"|L(?<![0-9A-Za-z_]L)(?:" + _RAW % 4 + rb"|8?'" + _CHARACTER + rb")",
    re.DOTALL,
)  # fmt: skip
_DIRECTIVE = re.compile(rb"#[^\\\n]*(?:\\(?:\r?\n|.)[^\\\n]*)*")
_DEFINE = re.compile(rb"[ \t]*#[ \t]*define(?:[ \t]|\\\r?\n)+([A-Za-z_]\w*)(\([^)]*\))?")
_INCLUDE = re.compile(rb'[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)')
_COMPUTED = re.compile(rb"[ \t]*#[ \t]*include[ \t]+([A-Za-z_]\w*[^\n]*)")
_CONTINUATION = re.compile(rb"\\(?=\r?\n)")
_BLANK = bytes(c if c in b"\r\n" else 0x20 for c in range(256))


def without_mark(source: bytes) -> bytes:
    """The source with blanks in place of a mark of its encoding."""
    return b"   " + source[len(MARK) :] if source.startswith(MARK) else source


def blanked(piece: bytes) -> bytes:
    """Spaces in place of `piece`, line ends kept."""
    return piece.translate(_BLANK)


def padded(piece: bytes, substitute: bytes) -> bytes:
    """`substitute` and then blanks, as long as `piece`; blanks alone if it does not fit on the first line."""
    first_line = len(piece.split(b"\n", 1)[0])
    if len(substitute) > first_line:
        return blanked(piece)
    return substitute + blanked(piece[len(substitute) :])


@dataclass(frozen=True)
class MacroText:
    """A `#define`: parameters are None for an object-like macro. The body span is stripped of outer blanks
    and still holds its backslash-newlines."""

    name: str
    params: tuple[str, ...] | None
    span: Span
    body_span: Span
    body: bytes

    @cached_property
    def joined(self) -> bytes:
        """The body as the preprocessor sees it, on one line and without comments."""
        text = re.sub(rb"\\\r?\n", b" ", self.body)
        text = _OPAQUE.sub(lambda m: m.group() if m.group()[:1] not in b"/" else b" ", text)
        return b" ".join(text.split())


class Lexed:
    """One source: `code` is the text with comments and string contents blanked (quotes kept), same offsets;
    `plain` is `code` with preprocessor directives blanked too."""

    def __init__(self, source: bytes) -> None:
        self.source = source

    @cached_property
    def _begin(self) -> int:
        """Where the text begins: nothing is written in front of a mark of its encoding."""
        return len(MARK) if self.source.startswith(MARK) else 0

    @cached_property
    def code(self) -> bytes:
        def shadow(match: re.Match[bytes]) -> bytes:
            text = match.group()
            if text.startswith((b"//", b"/*")):
                return blanked(text)
            return text[-1:] + blanked(text[1:-1]) + text[-1:]

        return _OPAQUE.sub(shadow, without_mark(self.source))

    @cached_property
    def uncommented(self) -> bytes:
        """The text with comments blanked; strings stay."""
        return _OPAQUE.sub(lambda m: blanked(m.group()) if m.group()[:1] == b"/" else m.group(), self.source)

    @cached_property
    def source_text(self) -> str:
        """The source with one character for each byte, so that offsets are the same."""
        return self.source.decode("latin-1")

    @cached_property
    def plain_text(self) -> str:
        """`plain` with one character for each byte."""
        return self.plain.decode("latin-1")

    @cached_property
    def directives(self) -> tuple[Span, ...]:
        """Each preprocessor directive with its continuation lines, without the final line end."""
        found = []
        at = 0
        while (match := _DIRECTIVE.search(self.code, at)) is not None:
            start = self.code.rfind(b"\n", 0, match.start()) + 1 or self._begin
            first = not self.code[start : match.start()].strip(b" \t")
            at = match.end() if first else match.start() + 1
            if first:
                found.append(Span(start, match.end()))
        return tuple(found)

    @cached_property
    def plain(self) -> bytes:
        text = bytearray(self.code)
        for span in self.directives:
            text[span.start : span.end] = blanked(bytes(text[span.start : span.end]))
        return bytes(text)

    def macros(self) -> tuple[MacroText, ...]:
        """Every `#define` in file order, also in branches of `#if` that may not be taken."""
        return self._macros

    @cached_property
    def _macros(self) -> tuple[MacroText, ...]:
        return tuple(self._defined())

    def _defined(self) -> Iterator[MacroText]:
        for span in self.directives:
            head = _DEFINE.match(self.code, span.start, span.end)
            if head is None:
                continue
            params = None
            if head.group(2) is not None:
                inside = _CONTINUATION.sub(b" ", head.group(2)[1:-1]).decode("ascii", "replace")
                params = tuple(p.strip() for p in inside.split(",") if p.strip())
            start, end = head.end(), span.end
            while start < end and (
                self.source[start] in b" \t\r\n" or _CONTINUATION.match(self.source, start, end + 2)
            ):
                start += 1
            while end > start and self.source[end - 1] in b" \t\r\n\\":
                end -= 1
            yield MacroText(head.group(1).decode(), params, span, Span(start, end), self.source[start:end])

    def includes(self) -> Iterator[tuple[str, bool, Span]]:
        """(name, quoted, span) of every `#include` that names a file directly."""
        for span in self.directives:
            # Quoted names are blanked in `code`, so read the source itself.
            found = _INCLUDE.match(self.source, span.start, span.end)
            if found is not None:
                quoted = found.group(1) is not None
                name = found.group(1) if quoted else found.group(2)
                yield as_text(name), quoted, span

    def computed_includes(self) -> Iterator[tuple[str, Span]]:
        """(expression, span) of every `#include` that names a macro."""
        for span in self.directives:
            found = _COMPUTED.match(self.code, span.start, span.end)
            if found is not None:
                yield as_text(found.group(1).strip()), span


def closing(text: bytes, opening: int) -> int:
    """Offset just past the bracket that closes the one at `opening`, or -1. `text` has no string contents."""
    pairs = {0x28: 0x29, 0x5B: 0x5D, 0x7B: 0x7D}
    depth = 0
    opener, closer = text[opening], pairs[text[opening]]
    for match in re.compile(b"[" + re.escape(bytes([opener, closer])) + b"]").finditer(text, opening):
        depth += 1 if match.group()[0] == opener else -1
        if depth == 0:
            return match.end()
    return -1


def without_continuations(text: bytes) -> bytes:
    """Backslashes before line ends become spaces; nothing moves."""
    return _CONTINUATION.sub(b" ", text)


@lru_cache(maxsize=128)
def lexed(source: bytes) -> Lexed:
    """The lexed source; a text that is read again soon is not lexed again."""
    return Lexed(source)
