# SPDX-License-Identifier: Apache-2.0
"""A port compared with its original by what the compiler made of both: what each byte of the output is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from porter.diagnostics import PorterError
from porter.equal.outcome import Difference
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL
from porter.verify.budget import Budget
from porter.verify.case_program import Program
from porter.verify.outcomes import Outcomes, Subject, UnknownError
from porter.verify.problem import Problem
from porter.verify.proving import APART, Sizes, launched_case, listed
from porter.verify.shown import Built, shown_by


class Place(NamedTuple):
    """An instruction of the original or of the port."""

    program: str
    flow: Flow
    at: int | None


@dataclass(frozen=True)
class Equality:
    """`looked_at`: sizes at which both leave the same, `bytes` of it in all. `why`: what is not understood, or what
    differs first, with the inputs whose run shows it: what no run shows may be the same number made in another way, and
    is not known to differ. `places` are where, `at` are the sizes. Without proved synchronization of both it holds for
    the schedule that was executed."""

    case: str
    status: Literal["equal", "differs", "unknown"]
    looked_at: tuple[str, ...]
    bytes: int
    seconds: float
    why: str = ""
    at: str = ""
    places: tuple[Place, ...] = ()
    assumed: frozenset[str] = frozenset()


class Pair(NamedTuple):
    """What is compared, `at` some sizes. `told`: what an address of global memory is, `shown`: what shows that other
    bits are left there, if anything does."""

    at: str
    original: Subject
    port: Subject
    told: Callable[[int], str]
    shown: Callable[[], str]


def compare_all(case: str, pairs: Iterable[Pair], budget: Budget) -> Equality:
    """The first of the pairs are looked at however long it takes."""
    began = time.perf_counter()
    outcomes = Outcomes()
    looked_at: list[str] = []
    total = 0

    def result(status: Literal["equal", "differs", "unknown"], why: str = "", at: str = "",
               places: tuple[Place, ...] = ()) -> Equality:  # fmt: skip
        return Equality(case, status, tuple(looked_at), total, time.perf_counter() - began, why, at, places,
                        frozenset(outcomes.assumed))  # fmt: skip

    for pair in pairs:
        try:
            found, count = outcomes.compared(pair.original, pair.port, pair.at)
        except UnknownError as error:
            return result("unknown", error.why, pair.at, (Place(error.program, error.flow, error.at),))
        if found is not None:
            places = tuple(
                Place(one.program, one.flow, where)
                for one, where in ((pair.original, found.original), (pair.port, found.port))
                if where is not None
            )
            why, shown = _told(pair.told(found.address), found), pair.shown()
            if not shown:
                return result("unknown", f"{why}; no run leaves other bits", pair.at, places)
            return result("differs", f"{why}; {shown} shows it", pair.at, places)
        looked_at.append(pair.at)
        total += count
        if budget.is_spent:
            break
    if not total:
        return result("unknown", "neither writes anything", looked_at[0] if looked_at else "")
    return result("equal")


@dataclass
class Comparison:
    """A case's original with its port."""

    original: Program
    port: Program
    _flows: dict[str, Flow] = field(default_factory=dict)

    def run(self, chosen: Sequence[Sizes], budget: Budget) -> Equality:
        """Raises PorterError: what binding, porting and compiling raise at the first sizes."""
        return compare_all(self.original.case.name, self._pairs(chosen), budget)

    def at(self, original: Built, port: Built) -> Pair:
        """Both at one size."""
        problem = original[1]

        def shown() -> str:
            family = shown_by(original, port)
            return f"a run with inputs of the family {family}" if family is not None else ""

        subjects = (self._subject("original", original), self._subject("port", port))
        return Pair(listed(problem.sizes), *subjects, partial(_element, problem), shown)

    def _pairs(self, chosen: Sequence[Sizes]) -> Iterator[Pair]:
        begun = False
        for sizes in chosen:
            try:
                built = self.original.at(sizes), self.port.at(sizes)
            except PorterError:
                if not begun:
                    raise
                # the port does not take these
                continue
            begun = True
            yield self.at(*built)

    def _subject(self, program: str, built: Built) -> Subject:
        kernel, problem = built
        flow = self._flows.get(kernel.ptx)
        if flow is None:
            assert kernel.function is not None
            flow = self._flows[kernel.ptx] = Flow(Code(kernel.module, kernel.function))
        launch = problem.launch
        return Subject(program, flow, launch.grid, launch.cluster, partial(launched_case, problem, flow))


def _element(problem: Problem, address: int) -> str:
    """The tensor and the element."""
    number, offset = divmod(address - GLOBAL, APART)
    names = list(problem.tensors)
    if not 0 <= number < len(names):
        return f"byte {offset}"
    return f"{names[number]}, element {offset // problem.tensors[names[number]].dtype.bits.itemsize}"


def _told(where: str, found: Difference) -> str:
    if found.original is None:
        return f"{where}: written by the port alone"
    if found.port is None:
        return f"{where}: not written by the port"
    return f"{where}: made of something else"
