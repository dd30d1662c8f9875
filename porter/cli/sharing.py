# SPDX-License-Identifier: Apache-2.0
"""Whether two blocks of a port share an SM: where that is faster by the grade, and ptxas finds registers for both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from porter.build.port_plan import PortPlan
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.candidates import Candidate, calibration_of, candidate, grade_with
from porter.cli.context import Session
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.grade.clocks import resident
from porter.grade.model import STANDARD
from porter.lang.sources import is_python
from porter.passes.native.registers import BLOCKS, NAME
from porter.passes.ported import Ported, PortedRoot
from porter.verify.builder import Builder
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.prepare import prepare

GAIN = 0.01
"""A gain below this share is none."""


class Make(Protocol):
    """The same port, with two blocks on an SM in these roots."""

    def __call__(self, *, blocks: frozenset[str]) -> Ported: ...


@dataclass(frozen=True)
class Shared:
    """The port with the roots that share SMs, and these; `said`: why others do not."""

    ported: Ported
    roots: frozenset[str] = frozenset()
    said: tuple[Diagnostic, ...] = ()

    def say(self, ported: Ported) -> None:
        """Add to a port, which may have been made again, why its blocks have an SM each."""
        ported.diagnostics += [d for d in self.said if d not in ported.diagnostics]


def shared(session: Session, ported: Ported, make: Make) -> Shared:
    """A port whose blocks share an SM where that is known to be faster."""
    asked = [r for r in ported.roots if not r.dsl and not is_python(Path(r.path)) and r.kernels]
    if not asked:
        return Shared(ported)
    if ported.keeps_hopper:
        what = "a port by itself: the original's form, which needs an SM, stands beside it"
        return Shared(ported, said=tuple(_left(r, what) for r in asked))
    trial = make(blocks=frozenset(r.path for r in asked))
    said: list[Diagnostic] = []
    chosen: set[str] = set()
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    for root in asked:
        with_it = next((r for r in trial.roots if r.path == root.path), root)
        if NAME not in with_it.native:
            about = [d for d in trial.diagnostics if d.code is Code.NATIVE_LEFT and d.values.get("step") == NAME]
            said += [d for d in about if d.values["kernel"] == ", ".join(root.kernels)]
            continue
        what = _no_gain(session, builder, ported, trial, root)
        if what:
            said.append(_left(root, what))
        else:
            chosen.add(root.path)
    found = frozenset(chosen)
    return Shared(make(blocks=found) if found else ported, found, tuple(said))


def _left(root: PortedRoot, what: str) -> Diagnostic:
    values: dict[str, object] = {"kernel": ", ".join(root.kernels), "step": NAME, "what": what}
    return Diagnostic(Code.NATIVE_LEFT, Location(root.path), values)


@dataclass(frozen=True)
class _Built:
    """One instantiation of a port: bytes that a thread spills, and what the grade takes of it."""

    name: str
    spilled: int
    candidate: Candidate


def _no_gain(session: Session, builder: Builder, before: Ported, after: Ported, root: PortedRoot) -> str:
    """Why two blocks on an SM are no faster than one, of all that cases compile; empty if they are."""
    try:
        cases = [c for c in map(load_case, cases_if_any(Path(root.path))) if c.recorded is None and c.dsl is None]
        if not cases:
            return "a case beside it, whose launch is graded"
        rows = [
            (one, other) for case in cases
            for one, other in zip(_built(case, builder, before, root), _built(case, builder, after, root), strict=True)
        ]  # fmt: skip
    except PorterError as error:
        return f"what is graded: {error.diagnostic.message}"
    using, best = calibration_of(session, None), 0.0
    for one, other in rows:
        if one.candidate.gaps or other.candidate.gaps:
            return f"what is graded: {'; '.join(one.candidate.gaps or other.candidate.gaps)}"
        alone, beside = one.candidate.reading.shape, other.candidate.reading.shape
        assert alone is not None
        assert beside is not None
        if resident(alone) >= BLOCKS:
            return f"an SM with one block of {one.name}: it has {resident(alone)} already"
        if resident(beside) < BLOCKS:
            return f"room for {BLOCKS} blocks of {one.name} on an SM"
        if other.spilled > one.spilled:
            return f"registers for {BLOCKS} blocks of {one.name}: ptxas spills {other.spilled - one.spilled} bytes more"
        rates = [grade_with(shape, STANDARD, using, lifts=False).rate for shape in (alone, beside)]
        gain = rates[1] / rates[0] - 1
        if gain < -GAIN:
            return f"a gain: by the grade {one.name} is slower with {BLOCKS} blocks on an SM"
        best = max(best, gain)
    return "" if best > GAIN else f"a gain: by the grade {BLOCKS} blocks on an SM are as fast as one"


def _built(case: Case, builder: Builder, ported: Ported, root: PortedRoot) -> Iterator[_Built]:
    """The instantiations of a port that a case's sizes compile, each once.

    Raises:
        PorterError: what binding and compiling raise.
    """
    plan, seen = PortPlan(files=ported.of_root(root)), set()
    for sizes in case.all_sizes():
        found, _ = prepare(case, ["port"], builder, sizes, 0, lambda _: (plan, []))
        for one in found:
            if one.kernel.function is None or one.kernel.entry in seen:
                continue
            seen.add(one.kernel.entry)
            read = candidate(one.program, one.kernel, one.problem, one.launch)
            used = one.kernel.assembled().resources.get(one.kernel.entry) if one.kernel.assembled is not None else None
            yield _Built(read.kernel, used.spill_stores + used.spill_loads if used is not None else 0, read)
