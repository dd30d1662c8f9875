# SPDX-License-Identifier: Apache-2.0
"""Which mbarrier of several a text means, and how the index and the phase of a ring go on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from porter.model.functions import Function
from porter.model.pipeline.frames import tidy

_WORD = r"[A-Za-z_]\w*(?:(?:\.|->)[A-Za-z_]\w*)*"
_BYTES = r"(?:8u?|sizeof\s*\(\s*(?:std::)?uint64_t\s*\))"
_BY_ADDRESS = re.compile(
    rf"(?P<base>.+?)\s*\+\s*(?:{_BYTES}\s*\*\s*(?P<index>[\w.]+|\(.*\))|(?P<times>[\w.]+|\([^+]*\))\s*\*\s*{_BYTES})\Z"
)


def split_index(barrier: str) -> tuple[str, str]:
    """The name of an mbarrier without its index, `s.full[]`, and the index; of a member of an element as of the
    element."""
    text = tidy(barrier)
    by_address = _BY_ADDRESS.fullmatch(text)
    if by_address is not None and "[" not in text:
        return tidy(by_address["base"]), tidy(by_address["index"] or by_address["times"])
    closing = max(text.rfind("]"), text.rfind(")"))
    if closing < 0 or not re.fullmatch(r"(?:(?:\.|->)\w+)*", text[closing + 1 :]):
        return text, ""
    opening = _opening(text, closing)
    if opening <= 0:
        return text, ""
    return f"{tidy(text[:opening])}{text[opening]}{text[closing]}", tidy(text[opening + 1 : closing])


def _opening(text: str, closing: int) -> int:
    depth = 0
    for at in range(closing, -1, -1):
        depth += (text[at] in ")]") - (text[at] in "([")
        if depth == 0:
            return at
    return -1


@dataclass(frozen=True)
class Turn:
    """How an index goes on: after `stages` it is 0 again. `text` is the statement that says so."""

    stages: str
    text: str


def turn_of(index: str, texts: Iterable[tuple[str, str]]) -> Turn | None:
    """How an index goes on, by its own text or by what texts do to it, each with what it is called there; None where
    they do not tell."""
    modulo = _modulo(index)
    if modulo is not None:
        return Turn(modulo, index)
    return next((turn for text, name in texts if (turn := _wrapped(name, text)) is not None), None)


def _modulo(text: str) -> str | None:
    """`N` of `… % N` and of `… & (N - 1)`, `2` of `… & 1`."""
    text = tidy(text)
    match = re.fullmatch(r".*%\s*(" + _QUALIFIED + r"|\d+)", text)
    if match is not None:
        return match[1]
    match = re.fullmatch(r".*&\s*\(\s*(" + _QUALIFIED + r")\s*-\s*1u?\s*\)", text)
    if match is not None:
        return match[1]
    return "2" if re.fullmatch(r".*&\s*1u?", text) else None


_QUALIFIED = r"[A-Za-z_][\w:.]*(?:->\w+)*"
_VALUE = rf"({_QUALIFIED}|\d+)u?"
_DECLARED = r"(?:\bint|\bunsigned|\bauto|uint32_t|\bconst)\s+(?:const\s+)?"


def _wrapped(name: str, text: str) -> Turn | None:
    n = re.escape(name)
    patterns = (
        rf"(?:\+\+\s*{n}|{n}\s*\+\s*1|{n})\s*(?:==|>=)\s*{_VALUE}\s*\)?\s*\)?\s*\{{?\s*{n}\s*=\s*0",
        rf"(?:\+\+\s*{n})\s*(?:==|>=)\s*{_VALUE}\s*\)?\s*\{{[^}}]*?{n}\s*=\s*0",
        rf"{n}\s*=\s*\(\s*{n}\s*\+\s*1u?\s*\)\s*%\s*{_VALUE}",
        rf"{n}\s*=\s*\+\+\s*{n}\s*%\s*{_VALUE}",
        rf"{n}\s*=\s*\(?\s*(?:\+\+\s*{n}|{n}\s*\+\s*1)\s*==\s*{_VALUE}\s*\)?\s*\?\s*0",
        rf"{n}\s*=\s*\(?\s*{n}\s*(?:==|>=)\s*{_VALUE}\s*-\s*1\s*\)?\s*\?\s*0",
        rf"{n}\s*=\s*\(?\s*{n}\s*\+\s*1\s*<\s*{_VALUE}\s*\)?\s*\?",
        rf"for\s*\([^;()]*\b{n}\s*=\s*0\s*;\s*{n}\s*<\s*{_VALUE}\s*;",
        rf"{_DECLARED}{n}\s*=\s*[^;]*%\s*{_VALUE}\s*;",
    )
    match = _first(patterns, text)
    if match is not None:
        return Turn(match[1], _one_line(match))
    match = re.search(
        rf"{n}\s*\^=\s*1u?\b|{n}\s*=\s*{n}\s*\^\s*1u?\b|{n}\s*=\s*1\s*-\s*{n}\b|{n}\s*=\s*!\s*{n}\b", text
    )
    return Turn("2", _one_line(match)) if match is not None else None


def _first(patterns: Iterable[str], text: str) -> re.Match[str] | None:
    """The match of the first pattern that has one."""
    return next((match for pattern in patterns if (match := re.search(pattern, text)) is not None), None)


def _one_line(match: re.Match[str]) -> str:
    return " ".join(match[0].split())


def flips(phase: str, texts: Iterable[tuple[str, str]]) -> str:
    """How a phase turns: the statement that turns it, or the expression where it follows from the step; empty where
    that is not read. `texts` as of `turn_of`, for each name in it."""
    text = tidy(phase)
    if re.search(r"/\s*[\w:.]+|>>", text):
        return text
    return next((found for body, name in texts if (found := _flip(name, body))), "")


def names_in(text: str) -> list[str]:
    """Variables and members that a text names."""
    return re.findall(_WORD, tidy(text))


def _flip(name: str, text: str) -> str:
    n = re.escape(name)
    patterns = (
        rf"(?<![\w.]){n}\s*\^=\s*[^;]+",
        rf"(?<![\w.]){n}\s*=\s*!\s*{n}\b",
        rf"(?<![\w.]){n}\s*=\s*{n}\s*\^\s*[^;]+",
        rf"(?<![\w.]){n}\s*=\s*1\s*-\s*{n}\b",
        rf"{_DECLARED}{n}\s*=\s*[^;]*(?:/|>>)[^;]*",
        rf"(?:\+\+\s*{n}|(?<![\w.]){n}\s*\+\+|(?<![\w.]){n}\s*\+=\s*1\b)",
    )
    match = _first(patterns, text)
    return _one_line(match) if match is not None else ""


def texts_for(
    name: str, kernel: Function, called: Iterable[tuple[Function, dict[str, str]]]
) -> Iterator[tuple[str, str]]:
    """Texts in which a name of the kernel may go on, each with what it is called there: the kernel's own, those of
    functions that are handed it, and those of methods of the object it is a member of. `called` are functions with what
    their parameters (and `this`) stand for."""
    yield kernel.text(kernel.body), name
    base, _, member = name.replace("->", ".").rpartition(".")
    for function, given in called:
        body = function.text(function.body)
        for inner, outer in given.items():
            plain = tidy(outer).lstrip("&*")
            if plain == name and inner != "this":
                yield body, inner
            elif base and plain == base:
                yield body, member if inner == "this" else f"{inner}.{member}"
