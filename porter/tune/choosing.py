# SPDX-License-Identifier: Apache-2.0
"""Steps of the native style that the grade chooses for: what stands the choices of all of them have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from porter.diagnostics import Diagnostic
from porter.grade.changes import Impossible, fitting
from porter.grade.shape import Shape
from porter.passes.ported import Ported
from porter.tune.candidates import calibration_of, candidate, cases_of, grade_with, graded_sizes, port_of
from porter.tune.searching import Make, OfRoot, WithoutError, builder_of, of_step
from porter.tune.staging import port_plan, problem_of
from porter.verify.prepare import prepare

GAIN = 0.01
"""A gain below this share is none."""


@dataclass(frozen=True)
class Chosen:
    """The port with a step in the `roots` for which it was chosen; `said`: why others are without."""

    ported: Ported
    roots: frozenset[str] = frozenset()
    said: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Built:
    """One instantiation of a port: bytes that a thread spills, and what the grade takes of it."""

    name: str
    spilled: int
    shape: Shape


@dataclass(frozen=True)
class Said:
    """What is said of a step that brings nothing, of one with which an instantiation, `{name}`, is slower, and of one
    with which it has no room or spills more; nothing is asked of what is empty. `no_use`: what its port says of kernels
    that have no use for it."""

    as_fast: str
    slower: str
    room: str = ""
    registers: str = ""
    no_use: Sequence[str] = ()


class SpillsError(WithoutError):
    """All that is missing is registers."""


@dataclass
class Choice(OfRoot):
    """Whether one root of a port is to have a step."""

    chosen: bool = False

    SAID: ClassVar[Said]

    def choose(self, trial: Ported) -> None:
        """Take the step that `trial` has.

        Raises:
            WithoutError: a fact is missing in the text, or it is no faster; PorterError: what compiling raises.
        """
        if not self.has_step(trial):
            raise self.missing(trial, self.SAID.no_use)
        self.require_gain(self.without_step(), self.built_of(trial))
        self.chosen = True

    def without_step(self) -> Mapping[str, Built]:
        """What cases compile of the root as it is."""
        return self.built_of(self.ported)

    def has_step(self, trial: Ported) -> bool:
        return self.NAME in self.of(trial).native

    def gain(self, before: Shape, after: Shape) -> float:
        rates = [self.rate(shape) for shape in (before, after)]
        return rates[1] / rates[0] - 1

    def rate(self, shape: Shape) -> float:
        """The share of the chip's nominal rate that the grade gives."""
        using = calibration_of(self.session, None)
        return grade_with(shape, problem_of(self.session), using, lifts=False).rate

    def built_of(self, ported: Ported) -> dict[str, Built]:
        """What the sizes of cases compile of a port, by what the compiler calls it.

        Raises:
            WithoutError: no case runs it, or one is not graded; PorterError: what compiling raises.
        """
        cases = cases_of(self.root)
        if not cases:
            raise self.without("a case beside it, whose launch is graded")
        made_of, builder = port_of(port_plan(self.session, ported, self.of(ported))), builder_of(self.session)
        found: dict[str, Built] = {}
        for case, sizes in ((c, sizes) for c in cases for sizes in graded_sizes(c)):
            for one in prepare(case, ["port"], builder, sizes, 0, made_of)[0]:
                kernel = one.kernel
                if kernel.function is None or kernel.entry in found:
                    continue
                read = candidate(one.program, kernel, one.problem, one.launch)
                if read.reading.shape is None or read.gaps:
                    raise self.without(f"what is graded: {'; '.join(read.gaps)}")
                used = kernel.assembled().resources.get(kernel.entry) if kernel.assembled is not None else None
                spilled = used.spill_stores + used.spill_loads if used is not None else 0
                found[kernel.entry] = Built(read.kernel, spilled, read.reading.shape)
        return found

    def require_gain(self, before: Mapping[str, Built], after: Mapping[str, Built]) -> None:
        """Raises WithoutError: by the grade an instantiation is slower, or none is faster; SpillsError: ptxas spills
        more."""
        said, best = self.SAID, 0.0
        for one, other in ((one, after[key]) for key, one in before.items()):
            more = other.spilled - one.spilled
            if said.registers and more > 0:
                who = said.registers.format(name=one.name)
                raise SpillsError(*self.without(f"registers for {who}: ptxas spills {more} bytes more").said)
            self.require_room(other)
            gain = self.gain(one.shape, other.shape)
            if gain < -GAIN:
                raise self.without(f"a gain: by the grade {said.slower.format(name=one.name)}")
            best = max(best, gain)
        if best <= GAIN:
            raise self.without(said.as_fast)

    def require_room(self, one: Built) -> None:
        """Raises WithoutError: shared memory does not hold what a kernel asks for."""
        try:
            fitting(one.shape) if self.SAID.room else None
        except Impossible as error:
            raise self.without(f"room for {self.SAID.room.format(name=one.name)}: {error}") from None


def chosen(ported: Ported, make: Make, choices: Sequence[Choice], said: Sequence[Diagnostic] = ()) -> Chosen:
    """The port with a step in the roots for which it is chosen; `said`: why others are no choice."""
    if not choices:
        return Chosen(ported, said=tuple(said))
    name, paths = choices[0].NAME, frozenset(c.root.path for c in choices)
    trial = make(chosen=of_step(name, paths))
    said = (*said, *(d for c in choices for d in c.try_to(partial(c.choose, trial))))
    found = frozenset(c.root.path for c in choices if c.chosen)
    if found == paths:
        return Chosen(trial, found, said)
    return Chosen(make(chosen=of_step(name, found)) if found else ported, found, said)
