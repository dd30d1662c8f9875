# SPDX-License-Identifier: Apache-2.0
"""Whether two blocks of a port share an SM: where that is faster by the grade, and ptxas finds registers for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.candidates import calibration_of, candidate, cases_of, grade_with, graded_sizes
from porter.cli.context import Session
from porter.cli.staging import port_plan, problem_of
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.grade.changes import Impossible, blocks
from porter.grade.clocks import resident
from porter.grade.shape import Shape
from porter.lang.sources import is_python
from porter.passes.native.blocks import BLOCKS, NAME
from porter.passes.ported import Ported, PortedRoot
from porter.verify.dsl import shortfalls
from porter.verify.prepare import Prepared, prepare

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
    choices = [
        _Choice(session, ported, root)
        for root in ported.roots if (root.dsl or not is_python(Path(root.path))) and root.kernels
    ]  # fmt: skip
    said = [d for choice in choices for d in choice.try_to(choice.look)]
    wanted = frozenset(c.root.path for c in choices if c.rows)
    if wanted:
        trial = make(blocks=wanted)
        said += [d for c in choices if c.rows for d in c.try_to(partial(c.choose, trial))]
    found = frozenset(c.root.path for c in choices if c.chosen)
    return Shared(make(blocks=found) if found else ported, found, tuple(said))


class _NoneError(Exception):
    """A block has an SM for itself; says why."""

    def __init__(self, *said: Diagnostic) -> None:
        super().__init__(said)
        self.said = said


def _left(root: PortedRoot, what: str) -> Diagnostic:
    values: dict[str, object] = {"kernel": ", ".join(root.kernels), "step": NAME, "what": what}
    return Diagnostic(Code.NATIVE_LEFT, Location(root.path), values)


@dataclass(frozen=True)
class _Built:
    """One instantiation of a port: bytes that a thread spills, and what the grade takes of it. `left`: why the support
    module of CuTe DSL, which knows each one, gives it no second block."""

    name: str
    spilled: int
    shape: Shape
    left: tuple[Diagnostic, ...] = ()


@dataclass
class _Choice:
    """Whether blocks of one root are to share an SM. `rows`: what cases compile of it as it is, if the model finds two
    blocks faster."""

    session: Session
    ported: Ported
    root: PortedRoot
    rows: list[_Built] = field(default_factory=list)
    chosen: bool = False

    def try_to(self, step: Callable[[], None]) -> Sequence[Diagnostic]:
        """What keeps a root from a step of the choice."""
        try:
            step()
        except _NoneError as none:
            return none.said
        except PorterError as error:
            return [_left(self.root, f"what is graded: {error.diagnostic.message}")]
        return ()

    def _none(self, what: str) -> _NoneError:
        return _NoneError(_left(self.root, what))

    def look(self) -> None:
        """
        Raises:
            _NoneError: two blocks are no faster; PorterError: what compiling raises.
        """
        if self.ported.keeps_hopper:
            raise self._none("a port by itself: the original's form, which needs an SM, stands beside it")
        rows, best = self._built(self.ported), 0.0
        full = ""
        for one in rows:
            try:
                best = max(best, self._gain(one.shape, blocks(one.shape, BLOCKS)))
            except Impossible as error:
                full = f"room on an SM for {one.name}: {error}"
                if not self.root.dsl:
                    raise self._none(full) from None
                continue
            if resident(one.shape) >= BLOCKS:
                raise self._none(f"an SM with one block of {one.name}: it has {resident(one.shape)}")
        if best <= GAIN:
            raise self._none(full or f"a gain: by the grade {BLOCKS} blocks on an SM are as fast as one")
        self.rows = rows

    def choose(self, trial: Ported) -> None:
        """
        Raises:
            _NoneError: a fact is missing in the text, or what ptxas makes of it is no faster; PorterError: what
                compiling raises.
        """
        root = next(r for r in trial.roots if r.path == self.root.path)
        if NAME not in root.native:
            about = [d for d in trial.diagnostics if d.code is Code.NATIVE_LEFT and d.values.get("step") == NAME]
            raise _NoneError(*(d for d in about if d.values["kernel"] == ", ".join(self.root.kernels)))
        best = 0.0
        built = self._built(trial)
        if all(one.left for one in built):
            left = [d for one in built for d in one.left]
            raise _NoneError(*(d for i, d in enumerate(left) if d not in left[:i]))
        for one, other in zip(self.rows, built, strict=True):
            if other.left:
                continue
            more = other.spilled - one.spilled
            if more > 0:
                raise self._none(f"registers for {BLOCKS} blocks of {one.name}: ptxas spills {more} bytes more")
            if resident(other.shape) < BLOCKS:
                raise self._none(f"room for {BLOCKS} blocks of {one.name} on an SM")
            gain = self._gain(one.shape, other.shape)
            if gain < -GAIN:
                raise self._none(f"a gain: by the grade {one.name} is slower with {BLOCKS} blocks on an SM")
            best = max(best, gain)
        if best <= GAIN:
            raise self._none(f"a gain: by the grade {BLOCKS} blocks on an SM are as fast as one")
        self.chosen = True

    def _gain(self, before: Shape, after: Shape) -> float:
        using = calibration_of(self.session, None)
        rates = [grade_with(shape, problem_of(self.session), using, lifts=False).rate for shape in (before, after)]
        return rates[1] / rates[0] - 1

    def _built(self, ported: Ported) -> list[_Built]:
        """The instantiations of a port that the sizes of its cases compile, each once. Names of CuTe DSL kernels do not
        tell all of them apart."""
        cases = cases_of(self.root)
        if not cases:
            raise self._none("a case beside it, whose launch is graded")
        root = next(r for r in ported.roots if r.path == self.root.path)
        plan = port_plan(self.session, ported, root)
        builder = make_builder(find_toolkit(self.session.toolkit) if self.session.toolkit else None)
        found: dict[tuple[str, Path | None], _Built] = {}
        for case, sizes in ((c, sizes) for c in cases for sizes in graded_sizes(c)):
            made, _ = prepare(
                case, ["port"], builder, sizes, 0, lambda c: (plan.on(c.template, c.launch.grid, c.map_params), [])
            )
            for one in made:
                key = one.kernel.entry, case.path if case.dsl is not None else None
                if one.kernel.function is not None and key not in found:
                    found[key] = self._read(one)
        return list(found.values())

    def _read(self, one: Prepared) -> _Built:
        read = candidate(one.program, one.kernel, one.problem, one.launch)
        if read.reading.shape is None or read.gaps:
            raise self._none(f"what is graded: {'; '.join(read.gaps)}")
        used = one.kernel.assembled().resources.get(one.kernel.entry) if one.kernel.assembled is not None else None
        spilled = used.spill_stores + used.spill_loads if used is not None else 0
        return _Built(read.kernel, spilled, read.reading.shape, self._left_of(one))

    def _left_of(self, one: Prepared) -> tuple[Diagnostic, ...]:
        """Why a kernel of a support module that knows the step is without it."""
        traced = one.kernel.traced
        if not any(left.step == NAME for t in traced for left in t.without):
            return ()
        return tuple(d for d in shortfalls(one.problem, one.source, traced) if d.values.get("step") == NAME)
