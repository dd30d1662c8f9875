# SPDX-License-Identifier: Apache-2.0
"""Places of a Python file that rules refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import libcst as cst

from porter.diagnostics import Code, Diagnostic
from porter.lang.cute_dsl import DslFile
from porter.lang.python import spelled
from porter.passes.dsl.renames import NameRules
from porter.rules.pattern import required
from porter.rules.python import written
from porter.rules.rule import Region, Rule


def refused(file: DslFile, rules: Sequence[Rule], canonical: Callable[[str], str]) -> Iterator[Diagnostic]:
    """What rules say of texts of strings and of names, as they are called where they were made."""
    for rule in (r for r in rules if r.pattern is not None and r.region is Region.STRING):
        assert rule.pattern is not None
        if any(word.encode() in file.source for word in required(rule.pattern)):
            for node, text in file.strings:
                found = rule.pattern.search(text)
                if found is not None:
                    yield _said(file, node, rule, found.group(), {})
    named = NameRules(tuple(r for r in rules if r.names))
    if any(word.encode() in file.source for r in named.rules for p in r.names for word in p.words):
        for reference in file.all_references:
            yield from _of_name(file, reference.chain.node, named, canonical(reference.name))


def _of_name(file: DslFile, node: cst.BaseExpression, rules: NameRules, name: str) -> Iterator[Diagnostic]:
    call = file.calls.get(node)
    for rule, pattern in [*rules.matching(name, True), *rules.matching(name, False)]:
        bound = pattern.arguments(call) if call is not None and pattern.call is not None else {}
        if isinstance(bound, str) or (call is None and pattern.call is not None):
            continue
        texts = {n: ", ".join(map(spelled, nodes)) for n, nodes in bound.items()}
        yield _said(file, node, rule, name, {**(pattern.bind(name) or {}), **texts})
        return


def _said(file: DslFile, node: cst.CSTNode, rule: Rule, name: str, captured: Mapping[str, str]) -> Diagnostic:
    assert rule.refusal is not None
    code, what, advice = (written(text, captured) for text in rule.refusal)
    values = {"name": name, "what": what, "advice": advice, "library": what}
    return Diagnostic(Code[code], file.location(file.span(node)), values)
