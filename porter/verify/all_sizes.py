# SPDX-License-Identifier: Apache-2.0
"""Whether an original and its port leave the same for all of a size that turns follow (docs/equality.md)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from porter.diagnostics import PorterError
from porter.equal.all_turns import AllTurns, NotAllError, OtherError, Side
from porter.facts.flow import Flow
from porter.facts.launched import Launched, Triple
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.case_program import Program
from porter.verify.equality import Place, SizeCompared
from porter.verify.expr import Number
from porter.verify.problem import Problem
from porter.verify.proving import OF_PROGRAM, Count, Proof, Sizes, firsts, launched_case


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

    @staticmethod
    def names(original: Proof, port: Proof) -> list[str]:
        """The sizes that turns of both programs follow."""
        followed = {count.name for count in port.counts if count.step}
        return [count.name for count in original.counts if count.step and count.name in followed]

    def compared(self, name: str, original: Proof, port: Proof) -> SizeCompared:
        """Whether both leave the same for all of a size, given what is known of their synchronization.

        Raises:
            OtherSizesError: they do not for some.
        """
        return self._compared(*(next(c for c in proof.counts if c.name == name) for proof in (original, port)))

    def _compared(self, ours: Count, theirs: Count) -> SizeCompared:
        for program, count in (("original", ours), ("port", theirs)):
            if not count.is_all or count.at:
                return SizeCompared(ours.name, why=f"the synchronization of the {program} is not proved for all")
        assert ours.lasso is not None
        assert theirs.lasso is not None
        step = math.lcm(ours.step, theirs.step)
        units = math.lcm(ours.lasso.period * ours.step, theirs.lasso.period * theirs.step, step) // step
        start = max(-(-count.lasso.start * count.step // step) for count in (ours, theirs) if count.lasso is not None)
        try:
            period = self._period(ours.name, step, units, start)
        except NotAllError as error:
            place = Place(error.program, self._flow_at(error.program), error.at) if error.program else None
            return SizeCompared(ours.name, step, why=str(error), place=place)
        except OtherError as error:
            raise OtherSizesError({**self.base, ours.name: error.units * step}) from error
        except PorterError as error:
            return SizeCompared(ours.name, step, why=error.diagnostic.message)
        return SizeCompared(ours.name, step, period)

    def _period(self, size: str, step: int, units: int, start: int) -> int:
        """Raises NotAllError, OtherError, PorterError."""
        launches = [program.at(self.base)[1].launch for program in (self.original, self.port)]
        grid, cluster = launches[0].grid, launches[0].cluster
        if (grid, cluster) != (launches[1].grid, launches[1].cluster):
            raise NotAllError("work is shared out in another way")
        *others, last = (
            AllTurns(self._sides(size, step, first), units, start, self._left) for first in firsts(grid, cluster)
        )
        period = last.period()
        for other in others:
            if not other.is_like(last):
                period = math.lcm(period, other.period())
        return period

    def _left(self) -> float:
        """Seconds."""
        if self.budget.seconds is None:
            return math.inf
        return self.budget.seconds - time.monotonic() + self.budget.began

    def _flow_at(self, program: str) -> Flow:
        return self.flow_of((self.original if program == "original" else self.port).at(self.base)[0])

    def _sides(self, size: str, step: int, first: Triple) -> list[Side]:
        return [
            self._side(name, program, size, step, first)
            for name, program in (("original", self.original), ("port", self.port))
        ]  # fmt: skip

    def _side(self, name: str, program: Program, size: str, step: int, first: Triple) -> Side:
        kernel, base = program.at(self.base)
        flow = self.flow_of(kernel)

        def problem(units: int) -> Problem:
            of_units, found = program.at({**self.base, size: units * step})
            if of_units.ptx != kernel.ptx:
                raise NotAllError(OF_PROGRAM)
            if (found.launch.grid, found.launch.cluster) != (base.launch.grid, base.launch.cluster):
                raise NotAllError("another grid is launched for each")
            return found

        def launched(units: int) -> Launched:
            return replace(launched_case(problem(units), flow, first), areas=())

        return Side(name, flow, step, launched, lambda units: _reach(problem(units)))


def _reach(problem: Problem) -> object:
    outputs = {tensor.name for tensor in problem.outputs}
    return {
        (bound.tensor, bound.map.address, bound.map.sizes, bound.map.strides, bound.map.dtype.element_bits)
        for bound in problem.tensor_maps.values() if bound.tensor not in outputs
    }  # fmt: skip
