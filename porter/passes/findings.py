# SPDX-License-Identifier: Apache-2.0
"""What keeps a source set from being ported before any pass has run: refusals of the model, and text that it did not
read."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic
from porter.lang.coverage import reading_findings
from porter.lang.cuda import find, location
from porter.lang.text import Span
from porter.model.accumulators import AccumulatorMap
from porter.model.functions import Function
from porter.model.kernels import SHARED
from porter.model.program import Program, Refusal
from porter.model.registers import CASTS
from porter.model.tensor_core import MmaStep, Step
from porter.passes.pasted import unread_pieces, unread_templates
from porter.ptx.types import ElementType

_WGMMA_TEXT = re.compile(rb"wgmma\s*\.\s*(?:mma_async|fence|commit_group|wait_group)")


def model_findings(program: Program, accumulators: AccumulatorMap) -> list[Diagnostic]:
    """Everything of the kind, each place once."""
    found = [refused(program, r) for r in program.refusals]
    found += [refused(program, r) for r in accumulators.refusals]
    found += _unread(program)
    found += [d for d in unread_pieces(program) if not _same_place(d, found)]
    if program.statements and not found:
        found += unread_templates(program)
    found += _binary(program)
    found += [] if found else _without_mma(program)
    read = reading_findings(program.sources)
    if not program.statements and not found:
        # without wgmma, what was not read stays as it is; what may hide some does not
        kept = (Code.UNPARSED_REGION, Code.UNRESOLVED_INCLUDE, Code.UNREAD_PTX)
        return [d for d in read if d.code in kept]
    # a macro that pastes the shape together is refused above, with the statement it makes
    return found + [d for d in read if not _same_place(d, found)]


def _without_mma(program: Program) -> list[Diagnostic]:
    """Commits in a source set that has no MMA, where registers are handed to something that was not read."""
    if any(step.kind is Step.MMA for s in program.statements for step in s.steps):
        return []
    reached = program.uses_tensor_core()
    for function in program.functions:
        if id(function) not in reached:
            continue
        arrays = {
            function.text(node)
            for array in find(function.body, "array_declarator")
            for node in find(array, "identifier")
            if node.parent == array and not _is_shared(function, array)
        }
        for call in function.calls:
            handed = {function.text(n) for argument in call.args for n in find(argument, "identifier")}
            if handed & arrays and call.name not in CASTS and not program.targets(call):
                return [Diagnostic(Code.MMA_NOT_SEEN, location(function.file, call.name_span), {"name": call.name})]
    return []


def _is_shared(function: Function, array: Node) -> bool:
    """Whether an array lies in shared memory, where no MMA accumulates."""
    above = array.parent
    while above is not None and above.type not in ("declaration", "compound_statement"):
        above = above.parent
    return above is not None and above.type == "declaration" and SHARED in function.text(above)


def _binary(program: Program) -> list[Diagnostic]:
    """MMAs of single bits."""
    return [
        Diagnostic(Code.BINARY_WGMMA, location(statement.function.file, statement.statement.span))
        for statement in program.statements
        for step in statement.steps
        if isinstance(step, MmaStep) and step.op.a_type is ElementType.B1
    ]


def _same_place(diagnostic: Diagnostic, others: list[Diagnostic]) -> bool:
    return any(
        o.where is not None
        and diagnostic.where is not None
        and (o.where.path, o.where.line) == (diagnostic.where.path, diagnostic.where.line)
        for o in others
    )


def refused(program: Program, refusal: Refusal) -> Diagnostic:
    """What is said of a refusal of the model."""
    at = location(program.sources.files[refusal.path], Span(refusal.start, refusal.end))
    code = refusal.code
    values = {} if code is Code.SPARSE_WGMMA else {"what": refusal.what, **refusal.values}
    if refusal.where is not None:
        return Diagnostic(code, refusal.where, {**values, "place": str(at)})
    return Diagnostic(code, at, values)


def _unread(program: Program) -> list[Diagnostic]:
    """wgmma in text that no asm statement of the model covers: strings, unparsed regions, odd macros."""
    found = []
    known: dict[str, list[Span]] = {}
    for function in program.functions:
        for statement in function.asm:
            known.setdefault(statement.path, []).append(statement.span)
    for path, file in program.sources.files.items():
        covered = sorted(known.get(path, ()))
        ends = list(accumulate((s.end for s in covered), max))
        for match in _WGMMA_TEXT.finditer(file.lexed.uncommented):
            span = Span(match.start(), match.end())
            before = bisect_right(covered, span.start, key=lambda s: s.start)
            if not before or ends[before - 1] < span.end:
                found.append(Diagnostic(Code.NOT_ANALYSED, location(file, span), {"what": file.text(span)}))
    return found
