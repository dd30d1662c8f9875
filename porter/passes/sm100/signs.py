# SPDX-License-Identifier: Apache-2.0
"""What rules say of code for SM100: findings by themselves, and signs that findings are placed by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from porter.diagnostics import Code, Diagnostic, Location
from porter.ptx.tmem_access import Shape
from porter.rules.match import Match
from porter.rules.rule import Rule


@dataclass(frozen=True)
class Sign:
    """One match of a rule: what stands there, with the texts that the rule gives."""

    rule: Rule
    match: Match
    given: dict[str, str]

    @property
    def start(self) -> int:
        return self.match.span.start


def load_shape(sign: Sign) -> Shape | None:
    """The shape of the load that a name of a library stands for; None for one that PTX does not have."""
    text = f"{sign.given['lanes']}x{sign.given['bits']}b{sign.given.get('halves') or ''}"
    return Shape(text) if text in set(Shape) else None


def advice_rules(rules: Iterable[Rule]) -> list[Rule]:
    return [rule for rule in rules if rule.advice is not None]


def signs_in(rules: Iterable[Rule], matches: Callable[[Rule], Iterable[Match]]) -> dict[str, list[Sign]]:
    """The signs of a file by kind, each kind in the order of the text."""
    found: dict[str, list[Sign]] = {}
    for rule in rules:
        assert rule.advice is not None
        for match in matches(rule):
            found.setdefault(rule.advice.sign, []).append(Sign(rule, match, given(rule, match.text)))
    for same in found.values():
        same.sort(key=lambda s: s.match.span)
    return found


def given(rule: Rule, text: str) -> dict[str, str]:
    """The texts that a rule gives of a match. They may not look at what stands around it."""
    assert rule.advice is not None
    assert rule.pattern is not None
    found = rule.pattern.search(text)
    return {name: found.expand(template) for name, template in rule.advice.given} if found else {}


def stated_findings(signs: Sequence[Sign], text: str, place: Callable[[Match], Location]) -> Iterator[Diagnostic]:
    """Findings that need no placement; of one text in a file the first."""
    said: set[tuple[str, str]] = set()
    for sign in signs:
        advice = sign.rule.advice
        assert advice is not None
        key = (sign.rule.id, sign.match.text)
        if key in said or (advice.unless is not None and advice.unless.search(text)):
            continue
        said.add(key)
        values = {"what": advice.what, "advice": advice.advice}
        yield Diagnostic(Code[advice.code], place(sign.match), values, f"{sign.rule.id}: {sign.rule.reason}")
