# SPDX-License-Identifier: Apache-2.0
"""Rules on the names of a Python file, on the contents of its strings, on its comments, and on the code between."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import Scope

from porter.diagnostics import Code, Diagnostic
from porter.lang.cute_dsl import SUPPORT, Chain, DslFile
from porter.lang.dsl_imports import fresh_name
from porter.lang.text import Edit, Span
from porter.passes.dsl.calls import call_edits
from porter.rules.match import python_matches
from porter.rules.python import NamePattern, written
from porter.rules.rule import Rule

RuleEdit = tuple[str, Edit]
"""An edit with the ID of the rule that it is of."""
Asked = tuple[Rule, NamePattern]

_HEAD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Renamed:
    """What a rule makes of a name: its new text, of which `module` is what has to be imported."""

    rule: str
    text: str
    module: str


@dataclass(frozen=True)
class NameRules:
    """Rules on qualified names. Names that are `kept` stay."""

    rules: tuple[Rule, ...]
    kept: Callable[[str], bool] = lambda _: False

    def find(self, name: str) -> Renamed | None:
        """What becomes of a name, whether it is called or not."""
        for rule, pattern in self.matching(name, False):
            assert rule.replace is not None
            return Renamed(rule.id, written(rule.replace, pattern.bind(name) or {}), _module(rule.replace))
        return None

    def matching(self, name: str, is_call: bool) -> list[Asked]:
        """The patterns of a name, or of calls of it; the first one wins."""
        if self.kept(name):
            return []
        found = [(r, p) for r in self.rules for p in r.names if (p.call is not None) is is_call and p.matches(name)]
        return sorted(found, key=lambda f: f[1].rank, reverse=True)

    def tied(self, name: str) -> Asked | None:
        """A pattern that is for a name as well as another of another rule."""
        for is_call in (False, True):
            for (one, pattern), (other, second) in itertools.pairwise(self.matching(name, is_call)):
                if pattern.rank == second.rank and one is not other:
                    return other, second
        return None


def _module(template: str) -> str:
    """The module that a new name is taken from: what stands in front of its last step, or of one that is captured."""
    head = _HEAD.match(template)
    if head is None:
        return ""
    module, behind = head.group().rpartition(".")[0], template[head.end() :]
    return head.group() if behind.startswith(".$") and not (module and behind.startswith(".$$$")) else module


class LocalNames:
    """What modules are called in a file. `new` has those that have to be imported; imports of others may go."""

    def __init__(self, file: DslFile, stays: Callable[[str], bool]) -> None:
        self.file = file
        self.new: dict[str, str] = {}
        self._stays = stays

    def of(self, module: str, scope: Scope | None = None) -> str:
        """What a module is called in a scope."""
        for binding in self.file.bindings if module != SUPPORT and self._stays(module) else ():
            if binding.target == module and self.file.bound(binding.local, scope) == [binding]:
                return binding.local
        if module not in self.new:
            self.new[module] = fresh_name(self.file, module.rpartition(".")[2])
        return self.new[module]

    def spelled(self, text: str, module: str, scope: Scope) -> str:
        """A text that begins with the name of a module, as the file calls that."""
        return self.of(module, scope) + text.removeprefix(module) if module else text


def renamed(
    file: DslFile, rules: NameRules, canonical: Callable[[str], str], local: LocalNames
) -> Iterator[RuleEdit | Diagnostic]:
    """The edits of names and calls that rules know, each place once, and what has to be said of others. Where an import
    or an alias binds the new name already, its uses stay."""
    done: set[cst.BaseExpression] = set()
    for reference in file.all_references:
        chain, name = reference.chain, canonical(reference.name)
        found, asked = rules.find(name), rules.matching(name, True)
        if chain.node in done or (found is None and not asked):
            continue
        tied = rules.tied(name)
        if tied is not None:
            yield _conflict(file, chain.node, tied[0], f"`{tied[1].text}` and another rule are for `{name}`")
            continue
        made = _of_call(file, chain, asked, name, local) if asked else None
        if made is not None and (found is None or not isinstance(made, Diagnostic)):
            done.add(chain.node)
            yield from [made] if isinstance(made, Diagnostic) else made
            continue
        base = canonical(reference.base)
        starred = reference.binding is None and base == reference.base
        if found is not None and (starred or rules.find(base) is None):
            done.add(chain.node)
            text = local.spelled(found.text, found.module, chain.scope)
            yield found.rule, Edit(file.path, file.span(chain.node), text.encode())


def _of_call(
    file: DslFile, chain: Chain, asked: Sequence[Asked], name: str, local: LocalNames
) -> list[RuleEdit] | Diagnostic:
    """The edits of a call that one of these patterns is for, or why there are none."""
    call = file.calls.get(chain.node)
    why = f"`{_spelled(chain)}` is not called here"
    for rule, pattern in asked if call is not None else ():
        assert call is not None
        bound = pattern.arguments(call)
        if isinstance(bound, str):
            why = bound
            continue
        template = written(rule.replace or "", {n: s for n, s in (pattern.bind(name) or {}).items() if n not in bound})
        template = local.spelled(template, _module(template), chain.scope)
        return [(rule.id, edit) for edit in call_edits(file, call, template, bound)]
    values = {"rule": asked[0][0].id, "what": why}
    return Diagnostic(Code.RULE_NOT_APPLIED, file.location(file.span(chain.node)), values)


def conflicts(file: DslFile, edits: Iterable[RuleEdit], rules: Iterable[Rule]) -> Iterator[Diagnostic]:
    """Places that two rules change, one inside the other."""
    places = {r.id: r.where for r in rules}
    placed = sorted(edits, key=lambda e: (e[1].span.start, e[1].span.end))
    for (one, first), (other, second) in itertools.pairwise(placed):
        if first.span.overlaps(second.span):
            at = file.location(second.span)
            values = {"place": str(at), "what": f"{one} and {other} both change this text"}
            yield Diagnostic(Code.RULE_CONFLICT, places[one], values)


def _spelled(chain: Chain) -> str:
    return ".".join([chain.base.value, *chain.attributes])


def _conflict(file: DslFile, node: cst.CSTNode, rule: Rule, what: str) -> Diagnostic:
    return Diagnostic(Code.RULE_CONFLICT, rule.where, {"place": str(file.location(file.span(node))), "what": what})


def reworded(file: DslFile, rules: Iterable[Rule], taken: Sequence[Span]) -> Iterator[RuleEdit]:
    """Edits of texts outside the spans `taken`. A text that the file has in its new form already stays: such a file
    tells the two architectures apart itself."""
    claimed = list(taken)
    for rule in rules:
        for match in python_matches(rule, file) if rule.advice is None else ():
            assert match.replacement is not None
            new = match.replacement.encode()
            if new not in file.source and not any(c.overlaps(match.span) for c in claimed):
                claimed.append(match.span)
                yield rule.id, Edit(file.path, match.span, new)
