# SPDX-License-Identifier: Apache-2.0
"""Whether an original and its port leave the same for all of a size that turns follow (docs/equality.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from porter.diagnostics import PorterError
from porter.equal.all_turns import AllTurns, NotAllError, OtherError, Side
from porter.equal.forms import LARGEST_SIZE, Forms
from porter.facts.flow import Flow
from porter.facts.launched import Launched, Triple
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.case_program import Program
from porter.verify.equality import Place, SizeCompared
from porter.verify.expr import Number
from porter.verify.problem import Problem
from porter.verify.proving import NOT_ASKED, OF_PROGRAM, Count, Proof, Sizes, firsts, launched_case
from porter.verify.symbol_sizes import (
    OtherFormsError,
    SymbolSide,
    alike_firsts,
    fixed,
    reach,
    require_bounds,
    require_same,
    telling_sizes,
)

_MOST_INDUCTIONS = 4
"""Clusters for each of which turns are looked at with symbols; of more the first and the last are, with numbers."""


class OtherSizesError(Exception):
    """Sizes at which something else is left."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__("")
        self.sizes = sizes


@dataclass
class AllSizes:
    """A case's original and port, for all numbers of turns of one size."""

    original: Program
    port: Program
    flow_of: Callable[[BuiltKernel], Flow]
    base: Mapping[str, Number]
    budget: Budget
    symbols: tuple[str, ...] = ()
    """Sizes that have been found to be the same for all, as symbols."""
    telling: Iterable[Sizes] = ()
    """Sizes that may show that they are not."""
    _beside_symbols: list[Sizes] = field(default_factory=list)
    """The numbers of other sizes with which these were looked at."""
    _forms: Forms = field(default_factory=Forms)
    """With which all of them are compared."""
    _slowest: float = 0.0
    """Seconds of the execution that took longest."""

    def of_symbols(self, original: Proof, port: Proof) -> list[SizeCompared]:
        """Whether both leave the same for all of the sizes that no turns follow, as symbols, which they are from then
        on."""
        names = [
            one.name for one, other in zip(original.counts, port.counts, strict=False)
            if one.is_all and other.is_all and not one.step and not other.step
        ]  # fmt: skip
        if not names:
            return []
        found = self._of_symbols(names, self.base)
        self.symbols = tuple(names) if found[0].is_all else ()
        return found

    def of_others(self, chosen: Sequence[Sizes], found: Sequence[SizeCompared]) -> list[SizeCompared]:
        """The same with other sizes of the case for those that are numbers, where not all of these are known."""
        names, numbers = [one.name for one in found], set[object]()
        for sizes in chosen[1:] if found and found[0].is_all else ():
            others = {name: number for name, number in sizes.items() if name not in names}
            if tuple(others.items()) not in numbers and found[0].is_all:
                numbers.add(tuple(others.items()))
                found = self._of_symbols(names, {**self.base, **others})
        return list(found)

    def covers(self, counts: Sequence[SizeCompared], sizes: Sizes) -> bool:
        """Whether it follows from what is known for all that each block leaves the same at some sizes."""
        programs = self.original, self.port
        try:
            (ours, _), (theirs, _) = launched = [
                (program.at(sizes), program.at(self.base)) for program in programs
            ]  # fmt: skip
        except PorterError:
            return False
        if any(kernel.recorded is not None or kernel.ptx != base[0].ptx or fixed(problem) != fixed(base[1])
               for (kernel, problem), base in launched):  # fmt: skip
            return False
        if (ours[1].launch.grid, reach(ours[1])) != (theirs[1].launch.grid, reach(theirs[1])):
            return False
        given, of_base = ours[1].sizes, launched[0][1][1].sizes
        changed = {name for name, number in given.items() if number != of_base[name]}
        known = {count.name: count for count in counts}
        as_numbers = {name: number for name, number in given.items() if name not in self.symbols}
        if as_numbers in self._beside_symbols:
            changed &= set(self.symbols)
        return (
            any(count.is_all and not count.upto for count in counts)
            and changed <= known.keys()
            and all(known[name].takes(given[name], changed) for name in changed)
        )

    def _of_symbols(self, names: Sequence[str], base: Sizes) -> list[SizeCompared]:
        forms = Forms(self._forms)
        try:
            sides = self._symbol_sides(names, base)
            try:
                require_same(sides, forms)
            except OtherFormsError:
                self.telling = telling_sizes(sides)
                raise
        except NotAllError as error:
            return [SizeCompared(name, why=str(error), place=self._place(error)) for name in names]
        except PorterError as error:
            return [SizeCompared(name, why=error.diagnostic.message) for name in names]
        self._beside_symbols.append({n: size for n, size in sides[0].problem.sizes.items() if n not in names})
        return [SizeCompared(name, largest=LARGEST_SIZE, upto=forms.shown_bounds(sides[0].bounds)) for name in names]

    def _symbol_sides(self, names: Sequence[str], base: Sizes) -> list[SymbolSide]:
        return [
            SymbolSide(name, program, self._flow_at(name), base, names)
            for name, program in (("original", self.original), ("port", self.port))
        ]  # fmt: skip

    def _place(self, error: NotAllError) -> Place | None:
        return Place(error.program, self._flow_at(error.program), error.at) if error.program else None

    @staticmethod
    def names(original: Proof, port: Proof) -> list[str]:
        """The sizes that turns of both programs follow, as far as both were asked."""
        followed = {count.name for count in port.counts if count.step}
        asked = (count for count in original.counts if count.step or count.why == NOT_ASKED)
        return [count.name for count in asked if count.name in followed]

    def compared(self, name: str, original: Proof, port: Proof) -> SizeCompared:
        """Whether both leave the same for all of a size, given what is known of their synchronization.

        Raises:
            OtherSizesError: they do not for some.
        """
        return self._compared(*(next(c for c in proof.counts if c.name == name) for proof in (original, port)))

    def _compared(self, ours: Count, theirs: Count) -> SizeCompared:
        for program, count in (("port", theirs), ("original", ours)):
            if not count.is_all or count.at:
                return SizeCompared(ours.name, why=f"the synchronization of the {program} is not proved for all")
        assert ours.lasso is not None
        assert theirs.lasso is not None
        step = math.lcm(ours.step, theirs.step)
        units = math.lcm(ours.lasso.period * ours.step, theirs.lasso.period * theirs.step, step) // step
        start = max(-(-count.lasso.start * count.step // step) for count in (ours, theirs) if count.lasso is not None)
        try:
            period, beside = self._period(ours.name, step, units, start)
        except NotAllError as error:
            return SizeCompared(ours.name, step, why=str(error), place=self._place(error))
        except OtherError as error:
            raise OtherSizesError({**self.base, ours.name: error.units * step}) from error
        except PorterError as error:
            return SizeCompared(ours.name, step, why=error.diagnostic.message)
        return SizeCompared(ours.name, step, period, beside=beside)

    def _period(self, size: str, step: int, units: int, start: int) -> tuple[int, tuple[str, ...]]:
        """With the sizes that may be any at the same time. Raises NotAllError, OtherError, PorterError."""
        if self.symbols:
            with suppress(NotAllError, OtherError, PorterError):
                return self._period_of_symbols(size, step, units, start), self.symbols
        return self._period_of_numbers(size, step, units, start), ()

    def _period_of_symbols(self, size: str, step: int, units: int, start: int) -> int:
        """That of each block, with the symbols. Raises NotAllError, OtherError, PorterError."""
        forms, symbol_sides, period = Forms(self._forms), self._symbol_sides(self.symbols, self.base), 1
        clusters = alike_firsts(symbol_sides)
        if len(clusters) > _MOST_INDUCTIONS:
            raise NotAllError("more clusters than inductions are made for")
        for first in clusters:
            sides = [
                self._side(side.name, side.program, size, step, partial(_launched_of, side, first), forms)
                for side in symbol_sides
            ]
            period = math.lcm(period, self._period_of(self._turns(sides, units, start)))
            require_bounds(*(side.noted.bounds for side in sides))
        return period

    def _period_of_numbers(self, size: str, step: int, units: int, start: int) -> int:
        """Raises NotAllError, OtherError, PorterError."""
        launches = [program.at(self.base)[1].launch for program in (self.original, self.port)]
        grid, cluster = launches[0].grid, launches[0].cluster
        if (grid, cluster) != (launches[1].grid, launches[1].cluster):
            raise NotAllError("work is shared out in another way")
        *others, last = (self._turns(self._sides(size, step, first), units, start) for first in firsts(grid, cluster))
        period = self._period_of(last)
        for other in others:
            if not other.is_like(last):
                period = math.lcm(period, self._period_of(other))
        return period

    def _turns(self, sides: Sequence[Side], units: int, start: int) -> AllTurns:
        return AllTurns(sides, units, start, self._left, self._slowest)

    def _period_of(self, turns: AllTurns) -> int:
        """Raises NotAllError, OtherError, PorterError."""
        try:
            return turns.period()
        finally:
            self._slowest = max(self._slowest, turns.slowest)

    def _left(self) -> float:
        """Seconds."""
        left = self.budget.left
        return math.inf if left is None else left

    def _flow_at(self, program: str) -> Flow:
        return self.flow_of((self.original if program == "original" else self.port).at(self.base)[0])

    def _sides(self, size: str, step: int, first: Triple) -> list[Side]:
        def launched(problem: Problem, flow: Flow) -> Launched:
            return replace(launched_case(problem, flow, first), areas=())

        return [
            self._side(name, program, size, step, launched)
            for name, program in (("original", self.original), ("port", self.port))
        ]  # fmt: skip

    def _side(
        self, name: str, program: Program, size: str, step: int, launched: Callable[[Problem, Flow], Launched],
        forms: Forms | None = None,
    ) -> Side:  # fmt: skip
        kernel, base = program.at(self.base)
        flow = self.flow_of(kernel)

        def problem(units: int) -> Problem:
            of_units, found = program.at({**self.base, size: units * step})
            if of_units.ptx != kernel.ptx:
                raise NotAllError(OF_PROGRAM)
            if (found.launch.grid, found.launch.cluster) != (base.launch.grid, base.launch.cluster):
                raise NotAllError("another grid is launched for each")
            return found

        return Side(name, flow, step, lambda units: launched(problem(units), flow), lambda units: reach(problem(units)),
                    forms=forms)  # fmt: skip


def _launched_of(side: SymbolSide, first: Triple, problem: Problem, flow: Flow) -> Launched:
    return side.launched(problem, first)
