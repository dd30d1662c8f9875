# SPDX-License-Identifier: Apache-2.0
"""The macros of a source set, and which words their uses may come to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, product

from porter.lang.expansion import expanded_text
from porter.lang.lexical import MacroText

_WORD = re.compile(r"[A-Za-z_]\w*")
_MOST_CHOICES = 8


@dataclass
class Macros:
    """Definitions by name. Of several of one name all are kept: which of them holds depends on what is compiled."""

    by_name: dict[str, list[MacroText]] = field(default_factory=dict)

    @staticmethod
    def of(definitions: Iterable[MacroText]) -> Macros:
        found = Macros()
        for macro in definitions:
            known = found.by_name.setdefault(macro.name, [])
            if all((m.joined, m.params) != (macro.joined, macro.params) for m in known):
                known.append(macro)
        return found

    def words(self, name: str) -> frozenset[str]:
        """Every word that the macro's bodies, and those of the macros they use, hold; pasted ones are not among
        them."""
        found: set[str] = set()
        work = [name]
        while work:
            for macro in self.by_name.get(work.pop(), ()):
                new = set(_WORD.findall(_body(macro))) - found
                found |= new
                work += [w for w in new if w in self.by_name]
        return frozenset(found)

    def text(self, name: str) -> str:
        """The macro's own bodies, and those of the macros that they use in turn."""
        used = [m for w in (name, *sorted(self.words(name) - {name})) for m in self.by_name.get(w, ())]
        return " ".join(_body(m) for m in used)

    def pastes(self, name: str) -> bool:
        """Whether an expansion may make words of its own by `##`."""
        return "##" in self.text(name)

    def expand(self, text: str) -> list[str]:
        """The expansions of a piece of code, one for each way to choose among definitions of one name (eight at
        most).

        Raises:
            TooLong: an expansion does not end.
        """
        named = set(_WORD.findall(text)) & self.by_name.keys()
        reached = sorted(named.union(*(self.words(n) for n in named)) & self.by_name.keys())
        choices = islice(product(*(self.by_name[n] for n in reached)), _MOST_CHOICES)
        return list(dict.fromkeys(expanded_text(text, dict(zip(reached, c, strict=True))) for c in choices))


def _body(macro: MacroText) -> str:
    return macro.joined.decode("latin-1")
