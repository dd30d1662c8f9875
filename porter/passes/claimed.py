# SPDX-License-Identifier: Apache-2.0
"""Names that the sources claim for themselves: macros that would change what a port brings along, and the name of its
namespace. What only the helpers' own text has is hidden from macros there; what a port names among the lines of kernels
is renamed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from porter.lang.lexical import Lexed
from porter.lang.text import Edit
from porter.model.program import Program
from porter.passes.context import PortContext
from porter.passes.helpers import NAMESPACE

_WORD = re.compile(rb"\b[A-Za-z_]\w*")
_MEMBER = re.compile(rb"(?P<of>\b\w+::|\.|->)(?P<name>[A-Za-z_]\w*)")
"""A member of a namespace or of an object where it is named."""


def claimed_by(program: Program, namespace: str = NAMESPACE) -> frozenset[str]:
    """Macros of the sources, those with parameters as `name(`, and a namespace's name if their code has it."""
    found: set[str] = set()
    word = re.compile(rb"\b%b\b" % namespace.encode())
    for file in program.sources.files.values():
        macros = file.lexed.macros()
        found |= {m.name if m.params is None else f"{m.name}(" for m in macros}
        if word.search(file.lexed.plain) or any(word.search(m.joined) for m in macros):
            found.add(namespace)
    return frozenset(found)


def unclaimed(context: PortContext, text: str, namespace: str) -> str:
    """The text of helpers as no macro of the sources changes it. What edits name of it has another name then, in them
    and in the text."""
    code = Lexed(text.encode()).code
    if not set(_hit(context, code)):
        return text
    words = {w.decode() for w in _WORD.findall(code)}
    renamed: dict[str, str] = {}
    for edits in context.edits.values():
        edits[:] = [_with_other_names(context, e, words, renamed, namespace) for e in edits]
    text = _replaced(text.encode(), renamed).decode()
    hidden = sorted(set(_hit(context, Lexed(text.encode()).code)))
    at = _end_of_head(text)
    before = [line for name in hidden for line in (f'#pragma push_macro("{name}")', f"#undef {name}")]
    behind = [f'#pragma pop_macro("{name}")' for name in hidden]
    note = "// Macros of the sources have names that are used here."
    return text[:at] + "\n".join([note, *before, "", text[at:].rstrip("\n"), "", *behind, ""])


def _end_of_head(text: str) -> int:
    """Offset behind the includes of a header."""
    lines = [m.end() for m in re.finditer(r"^#(?:pragma once|include)\b[^\n]*\n+", text, re.MULTILINE)]
    return max(lines, default=0)


def _hit(context: PortContext, code: bytes) -> Iterator[str]:
    """Words of a text that macros stand for."""
    for match in _WORD.finditer(code):
        name = match.group().decode()
        if name in context.claimed or _is_called(context, name, code, match.end()):
            yield name


def _is_called(context: PortContext, name: str, code: bytes, end: int) -> bool:
    return f"{name}(" in context.claimed and code[end : end + 80].lstrip()[:1] == b"("


def _with_other_names(
    context: PortContext, edit: Edit, words: set[str], renamed: dict[str, str], namespace: str
) -> Edit:
    """An edit whose text names no helper as a macro is called; `words` are those of the helpers."""
    source = context.program.sources.files[edit.path].source[edit.span.start : edit.span.end]
    code = Lexed(edit.replacement).code
    pieces, end = [], 0
    for match in _MEMBER.finditer(code):
        name, of = match["name"].decode(), match["of"]
        if name not in words or not (name in context.claimed or _is_called(context, name, code, match.end())):
            continue
        if of != f"{namespace}::".encode() and (b":" in of or re.search(rb"\b%b\b" % match["name"], source)):
            # the kernel's own text
            continue
        if name not in renamed:
            renamed[name] = context.names.fresh(f"{name}_")
        pieces += [edit.replacement[end : match.start("name")], renamed[name].encode()]
        end = match.end("name")
    return replace(edit, replacement=b"".join(pieces) + edit.replacement[end:]) if pieces else edit


def _replaced(text: bytes, renamed: dict[str, str]) -> bytes:
    """A text whose words, apart from those of comments and strings, have other names."""
    pieces, end = [], 0
    for match in _WORD.finditer(Lexed(text).code):
        new = renamed.get(match.group().decode())
        if new is not None:
            pieces += [text[end : match.start()], new.encode()]
            end = match.end()
    return b"".join(pieces) + text[end:]
