# SPDX-License-Identifier: Apache-2.0
"""Names and calls in whose place rules write another text: those that C++ resolves to what a rule names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic
from porter.lang.cuda import location
from porter.lang.text import Edit, EditGroup, Span, as_bytes, gap_edits
from porter.model.facts import Doubt, Problem, Replaced
from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.model.recognition import Answer, Facts
from porter.rules.engine import Planned, Selection, rule_group, touches
from porter.rules.explain import value_names
from porter.rules.pattern import parts
from porter.rules.recognize import replacements
from porter.rules.rule import Rule, When


def replacement_groups(
    rules: Iterable[Rule], program: Program, selection: Selection, ported: bool, taken: Sequence[EditGroup]
) -> Planned:
    """A group for each place where a rule writes another text. What a capture holds stays as it is, with what other
    rules make of it. A place whose text another edit changes besides is an error, one that a rule may be for a
    warning."""
    active = {r.id: r for r in rules if selection.takes(r.id) and (ported or r.when is not When.PORTED)}
    known = replacements(active.values())
    planned = Planned()
    if not known.words:
        return planned
    facts = Facts(program.names, known, program.value)
    claimed: dict[str, list[Span]] = {}
    for path, span in ((e.path, e.span) for g in taken for e in g.edits):
        claimed.setdefault(path, []).append(span)
    done: dict[str, list[Edit]] = {}
    # what is inside comes first: a text around it may have to take it along
    for function, node, answer in sorted(_places(program, facts), key=lambda p: p[1].end_byte - p[1].start_byte):
        path, span = function.file.path, function.span(node)
        fact = answer.fact
        if isinstance(fact, Doubt):
            planned.diagnostics.append(_said(function, span, fact))
            continue
        assert answer.recognizer is not None
        edits = list(_edits(function, span, answer, done.setdefault(path, [])))
        before = sorted(claimed.get(path, ()))
        if any(touches(before, e.span) for e in edits):
            what = f"`{function.file.text(span)}` is changed by the port too"
            values = {"place": str(location(function.file, span)), "what": what}
            planned.diagnostics.append(Diagnostic(Code.RULE_CONFLICT, answer.recognizer.where, values))
            continue
        inside = [e for e in done[path] if any(new.span.contains(e.span) for new in edits)]
        done[path] = [*(e for e in done[path] if e not in inside), *edits]
        planned.groups = [g for g in planned.groups if not any(e in inside for e in g.edits)]
        planned.groups.append(rule_group(active[answer.recognizer.rule], edits))
    return planned


def _places(program: Program, facts: Facts) -> Iterator[tuple[Function, Node, Answer]]:
    """Calls and names that a rule replaces, or may."""
    seen: set[tuple[str, Span]] = set()
    for function in program.functions:
        asked = [(call.node, facts.answer(call)) for call in function.calls]
        names = [n for n in value_names(function) if not _declares(n)]
        asked += [(node, facts.answer_name(function, node)) for node in names]
        for node, answer in asked:
            key = function.file.path, function.span(node)
            if isinstance(answer.fact, Replaced | Doubt) and key not in seen:
                seen.add(key)
                yield function, node, answer


def _declares(node: Node) -> bool:
    """Whether a name is that of what is declared there."""
    return node.parent is not None and node.parent.child_by_field_name("declarator") == node


def _said(function: Function, span: Span, doubt: Doubt) -> Diagnostic:
    at = location(function.file, span)
    if doubt.problem is Problem.TIED:
        return Diagnostic(Code.RULE_CONFLICT, at, {"place": str(at), "what": doubt.what})
    return Diagnostic(Code.RULE_NOT_APPLIED, at, {"rule": doubt.rule, "what": doubt.what})


def _edits(function: Function, span: Span, answer: Answer, inner: Sequence[Edit]) -> Iterator[Edit]:
    """The edits of one place: of the text between the captures where those keep their order, of the whole otherwise."""
    assert answer.recognizer is not None
    path, captured = function.file.path, answer.captures
    texts, names = parts(answer.recognizer.replacement)
    spans = [captured[name][1] for name in names]
    known = [s for s in spans if s is not None and span.contains(s)]
    mapped = isinstance(answer.fact, Replaced) and answer.fact.text != _filled(texts, [captured[n][0] for n in names])
    in_order = all(a.end <= b.start for a, b in itertools.pairwise(known))
    if mapped or len(known) < len(names) or not in_order:
        new = answer.fact.text if mapped and isinstance(answer.fact, Replaced) else ""
        if not mapped:
            given = [
                _changed(function, s, inner) if s is not None else captured[n][0]
                for n, s in zip(names, spans, strict=True)
            ]
            new = _filled(texts, given)
        if function.style is Style.MACRO:
            new = re.sub(r"\s*\\?\n\s*", " ", new)
        yield Edit(path, span, as_bytes(new))
        return
    yield from gap_edits(path, function.file.source, span, texts, known)


def _filled(texts: Sequence[str], captured: Sequence[str]) -> str:
    return "".join(text + given for text, given in zip(texts, [*captured, ""], strict=True))


def _changed(function: Function, span: Span, edits: Sequence[Edit]) -> str:
    """The text of a span with the edits inside it made."""
    pieces, at = [], span.start
    for edit in sorted((e for e in edits if span.contains(e.span)), key=lambda e: e.span.start):
        pieces += [function.file.source[at : edit.span.start], edit.replacement]
        at = edit.span.end
    return b"".join([*pieces, function.file.source[at : span.end]]).decode("utf-8", "replace")
