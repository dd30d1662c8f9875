# SPDX-License-Identifier: Apache-2.0
"""Whether results of a port leave by bulk copies: where that is faster by the grade."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.candidates import calibration_of, candidate, grade_with
from porter.cli.context import Session
from porter.cli.sharing import GAIN
from porter.cli.staging import port_plan, problem_of
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.grade.changes import Impossible, fitting
from porter.grade.shape import Shape
from porter.lang.sources import is_python
from porter.passes.native.bulk_store import NAME, NO_USE
from porter.passes.ported import Ported, PortedRoot
from porter.verify.case import cases_if_any, load_case
from porter.verify.prepare import prepare

AS_FAST = "a gain: by the grade results leave as fast without"


class Make(Protocol):
    """The same port, with results that leave by bulk copies in these roots."""

    def __call__(self, *, bulk_stores: frozenset[str]) -> Ported: ...


@dataclass(frozen=True)
class Stored:
    """The port with the roots whose results leave by bulk copies, and these; `said`: why others do not."""

    ported: Ported
    roots: frozenset[str] = frozenset()
    said: tuple[Diagnostic, ...] = ()

    def say(self, ported: Ported) -> None:
        """Add to a port, which may have been made again, why its threads store results."""
        ported.diagnostics += [d for d in self.said if d not in ported.diagnostics]


def stored(session: Session, ported: Ported, make: Make) -> Stored:
    """A port whose results leave by bulk copies where that is known to be faster."""
    roots = [r for r in ported.roots if not r.dsl and not is_python(Path(r.path)) and r.kernels]
    wanted = frozenset(r.path for r in roots)
    if not wanted:
        return Stored(ported)
    trial = make(bulk_stores=wanted)
    choices = [_Choice(session, ported, trial, root) for root in roots]
    said = [d for choice in choices for d in choice.try_to(choice.choose)]
    found = frozenset(c.root.path for c in choices if c.chosen)
    if found == wanted:
        return Stored(trial, found, tuple(said))
    return Stored(make(bulk_stores=found) if found else ported, found, tuple(said))


class _NoneError(Exception):
    """Threads store results; says why."""

    def __init__(self, *said: Diagnostic) -> None:
        super().__init__(said)
        self.said = said


@dataclass
class _Choice:
    """Whether results of one root are to leave by bulk copies."""

    session: Session
    ported: Ported
    trial: Ported
    root: PortedRoot
    chosen: bool = field(default=False)

    def try_to(self, step: Callable[[], None]) -> Sequence[Diagnostic]:
        """What keeps a root from a step of the choice."""
        try:
            step()
        except _NoneError as none:
            return none.said
        except PorterError as error:
            return [self._left(f"what is graded: {error.diagnostic.message}")]
        return ()

    def _left(self, what: str) -> Diagnostic:
        values: dict[str, object] = {"kernel": ", ".join(self.root.kernels), "step": NAME, "what": what}
        return Diagnostic(Code.NATIVE_LEFT, Location(self.root.path), values)

    def choose(self) -> None:
        """
        Raises:
            _NoneError: a fact is missing in the text, or it is no faster; PorterError: what compiling raises.
        """
        other = next(r for r in self.trial.roots if r.path == self.root.path)
        if NAME not in other.native:
            about = [d for d in self.trial.diagnostics if d.code is Code.NATIVE_LEFT and d.values.get("step") == NAME]
            mine = [d for d in about if d.values["kernel"] == ", ".join(self.root.kernels)]
            raise _NoneError(*(d for d in mine if d.values["what"] not in NO_USE))
        best = 0.0
        before, after = self._shapes(self.ported), self._shapes(self.trial)
        for name in before:
            try:
                fitting(after[name])
            except Impossible as error:
                raise _NoneError(self._left(f"room for what warps stage of {name}: {error}")) from None
            gain = self._rate(after[name]) / self._rate(before[name]) - 1
            if gain < -GAIN:
                raise _NoneError(self._left(f"a gain: by the grade {name} is slower with copies"))
            best = max(best, gain)
        if best <= GAIN:
            raise _NoneError(self._left(AS_FAST))
        self.chosen = True

    def _rate(self, shape: Shape) -> float:
        return grade_with(shape, problem_of(self.session), calibration_of(self.session, None), lifts=False).rate

    def _shapes(self, ported: Ported) -> dict[str, Shape]:
        """What the grade takes of each instantiation that the sizes of the root's cases compile."""
        cases = [c for c in map(load_case, cases_if_any(Path(self.root.path))) if c.recorded is None and c.dsl is None]
        if not cases:
            raise _NoneError(self._left("a case beside it, whose launch is graded"))
        root = next(r for r in ported.roots if r.path == self.root.path)
        plan = port_plan(self.session, ported, root)
        builder = make_builder(find_toolkit(self.session.toolkit) if self.session.toolkit else None)
        found: dict[str, Shape] = {}
        for case, sizes in ((c, sizes) for c in cases for sizes in c.all_sizes()):
            made, _ = prepare(case, ["port"], builder, sizes, 0, lambda c: (plan.on(c.template, c.launch.grid), []))
            for one in (m for m in made if m.kernel.function is not None and m.kernel.entry not in found):
                read = candidate(one.program, one.kernel, one.problem, one.launch)
                if read.reading.shape is None or read.gaps:
                    raise _NoneError(self._left(f"what is graded: {'; '.join(read.gaps)}"))
                found[one.kernel.entry] = read.reading.shape
        return found
