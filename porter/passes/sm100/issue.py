# SPDX-License-Identifier: Apache-2.0
"""MMAs that every thread of a block issues, and copies whose bytes no mbarrier expects, as far as the text shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic
from porter.lang.asm import AsmStatement
from porter.lang.cuda import CudaFile, enclosing, find, function_specifiers, location
from porter.lang.text import Span
from porter.passes.sm100.waits import Own, calls_of, named

_CHOOSES = ("if_statement", "switch_statement", "conditional_expression", "lambda_expression", "case_statement")
_EXPECTS = re.compile(r"expect\w*tx|expect_?bytes|transaction_?bytes|\btx_?count", re.IGNORECASE)
"""Names of functions that expect bytes, and of what they are handed."""


def learn_issuers(files: Sequence[tuple[CudaFile, Sequence[AsmStatement]]], own: Own) -> None:
    """Functions in which MMAs are issued by all threads that call them, those that call such ones with them."""
    for file, statements in files:
        for statement in statements:
            for name in _issued(statement):
                _learn(file, statement.span, name, own)
    changed = True
    while changed:
        before = len(own.issuers)
        for file, _ in files:
            for where, name in list(calls_of(file, own.issuers)):
                _learn(file, where, name, own)
        changed = len(own.issuers) != before


def issued_by_all(file: CudaFile, statements: Sequence[AsmStatement], own: Own) -> Iterator[Diagnostic]:
    """MMA_BY_ALL, once for a kernel and what issues."""
    marks = [(s.span, name) for s in statements for name in _issued(s)] + list(calls_of(file, own.issuers))
    said: set[tuple[str, str]] = set()
    for where, name in sorted(marks):
        function = _unconditional(file, where)
        if function is None or "__global__" not in function_specifiers(file, function):
            continue
        kernel = named(file, function)[0]
        if (kernel, name) not in said:
            said.add((kernel, name))
            yield Diagnostic(Code.MMA_BY_ALL, location(file, where), {"kernel": kernel, "name": name})


def uncounted(files: Iterable[tuple[CudaFile, Sequence[AsmStatement]]]) -> Iterator[Diagnostic]:
    """TMA_UNCOUNTED at the first copy, where there are kernels and nothing in any file expects bytes."""
    first: Diagnostic | None = None
    files = list(files)
    if not any("__global__" in file.lexed.plain_text for file, _ in files):
        return
    for file, statements in files:
        if _EXPECTS.search(file.lexed.plain_text):
            return
        for statement in statements:
            assert statement.ptx is not None
            for i in statement.ptx.instructions():
                if any("expect_tx" in part for part in i.parts):
                    return
                if i.parts[0] == "cp" and "mbarrier::complete_tx::bytes" in i.parts:
                    first = first or Diagnostic(Code.TMA_UNCOUNTED, location(file, statement.span))
    if first is not None:
        yield first


def _issued(statement: AsmStatement) -> list[str]:
    """MMAs of a statement that every thread which comes to it issues."""
    assert statement.ptx is not None
    instructions = list(statement.ptx.instructions())
    if any(i.parts[0] in ("elect", "bra", "brx") for i in instructions):
        return []
    return [i.opcode for i in instructions if i.parts[:2] == ("tcgen05", "mma") and i.guard is None]


def _learn(file: CudaFile, where: Span, issued: str, own: Own) -> None:
    function = _unconditional(file, where)
    if function is not None and "__global__" not in function_specifiers(file, function):
        own.issuers.setdefault(named(file, function)[0], issued)


def _unconditional(file: CudaFile, where: Span) -> Node | None:
    """The function in whose body a place is that all threads come to: no condition stands around it, and none that
    may end the function ahead of it."""
    node: Node | None = file.root.descendant_for_byte_range(where.start, where.start)
    function = enclosing(node, "function_definition") if node is not None else None
    body = function.child_by_field_name("body") if function is not None else None
    if node is None or body is None or not body.start_byte <= where.start < body.end_byte:
        return None
    while node is not None and node.id != body.id:
        if node.type in _CHOOSES or (node.type == "binary_expression" and file.text(node.children[1]) in ("&&", "||")):
            return None
        node = node.parent
    if any(left.start_byte < where.start for left in find(body, "return_statement", "goto_statement")):
        return None
    return function
