# SPDX-License-Identifier: Apache-2.0
"""Names of types and their template arguments, found in text: in macros and in what does not parse, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from porter.lang.cuda import CudaFile
from porter.lang.lexical import without_continuations
from porter.lang.text import Span

_NAME = re.compile(r"(?:::\s*)?[A-Za-z_]\w*(?:\s*::\s*(?:template\s+)?[A-Za-z_]\w*)*")
_PIECE = re.compile(r"[A-Za-z_]\w*|->|<=|>=|<<|[<>()\[\]{};,]")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_ALIAS = re.compile(r"\busing\s+([A-Za-z_]\w*)\s*=\s*([^;{}]+?)\s*;")
_TYPEDEF = re.compile(r"\btypedef\s+(?:typename\s+)?([^;{}()]+?)\s+([A-Za-z_]\w*)\s*;")
_PARAMETER = re.compile(r"\b(?:class|typename)\s+([A-Za-z_]\w*)\s*(?=[,>=])")
_DECLARED = re.compile(
    r"\b(?:class|struct|union|enum|concept)\s+(?:\[\[[^\]]*\]\]\s*)?([A-Za-z_]\w*)\s*(?=[<{:;]|final\b)"
)
_FUNCTION = re.compile(r"\b(?!return\b|new\b|throw\b|else\b)[\w>*&]+[\s*&]+([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True)
class TemplateId:
    """A name with template arguments. `name` is as it is written, without white space; `args` are the arguments, `span`
    the whole."""

    name: str
    args: tuple[Span, ...]
    span: Span

    @property
    def last(self) -> str:
        return self.name.rsplit("::", 1)[-1]


@dataclass(frozen=True)
class TypeAlias:
    """`using name = …;`, with the span of what it stands for."""

    name: str
    name_span: Span
    value: Span


class TypeText:
    """One file as text in which types are looked for: comments, strings and directives are blank, bodies of macros are
    not. Offsets are those of the file."""

    def __init__(self, file: CudaFile) -> None:
        self.file = file
        text = bytearray(file.lexed.plain)
        for macro in file.lexed.macros():
            body = macro.body_span
            text[body.start : body.end] = without_continuations(file.lexed.code[body.start : body.end])
        self.text = text.decode("latin-1")

    def of(self, span: Span) -> str:
        """The text of a span on one line."""
        return " ".join(self.text[span.start : span.end].split())

    def names(self, words: re.Pattern[str]) -> Iterator[tuple[str, Span]]:
        """Names whose last part is one of some words, each with the qualifiers in front of it."""
        for found in words.finditer(self.text):
            start = found.start()
            before = re.compile(r"(?:(?:::\s*)?(?:[A-Za-z_]\w*\s*::\s*)*)\Z")
            front = self.text[max(0, start - 200) : start]
            qualifiers = before.search(front)
            assert qualifiers is not None
            start -= len(qualifiers[0])
            yield re.sub(r"\s+", "", self.text[start : found.end()]), Span(start, found.end())

    @cached_property
    def template_ids(self) -> tuple[TemplateId, ...]:
        """All names with template arguments, in the order in which they begin. Comparisons may be among them."""
        return tuple(self._template_ids())

    @cached_property
    def aliases(self) -> tuple[TypeAlias, ...]:
        found = [TypeAlias(m[1], Span(*m.span(1)), Span(*m.span(2))) for m in _ALIAS.finditer(self.text)]
        found += [TypeAlias(m[2], Span(*m.span(2)), Span(*m.span(1))) for m in _TYPEDEF.finditer(self.text)]
        return tuple(found)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Names of template parameters that are types."""
        return frozenset(m[1] for m in _PARAMETER.finditer(self.text))

    @cached_property
    def declared(self) -> frozenset[str]:
        """Names that the file itself gives to types, templates and functions."""
        found = {m[1] for p in (_DECLARED, _FUNCTION) for m in p.finditer(self.text)}
        return frozenset(found | {a.name for a in self.aliases} | self.parameters)

    def around(self, span: Span) -> Iterator[TemplateId]:
        """The names with template arguments that a span stands among the arguments of, innermost first."""
        inside = [t for t in self.template_ids if any(a.contains(span) for a in t.args)]
        yield from sorted(inside, key=lambda t: t.span.end - t.span.start)

    def _template_ids(self) -> Iterator[TemplateId]:
        for found in _NAME.finditer(self.text):
            at = found.end()
            while at < len(self.text) and self.text[at].isspace():
                at += 1
            if self.text[at : at + 1] != "<" or self.text[at + 1 : at + 2] in ("<", "="):
                continue
            args = self._arguments(at)
            if args is not None:
                name = re.sub(r"\s+|\btemplate\b", "", found[0])
                yield TemplateId(name, args[0], Span(found.start(), args[1]))

    def _arguments(self, opening: int) -> tuple[tuple[Span, ...], int] | None:
        """The spans between the `<` at an offset and the `>` that closes it, and the offset behind that."""
        depth, brackets, args, start = 0, list[str](), list[Span](), opening + 1
        before = ""
        for piece in _PIECE.finditer(self.text, opening):
            text = piece[0]
            if text in _PAIRS:
                brackets.append(_PAIRS[text])
            elif text in _PAIRS.values():
                if not brackets or brackets.pop() != text:
                    return None
            elif brackets:
                pass
            elif text == ";":
                return None
            elif text == "<":
                depth += 1 if depth == 0 or before else 0
            elif text in (">", ">="):
                depth -= 1
                if depth == 0:
                    return (*args, self._trimmed(start, piece.start())), piece.start() + 1
            elif text == "," and depth == 1:
                args.append(self._trimmed(start, piece.start()))
                start = piece.end()
            before = text if text[0].isalpha() or text[0] == "_" else ""
        return None

    def _trimmed(self, start: int, end: int) -> Span:
        while start < end and self.text[start].isspace():
            start += 1
        while end > start and self.text[end - 1].isspace():
            end -= 1
        return Span(start, end)
