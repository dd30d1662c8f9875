# SPDX-License-Identifier: Apache-2.0
"""A port compared with its original by what the compiler made of both: what each byte of the output is made of.

Where both kernels' synchronization is right, what a kernel leaves does not depend on the schedule (for kernels that
meet at barriers: the confluence theorem of Volta, arXiv 2511.12638), so that one execution of each tells. Sizes,
indices and addresses are numbers, all data are terms.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal, NamedTuple

from porter.build.port_plan import PortPlan
from porter.diagnostics import PorterError
from porter.equal.meaning import Follower
from porter.equal.outcome import Difference, Outcome, difference, of_cluster, together
from porter.facts.code import Code
from porter.facts.events import NotUnderstood
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL, Launched, Triple
from porter.facts.machine import Machine
from porter.verify.budget import Budget
from porter.verify.builder import Builder, BuiltKernel
from porter.verify.case import Case
from porter.verify.case_program import Program
from porter.verify.problem import Problem
from porter.verify.proving import APART, Sizes, launched_case, listed
from porter.verify.shown import shown_by

MOST_CLUSTERS = 16
"""Clusters of a grid that are looked at where others do the same with other indices."""
_ALL_CLUSTERS = 256
"""Clusters that are executed where a port shares work out in another way."""


class UnknownError(Exception):
    """Something that keeps two programs from being compared, at an instruction of one of them."""

    def __init__(self, why: str, program: str, flow: Flow, at: int | None) -> None:
        super().__init__(why)
        self.why, self.program, self.flow, self.at = why, program, flow, at


class Place(NamedTuple):
    """An instruction of the original or of the port."""

    program: str
    flow: Flow
    at: int | None


@dataclass(frozen=True)
class SizeCompared:
    """Whether what is left is the same for all multiples of `step` of a size, whose turns do the same with a period of
    `period` of these. `why` that is not known, and where."""

    name: str
    step: int = 0
    period: int = 0
    why: str = ""
    place: Place | None = None

    @property
    def is_all(self) -> bool:
        return not self.why


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
    counts: tuple[SizeCompared, ...] = ()
    """Sizes that turns follow, where it was looked at whether all of them are equal."""


def compare(case: Case, plan: PortPlan, builder: Builder, chosen: Sequence[Sizes], seconds: float) -> Equality:
    """A case's original with its port, at some sizes; the first ones are looked at however long it takes.

    Raises:
        PorterError: what binding, porting and compiling raise at the first of them.
    """
    return Comparison(case.name, Program(case, builder), Program(case, builder, plan), Budget(seconds)).run(chosen)


@dataclass
class Comparison:
    case: str
    original: Program
    port: Program
    budget: Budget
    _flows: dict[str, Flow] = field(default_factory=dict)
    _assumed: set[str] = field(default_factory=set)
    _outcomes: dict[object, Outcome] = field(default_factory=dict)
    """Those of the original."""

    def run(self, chosen: Sequence[Sizes]) -> Equality:
        """Raises PorterError: what binding, porting and compiling raise at the first sizes."""
        began = time.perf_counter()
        looked_at: list[str] = []
        total = 0

        def result(status: Literal["equal", "differs", "unknown"], why: str = "", at: str = "",
                   places: tuple[Place, ...] = ()) -> Equality:  # fmt: skip
            return Equality(self.case, status, tuple(looked_at), total, time.perf_counter() - began, why, at, places,
                            frozenset(self._assumed))  # fmt: skip

        for sizes in chosen:
            if looked_at and self.budget.is_spent:
                break
            try:
                original, port = self.original.at(sizes), self.port.at(sizes)
            except PorterError:
                if not looked_at:
                    raise
                # the port does not take these
                continue
            at = listed(original[1].sizes)
            try:
                found, count = self.at(original, port)
            except UnknownError as error:
                return result("unknown", error.why, at, (Place(error.program, error.flow, error.at),))
            if found is not None:
                places = tuple(
                    Place(program, self.flow_of(built[0]), where)
                    for program, built, where in (("original", original, found.original), ("port", port, found.port))
                    if where is not None
                )
                why, shown = _told(original[1], found), shown_by(original, port)
                if shown is None:
                    return result("unknown", f"{why}; no run of the case leaves other bits", at, places)
                return result("differs", f"{why}; a run with inputs of the family {shown} shows it", at, places)
            looked_at.append(at)
            total += count
        if not total:
            return result("unknown", "neither writes anything", looked_at[0] if looked_at else "")
        return result("equal")

    def at(
        self, original: tuple[BuiltKernel, Problem], port: tuple[BuiltKernel, Problem]
    ) -> tuple[Difference | None, int]:
        """Where they differ at one size, or how many bytes are the same.

        Raises:
            UnknownError: something is not understood.
        """
        ours, theirs = original[1].launch, port[1].launch
        if (ours.grid, ours.cluster) == (theirs.grid, theirs.cluster):
            firsts = _spread(list(_clusters(ours.grid, ours.cluster)))
            found, count = self._compared(original, firsts, port, firsts)
            if found is None or len(firsts) == len(list(_clusters(ours.grid, ours.cluster))):
                return found, count
        # work may be shared out among blocks in another way
        all_ours, all_theirs = (list(_clusters(launch.grid, launch.cluster)) for launch in (ours, theirs))
        if max(len(all_ours), len(all_theirs)) > _ALL_CLUSTERS:
            flow = self.flow_of(port[0])
            raise UnknownError(f"a grid of another shape with more than {_ALL_CLUSTERS} clusters", "port", flow, None)
        return self._compared(original, all_ours, port, all_theirs)

    def _compared(
        self, original: tuple[BuiltKernel, Problem], of_original: Sequence[Triple],
        port: tuple[BuiltKernel, Problem], of_port: Sequence[Triple],
    ) -> tuple[Difference | None, int]:  # fmt: skip
        key = original[0].ptx, listed(original[1].sizes), tuple(of_original)
        if key not in self._outcomes:
            self._outcomes[key] = self._outcome("original", original, of_original)
        ours = self._outcomes[key]
        theirs = self._outcome("port", port, of_port)
        return difference(ours, theirs), len(ours.addresses) + len(ours.reductions)

    def _outcome(self, program: str, built: tuple[BuiltKernel, Problem], firsts: Sequence[Triple]) -> Outcome:
        flow = self.flow_of(built[0])
        try:
            return together([self._of(program, flow, launched_case(built[1], flow, first)) for first in firsts])
        except NotUnderstood as error:
            raise UnknownError(str(error), program, flow, error.at) from error

    def _of(self, program: str, flow: Flow, launched: Launched) -> Outcome:
        """What a cluster leaves; small tensors of integers are those of the case only where they decide something."""
        try:
            return self._executed(program, flow, replace(launched, areas=()))
        except NotUnderstood:
            if not launched.areas:
                raise
        return self._executed(program, flow, launched)

    def _executed(self, program: str, flow: Flow, launched: Launched) -> Outcome:
        machine = Machine(launched)
        follower = Follower(machine)
        history = run(machine)
        if history.blocked:
            raise UnknownError("a deadlock", program, flow, history.blocked[0].at)
        self._assumed |= history.assumed
        return of_cluster(follower.contents.stored)

    def flow_of(self, kernel: BuiltKernel) -> Flow:
        found = self._flows.get(kernel.ptx)
        if found is None:
            assert kernel.function is not None
            found = self._flows[kernel.ptx] = Flow(Code(kernel.module, kernel.function))
        return found


def _clusters(grid: Triple, cluster: Triple) -> Iterator[Triple]:
    """The first block of each cluster of a grid."""
    for z, y, x in product(*(range(0, extent, size) for extent, size in zip(grid[::-1], cluster[::-1], strict=True))):
        yield x, y, z


def _spread(clusters: Sequence[Triple]) -> list[Triple]:
    """The first and the last ones of many, and some in between."""
    count = len(clusters)
    if count <= MOST_CLUSTERS:
        return list(clusters)
    return [clusters[i * (count - 1) // (MOST_CLUSTERS - 1)] for i in range(MOST_CLUSTERS)]


def _told(problem: Problem, found: Difference) -> str:
    """What differs, by the tensor and the element."""
    number, offset = divmod(found.address - GLOBAL, APART)
    names = list(problem.tensors)
    where = f"byte {offset}"
    if 0 <= number < len(names):
        tensor = problem.tensors[names[number]]
        where = f"{names[number]}, element {offset // tensor.dtype.bits.itemsize}"
    if found.original is None:
        return f"{where}: written by the port alone"
    if found.port is None:
        return f"{where}: not written by the port"
    return f"{where}: made of something else"
