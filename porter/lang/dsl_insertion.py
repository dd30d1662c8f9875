# SPDX-License-Identifier: Apache-2.0
"""New statements in a Python file, laid out as those around them."""

from __future__ import annotations

from collections.abc import Sequence

from porter.lang.cute_dsl import DslFile
from porter.lang.python import Statement
from porter.lang.text import Edit, Span


def indent(file: DslFile, statement: Statement) -> bytes | None:
    """The white space that a statement's line begins with; None if something stands before the statement."""
    start = _start(file, statement)
    before = file.source[file.line_start(start) : start]
    return None if before.strip(b" \t\f") else before


def above(file: DslFile, statement: Statement, text: str, floor: int) -> Edit:
    """`text` above a statement and the comments that stand over it, but not above the offset `floor`."""
    start, margin = _start(file, statement), indent(file, statement)
    if margin is None:
        return Edit(file.path, Span(start, start), f"{text}; ".encode())
    at = file.line_start(start)
    while at > floor:
        line = file.line_start(at - 1)
        words = file.source[line:at].strip()
        if line < floor or (words and not words.startswith(b"#")):
            break
        at = line
    return Edit(file.path, Span(at, at), margin + text.encode() + file.line_break(at))


def behind(file: DslFile, statement: Statement, texts: Sequence[str], margin: bytes | None) -> Edit:
    """`texts` behind a statement: on lines that begin with `margin`, or all on its own line if that is None."""
    end = file.span(statement).end
    at = end if margin is None else file.line_end(end)
    between = b"; " if margin is None else file.line_break(end) + margin
    return Edit(file.path, Span(at, at), b"".join(between + text.encode() for text in texts))


def _start(file: DslFile, statement: Statement) -> int:
    """The offset of a statement with its decorators."""
    decorators = getattr(statement, "decorators", None)
    return file.span(decorators[0] if decorators else statement).start
