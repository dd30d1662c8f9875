# SPDX-License-Identifier: Apache-2.0
"""Recognizers: rules that say what a pattern is. The model asks them at places whose names it has resolved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from porter.diagnostics import Location
from porter.model.facts import KINDS, TYPES, Fact, Mma, Refused, Replaced, Tile, numbers, places
from porter.model.recognition import Bound, Piece, Recognizer, Vocabulary
from porter.model.spellings import Spellings
from porter.rules.conditions import OF_TYPE, Condition, Evaluate, Stated, condition
from porter.rules.pattern import Pattern, PatternError, captures_in, compiled, filled

_QUALIFIED = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")
LHS = "LHS"
"""The capture that no pattern has: the variable whose value the call is."""
_SIGNS = frozenset("()<>,:")
_ONE_CAPTURE = re.compile(r"\$(?:[A-Z]\w*|\{[A-Z]\w*\})")


@dataclass(frozen=True)
class Origin:
    """Whose recognizers these are. `rank` decides between rules of which both match: priority, then a user's rule
    before Porter's own."""

    rule: str
    library: str = ""
    where: Location = field(default_factory=lambda: Location(""))
    priority: int = 0
    is_user: bool = False
    definition: str = "check"
    scope: tuple[str, ...] = ()
    maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What texts of a capture stand for, by capture; other texts are no match."""


@dataclass(frozen=True)
class FactPattern:
    """One pattern of a rule, with what a match is. Texts in `values` may name captures."""

    origin: Origin
    pattern: Pattern
    kind: type[Fact]
    values: tuple[tuple[str, str | int | bool], ...] = ()
    where_captures: tuple[tuple[str, Condition], ...] = ()
    of_type: tuple[str, ...] = ()
    """The class of the object whose method the pattern calls."""
    of_types: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The classes of captures that are arguments."""

    @property
    def rule(self) -> str:
        return self.origin.rule

    @property
    def library(self) -> str:
        return self.origin.library

    @property
    def where(self) -> Location:
        return self.origin.where

    @property
    def definition(self) -> str:
        return self.origin.definition

    @property
    def of_class(self) -> bool:
        return self.pattern.has_inner_args

    @property
    def receiver(self) -> tuple[str, ...]:
        return self.of_type

    @property
    def is_static(self) -> bool:
        return self.pattern.is_static

    @property
    def is_user(self) -> bool:
        return self.origin.is_user

    @property
    def rank(self) -> tuple[int, ...]:
        return (self.origin.priority, self.origin.is_user, self.pattern.literals, len(self.pattern.rest))

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

    @property
    def replacement(self) -> str:
        return str(dict(self.values).get("text", "")) if self.kind is Replaced else ""

    def place_of(self, name: str) -> str:
        value = str(dict(self.values).get(name, ""))
        return captures_in(value)[0] if name in places(self.kind) and value else ""

    def bind(self, rest: str, evaluate: Evaluate, receiver: Piece | None = None, declared: str = "") -> Bound | str:
        """The fact at a name that `rest` follows; why there is none if the pattern asks for something else."""
        if not declared and any(LHS in captures_in(v) for _, v in self.values if isinstance(v, str)):
            return f"`{self.shown}` is to be the value that a variable is declared with"
        why = f"`{self.shown}` asks for other arguments"
        of = {self.pattern.receiver: receiver} if receiver is not None else {}
        first: Bound | None = None
        for bound in self.pattern.bind(rest):
            captured = {**bound, **of, **({LHS: Piece(declared, -1, -1)} if declared else {})}
            texts = {name: piece.text for name, piece in captured.items()}
            failed = next(((n, c) for n, c in self.where_captures if not c.holds(texts[n], evaluate)), None)
            if failed is not None:
                why = f"${failed[0]} of {self.rule} is `{texts[failed[0]]}`, and has to be {failed[1].shown}"
                continue
            found = self._fact(texts, evaluate)
            if isinstance(found, str):
                why = found
            elif first is None:
                first = Bound(found, captured)
            elif found != first.fact:
                differ = [n for n, piece in captured.items() if piece.text != first.captures[n].text]
                one, other = first.captures[differ[0]].text, texts[differ[0]]
                return f"${differ[0]} of {self.rule} may be `{one}` or `{other}`"
        return first or why

    def _fact(self, captured: Mapping[str, str], evaluate: Evaluate) -> Fact | str:
        texts = dict(captured)
        for name, known in self.origin.maps.items():
            text = " ".join(texts[name].split())
            if text not in known:
                return f"${name} of {self.rule} is `{text}`, which its map does not have"
            texts[name] = known[text]
        types = {f.name: f.type for f in fields(self.kind)}
        counted = numbers(self.kind)
        found: dict[str, str | int | bool] = {}
        for name, value in self.values:
            if not isinstance(value, str):
                found[name] = value
                continue
            if name in counted:
                for capture in captures_in(value):
                    number = evaluate(texts[capture])
                    if number is None:
                        return f"the value of `{texts[capture]}` is not known, and `{name}` needs it"
                    value = filled(value, {**{c: f"${{{c}}}" for c in captures_in(value)}, capture: str(number)})
            text = filled(value, texts)
            if types[name] == "str":
                found[name] = text
                continue
            number = evaluate(text)
            if number is None:
                return f"the value of `{text}` is not known, and `{name}` needs it"
            found[name] = number
        make: Callable[..., Fact] = self.kind
        fact = make(**found)
        return _illegal(fact) or fact if isinstance(fact, Mma) else fact


def _illegal(fact: Mma) -> str:
    return (
        "" if fact.op is not None else f"{fact.shape} is not a shape of wgmma.mma_async with three types {fact.types}"
    )


def fact_patterns(
    origin: Origin, texts: Iterable[str], stated: Mapping[str, Mapping[str, Any]], where: Mapping[str, Stated]
) -> tuple[FactPattern, ...]:
    """The patterns of a recognizer.

    Raises:
        PatternError: one cannot match, or what they say does not fit together.
    """
    ((kind, values),) = stated.items()
    if kind not in KINDS:
        raise PatternError(f"`{kind}` is no kind of fact; there are {', '.join(KINDS)}")
    patterns = alternatives(origin, texts, KINDS[kind] in TYPES)
    check_fields(KINDS[kind], kind, values, patterns[0].captures | ({LHS} if KINDS[kind] is Tile else set()))
    return _made(origin, patterns, KINDS[kind], values, where)


def refusal_patterns(
    origin: Origin, texts: Iterable[str], what: str, advice: str, where: Mapping[str, Stated]
) -> tuple[FactPattern, ...]:
    """The patterns of a refusal. Raises PatternError as `fact_patterns` does."""
    patterns = alternatives(origin, texts)
    for name, value in (("what", what), ("advice", advice)):
        check_captures(name, value, patterns[0].captures)
    return _made(origin, patterns, Refused, {"what": what, "advice": advice}, where)


def replacement_patterns(
    origin: Origin, texts: Iterable[str], text: str, where: Mapping[str, Stated]
) -> tuple[FactPattern, ...]:
    """The patterns of a replacement. Raises PatternError as `fact_patterns` does."""
    patterns = alternatives(origin, texts)
    check_captures("replace", text, patterns[0].captures)
    check_literals((p.text, p.rest) for p in patterns)
    return _made(origin, patterns, Replaced, {"text": text}, where)


def _made(
    origin: Origin,
    patterns: list[Pattern],
    kind: type[Fact],
    values: Mapping[str, Any],
    where: Mapping[str, Stated],
) -> tuple[FactPattern, ...]:
    captures = patterns[0].captures
    for name in (*where, *origin.maps):
        if name not in captures:
            raise PatternError(f"`{'where' if name in where else 'map'}` names ${name}, which no pattern captures")
    of_type = _type_of_receiver(patterns, where)
    typed = {n: c for n, c in where.items() if isinstance(c, Mapping) and OF_TYPE in c and len(c) == 1}
    of_types = tuple((n, _class_named(n, c)) for n, c in typed.items() if n != patterns[0].receiver)
    asked = tuple(sorted((n, condition(n, c)) for n, c in where.items() if n not in typed))
    given = tuple(sorted(values.items()))
    return tuple(FactPattern(origin, p, kind, given, asked, of_type, of_types) for p in patterns)


def _type_of_receiver(patterns: Sequence[Pattern], where: Mapping[str, Stated]) -> tuple[str, ...]:
    """The class that a rule says the object of a method is of; empty if no method is called. Raises PatternError."""
    receiver = patterns[0].receiver
    if any(p.receiver != receiver for p in patterns):
        raise PatternError("of the patterns some call a method of an object, and some do not")
    if not receiver or patterns[0].is_static:
        return ()
    return _class_named(receiver, where.get(receiver))


def _class_named(capture: str, stated: Stated | None) -> tuple[str, ...]:
    named = stated.get(OF_TYPE) if isinstance(stated, Mapping) else None
    if not isinstance(named, str) or not _QUALIFIED.fullmatch(named):
        raise PatternError(f"`where` has to say of which class ${capture} is: {capture}: {{type: house::Pipe}}")
    return tuple(named.split("::"))


def alternatives(origin: Origin, texts: Iterable[str], are_types: bool = False) -> list[Pattern]:
    """The patterns that a rule lists, a name without a namespace in each that its scope has. Raises PatternError."""
    patterns = [compiled(text, are_types) for text in texts]
    for pattern in patterns[1:]:
        if pattern.captures != patterns[0].captures:
            raise PatternError(f"`{pattern.text}` does not capture what `{patterns[0].text}` does")
    found: list[Pattern] = []
    for pattern in patterns:
        scopes = origin.scope if len(pattern.head) == 1 and not pattern.receiver else ()
        found += [Pattern(pattern.text, (*s.split("::"), *pattern.head), pattern.rest) for s in scopes] or [pattern]
    return found


def check_literals(written: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Raises PatternError if patterns of a rule that has one text differ in what is behind the name and no capture:
    the text cannot have it. Each is given as it is written, with what is behind its name."""
    said = [(text, [t for t in rest if t not in _SIGNS and not t.startswith("$")]) for text, rest in written]
    other = next((text for text, words in said if words != said[0][1]), None)
    if other is not None:
        raise PatternError(
            f"`{other}` and `{said[0][0]}` differ in more than their names, and the text for both is one: capture the "
            "difference, or write two rules"
        )


def check_fields(kind: type[Any], called: str, values: Mapping[str, Any], captures: frozenset[str]) -> None:
    """Raises PatternError if a fact is not stated as its kind has it."""
    known = {f.name: f for f in fields(kind)}
    for name, value in values.items():
        if name not in known:
            raise PatternError(f"a {called} has no `{name}`; it has {', '.join(known) or 'no fields'}")
        if not isinstance(value, str):
            if known[name].type != type(value).__name__:
                raise PatternError(f"`{name}` of a {called} is no {type(value).__name__}")
            continue
        check_captures(name, value, captures)
        if name in places(kind) and not _ONE_CAPTURE.fullmatch(value):
            raise PatternError(f"`{name}` of a {called} is one capture, such as $D, and not `{value}`")
    needed = [f.name for f in known.values() if f.default is MISSING and f.name not in values]
    if needed:
        raise PatternError(f"a {called} needs `{needed[0]}`")
    if kind is Mma and not any(captures_in(str(values[n])) for n in ("shape", "types")):
        problem = _illegal(Mma(**values))
        if problem:
            raise PatternError(f"no such mma: {problem}")


def check_captures(name: str, value: str, captures: frozenset[str]) -> None:
    """Raises PatternError if a text names a capture that there is none of."""
    missing = next((c for c in captures_in(value) if c not in captures), None)
    if missing is not None:
        raise PatternError(f"`{name}` names ${missing}, which no pattern captures")


def vocabulary(rules: Iterable[Any]) -> Vocabulary:
    """What rules recognize, and the texts for it."""
    rules = list(rules)
    emitters = [rule.emitter for rule in rules if rule.emitter is not None]
    recognizers = (r for rule in rules for r in rule.recognizers if r.kind is not Replaced)
    return Vocabulary(_by_word(recognizers), emitters, spellings(rules))


def spellings(rules: Iterable[Any]) -> Spellings:
    """What rules say that words are."""
    return Spellings((rule.spelling.of, rule.spelling.pattern) for rule in rules if rule.spelling is not None)


def replacements(rules: Iterable[Any]) -> Vocabulary:
    """What rules write another text for. It stands apart: a name that is replaced is no less what other rules say."""
    return Vocabulary(_by_word(r for rule in rules for r in rule.recognizers if r.kind is Replaced))


def _by_word(recognizers: Iterable[Recognizer]) -> dict[str, list[Recognizer]]:
    words: dict[str, list[Recognizer]] = {}
    for recognizer in recognizers:
        words.setdefault(recognizer.head[-1], []).append(recognizer)
    return words
