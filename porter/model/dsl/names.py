# SPDX-License-Identifier: Apache-2.0
"""What qualified names of a Python file are, as rules say it. The model knows no library's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Protocol

from porter.lang.cute_dsl import Dialect

WORDS = "words"
"""Metadata of a field that is one of these words."""


@dataclass(frozen=True)
class Package:
    """A package that is not read: one that a language's names are of, or, without `names`, one without kernels."""

    names: bool = True


@dataclass(frozen=True)
class Mark:
    """What decorates a function that is compiled for the GPU. `of`: a `kernel` or a `host` function of the language;
    a kernel of another language, that is `recompiled` from the same source or chooses its instructions `by_hand`."""

    of: str = field(metadata={WORDS: ("kernel", "host", "recompiled", "by_hand")})


@dataclass(frozen=True)
class Name:
    """What may multiply. `of`: names for sm_90a alone (`hopper`; the `module` that holds them), those among them that
    `both` chips have, names for sm_100a alone (`blackwell`), and calls that `multiply` with whatever MMA they get."""

    of: str = field(metadata={WORDS: ("hopper", "module", "both", "blackwell", "multiply")})


PythonFact = Package | Mark | Name

KINDS: Mapping[str, type[PythonFact]] = {"package": Package, "mark": Mark, "name": Name}
"""By the name that rules for Python have for them."""


class Recognizer(Protocol):
    """One pattern of a rule on names. `words`: every name that matches holds one; `step`: it has it in full."""

    @property
    def fact(self) -> PythonFact | None: ...

    @property
    def words(self) -> tuple[str, ...]: ...

    @property
    def step(self) -> str: ...

    @property
    def through(self) -> tuple[str, ...]: ...

    def matches(self, name: str) -> bool: ...


class Names:
    """What names are."""

    def __init__(self, recognizers: Iterable[Recognizer]) -> None:
        self._all = tuple(recognizers)
        self.is_a = lru_cache(65536)(self._is_a)

    def _is_a(self, name: str, of: str) -> bool:
        """Whether a name is a `Mark` or `Name` of this word."""
        return any(r.matches(name) for r in self._all if isinstance(r.fact, Mark | Name) and r.fact.of == of)

    def of_hopper(self, name: str) -> bool:
        """Whether a name is one of Hopper's, also if both chips have it."""
        return self.is_a(name, "hopper") or self.is_a(name, "module")

    def hopper_only(self, name: str) -> bool:
        """Whether a qualified name has to be gone from a port."""
        return self.of_hopper(name) and not self.is_a(name, "both")

    def words(self, *of: str) -> tuple[bytes, ...]:
        """Words of which a text holds one that has such a name itself."""
        found = (w for r in self._all if isinstance(r.fact, Mark | Name) and r.fact.of in of for w in r.words)
        return tuple(dict.fromkeys(w.encode() for w in found))

    @cached_property
    def dialect(self) -> Dialect:
        packages = [r for r in self._all if isinstance(r.fact, Package)]
        names = {w for r in packages if r.fact == Package() for w in r.words}
        return Dialect(
            packages=frozenset(names),
            closed=frozenset(w for r in packages for w in r.words),
            steps=tuple(dict.fromkeys(r.step.encode() for r in self._all if not isinstance(r.fact, Package))),
            through=frozenset(t for r in self._all for t in r.through),
        )
