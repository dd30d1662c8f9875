# SPDX-License-Identifier: Apache-2.0
"""What `where` asks of captures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from porter.rules.pattern import PatternError

Evaluate = Callable[[str], int | None]
Stated = str | Mapping[str, object]

WORDS: Mapping[str, str] = {
    "const": "a constant expression, or a template parameter of one",
    "int": "a constant expression whose value is known",
    "name": "a plain name",
    "expression": "anything but nothing",
}
TESTS = ("regex", "in", "not", "equals", "multiple_of")
OF_TYPE = "type"
"""Asks for the class of the object whose method is called. The model answers."""
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Condition:
    """What one capture has to be: a word of `WORDS`, or one of `TESTS` with its argument."""

    test: str
    argument: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return WORDS.get(self.test) or f"{self.test} {', '.join(self.argument)}"

    def holds(self, text: str, evaluate: Evaluate) -> bool:
        if self.test == "name":
            return _NAME.fullmatch(text) is not None
        if self.test in ("const", "expression"):
            return bool(text)
        if self.test == "int":
            return evaluate(text) is not None
        if self.test == "regex":
            return re.fullmatch(self.argument[0], text) is not None
        value = evaluate(text)
        if self.test == "multiple_of":
            return value is not None and value % int(self.argument[0]) == 0
        same = " ".join(text.split()) in self.argument or (value is not None and str(value) in self.argument)
        if self.test == "not":
            # what is not known may be what it must not be
            return not same and (value is not None or not any(a.lstrip("-").isdigit() for a in self.argument))
        return same


def condition(name: str, stated: Stated) -> Condition:
    """The condition that a rule states for a capture.

    Raises:
        PatternError: it is none.
    """
    if isinstance(stated, str):
        if stated in WORDS:
            return Condition(stated)
        raise PatternError(f"`{stated}` is nothing that ${name} can be: {', '.join(WORDS)}, or one of {_TESTS}")
    ((test, value),) = stated.items() if len(stated) == 1 else (("", None),)
    if test not in TESTS:
        raise PatternError(f"`where` of ${name} takes one of {_TESTS}")
    listed = tuple(str(v) for v in value) if isinstance(value, list) else (str(value),)
    if (test in ("in", "not")) != isinstance(value, list) and test != "not":
        raise PatternError(f"`{test}` of ${name} takes {'a list' if test == 'in' else 'one value'}")
    if not listed:
        raise PatternError(f"`{test}` of ${name} has nothing in its list")
    if test == "multiple_of" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise PatternError(f"`multiple_of` of ${name} takes a number above 0")
    if test == "regex":
        try:
            re.compile(listed[0])
        except re.error as error:
            raise PatternError(f"the regex of ${name} is broken: {error}") from error
    return Condition(test, listed)


_TESTS = ", ".join(f"{{{t}: …}}" for t in TESTS)
