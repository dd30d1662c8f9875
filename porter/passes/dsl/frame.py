# SPDX-License-Identifier: Apache-2.0
"""The frame of a kernel: `begin()` behind its documentation, `end()` wherever its own body is left."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from porter.lang.cute_dsl import DslFile, Function
from porter.lang.text import Edit, Span

_RESULT = "kernel_result"


def frame_edits(file: DslFile, kernel: Function, support: str) -> list[Edit]:
    """Edits that put a kernel between `begin` and `end` of the module that is called `support` in the file."""
    begin, end = f"{support}.begin()", f"{support}.end()"
    body = list(kernel.body)
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    documented = documented and isinstance(body[0].value.value, str)  # type: ignore[attr-defined]
    if documented and len(body) == 1:
        return [_after(file, body[0], body[0], [begin, end])]
    first = body[1] if documented else body[0]
    edits = [_at_top(file, first, begin, file.span(body[0]).end if documented else None)]
    for statement in _returns(body):
        edits += _before_return(file, statement, end)
    if not isinstance(body[-1], (ast.Return, ast.Raise)):
        edits.append(_after(file, body[-1], body[0], [end]))
    return edits


def _returns(body: list[ast.stmt]) -> Iterator[ast.Return]:
    """The returns of a function itself, not of functions and classes in it."""
    for statement in body:
        if isinstance(statement, ast.Return):
            yield statement
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for blocks in ("body", "orelse", "finalbody"):
                yield from _returns(getattr(statement, blocks, []))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                yield from _returns(part.body)


def _start(file: DslFile, statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", None)
    start = file.span(decorators[0] if decorators else statement).start
    return file.source.rindex(b"@", 0, start) if decorators else start


def _own_line(file: DslFile, start: int) -> bool:
    return not file.source[file.line_start(start) : start].strip(b" \t\f")


def _indent(file: DslFile, statement: ast.stmt) -> bytes:
    start = _start(file, statement)
    return file.source[file.line_start(start) : start]


def _at_top(file: DslFile, first: ast.stmt, text: str, behind: int | None) -> Edit:
    """`text` above a block's first statement and the comments that stand over it."""
    start = _start(file, first)
    if not _own_line(file, start):
        return Edit(file.path, Span(start, start), f"{text}; ".encode())
    indent, at = _indent(file, first), file.line_start(start)
    while at > (behind or 0):
        above = file.line_start(at - 1)
        words = file.source[above:at].strip()
        if (behind is not None and above < behind) or (words and not words.startswith(b"#")):
            break
        at = above
    return Edit(file.path, Span(at, at), indent + text.encode() + file.line_break(at))


def _before_return(file: DslFile, statement: ast.Return, end: str) -> list[Edit]:
    span = file.span(statement)
    own = _own_line(file, span.start)
    between = file.line_break(span.start) + _indent(file, statement) if own else b"; "
    if statement.value is None or isinstance(statement.value, (ast.Constant, ast.Name)):
        return [Edit(file.path, Span(span.start, span.start), end.encode() + between)]
    # what is returned may multiply
    keyword = Span(span.start, span.start + len("return"))
    behind = between.join([b"", end.encode(), f"return {_RESULT}".encode()])
    return [Edit(file.path, keyword, f"{_RESULT} =".encode()), Edit(file.path, Span(span.end, span.end), behind)]


def _after(file: DslFile, last: ast.stmt, first: ast.stmt, texts: list[str]) -> Edit:
    """Lines behind a block's last statement, with the indentation of its first."""
    end = file.span(last).end
    if not _own_line(file, _start(file, first)):
        return Edit(file.path, Span(end, end), "".join(f"; {t}" for t in texts).encode())
    at, line_break, indent = file.line_end(end), file.line_break(end), _indent(file, first)
    return Edit(file.path, Span(at, at), b"".join(line_break + indent + t.encode() for t in texts))
