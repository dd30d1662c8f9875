# SPDX-License-Identifier: Apache-2.0
"""The frame of a kernel: `begin()` behind its documentation, `end()` wherever its own body is left."""

from __future__ import annotations

import libcst as cst

from porter.lang.cute_dsl import DslFile, Function
from porter.lang.dsl_insertion import above, behind, indent
from porter.lang.python import is_documentation, own_statements, statements
from porter.lang.text import Edit, Span

_RESULT = "kernel_result"


def frame_edits(file: DslFile, kernel: Function, support: str) -> list[Edit]:
    """Edits that put a kernel between `begin` and `end` of the module that is called `support` in the file."""
    begin, end = f"{support}.begin()", f"{support}.end()"
    body = own_statements(kernel.body)
    margin = indent(file, body[0])
    documented = is_documentation(body[0])
    if documented and len(body) == 1:
        return [behind(file, body[0], [begin, end], margin)]
    edits = [above(file, body[documented], begin, file.span(body[0]).end if documented else 0)]
    for statement in statements(kernel.body, nested=False):
        if isinstance(statement, cst.Return):
            edits += _before_return(file, statement, end)
    if not isinstance(body[-1], (cst.Return, cst.Raise)):
        edits.append(behind(file, body[-1], [end], margin))
    return edits


def _before_return(file: DslFile, statement: cst.Return, end: str) -> list[Edit]:
    span, margin = file.span(statement), indent(file, statement)
    between = b"; " if margin is None else file.line_break(span.start) + margin
    if statement.value is None or isinstance(statement.value, (cst.Name, cst.BaseNumber, cst.SimpleString)):
        return [Edit(file.path, Span(span.start, span.start), end.encode() + between)]
    # what is returned may multiply
    keyword = Span(span.start, span.start + len("return"))
    last = between.join([b"", end.encode(), f"return {_RESULT}".encode()])
    return [Edit(file.path, keyword, f"{_RESULT} =".encode()), Edit(file.path, Span(span.end, span.end), last)]
