# SPDX-License-Identifier: Apache-2.0
"""Rules on the PTX of asm statements: instructions that become others, and those that stop a port."""

from __future__ import annotations

from collections.abc import Sequence

from porter.diagnostics import Code, Diagnostic
from porter.lang.cuda import location
from porter.lang.text import Edit, EditGroup, Span
from porter.model.program import Program
from porter.ptx.arch import SM100A
from porter.ptx.inline import parse_template
from porter.ptx.table import check
from porter.rules.engine import Planned, Selection, rule_group, touches
from porter.rules.instructions import Match, matches
from porter.rules.ptx import filled, unknown
from porter.rules.rule import Rule, When

TARGET = SM100A.name


def instruction_groups(
    rules: Sequence[Rule], program: Program, selection: Selection, ported: bool, taken: Sequence[EditGroup]
) -> Planned:
    """A group for each instruction in whose place a rule writes another text, and what is to be said of others."""
    active = [r for r in rules if r.instructions and selection.takes(r.id) and (ported or r.when is not When.PORTED)]
    planned = Planned()
    claimed: dict[str, list[Span]] = {}
    for path, span in ((e.path, e.span) for g in taken for e in g.edits):
        claimed.setdefault(path, []).append(span)
    for match in matches(active, program) if active else ():
        found = _edit(match) if isinstance(match, Match) else match
        if isinstance(found, Diagnostic):
            planned.diagnostics.append(found)
        elif isinstance(match, Match) and not touches(sorted(claimed.get(found.path, ())), found.span):
            claimed.setdefault(found.path, []).append(found.span)
            planned.groups.append(rule_group(match.rule, [found]))
    return planned


def _edit(match: Match) -> Edit | Diagnostic:
    """What becomes of an instruction, or what is said of it."""
    rule, statement, file = match.rule, match.statement, match.function.file
    at = location(file, statement.span)
    if rule.refusal is not None:
        what, advice = (filled(text, match.bound) for text in rule.refusal[1:])
        return Diagnostic(Code.RULE_REFUSED, at, {"what": what, "advice": advice})
    assert rule.replace is not None
    try:
        text = filled(rule.replace, match.bound)
    except KeyError as missing:
        values = {"rule": rule.id, "name": missing.args[0], "why": f"`{match.instruction.text}` has no such operand"}
        return Diagnostic(Code.RULE_BINDING, at, values)
    wrong = unknown(text) or next((why for i in parse_template(text).instructions() if (why := check(i, TARGET))), "")
    if wrong:
        values = {"rule": rule.id, "name": "replace", "why": wrong}
        return Diagnostic(Code.RULE_BINDING, at, values)
    span = _place(match)
    if span is None:
        what = f"`{match.instruction.text}` is put together from several pieces"
        return Diagnostic(Code.RULE_NOT_APPLIED, at, {"rule": rule.id, "what": what})
    return Edit(file.path, span, text.rstrip("; ").encode())


def _place(match: Match) -> Span | None:
    """Where the instruction, without its guard, stands in the file; None if that is in several string literals."""
    instruction, statement = match.instruction, match.statement
    bare = instruction.text[instruction.text.index(instruction.parts[0], len(_guard(instruction.text))) :].encode()
    source, span = match.function.file.source, statement.template_span
    assert statement.ptx is not None
    alike = sum(i.text == instruction.text for i in statement.ptx.instructions())
    places, start = [], source.find(bare, span.start, span.end)
    while start >= 0:
        places.append(start)
        start = source.find(bare, start + len(bare), span.end)
    return Span(places[match.number], places[match.number] + len(bare)) if len(places) == alike else None


def _guard(text: str) -> str:
    return text[: len(text) - len(text.split(None, 1)[1])] if text.startswith("@") else ""
