# SPDX-License-Identifier: Apache-2.0
"""How many stages the rings of a port have: as many as the grade finds best, where the host code follows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from porter.build.port_plan import PortPlan, Relaunch, materialize
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.candidates import calibration_of, candidate, grade_with
from porter.cli.context import Session
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.grade.model import STANDARD
from porter.grade.shape import Shape
from porter.grade.stages import best_count
from porter.lang.sources import is_python
from porter.passes.native.promotion import NAME as PROMOTION
from porter.passes.native.stages import NAME
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, PortedRoot
from porter.passes.targets import port_target
from porter.rules.load import load_rules
from porter.rules.rule import Rule
from porter.scan.native import native_steps
from porter.scan.pipeline import pipelines
from porter.scan.staging import Asked, asked_of
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.prepare import prepare

Counts = frozenset[tuple[str, int]]


def _major(session: Session | None) -> int:
    """The first number of the compute capability that ports are for."""
    return port_target(session.target).capability[0] if session is not None else PortOptions().target.capability[0]


def _rules(session: Session | None) -> list[Rule]:
    return load_rules(tuple(map(str, session.rules)) if session is not None else ())


class Make(Protocol):
    """The same port with these stages, as (root, count)."""

    def __call__(self, *, stages: Counts) -> Ported: ...


@dataclass(frozen=True)
class Staged:
    """The port with the stages that are chosen, and these; `said`: why a root has as many as it had."""

    ported: Ported
    counts: Counts
    said: tuple[Diagnostic, ...] = ()

    def say(self, ported: Ported) -> None:
        """Add to a port, which may have been made again, why it has as many stages as it had."""
        ported.diagnostics += [d for d in self.said if d not in ported.diagnostics]


def port_plan(session: Session | None, ported: Ported, root: PortedRoot | None = None) -> PortPlan:
    """A port, or what one root of it is compiled with, for a builder."""
    files = ported.elsewhere() if root is None else ported.of_root(root)
    roots = [root] if root is not None else ported.roots
    reorders = any(PROMOTION in r.native for r in roots)
    plan = PortPlan(files=files, keeps_hopper=ported.keeps_hopper, reorders=reorders)
    staged = [r for r in roots if r.stages]
    return replace(plan, relaunch=_relaunch(session, plan, staged[0])) if len(staged) == 1 else plan


def stages_said(session: Session, ported: Ported, root: PortedRoot) -> list[Diagnostic]:
    """What cases say that run the port of a root as a file of its own."""
    relaunch = port_plan(session, ported, root).relaunch
    if relaunch is None:
        return []
    cases = [c for c in map(load_case, cases_if_any(Path(root.path))) if c.recorded is None and c.dsl is None]
    section = json.dumps(relaunch.section(cases[0].template if cases else ())).replace('"', "")
    return [Diagnostic(Code.NATIVE_STAGES, Location(root.path),
                       {"path": root.path, "stages": root.stages, "section": section})]  # fmt: skip


def _relaunch(session: Session | None, plan: PortPlan, root: PortedRoot) -> Relaunch | None:
    """What the host code of a port launches its kernel with; None where it does not say so in numbers."""
    original, rules = Path(root.path), _rules(session)
    before = asked_of(original, root.kernels[0], rules, root.include_dirs)
    after = asked_of(materialize(plan, original), root.kernels[0], rules, root.include_dirs, _major(session))
    if before is None or after is None or after.dynamic_smem is None:
        return None
    pairs = zip(before.template, after.template, strict=False)
    return Relaunch(after.dynamic_smem, tuple((i, new) for i, (old, new) in enumerate(pairs) if old != new))


def staged(session: Session, ported: Ported, make: Make) -> Staged:
    """A port with as many stages in each ring as the grade finds best. A root whose text, host code or case does not
    allow more has as many as it had, and what is said says why."""
    said: list[Diagnostic] = []
    choices: list[_Choice] = []
    for root in (r for r in ported.roots if not r.dsl and not is_python(Path(r.path)) and r.kernels):
        choice = _Choice(session, ported, root)
        said += choice.try_to(choice.look)
        choices += [choice] if choice.most else []
    if choices:
        most = make(stages=frozenset((c.root.path, c.most) for c in choices))
        for choice in choices:
            said += choice.try_to(partial(choice.choose, most))
    counts = frozenset((c.root.path, c.best) for c in choices if c.best)
    found = make(stages=counts) if counts else ported
    return Staged(found, counts, tuple(said))


class _NoneError(Exception):
    """No more stages; says why."""

    def __init__(self, *said: Diagnostic) -> None:
        super().__init__(said)
        self.said = said


@dataclass
class _Choice:
    """How many stages one root is to have: it has `held` of `nbytes`, there is room for `most`; `best` is 0 for those
    that it has."""

    session: Session
    ported: Ported
    root: PortedRoot
    held: int = 0
    nbytes: int = 0
    most: int = 0
    best: int = 0

    def try_to(self, step: Callable[[], None]) -> Sequence[Diagnostic]:
        """What keeps a root from a step of the choice."""
        try:
            step()
        except _NoneError as none:
            return none.said
        except (PorterError, ValueError) as error:
            what = error.diagnostic.message if isinstance(error, PorterError) else str(error)
            return [self._left(f"what is graded: {what}")]
        return ()

    def _left(self, what: str) -> Diagnostic:
        values: dict[str, object] = {"kernel": ", ".join(self.root.kernels), "step": NAME, "what": what}
        return Diagnostic(Code.NATIVE_LEFT, Location(self.root.path), values)

    def _none(self, what: str) -> _NoneError:
        return _NoneError(self._left(what))

    def look(self) -> None:
        """How many stages there are, and how many shared memory holds.

        Raises:
            _NoneError: no more than there are; PorterError: what reading raises.
        """
        if self.ported.keeps_hopper:
            raise self._none("one launch for one chip: the original's form stands beside the port's")
        path, rules = Path(self.root.path), _rules(self.session)
        found = [p for p in pipelines(path, rules, self.root.include_dirs) if p.pipeline.kernel in self.root.kernels]
        if len(found) != 1:
            raise self._none("that the file has one kernel with a ring")
        step = next(s for s in native_steps(found[0]) if s.name == NAME)
        room = step.what_if.partition("=")[2]
        if not step.applies or not room.isdigit():
            raise self._none("; ".join(step.why))
        held = [r.stages.value for r in found[0].pipeline.rings if r.stages is not None and r.stages.value]
        filled = [copied or expected or 0 for expected, copied in found[0].filled.values()]
        self.held, self.nbytes, self.most = held[0], max(filled), int(room)

    def choose(self, most: Ported) -> None:
        """The number that the grade finds best, of those up to what the port `most` has.

        Raises:
            _NoneError: that is the one that there is; PorterError, ValueError: what compiling and grading raise.
        """
        root = next(r for r in most.roots if r.path == self.root.path)
        if not root.stages:
            about = [d for d in most.diagnostics if d.code is Code.NATIVE_LEFT and d.values.get("step") == NAME]
            raise _NoneError(*(d for d in about if d.values["kernel"] == ", ".join(root.kernels)))
        path, rules, kernel = Path(root.path), _rules(self.session), root.kernels[0]
        port = materialize(PortPlan(files=most.of_root(root)), path)
        before = asked_of(path, kernel, rules, root.include_dirs)
        after = asked_of(port, kernel, rules, root.include_dirs, _major(self.session))
        if not _grows(before, after, (root.stages - self.held) * self.nbytes):
            raise self._none("shared memory of the launch that grows with the stages")
        # the text may allow powers of two alone
        any_number = root.stages == self.most
        counts = [n for n in range(self.held + 1, root.stages + 1) if any_number or n & (n - 1) == 0]
        using = calibration_of(self.session, None)
        best = best_count(self._shape(), counts, lambda s: grade_with(s, STANDARD, using, lifts=False).rate)
        if best <= self.held:
            raise self._none(f"a gain: by the grade {self.held} stages are as fast as {root.stages}")
        self.best = best

    def _shape(self) -> Shape:
        """The port as it is without more stages, as the grade reads it."""
        plan = PortPlan(files=self.ported.of_root(self.root))
        cases = [c for c in map(load_case, cases_if_any(Path(self.root.path))) if c.recorded is None and c.dsl is None]
        if not cases:
            raise self._none("a case beside it, whose launch is graded")

        def port_of(case: Case) -> tuple[PortPlan, list[Diagnostic]]:
            return plan, []

        toolkit = find_toolkit(self.session.toolkit) if self.session.toolkit else None
        found, _ = prepare(cases[0], ["port"], make_builder(toolkit), cases[0].sizes, 0, port_of)
        read = [candidate(p.program, p.kernel, p.problem, p.launch) for p in found if p.kernel.function is not None]
        if not read or read[0].reading.shape is None or read[0].gaps:
            raise self._none(f"what is graded: {'; '.join(read[0].gaps) if read else 'nothing was compiled'}")
        return read[0].reading.shape


def _grows(before: Asked | None, after: Asked | None, least: int) -> bool:
    """Whether a launch asks for at least so many bytes more than before."""
    asked = [found.dynamic_smem if found is not None else None for found in (before, after)]
    return asked[0] is not None and asked[1] is not None and asked[1] - asked[0] >= least
