# SPDX-License-Identifier: Apache-2.0
"""What the traces of a file's cases say: which calls were made where, with what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst

from porter.lang.text import Span
from porter.passes.idiom_dsl.names import OBSERVED
from porter.passes.idiom_dsl.text import Left, Text, found_in


@dataclass(frozen=True)
class Trace:
    """What one case does while its original is traced for Hopper: the calls that `porter.build.dsl_observe` tells, and
    how many threads and blocks a cluster it launches. `absent`: names that the installed DSL does not have."""

    calls: Sequence[Mapping[str, Any]]
    threads: int
    cluster: int
    absent: frozenset[str] = frozenset()


Traces = Callable[[Path, Sequence[str]], "Sequence[Trace] | str"]
"""Gives the traces of the cases of a file, of calls of these names; or says why there are none."""


@dataclass(frozen=True)
class Seen:
    """A call that a case made at a place of the text. `values` by position and keyword."""

    case: int
    name: str
    call: cst.Call
    values: Mapping[str, Any]
    result: Any

    def value(self, index: int, keyword: str = "") -> Any:
        return self.values.get(str(index), self.values.get(keyword))


class Facts:
    """The calls of all cases, by their places in one file."""

    def __init__(self, text: Text, traces: Sequence[Trace]) -> None:
        self.traces = traces
        self.all: list[Seen] = []
        calls = {text.span(c): c for c in found_in(text.module, cst.Call)}
        self.elsewhere: list[Mapping[str, Any]] = []
        self.absent = frozenset().union(*(t.absent for t in traces))
        for case, trace in enumerate(traces):
            for told in trace.calls:
                call = (
                    calls.get(_span(text, told["place"])) if Path(told["file"]) == Path(text.path).resolve() else None
                )
                if call is None:
                    self.elsewhere.append(told)
                else:
                    self.all.append(Seen(case, told["name"], call, told["values"], told["result"]))

    def of(self, *roles: str) -> list[Seen]:
        """The calls of names that have one of these roles."""
        names = {name for role in roles for name in OBSERVED[role]}
        return [s for s in self.all if s.name in names]

    def at(self, call: cst.Call) -> list[Seen]:
        return [s for s in self.all if s.call is call]

    def require_here(self, *roles: str) -> None:
        """Raises Left: another file of the project makes such calls."""
        names = {name for role in roles for name in OBSERVED[role]}
        for told in self.elsewhere:
            if told["name"] in names:
                raise Left(f"`{told['name'].rpartition('.')[2]}` is called in {Path(told['file']).name}")


def agreed(found: Iterable[Any], what: str) -> Any:
    """The one value that all cases have.

    Raises:
        Left: they have several, or none has one.
    """
    values = list(found)
    if not values or any(v != values[0] for v in values):
        raise Left(f"{what}: " + (" and ".join(sorted({str(v) for v in values})) or "no case says it"))
    return values[0]


def _span(text: Text, place: Sequence[int]) -> Span:
    line, column, last, end = place
    return Span(text.offset(line, column), text.offset(last, end))
