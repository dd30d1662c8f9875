# SPDX-License-Identifier: Apache-2.0
"""Recognizers: rules that say what a pattern is. The model asks them at places whose names it has resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields

from porter.model.facts import KINDS, Fact, Recognizer
from porter.rules.pattern import Pattern, PatternError, captures_in, compiled, filled
from porter.rules.rule import Rule

CONDITIONS = ("const", "int", "name")
"""What `where` may ask of a capture: a constant expression or a template parameter of one, one whose value is known,
a plain name."""


@dataclass(frozen=True)
class FactPattern:
    """One pattern of a rule, with what a match is. Texts in `values` may name captures."""

    rule: str
    pattern: Pattern
    kind: type[Fact]
    values: tuple[tuple[str, str | int | bool], ...] = ()
    where: tuple[tuple[str, str], ...] = ()

    @property
    def head(self) -> tuple[str, ...]:
        return self.pattern.head

    @property
    def shown(self) -> str:
        """The pattern as it is written."""
        return self.pattern.text

    @property
    def is_call(self) -> bool:
        return self.pattern.is_call

    def bind(self, rest: str, evaluate: Callable[[str], int | None]) -> Fact | None:
        """The fact at a name that `rest` follows, None if the pattern asks for something else."""
        for captured in self.pattern.bind(rest):
            if all(_holds(condition, captured[name], evaluate) for name, condition in self.where):
                return self._fact(captured, evaluate)
        return None

    def _fact(self, captured: Mapping[str, str], evaluate: Callable[[str], int | None]) -> Fact | None:
        types = {f.name: f.type for f in fields(self.kind)}
        found: dict[str, str | int | bool] = {}
        for name, value in self.values:
            if not isinstance(value, str):
                found[name] = value
                continue
            text = filled(value, captured)
            if types[name] == "str":
                found[name] = text
                continue
            number = evaluate(text)
            if number is None:
                return None
            found[name] = number
        make: Callable[..., Fact] = self.kind
        return make(**found)


def _holds(condition: str, text: str, evaluate: Callable[[str], int | None]) -> bool:
    if condition == "name":
        return text.isidentifier()
    return condition == "const" or evaluate(text) is not None


def fact_patterns(
    rule: str, texts: Iterable[str], stated: Mapping[str, Mapping[str, str | int | bool]], where: Mapping[str, str]
) -> tuple[FactPattern, ...]:
    """The patterns of one rule.

    Raises:
        PatternError: one cannot match, or what they say does not fit together.
    """
    patterns = [compiled(text) for text in texts]
    captures = patterns[0].captures
    for pattern in patterns:
        if pattern.captures != captures:
            raise PatternError(f"`{pattern.text}` does not capture what `{patterns[0].text}` does")
    ((kind, values),) = stated.items()
    if kind not in KINDS:
        raise PatternError(f"`{kind}` is no kind of fact; there are {', '.join(KINDS)}")
    known = {f.name: f for f in fields(KINDS[kind])}
    for name, value in values.items():
        if name not in known:
            raise PatternError(f"a {kind} has no `{name}`")
        if not isinstance(value, str):
            if known[name].type != type(value).__name__:
                raise PatternError(f"`{name}` of a {kind} is no {type(value).__name__}")
            continue
        missing = next((c for c in captures_in(value) if c not in captures), None)
        if missing is not None:
            raise PatternError(f"`{name}` names ${missing}, which no pattern captures")
    needed = [f.name for f in known.values() if f.default is MISSING and f.name not in values]
    if needed:
        raise PatternError(f"a {kind} needs `{needed[0]}`")
    for name, condition in where.items():
        if name not in captures:
            raise PatternError(f"`where` names ${name}, which no pattern captures")
        if condition not in CONDITIONS:
            raise PatternError(f"`{condition}` is nothing that a capture can be: {', '.join(CONDITIONS)}")
    facts = tuple(sorted(values.items()))
    return tuple(FactPattern(rule, p, KINDS[kind], facts, tuple(sorted(where.items()))) for p in patterns)


def vocabulary(rules: Iterable[Rule]) -> dict[str, list[Recognizer]]:
    """The recognizers among rules by the last name of their heads, a user's in front of Porter's own."""
    found: dict[str, list[Recognizer]] = {}
    for rule in reversed(list(rules)):
        for recognizer in rule.recognizers:
            found.setdefault(recognizer.head[-1], []).append(recognizer)
    return found
