# SPDX-License-Identifier: Apache-2.0
"""Patterns for Python: a qualified name, as imports lead to it, or a call of one.

`$X` stands for one step of a name or one argument, `$$$X` for any list of them. Arguments match by position or by
keyword. White space and quotes do not matter: the trees are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import libcst as cst

from porter.diagnostics.python_text import parse_expression
from porter.lang.python import number_of, spelled
from porter.model.dsl.names import KINDS, WORDS, PythonFact
from porter.rules.conditions import Condition, Stated, condition
from porter.rules.pattern import PatternError, captures_in, required
from porter.rules.recognize import Origin, check_captures, check_fields

_STEP = r"(?:[A-Za-z_]\w*(?:\(\))?|\$(?:\$\$)?[A-Z]\w*)"
_NAME = re.compile(rf"[A-Za-z_]\w*(?:\.{_STEP})*")
_CAPTURE = re.compile(r"(\$\$)?\$([A-Z]\w*)")
_LIST = re.compile(r"(?:\.|,\s*)?\$\$\$([A-Z]\w*)")
_ONE, _MANY = "_one_", "_many_"

Argument = cst.BaseExpression | cst.Arg


@dataclass(frozen=True, eq=False)
class NamePattern:
    """One pattern of a rule, and what a match is: a fact, or None where the rule has a text or a refusal for it.
    `steps` are those of the name; `call` has the arguments if it asks for a call."""

    origin: Origin
    text: str
    steps: tuple[str, ...]
    call: cst.Call | None = None
    fact: PythonFact | None = None
    where: tuple[tuple[str, Condition], ...] = ()

    @property
    def captures(self) -> frozenset[str]:
        return frozenset(captures_in(self.text))

    @property
    def rank(self) -> tuple[int, ...]:
        """The greater one wins at a place."""
        literals = sum(not s.startswith("$") for s in self.steps)
        return self.origin.priority, self.origin.is_user, self.call is not None, literals

    @property
    def through(self) -> tuple[str, ...]:
        """Methods, called without arguments, that its name goes on behind."""
        return tuple(s.removesuffix("()") for s in self.steps if s.endswith("()"))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Every name that matches holds one of them."""
        last = next(s for s in reversed(self.steps) if not s.startswith("$$$"))
        if not last.startswith("$"):
            return (last,)
        asked = dict(self.where).get(last[1:])
        if asked is not None and asked.test == "regex":
            return required(re.compile(asked.argument[0]))
        return asked.argument if asked is not None and asked.test == "in" else ("",)

    @property
    def step(self) -> str:
        """A part of every full name that matches."""
        return next((s.removesuffix("()") for s in reversed(self.steps) if not s.startswith("$")), "")

    def matches(self, name: str) -> bool:
        return self.bind(name) is not None

    def bind(self, name: str) -> Mapping[str, str] | None:
        """What the captures of a name are; None if it is no match."""
        return _bound(self, name)

    def arguments(self, call: cst.Call) -> Mapping[str, tuple[Argument, ...]] | str:
        """What the captures of a call are, in source order; why there is no match if there is none."""
        assert self.call is not None
        paired = _paired(self.call, call)
        if paired is None:
            return f"`{self.text}` asks for other arguments"
        found: dict[str, tuple[Argument, ...]] = {}
        for name, nodes in paired:
            if not _alike(found.setdefault(name, nodes), nodes):
                return f"${name} of {self.origin.rule} is two different expressions"
        for name, asked in self.where:
            texts = [_text(n) for n in found.get(name, ())]
            if not all(asked.holds(t, number_of) for t in texts):
                return f"${name} of {self.origin.rule} is `{', '.join(texts)}`, and has to be {asked.shown}"
        return found


@lru_cache(65536)
def _bound(pattern: NamePattern, name: str) -> Mapping[str, str] | None:
    for found in _steps(pattern.steps, tuple(name.split(".")), {}):
        if all(asked.holds(found[n], number_of) for n, asked in pattern.where if n in found):
            return found
    return None


def _steps(wanted: Sequence[str], given: Sequence[str], bound: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    if not wanted:
        if not given:
            yield bound
        return
    first, name = wanted[0], wanted[0].lstrip("$")
    if not first.startswith("$"):
        if given and given[0] == first:
            yield from _steps(wanted[1:], given[1:], bound)
        return
    for n in range(0 if first.startswith("$$$") else 1, (len(given) if first.startswith("$$$") else 1) + 1):
        taken = ".".join(given[:n])
        if n <= len(given) and "()" not in taken and bound.get(name, taken) == taken:
            yield from _steps(wanted[1:], given[n:], {**bound, name: taken})


def _paired(pattern: cst.Call, call: cst.Call) -> list[tuple[str, tuple[Argument, ...]]] | None:
    """The arguments of a call by the capture that each is for; None if they do not fit."""
    wanted = [a.value for a in pattern.args if a.keyword is None and not a.star]
    many = next((a.value for a in pattern.args if a.star), None)
    given_by_place = [a for a in call.args if a.keyword is None and a.star != "**"]
    if len(given_by_place) < len(wanted) or any(a.star for a in given_by_place[: len(wanted)]):
        return None
    rest = given_by_place[len(wanted) :]
    others = [a for a in call.args if a not in given_by_place]
    pairs: list[tuple[cst.BaseExpression, cst.Arg]] = list(zip(wanted, given_by_place, strict=False))
    for keyword in (a for a in pattern.args if a.keyword is not None):
        assert keyword.keyword is not None
        named = [a for a in others if a.keyword is not None and a.keyword.value == keyword.keyword.value]
        given = named[0] if named else rest.pop(0) if rest else None
        if given is None or given.star:
            return None
        others = [a for a in others if a is not given]
        pairs.append((keyword.value, given))
    if (rest or others) and many is None:
        return None
    found: list[tuple[str, tuple[Argument, ...]]] = []
    for asked, given in pairs:
        if isinstance(asked, cst.Name) and asked.value.startswith(_ONE):
            found.append((asked.value.removeprefix(_ONE), (given.value,)))
        elif not _alike((asked,), (given,)):
            return None
    if isinstance(many, cst.Name):
        found.append((many.value.removeprefix(_MANY), tuple(a for a in call.args if a in rest or a in others)))
    return found


def _alike(left: Sequence[Argument], right: Sequence[Argument]) -> bool:
    return [_text(n) for n in left] == [_text(n) for n in right]


def _text(node: Argument) -> str:
    """What is given, without its keyword."""
    return node.star + spelled(node.value) if isinstance(node, cst.Arg) else spelled(node)


def written(template: str, captured: Mapping[str, str]) -> str:
    """A text with what captures are bound to, others left as they are; the dot or comma in front of an empty list goes
    with it."""

    def a_list(found: re.Match[str]) -> str:
        value = captured.get(found[1])
        return found[0] if value is None else found[0].replace(f"$$${found[1]}", value) if value else ""

    text = _LIST.sub(a_list, template)
    return re.sub(r"(?<!\$)\$([A-Z]\w*)", lambda m: captured.get(m[1], m[0]), text)


def name_patterns(
    origin: Origin, texts: Iterable[str], entry: Mapping[str, Any], where: Mapping[str, Stated]
) -> tuple[NamePattern, ...]:
    """The patterns of a rule for Python.

    Raises:
        PatternError: one cannot match, or what they say does not fit together.
    """
    patterns = [_compiled(origin, text) for text in texts]
    captures = patterns[0].captures
    for pattern in patterns:
        if pattern.captures != captures or (pattern.call is None) != (patterns[0].call is None):
            raise PatternError(f"`{pattern.text}` does not capture what `{patterns[0].text}` does")
    for name in where:
        if name not in captures:
            raise PatternError(f"`where` names ${name}, which no pattern captures")
    check_captures("replace", entry.get("replace", ""), captures)
    for name, value in entry.get("refuse", {}).items():
        check_captures(name, value, captures)
    asked = tuple(sorted((n, condition(n, c)) for n, c in where.items()))
    fact = _fact(entry["as"], patterns[0]) if "as" in entry else None
    return tuple(replace(p, fact=fact, where=asked) for p in patterns)


def _fact(stated: Mapping[str, Mapping[str, Any]], pattern: NamePattern) -> PythonFact:
    ((kind, values),) = stated.items()
    if kind not in KINDS:
        raise PatternError(f"`{kind}` is no kind of fact of Python; there are {', '.join(KINDS)}")
    if pattern.call is not None:
        raise PatternError(f"a {kind} is a name, and `{pattern.text}` a call")
    check_fields(KINDS[kind], kind, values, frozenset())
    for field in fields(KINDS[kind]):
        known = field.metadata.get(WORDS)
        if known and values[field.name] not in known:
            raise PatternError(f"`{field.name}` of a {kind} is one of {', '.join(known)}")
    return KINDS[kind](**values)


def _compiled(origin: Origin, text: str) -> NamePattern:
    text = text.strip()
    found = _NAME.match(text)
    if found is None:
        raise PatternError(f"`{text}` does not begin with a name; what class an object has is not known in Python")
    name, rest = found.group(), text[found.end() :]
    if name.endswith("()"):
        name, rest = name.removesuffix("()"), "()" + rest
    steps = tuple(name.split("."))
    if not rest:
        return NamePattern(origin, text, steps)
    if not rest.startswith("("):
        raise PatternError(f"`{text}` cannot match: a pattern of Python is a name or a call of one")
    try:
        call = parse_expression("_" + _CAPTURE.sub(_placeholder, rest))
    except SyntaxError as error:
        raise PatternError(f"`{text}` cannot match: {error.msg}") from error
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name):
        raise PatternError(f"`{text}` cannot match: a pattern is a name or a call of one")
    plain = [a for a in call.args if a.keyword is None]
    starred = [a for a in plain if a.star]
    if len(starred) > 1 or (starred and plain[-1] is not starred[0]) or any(a.star == "**" for a in plain):
        raise PatternError(f"`{text}` cannot match: one list stands behind all other arguments without keywords")
    return NamePattern(origin, text, steps, call)


def _placeholder(found: re.Match[str]) -> str:
    return f"*{_MANY}{found[2]}" if found[1] else f"{_ONE}{found[2]}"
