# SPDX-License-Identifier: Apache-2.0
"""Conditionals with an arm for Blackwell: the port of a Hopper kernel takes the arm that Hopper takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from porter.lang.cuda import CudaFile
from porter.lang.text import Edit, Span
from porter.model.program import Program
from porter.model.spellings import Spellings

RULE = "PTR675"
_DIRECTIVE = re.compile(
    rb"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b[ \t]*((?:[^\\\n]|\\\r?\n|\\.)*)"
)
_JOINED = re.compile(rb"\\\r?\n")
_NOT = re.compile(r"!|\bnot\b|\|\||\bor\b")


def close_arms(program: Program) -> list[Edit]:
    """Edits that let nobody into the arms of conditionals that are for Blackwell alone."""
    spellings = program.vocabulary.spellings
    return [edit for path, file in program.sources.files.items() for edit in _closed(path, file, spellings)]


def for_blackwell(program: Program, closed: Sequence[Edit]) -> Edit | None:
    """The first of these edits if functions of the sources use Tensor Memory, and so may need what they close."""
    own = any("tcgen05." in s.template for f in program.functions for s in f.asm)
    spellings = program.vocabulary.spellings
    texts = (file.lexed.code.decode("latin-1") for file in program.sources.files.values())
    named = any(spellings.stand_in("tensor_memory", text) for text in texts)
    return closed[0] if closed and (own or named) else None


def _closed(path: str, file: CudaFile, spellings: Spellings) -> Iterator[Edit]:
    for arms in _chains(file):
        for word, span in arms:
            text = file.source[span.start : span.end]
            said = _JOINED.sub(b" ", text).decode("utf-8", "replace")
            if spellings.stand_in("hopper_condition", said):
                break
            asks = word in (b"if", b"elif") and spellings.stand_in("blackwell_condition", said)
            if asks and not _NOT.search(said):
                yield Edit(path, span, b"0 && (" + text + b")")


def _chains(file: CudaFile) -> Iterator[list[tuple[bytes, Span]]]:
    """The arms of every conditional: the word of each, and its condition without comments behind it."""
    open_: list[list[tuple[bytes, Span]]] = []
    for span in file.lexed.directives:
        match = _DIRECTIVE.match(file.source, span.start, span.end)
        if match is None:
            continue
        word, end = match[1], match.end(2)
        comment = re.search(rb"//|/\*", match[2])
        if comment is not None:
            end = match.start(2) + comment.start()
        end -= len(file.source[match.start(2) : end]) - len(file.source[match.start(2) : end].rstrip())
        arm = word, Span(match.start(2), max(end, match.start(2)))
        if word.startswith(b"if"):
            open_.append([arm])
        elif word == b"endif":
            if open_:
                yield open_.pop()
        elif open_:
            open_[-1].append(arm)
