# SPDX-License-Identifier: Apache-2.0
"""Which rules are tried at a line of a source, which one wins, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path

import libcst as cst
from tree_sitter import Node

from porter.diagnostics import Code, Location, PorterError
from porter.lang.cuda import find
from porter.lang.cute_dsl import DslFile, parse_dsl
from porter.lang.sources import is_python, load_sources, read_source
from porter.lang.text import EditGroup, LineIndex, Span
from porter.model.dsl.names import PythonFact
from porter.model.facts import Doubt, Fact, kind_name
from porter.model.functions import Call, Function
from porter.model.program import Program, build_program
from porter.model.recognition import Answer, Attempt, Facts, Outcome
from porter.rules import instructions
from porter.rules.load import names_of
from porter.rules.match import Match, matches, python_matches
from porter.rules.python import NamePattern
from porter.rules.recognize import replacements, vocabulary
from porter.rules.rule import Rule, When

_NAMES = ("field_expression", "qualified_identifier", "identifier")
_WON = "applied"


@dataclass(frozen=True)
class Trial:
    """One rule at a place: `pattern` is what it was tried with, empty for a pass; `outcome` a few words, `why` a
    sentence or empty, `by` the rule that has the place instead."""

    rule: str
    pattern: str
    outcome: str
    why: str = ""
    by: str = ""

    @property
    def won(self) -> bool:
        return self.outcome in (_WON, Outcome.RECOGNIZED.value)


@dataclass(frozen=True)
class Site:
    """A call, a name or a text on the line, and the rules that were tried there. `means` is the fact, or why there may
    be one; empty if there is none."""

    column: int
    text: str
    means: str
    trials: tuple[Trial, ...]


def value_names(function: Function) -> Iterator[Node]:
    """Names, and members of names, in a function where they are not called."""
    for node in find(function.body, *_NAMES):
        if node.parent is None or node.parent.type not in ("call_expression", "field_expression", *_NAMES):
            yield node


def sites_at(
    path: Path, line: int, rules: Sequence[Rule], groups: Sequence[EditGroup], include_dirs: Sequence[Path] = ()
) -> list[Site]:
    """What is on a line of a source. `groups` are the edits of its port.

    Raises:
        PorterError: RULE_PLACE: it has no such line; what reading sources raises.
    """
    source = read_source(path)
    if line > source.count(b"\n") + 1:
        raise PorterError(Code.RULE_PLACE, Location(str(path)), what=f"no line {line}")
    rules = [rule for rule in rules if rule.advice is None]
    if is_python(path):
        return _of_python(parse_dsl(str(path), source, dialect=names_of(rules).dialect), line, rules, groups)
    program = build_program(load_sources(path, include_dirs), vocabulary(rules))
    return _of_cuda(program, path.as_posix(), line, rules, groups)


def _of_cuda(program: Program, path: str, line: int, rules: Sequence[Rule], groups: Sequence[EditGroup]) -> list[Site]:
    done = {group.rule for group in groups}
    ported = any(rule.implemented_by is not None and rule.id in done for rule in rules)
    file = program.sources.files[path]
    on_line = _On(file.source, path, line, groups)
    written = Facts(program.names, replacements(rules), program.value)
    sites = [s for f in program.functions if f.file.path == path for s in _recognized(program, f, on_line, written)]
    found = [m for rule in rules for m in matches(rule, file) if on_line.has(m.span)]
    sites += [*_texts(found, on_line, ported), *on_line.passes(rules), *_instructions(program, rules, path, on_line)]
    tried = {s.column for s in sites if any(t.rule for t in s.trials)}
    return sorted((s for s in sites if s.column not in tried or any(t.rule for t in s.trials)), key=lambda s: s.column)


def _instructions(program: Program, rules: Sequence[Rule], path: str, on_line: _On) -> Iterator[Site]:
    """Instructions of asm statements on the line."""
    for match in instructions.matches([r for r in rules if r.instructions], program):
        if not isinstance(match, instructions.Match):
            continue
        span = match.statement.span
        if match.statement.path == path and on_line.has(span):
            trial = replace(on_line.trial(match.rule, span), pattern=match.pattern.text)
            if match.rule.refusal is not None:
                trial = replace(trial, outcome="refused", why=match.rule.refusal[1])
            yield Site(on_line.column(span), match.instruction.text, "", (trial,))


def _of_python(file: DslFile, line: int, rules: Sequence[Rule], groups: Sequence[EditGroup]) -> list[Site]:
    """Names of packages, as imports lead to them, and texts."""
    on_line = _On(file.source, file.path, line, groups)
    sites = []
    for reference in file.all_references:
        node, name = reference.chain.node, reference.name.partition("()")[0]
        span = file.span(node)
        asked = [(r, p) for r in rules if r.reads(file.path) for p in r.names if p.matches(reference.name)]
        if on_line.has(span) and (asked or name.partition(".")[0] in file.dialect.packages):
            trials = tuple(_of_name(rule, pattern, file.calls.get(node), on_line, span) for rule, pattern in asked)
            facts = "; ".join(_stated(p.fact) for _, p in asked if p.fact is not None)
            sites.append(Site(on_line.column(span), name, facts, trials or (_NO_RULE,)))
    texts = [m for rule in rules for m in python_matches(rule, file)]
    sites += _texts([m for m in texts if on_line.has(m.span)], on_line, bool(groups))
    return sorted([*sites, *on_line.passes(rules)], key=lambda s: s.column)


_NO_RULE = Trial("", "", "no rule is for this name")
_THROUGH_IMPORT = "the import that the name comes from changes in its place, or nothing of the file is ported"


def _of_name(rule: Rule, pattern: NamePattern, call: cst.Call | None, on_line: _On, span: Span) -> Trial:
    """How a rule fares whose pattern has a name."""
    if pattern.call is not None:
        why = pattern.arguments(call) if call is not None else "the name is not called here"
        if isinstance(why, str):
            return Trial(rule.id, pattern.text, Outcome.NEAR.value, why)
    if pattern.fact is not None:
        return Trial(rule.id, pattern.text, Outcome.RECOGNIZED.value)
    if rule.refusal is not None:
        return Trial(rule.id, pattern.text, "refused", rule.refusal[1])
    found = replace(on_line.trial(rule, span), pattern=pattern.text)
    return found if found.won or found.by else replace(found, why=_THROUGH_IMPORT)


class _On:
    """One line of a file, and the edits that a port makes there."""

    def __init__(self, source: bytes, path: str, line: int, groups: Sequence[EditGroup]) -> None:
        self.source, self.line, self.index = source, line, LineIndex(source)
        end = source.find(b"\n", self.index.line_start(line))
        self.span = Span(self.index.line_start(line), end if end >= 0 else len(source))
        self.edits = [(g, e.span) for g in groups for e in g.edits if e.path == path and self._touches(e.span)]

    def _touches(self, span: Span) -> bool:
        return span.start <= self.span.end and span.end >= self.span.start

    def has(self, span: Span) -> bool:
        """Whether something begins on the line."""
        return self.span.start <= span.start <= self.span.end

    def column(self, span: Span) -> int:
        return self.index.line_column(span.start)[1]

    def trial(self, rule: Rule, span: Span) -> Trial:
        """How a rule that matches a text fares there."""
        pattern = rule.pattern.pattern if rule.pattern is not None else ""
        there = [g.rule for g, edited in self.edits if edited.start < span.end and edited.end > span.start]
        if rule.id in there:
            return Trial(rule.id, pattern, _WON)
        if there:
            return Trial(rule.id, pattern, Outcome.SHADOWED.value, by=there[0])
        return Trial(rule.id, pattern, "not applied")

    def passes(self, rules: Sequence[Rule]) -> Iterator[Site]:
        """Edits that no pattern of these rules makes."""
        by_id = {rule.id: rule for rule in rules}
        seen: set[tuple[str, int]] = set()
        for group, span in self.edits:
            rule = by_id.get(group.rule)
            if (rule is not None and (rule.pattern or rule.replace)) or not self.has(span):
                continue
            key = group.rule, self.column(span)
            if key not in seen:
                seen.add(key)
                text = self.source[span.start : min(span.end, self.span.end)].decode("utf-8", "replace")
                yield Site(key[1], text, "", (Trial(group.rule, "", _WON, group.title),))


def _recognized(program: Program, function: Function, on_line: _On, written: Facts) -> Iterator[Site]:
    """What rules say of calls and names, and what they write in their place (`written`)."""
    for call in function.calls:
        if on_line.has(function.span(call.node)):
            answers = program.facts.answer(call), written.answer(call)
            yield _site(function, call.node, on_line, answers, _unnamed(program, call))
    for node in value_names(function):
        if on_line.has(function.span(node)):
            answers = program.facts.answer_name(function, node), written.answer_name(function, node)
            if any(a.attempts for a in answers):
                yield _site(function, node, on_line, answers, _NO_RULE)


def _unnamed(program: Program, call: Call) -> Trial:
    """What is said of a call that no rule is tried on."""
    near = get_close_matches(call.name, program.facts.vocabulary.words, 1, 0.75)
    if call.name in near:
        return Trial("", "", "no rule is for this name", "a rule is for the name, but not as it is called here")
    return Trial("", "", _NO_RULE.outcome, f"one is for `{near[0]}`" if near else "")


def _site(function: Function, node: Node, on_line: _On, answers: Iterable[Answer], otherwise: Trial) -> Site:
    span = function.span(node)
    trials = tuple(_trial(attempt) for answer in answers for attempt in answer.attempts) or (otherwise,)
    meaning = "; ".join(filter(None, (_meaning(answer.fact) for answer in answers)))
    return Site(on_line.column(span), " ".join(function.text(node).split()), meaning, trials)


def _trial(attempt: Attempt) -> Trial:
    recognizer = attempt.recognizer
    return Trial(recognizer.rule, recognizer.shown, attempt.outcome.value, attempt.why, attempt.by)


def _meaning(fact: Fact | Doubt | None) -> str:
    if fact is None:
        return ""
    if isinstance(fact, Doubt):
        return f"may be a {kind_name(fact.kind)}: {fact.what}"
    return _stated(fact)


def _stated(fact: Fact | PythonFact) -> str:
    stated: Mapping[str, object] = {f.name: getattr(fact, f.name) for f in fields(fact)}
    own = [f"{f.name}={stated[f.name]}" for f in fields(fact) if stated[f.name] != f.default]
    return " ".join([kind_name(type(fact)), *own])


def _texts(found: Iterable[Match], on_line: _On, ported: bool) -> Iterator[Site]:
    """Texts that regular expressions of rules match; rules of one text stand together."""
    by_span: dict[Span, list[Match]] = {}
    for match in found:
        by_span.setdefault(match.span, []).append(match)
    for span, group in by_span.items():
        trials = []
        for match in group:
            trial = on_line.trial(match.rule, span)
            if trial.outcome == "not applied":
                trial = Trial(trial.rule, trial.pattern, *_why_not(match, ported))
            trials.append(trial)
        yield Site(on_line.column(span), group[0].text.strip(), "", tuple(trials))


def _why_not(match: Match, ported: bool) -> tuple[str, str]:
    rule = match.rule
    if rule.report is not None:
        return "refused", "a construct that is not ported, unless the name is the sources' own"
    if rule.when is When.PORTED and not ported:
        return "not applied", "the rule is for sources with a kernel that is ported"
    if match.replacement == match.text:
        return "not applied", "the text is what it becomes already"
    return "not applied", "nothing of the file is ported, or the name is the sources' own"
