# SPDX-License-Identifier: Apache-2.0
"""Patterns of recognizers: source text with `$X` for one expression or template argument and `$$$X` for any list.

White space and comments do not matter; brackets balance; the same `$X` twice binds the same tokens. A pattern is a
qualified name, a member of one, a call of one, or the call of a method of an object `$X` or of a class `$X`. What the
name means is for the model to say, not for a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from porter.model.recognition import Piece

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(r'\s*(\${1,3}(?:[A-Z]\w*|\{[A-Z]\w*\})|"(?:\\.|[^"\\])*"|\d[\w.]*|\w+|\S)', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_CAPTURE = re.compile(r"\$\$?\$?(?:([A-Z]\w*)|\{([A-Z]\w*)\})")
_METHOD = re.compile(r"\$([A-Z]\w*)\s*(\.|::)\s*")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_MOST_TOKENS = 4000
"""Tokens that one `$X` is tried on."""


class PatternError(ValueError):
    """A pattern that cannot match anything. The text says why."""


@lru_cache(4096)
def _placed(text: str) -> tuple[tuple[str, int, int], ...]:
    """The tokens of a text, with where each begins and ends."""
    plain = _COMMENT.sub(lambda m: " " * len(m[0]), text)
    return tuple((m[1], m.start(1), m.end(1)) for m in _TOKEN.finditer(plain))


def tokens(text: str) -> tuple[str, ...]:
    return tuple(token for token, _, _ in _placed(text))


@dataclass(frozen=True)
class Pattern:
    """`head` is the name that it begins with; `rest` are the tokens behind it, those of template arguments inside the
    name in front: `Tile<$N>::run($A)` has the head Tile, run and the rest `< $N > :: ( $A )`. The head of `$X.run($A)`
    is run."""

    text: str
    head: tuple[str, ...]
    rest: tuple[str, ...]
    receiver: str = ""
    """The capture of the object or class whose method `head` is."""
    is_static: bool = False
    """Whether it is a class."""

    @property
    def is_call(self) -> bool:
        return self.rest[-1:] == (")",)

    @property
    def captures(self) -> frozenset[str]:
        return frozenset(captures_in(self.text))

    @property
    def has_inner_args(self) -> bool:
        """Whether a name in front of the last has template arguments."""
        return ">" in self.rest and self.rest[self.rest.index(">") + 1 :][:2] == (":", ":")

    @property
    def literals(self) -> int:
        """Tokens that are no captures."""
        return len(self.head) + sum(not t.startswith("$") for t in self.rest)

    def bind(self, rest: str) -> Iterator[dict[str, Piece]]:
        """Every way in which the text behind the name is what the pattern asks for."""
        given = _placed(rest)
        for bound in _match(self.rest, 0, tokens(rest), 0, {}):
            found = {}
            for name, (i, j) in bound.items():
                start = given[i][1] if i < len(given) else len(rest)
                end = given[j - 1][2] if j > i else start
                found[name] = Piece(rest[start:end], start, end)
            yield found


def captures_in(text: str) -> list[str]:
    """Names of the captures that a text mentions."""
    return [m[1] or m[2] for m in _CAPTURE.finditer(text)]


def parts(text: str) -> tuple[list[str], list[str]]:
    """A text taken apart: the texts around its captures, one more than those, and their names."""
    texts, names, at = [], [], 0
    for found in _CAPTURE.finditer(text):
        texts.append(text[at : found.start()])
        names.append(found[1] or found[2])
        at = found.end()
    return [*texts, text[at:]], names


def filled(text: str, captured: Mapping[str, str]) -> str:
    """A text with what its captures are bound to."""
    return _CAPTURE.sub(lambda found: captured[found[1] or found[2]], text)


def compiled(text: str, is_type: bool = False) -> Pattern:
    """The pattern that a text is; one of a type is a name, which template arguments may follow.

    Raises:
        PatternError: nothing can be what it asks for.
    """
    method = _METHOD.match(text.strip())
    if method is not None:
        called = compiled(text.strip()[method.end() :])
        if len(called.head) != 1 or not called.is_call:
            raise PatternError(f"`{text}` cannot match: a method of ${method[1]} is called, as in `$X.run($A)`")
        if method[1] in called.captures:
            raise PatternError(f"`{text}` has the object ${method[1]} among the arguments of its method")
        return replace(called, text=text.strip(), receiver=method[1], is_static=method[2] == "::")
    head, rest, text = [], list[str](), text.strip()
    given = _placed(text)
    at = 0
    while True:
        if at >= len(given) or not _NAME.fullmatch(given[at][0]):
            raise PatternError(f"`{text}` does not begin with a name")
        head.append(given[at][0])
        at += 1
        closing = _angle(given, at)
        if closing and _is_scope(given, closing):
            rest += [t for t, _, _ in given[at : closing + 2]]
            at = closing + 2
        elif _is_scope(given, at):
            at += 2
        else:
            break
    inner = len(rest)
    rest += [t for t, _, _ in given[at:]]
    if "$" in rest or any(t.startswith("$") and not _CAPTURE.fullmatch(t) for t in rest):
        raise PatternError(f"`{text}` has a $ that names no capture")
    if is_type:
        if rest and (rest[0] != "<" or _angle(tuple((t, 0, 0) for t in rest), 0) != len(rest)):
            raise PatternError(f"`{text}` cannot match: a type is a name, or one with template arguments")
        return Pattern(text, tuple(head), tuple(rest))
    _check_shape(text, tuple(rest[inner:]))
    if inner and inner == len(rest):
        raise PatternError(f"`{text}` cannot match: template arguments are only read in a call")
    return Pattern(text, tuple(head), tuple(rest))


def _is_scope(given: tuple[tuple[str, int, int], ...], at: int) -> bool:
    return [t for t, _, _ in given[at : at + 2]] == [":", ":"]


def _angle(given: tuple[tuple[str, int, int], ...], at: int) -> int:
    """Index behind the template arguments that begin at `at`; 0 if none do."""
    depth = 0
    for i in range(at, len(given)):
        depth += (given[i][0] == "<") - (given[i][0] == ">")
        if depth == 0:
            return i + 1 if i > at else 0
        if given[i][0] in (";", "{"):
            return 0
    return 0


def _check_shape(text: str, rest: tuple[str, ...]) -> None:
    """A member, or template arguments and arguments; nothing else follows a name."""
    at = 0
    if len(rest) == 2 and rest[0] == "." and rest[1].isidentifier():
        return
    if rest[:1] == ("<",):
        at = _angle(tuple((t, 0, 0) for t in rest), 0)
        if not at:
            raise PatternError(f"`{text}` has a `<` that nothing closes")
    if at < len(rest):
        if rest[at] != "(" or _closing(rest, at) != len(rest) - 1:
            raise PatternError(f"`{text}` cannot match: a pattern is a name, a member of one, or a call of one")
    elif at:
        raise PatternError(f"`{text}` cannot match: template arguments are only read in a call")
    if ";" in rest:
        raise PatternError(f"`{text}` cannot match: a `;` ends an expression")


def _closing(given: tuple[str, ...], at: int) -> int:
    """Index of the token that closes the bracket at `at`; -1 if none does."""
    depth: list[str] = []
    for i in range(at, len(given)):
        if given[i] in _OPENING:
            depth.append(_OPENING[given[i]])
        elif given[i] in _OPENING.values():
            if not depth or depth.pop() != given[i]:
                return -1
            if not depth:
                return i
    return -1


def _match(
    wanted: tuple[str, ...], i: int, given: tuple[str, ...], j: int, bound: Mapping[str, tuple[int, int]]
) -> Iterator[dict[str, tuple[int, int]]]:
    if i == len(wanted):
        if j == len(given):
            yield dict(bound)
        return
    token = wanted[i]
    if not token.startswith("$"):
        if j < len(given) and given[j] == token:
            yield from _match(wanted, i + 1, given, j + 1, bound)
        return
    name, many = token.lstrip("$").strip("{}"), token.startswith("$$$")
    for end in _ends(given, j, many):
        known = bound.get(name)
        if known is not None and given[known[0] : known[1]] != given[j:end]:
            continue
        yield from _match(wanted, i + 1, given, end, {name: (j, end), **bound})


def _ends(given: tuple[str, ...], start: int, many: bool) -> Iterator[int]:
    """Where a capture that begins at `start` may end, shortest first."""
    at = start
    if many:
        yield at
    while at < min(len(given), start + _MOST_TOKENS):
        if given[at] in _OPENING:
            closing = _closing(given, at)
            if closing < 0:
                return
            at = closing + 1
        elif given[at] in (*_OPENING.values(), ";") or (given[at] == "," and not many):
            return
        else:
            at += 1
        yield at


_LETTERS = re.compile(r"(?:\w|::)+")


@cache
def beginnings(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Texts of which every match begins with one; one that is empty says nothing of the matches."""
    text = pattern.pattern
    if pattern.flags & (re.IGNORECASE | re.VERBOSE) or not text.startswith(r"\b"):
        return ("",)
    rest = _OPAQUE.sub("\0", text[2:])
    first = rest[:3] if rest.startswith("(?:") else ""
    rest = _without_groups(rest[len(first) :])
    inside, closing, behind = rest.partition(")") if first else (rest, "", "")
    if "|" in behind or behind[:1] in ("?", "*", "{") or bool(first) is not bool(closing):
        return ("",)
    return tuple(dict.fromkeys(_first_letters(branch) for branch in inside.split("|")))


def _without_groups(text: str) -> str:
    while (shorter := re.sub(r"\([^()]*\)", "\0", text)) != text:
        text = shorter
    return text


def _first_letters(text: str) -> str:
    found = _LETTERS.match(text)
    if found is None:
        return ""
    # what a quantifier follows need not be there
    return found[0][:-1] if text[found.end() : found.end() + 1] in ("?", "*", "{") else found[0]


_OPAQUE = re.compile(r"\\(?:x..|u.{4}|U.{8}|\d+|.)|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


@cache
def required(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Texts of which every match holds one: finding them is faster than trying the pattern at every place. One text
    that is empty says nothing of the matches."""
    if pattern.flags & (re.IGNORECASE | re.VERBOSE):
        return ("",)
    # A group may be optional, have branches, or look at what is no part of the match.
    rest = _without_groups(_OPAQUE.sub("\0", pattern.pattern))
    rest = re.sub(r".(?:[*?]|\{[\d,]*\})", "\0", rest)
    return tuple(max(re.findall(r"[\w:]*", branch), key=len) for branch in rest.split("|"))
