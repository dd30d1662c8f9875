# SPDX-License-Identifier: Apache-2.0
"""An original and its port compared with sizes and indices of blocks as symbols (docs/equality.md): one cluster of each
is executed, which stands for every cluster of every grid; along dimensions of it that follow no symbol, each is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod

from porter.diagnostics import PorterError
from porter.equal.all_turns import NotAllError
from porter.equal.forms import Bound, Forms, implied
from porter.equal.meaning import Follower
from porter.equal.outcome import Outcome, difference, of_cluster
from porter.facts.events import NotUnderstood
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import Launched, Symbols, Triple
from porter.facts.machine import Machine
from porter.facts.placed import OUT_OF_PLACE
from porter.ptx import ast
from porter.verify.case_program import Program
from porter.verify.further import names_within
from porter.verify.params import argument_bytes
from porter.verify.problem import Problem
from porter.verify.proving import Sizes, launched_case

_MOST_STEPS = 64
"""Multiples of a size of the case that are run."""
_FACTORS = (2, 3, 5, 7, 11)
"""By which sizes are multiplied to see what follows them."""
_FAR = (1031, 257, 67)
"""By which each is multiplied, the first that fits: what is counted in tiles may be one for all smaller ones."""
_MOST_CLUSTERS = 16
"""Clusters along the dimensions of a grid that follow no symbol; of more the indices are symbols as well."""


class OtherFormsError(NotAllError):
    """What is left follows the symbols in another way."""


@dataclass
class SymbolSide:
    """One of two programs, with some of its sizes as symbols.

    Raises:
        NotAllError: they are more than numbers to the launch.
    """

    name: str
    program: Program
    flow: Flow
    base: Sizes
    names: Sequence[str]
    bounds: set[Bound] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.kernel, self.problem = self.program.at(self.base)
        if any(ins.parts[0] == "clusterlaunchcontrol" for ins in self.flow.code.code):
            raise NotAllError("work that is asked for", self.name)
        self.probes = [self._at(sizes) for sizes in self._some()]
        self.launches = [*self.probes, *self._far()]
        if any(fixed(launch) != fixed(self.problem) for launch in self.launches):
            raise NotAllError("other blocks are launched for each", self.name)
        self.symbols = Symbols(self._parameters(), self._axes())

    def _some(self) -> list[Sizes]:
        """The sizes of the case, and those with one and with all of the symbols changed."""
        numbers = {name: self.problem.sizes[name] for name in self.names}
        each = [{name: number * _FACTORS[0]} for name, number in numbers.items()]
        all_of_them = {n: v * f for (n, v), f in zip(numbers.items(), _FACTORS[1:], strict=False)}
        return [self.base, *({**self.base, **changed} for changed in (*each, all_of_them))]

    def _far(self) -> Iterator[Problem]:
        for name in self.names:
            for factor in _FAR:
                try:
                    found = self._at({**self.base, name: self.problem.sizes[name] * factor})
                    self._arguments(found)
                except PorterError:
                    continue
                yield found
                break

    def _at(self, sizes: Sizes) -> Problem:
        if self.kernel.recorded is not None or self.program.compiled_for(sizes) != self.program.compiled_for(self.base):
            raise NotAllError("another kernel is compiled for each", self.name)
        return self.program.at(sizes)[1]

    def _arguments(self, problem: Problem) -> list[bytes]:
        """Those of the kernel, with tensors at no address and empty maps. Raises PorterError: one does not fit."""
        return list(argument_bytes(problem, self.flow.code.entry, lambda _: 0, lambda value: bytes(128)))

    def _parameters(self) -> dict[tuple[str, int], str]:
        of_launches = [self._arguments(launch) for launch in self.launches]
        known = {tuple(launch.sizes[name] for launch in self.launches): name for name in self.names}
        found: dict[tuple[str, int], str] = {}
        for param, values in zip(self.flow.code.entry.params, zip(*of_launches, strict=True), strict=True):
            for offset in range(0, len(values[0]), 4):
                cells, behind = (
                    tuple(int.from_bytes(data[at : at + 4], "little") for data in values) for at in (offset, offset + 4)
                )  # fmt: skip
                if len(set(cells)) == 1:
                    continue
                is_wide = offset % 8 == 0 and len(values[0]) >= offset + 8 and not any(behind)
                if len(values[0]) < offset + 4 or (is_wide and cells not in known):
                    # of 64 bits the upper ones may follow as well
                    raise NotAllError("a parameter that follows them and is no size", self.name)
                found[param.name, offset] = known.get(cells) or Forms.parameter(cells)
        return found

    def _axes(self) -> str:
        """The dimensions of the grid that follow the symbols."""
        case = self.problem.case
        followed = "".join(
            axis for axis, extent in zip("xyz", case.launch.grid, strict=False)
            if not names_within(case, [extent]).isdisjoint(self.names)
        )  # fmt: skip
        if prod(map(len, self._steps(followed))) <= _MOST_CLUSTERS:
            return followed
        return "".join(a for a, n in zip("xyz", self.problem.launch.grid, strict=True) if a in followed or n > 1)

    def _steps(self, axes: str) -> list[range]:
        launch = self.problem.launch
        return [
            range(0, size if axis in axes else extent, size)
            for axis, extent, size in zip("xyz", launch.grid, launch.cluster, strict=True)
        ]

    @cached_property
    def firsts(self) -> list[Triple]:
        """The first blocks of the clusters that stand for all."""
        x, y, z = self._steps(self.symbols.axes)
        return list(product(x, y, z))

    def launched(self, problem: Problem, first: Triple) -> Launched:
        return replace(launched_case(problem, self.flow, first), areas=(), symbols=self.symbols)

    def left(self, forms: Forms, first: Triple) -> Outcome:
        """What each block leaves whose other indices are those of `first`. Raises NotAllError."""
        machine = Machine(self.launched(self.problem, first))
        follower = Follower(machine, forms)
        try:
            history = run(machine)
            if history.blocked:
                raise NotAllError("a deadlock", self.name, history.blocked[0].at)
            wrong = next((problem for problem in history.problems if problem.kind in OUT_OF_PLACE), None)
            if wrong is not None or machine.counters:
                why = wrong.text if wrong is not None else "work that is counted"
                raise NotAllError(why, self.name, wrong.at if wrong is not None else None)
        except NotUnderstood as error:
            raise NotAllError(str(error), self.name, error.at) from error
        self.bounds |= follower.contents.noted.bounds
        return of_cluster(follower.contents.stored)


def fixed(problem: Problem) -> object:
    """What of a launch is to be the same for all sizes."""
    launch = problem.launch
    return launch.block, launch.cluster, launch.dynamic_smem


def require_same(sides: Sequence[SymbolSide], forms: Forms) -> None:
    """That both programs leave the same in each block for all sizes up to which no sum of the original wraps.

    Raises:
        NotAllError: that is not known.
    """
    original, port = sides
    shared_out = ([(one.sizes, one.launch.grid, reach(one)) for one in side.launches] for side in sides)
    if next(shared_out) != next(shared_out):
        raise NotAllError("work is shared out in another way, or tensor maps are of other tensors")
    written = sum(_bytes_alike(sides, forms, first) for first in alike_firsts(sides))
    require_bounds(original.bounds, port.bounds)
    if not written:
        raise NotAllError("neither writes anything")


def alike_firsts(sides: Sequence[SymbolSide]) -> list[Triple]:
    """The first blocks of the clusters that stand for all of both programs. Raises NotAllError: they are not alike."""
    original, port = sides
    if (original.symbols.axes, original.firsts) != (port.symbols.axes, port.firsts):
        raise NotAllError("work is shared out in another way")
    return original.firsts


def _bytes_alike(sides: Sequence[SymbolSide], forms: Forms, first: Triple) -> int:
    """How many bytes both leave. Raises NotAllError: they are not the same."""
    ours, theirs = (side.left(forms, first) for side in sides)
    found = difference(ours, theirs)
    if found is not None:
        name, at = ("port", found.port) if found.port is not None else ("original", found.original)
        raise OtherFormsError("what is left follows the sizes in another way", name, at)
    return len(ours.addresses) + len(ours.reductions)


def require_bounds(original: Collection[Bound], port: Collection[Bound]) -> None:
    """That where no number of 32 bits of the original wraps none of the port does.

    Raises:
        NotAllError: that is not known.
    """
    if not all(implied(bound, original) for bound in port):
        raise NotAllError("a number of 32 bits that wraps at smaller sizes than any of the original", "port")


def telling_sizes(sides: Sequence[SymbolSide]) -> Iterator[Sizes]:
    """Sizes that may show what is left in another way: larger ones, and those beyond numbers that sizes are compared
    with."""
    original = sides[0]
    yield from (probe.sizes for probe in original.probes[1:])
    limits = [
        {
            int(operand.value) for ins in side.flow.code.code if ins.parts[0] == "setp"
            for operand in ins.operands if isinstance(operand, ast.Imm) and not operand.is_float
        }
        for side in sides
    ]  # fmt: skip
    for limit in sorted((limits[0] ^ limits[1]) or (limits[0] & limits[1])):
        for name in original.names:
            step = int(original.problem.sizes[name])
            if step < limit < step * _MOST_STEPS:
                yield {**original.base, name: (limit // step + 1) * step}


def reach(problem: Problem) -> object:
    """How far the tensors go that copies load from, however large their boxes are."""
    outputs = {tensor.name for tensor in problem.outputs}
    return {
        (bound.tensor, bound.map.address, bound.map.sizes, bound.map.strides, bound.map.dtype.element_bits)
        for bound in problem.tensor_maps.values() if bound.tensor not in outputs
    }  # fmt: skip
