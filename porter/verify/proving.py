# SPDX-License-Identifier: Apache-2.0
"""The synchronization of a case's kernel proved on its PTX: at its sizes, and for all numbers of turns of its loops."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import combinations, pairwise
from typing import Literal

from porter.diagnostics import PorterError
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL, Area, Geometry, Launched, Triple
from porter.facts.machine import DATA, Machine
from porter.facts.tensor_maps import Box
from porter.ptx.tensormap import ENCODED_BYTES
from porter.sync.alike import has_boxes, what_decides
from porter.sync.checked import Checked, Rulings, Verdict, check, worse
from porter.sync.together import MOST_TURNS, Columns
from porter.sync.turns import Lasso, Recorder, find_lasso
from porter.verify.arguments import MapAddress, Pointer
from porter.verify.barrier_names import initialized
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.dsl import is_compiled_in
from porter.verify.expr import Number
from porter.verify.images import make_image
from porter.verify.inputs import RECORDED, choose, generate
from porter.verify.params import argument_bytes
from porter.verify.problem import Problem

Sizes = Mapping[str, Number]

NOT_ASKED = "it was not asked for"
OF_PROGRAM = "a number of the compiled program: another kernel is compiled for each"
"""Why a size is not varied."""
APART = 1 << 34
"""Bytes between the addresses that tensors are given."""
_MAPS = GLOBAL + (1 << 42)
MOST_INTEGERS = 1 << 17
"""Bytes of a tensor of indices; larger ones hold data."""


def launched_case(problem: Problem, flow: Flow, first: Triple = (0, 0, 0)) -> Launched:
    """The launch of a problem, of which the cluster with the block `first` is executed. Tensors lie at addresses of
    their own, which no instruction reads.

    Raises:
        PorterError: CASE_PARAMETERS if the arguments do not fit the kernel.
    """
    tensors = {name: GLOBAL + index * APART for index, name in enumerate(problem.tensors)}
    maps = {name: _MAPS + index * ENCODED_BYTES for index, name in enumerate(problem.tensor_maps)}

    def image(name: str) -> bytes:
        bound = problem.tensor_maps[name]
        return replace(bound.map, address=tensors[bound.tensor] + bound.map.address).encode()

    def address(argument: Pointer | MapAddress) -> int:
        return (
            tensors[argument.tensor] + argument.offset if isinstance(argument, Pointer) else maps[argument.tensor_map]
        )

    entry = flow.code.entry
    arguments = argument_bytes(problem, entry, address, lambda value: image(value.tensor_map))
    parameters = {param.name: data for param, data in zip(entry.params, arguments, strict=True)}
    launch = problem.launch
    geometry = Geometry(launch.block, launch.grid, launch.cluster, launch.dynamic_smem, first)
    allocated = {name: (start, start + problem.tensors[name].nbytes) for name, start in tensors.items()}
    scratch = [allocated[name] for name, tensor in problem.tensors.items() if tensor.role == "scratch"]
    return Launched(flow, geometry, parameters, {where: image(name) for name, where in maps.items()},
                    _integers(problem, tensors), list(allocated.values()), scratch=scratch)  # fmt: skip


def _integers(problem: Problem, addresses: Mapping[str, int]) -> list[Area]:
    """The tensors of integers that kernels read counts and indices from, as the case fills them."""

    @cache
    def images() -> Mapping[str, bytes]:
        family = RECORDED if problem.case.recorded is not None else choose(["integers"], problem, restricted=False)[0]
        elements = generate(problem, family, 0)
        return {name: make_image(problem.tensors[name], elements.get(name), 0).data.tobytes() for name in small}

    small = [
        name for name, t in problem.tensors.items()
        if t.nbytes <= MOST_INTEGERS and t.role in ("input", "scratch") and t.after is None
        and not t.dtype.is_float and not t.contains
    ]  # fmt: skip
    return [Area(addresses[name], problem.tensors[name].nbytes, partial(_bytes_of, images, name)) for name in small]


def _bytes_of(images: Callable[[], Mapping[str, bytes]], name: str) -> bytes:
    return images()[name]


def clusters_looked_at(problem: Problem, flow: Flow) -> Iterator[Launched]:
    """The launch as its first cluster sees it, and as its last one does."""
    for first in firsts(problem.launch.grid, problem.launch.cluster):
        yield launched_case(problem, flow, first)


def firsts(grid: Triple, cluster: Triple) -> list[Triple]:
    """The first block of the first cluster of a grid, and of the last one."""
    x, y, z = ((extent - 1) // size * size for extent, size in zip(grid, cluster, strict=True))
    return list(dict.fromkeys(((0, 0, 0), (x, y, z))))


# Proofs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """What is known of one size: all multiples of `step` where `lasso` has nothing against it, else those up to
    `upto`. No `step`: it has no part in what the kernel synchronizes, or, with `why`, was not varied. `at`: the other
    sizes, where they are not those of the first that were asked for."""

    name: str
    step: int = 0
    upto: int = 0
    lasso: Lasso | None = None
    why: str = ""
    runs: int = 0
    at: str = ""

    @property
    def is_all(self) -> bool:
        return not self.why and (self.lasso is None or not self.lasso.why_not)


@dataclass(frozen=True)
class Pair:
    """What is known of two sizes together: all pairs, or, with `why`, those whose first one is at most `upto`."""

    names: tuple[str, str]
    upto: int
    why: str = ""


@dataclass(frozen=True)
class Proof:
    """What is known of a program's synchronization. `at`: sizes and block of the first execution that shows what is
    wrong or not understood. `flow` gives the instructions that findings name."""

    case: str
    program: str
    entry: str
    checked: Checked
    at: str
    counts: tuple[Count, ...]
    sizes: tuple[str, ...]
    seconds: float
    assumed: frozenset[str]
    flow: Flow = field(repr=False)
    pairs: tuple[Pair, ...] = ()

    @property
    def status(self) -> Literal["proved", "hazard", "unknown"]:
        if self.checked.verdict is Verdict.UNKNOWN:
            return "unknown"
        return "hazard" if self.checked.verdict in (Verdict.ERROR, Verdict.STRICT) else "proved"


class _AnotherKernelError(Exception):
    """A size for which another kernel is compiled."""


Base = tuple[BuiltKernel, Problem]
Made = dict[int, tuple[Checked | None, Recorder | None, str]]
BuiltAt = Callable[[Sizes], Base]
"""Gives the kernel of a program at some sizes, which may be one for all of them, and its problem."""


class Prover:
    """Proves the synchronization of one program of a case."""

    def __init__(self, program: str, built_at: BuiltAt, budget: Budget, rulings: Rulings = "strict") -> None:
        self._program, self._built_at, self._budget = program, built_at, budget
        self._rulings = rulings
        self._flows: dict[str, Flow] = {}
        self._assumed: set[str] = set()
        self._made: Made = {}
        """Executions by the value of the size that is looked at."""
        self._borrowed: set[int] | None = set()
        """Of these the ones that were made for other sizes, which are alike; None where none may be."""
        self._alike: dict[object, list[tuple[Mapping[tuple[int, str], Box], Checked, Recorder]]] = defaultdict(list)
        """By what decides, executions with what they have copied by tensor maps."""
        self._at_base: dict[str, tuple[Checked | None, Recorder | None, str]] = {}
        self._began = time.perf_counter()

    def prove(self, chosen: Sequence[Sizes], turns: bool = True, but: Collection[frozenset[str]] = ()) -> Proof:
        """Of these sizes, and with `turns` of as many others as there is time for, `but` not of some, alone or two
        together.

        Raises:
            PorterError: what binding raises at the sizes that are asked for.
        """
        looked_at: list[str] = []
        worst, place = Checked(()), ""
        kernel, base = self._built_at(chosen[0])
        flow = self._flow(kernel)
        for sizes in chosen:
            if looked_at and self._budget.is_spent:
                break
            of_sizes, problem = self._built_at(sizes)
            for launched in clusters_looked_at(problem, self._flow(of_sizes)):
                found = check(replace(launched, areas=()), rulings=self._rulings)
                if found.verdict is Verdict.UNKNOWN and launched.areas:
                    found = check(launched, rulings=self._rulings)
                self._assumed |= found.assumed
                where = f"{listed(problem.sizes)}, block {_coordinates(launched)}"
                if not place or worse(found, worst):
                    worst, place, flow = found, where, launched.flow
            looked_at.append(listed(problem.sizes))
        counts: list[Count] = []
        pairs: list[Pair] = []
        if DATA in self._assumed:
            counts += [Count(name, why="the data of the case decide what is done") for name in base.sizes]
        elif turns and worst.verdict in (Verdict.CLEAN, Verdict.REVIEW):
            flow = self._flow(kernel)
            for count, broken, where in self._counts((kernel, base), chosen, but):
                counts.append(count)
                if broken is not None:
                    worst, place = broken, where
                    break
            else:
                for pair, broken, where in self._pairs((kernel, base), counts, but):
                    pairs.append(pair)
                    if broken is not None:
                        worst, place = broken, where
        seconds = time.perf_counter() - self._began
        return Proof(base.case.name, self._program, kernel.entry, worst, place, tuple(counts), tuple(looked_at),
                     seconds, frozenset(self._assumed), flow, tuple(pairs))  # fmt: skip

    def _flow(self, kernel: BuiltKernel) -> Flow:
        found = self._flows.get(kernel.ptx)
        if found is None:
            function = kernel.function
            assert function is not None
            found = self._flows[kernel.ptx] = Flow(Code(kernel.module, function), initialized)
        return found

    # All numbers of turns -----------------------------------------------------------------------------

    def _counts(
        self, base: Base, chosen: Sequence[Sizes], but: Collection[frozenset[str]]
    ) -> Iterator[tuple[Count, Checked | None, str]]:
        """What is known of each size. Each has its part of half of the time, and what becomes too large for it what is
        left, at smaller sizes if there are any."""
        whole, large, found = self._budget, dict[str, Made](), dict[str, tuple[Count, Checked | None, str]]()
        found |= {name: (Count(name, why=NOT_ASKED), None, "") for name in base[1].sizes}
        asked = [name for name in base[1].sizes if frozenset((name,)) not in but]
        first = whole.part(2)
        for left, name in zip(range(len(asked), 0, -1), asked, strict=True):
            self._budget, self._made = first.part(left), {}
            found[name] = self._count(base, name, base[1].sizes[name], chosen)
            count, broken, _ = found[name]
            if broken is None and count.step and not count.is_all:
                large[name] = self._made
        for left, name in zip(range(len(large), 0, -1), list(large), strict=True):
            self._budget = whole.part(left)
            with suppress(_AnotherKernelError):
                found[name] = self._smaller(base, found[name], chosen, large.pop(name))
        self._budget = whole
        yield from found.values()

    def _count(
        self, base: Base, name: str, value: Number, chosen: Sequence[Sizes]
    ) -> tuple[Count, Checked | None, str]:
        """What is known of a size, with the first execution that is not right."""
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return Count(name, why="it is no number of turns"), None, ""
        if is_compiled_in(base[1], name):
            return Count(name, why=OF_PROGRAM), None, ""
        others = [s[name] for s in chosen if name in s]
        step = math.gcd(value, *(v for v in others if isinstance(v, int) and not isinstance(v, bool)))
        try:
            return self._varied(base, name, value, step)
        except _AnotherKernelError:
            return Count(name, why=OF_PROGRAM), None, ""

    def _varied(self, base: Base, name: str, value: int, step: int) -> tuple[Count, Checked | None, str]:
        self._borrowed = set()
        one, two = (self._at(base, name, step * turns)[1] for turns in (1, 2))
        # small ones are soon executed
        runs = self._runs(base, name, step) if one is not None and two is not None and _differ([one, two]) else []
        if not _all_differ(runs):
            step, runs = self._coarser(base, name, value, step)
        for prime in _PRIMES:
            while step % prime == 0 and _all_differ(finer := self._runs(base, name, step // prime)):
                step, runs = step // prime, finer
        if not runs:
            return Count(name, why="the kernel takes no other"), None, ""
        if not _differ(runs):
            for changed, (found, _, where) in self._made.items():
                if found is not None and found.verdict is Verdict.UNKNOWN:
                    return Count(name, why=found.unknown), None, ""
                if found is not None and found.verdict not in (Verdict.CLEAN, Verdict.REVIEW):
                    return Count(name, step, changed, why="it is not clean"), found, where
            return Count(name), None, ""
        # what is shown of each number of turns is its own
        self._made = {value: made for value, made in self._made.items() if value not in self._borrowed}
        self._borrowed = None
        return self._turns(base, name, step)

    def _coarser(self, base: Base, name: str, value: int, step: int) -> tuple[int, list[Recorder]]:
        """A step whose first multiples all differ, if there is one: about as large as the case's own value, or larger
        than one for which they do not."""
        coarse = step
        while coarse < value:
            coarse *= 2
        runs = self._runs(base, name, coarse)
        if _all_differ(runs):
            return coarse, runs
        if not runs or (fine := self._at(base, name, step)[1]) is None or _differ([fine, *runs]):
            runs = self._runs(base, name, step)
            while not _all_differ(runs) and step < value:
                step, runs = 2 * step, self._runs(base, name, 2 * step)
        return step, runs

    def _smaller(
        self, base: Base, count: tuple[Count, Checked | None, str], chosen: Sequence[Sizes], made: Made
    ) -> tuple[Count, Checked | None, str]:
        """More of what is known of a size, with the others as in those of the sizes that were asked for whose
        executions grow least with each turn. `made`: those at the first of these sizes."""
        name, unit, least, best = count[0].name, count[0].step, math.inf, (base, count[0].step, made)
        self._borrowed = None
        for sizes in chosen:
            self._made = made if sizes == chosen[0] else {}
            with suppress(PorterError):
                other = self._built_at(sizes)
                for step in (unit, 2 * unit, 4 * unit) if other[0].ptx == base[0].ptx else ():
                    runs = self._runs(other, name, step)
                    if not _all_differ(runs):
                        continue
                    growth = (runs[-1].events - runs[-2].events) / step
                    if growth < least:
                        least, best = growth, (other, step, self._made)
                    break
        other, step, self._made = best
        found, broken, where = self._turns(other, name, step)
        others = {one: size for one, size in other[1].sizes.items() if one != name}
        at = "" if others.items() <= base[1].sizes.items() else listed(others)
        return (replace(found, at=at), broken, where) if not at or found.is_all or broken is not None else count

    def _runs(self, base: Base, name: str, step: int) -> list[Recorder]:
        """The first three multiples of a step; none if the kernel does not take them."""
        found: list[Recorder] = []
        for turns in (1, 2, 3):
            _, recorder, _ = self._at(base, name, step * turns)
            if recorder is None:
                return []
            found.append(recorder)
        return found

    def _at(self, base: Base, name: str, value: int) -> tuple[Checked | None, Recorder | None, str]:
        """The execution with another value of a size, which is made once."""
        if value not in self._made:
            sizes = listed({**base[1].sizes, name: value})
            known = self._at_base.get(sizes)
            borrows = self._borrowed is not None
            found, is_own = (known, True) if known is not None else self._run_or_borrow(base, {name: value}, borrows)
            self._made[value] = found
            if value == base[1].sizes[name] and is_own:
                self._at_base[sizes] = found
            if self._borrowed is not None and not is_own:
                self._borrowed.add(value)
        return self._made[value]

    def _run(self, base: Base, changed: Sizes) -> tuple[Checked | None, Recorder | None, str]:
        return self._run_or_borrow(base, changed, False)[0]

    def _run_or_borrow(
        self, base: Base, changed: Sizes, borrows: bool
    ) -> tuple[tuple[Checked | None, Recorder | None, str], bool]:
        """An execution, and whether it is one of its own: with `borrows` one that is alike may stand for it."""
        try:
            kernel, problem = self._built_at({**base[1].sizes, **changed})
        except PorterError:
            return (None, None, ""), True
        if (kernel.entry, kernel.ptx) != (base[0].entry, base[0].ptx):
            raise _AnotherKernelError
        *_, launched = clusters_looked_at(problem, self._flow(kernel))
        machine = Machine(replace(launched, areas=()))
        where = f"{listed(problem.sizes)}, block {_coordinates(launched)}"
        decides = what_decides(machine)
        for copied, found, recorder in self._alike[decides] if borrows and decides is not None else ():
            if has_boxes(machine, copied):
                return (found, recorder, where), False
        recorder = Recorder(machine)
        found = check(launched, machine=machine, rulings=self._rulings)
        recorder.events = len(machine.history.events)
        self._assumed |= found.assumed
        if decides is not None:
            self._alike[decides].append((machine.maps.boxes, found, recorder))
        return (found, recorder, where), True

    def _turns(self, base: Base, name: str, step: int) -> tuple[Count, Checked | None, str]:
        runs: list[Recorder] = []
        lasso: Lasso | None = None
        for least in _MOST_TURNS:
            most = least
            if len(runs) > _FEW_TURNS and lasso is not None and not lasso.why_not:
                most = lasso.needed if lasso.needed <= _MOST_TURNS[-1] else least
            if most <= len(runs):
                continue
            while len(runs) < most:
                if self._budget.is_spent and len(runs) > 3:
                    return self._out_of_time(base, name, step, runs, lasso)
                found, recorder, where = self._at(base, name, step * (len(runs) + 1))
                if found is None or recorder is None:
                    return self._given_up(name, step, runs, lasso), None, ""
                if found.verdict is Verdict.UNKNOWN:
                    return Count(name, step, step * len(runs), lasso, found.unknown, len(runs)), None, ""
                if found.verdict not in (Verdict.CLEAN, Verdict.REVIEW):
                    return Count(name, step, step * len(runs), lasso, runs=len(runs) + 1), found, where
                runs.append(recorder)
            lasso = find_lasso(runs, step)
            if lasso is not None and not lasso.why_not and lasso.needed <= len(runs):
                return Count(name, step, step * len(runs), lasso, runs=len(runs)), None, ""
        return self._given_up(name, step, runs, lasso), None, ""

    def _out_of_time(
        self, base: Base, name: str, step: int, runs: Sequence[Recorder], lasso: Lasso | None
    ) -> tuple[Count, Checked | None, str]:
        """Where only a few turns were looked at, more are once: rings that are longer come to their stages again."""
        if len(runs) < _FEW_TURNS:
            found, _, where = self._at(base, name, step * _FEW_TURNS)
            if found is not None and found.verdict in (Verdict.ERROR, Verdict.STRICT):
                return Count(name, step, step * len(runs), lasso, runs=len(runs) + 1), found, where
        return self._given_up(name, step, runs, lasso), None, ""

    # Pairs of sizes -----------------------------------------------------------------------------------

    def _pairs(
        self, base: Base, counts: Sequence[Count], but: Collection[frozenset[str]]
    ) -> Iterator[tuple[Pair, Checked | None, str]]:
        """What is known of two sizes together, up to the first pair that is not right. Those that repeat latest come
        first, and in each pair that which does gives the columns."""
        of_all = [
            (c, replace(c.lasso, reach=0)) for c in counts if c.step and c.is_all and c.lasso is not None and not c.at
        ]
        of_all.sort(key=lambda one: -one[1].needed)
        for (first, lasso), (second, _) in combinations(of_all, 2):
            if self._budget.is_spent:
                return
            if frozenset((first.name, second.name)) in but:
                continue
            columns = Columns(lasso, first.step)
            turns, why, broken, where = 0, "", None, ""
            while not why and broken is None and not columns.is_complete:
                turns += 1
                why, broken, where = self._column(base, columns, (first, turns), second)
            names = first.name, second.name
            if not why:
                self._assumed.add(f"{' and '.join(names)} together: a block makes fewer than {MOST_TURNS} turns in all")
            yield Pair(names, first.step * (turns - bool(why)), why), broken, where
            if broken is not None:
                return

    def _column(
        self, base: Base, columns: Columns, first: tuple[Count, int], second: Count
    ) -> tuple[str, Checked | None, str]:
        """Add a column; gives what keeps it from that, with the execution that is not right."""
        runs: list[Recorder] = []
        for most in (least for least in _MOST_OF_COLUMN if least >= columns.least):
            while len(runs) < most:
                if self._budget.is_spent:
                    return "no time for more", None, ""
                sizes = {first[0].name: first[0].step * first[1], second.name: second.step * (len(runs) + 1)}
                found, recorder, where = self._run(base, sizes)
                if found is None or recorder is None:
                    return "the kernel takes no other", None, ""
                if found.verdict is Verdict.UNKNOWN:
                    return found.unknown, None, ""
                if found.verdict not in (Verdict.CLEAN, Verdict.REVIEW):
                    return "it is not clean", found, where
                runs.append(recorder)
            lasso = find_lasso(runs, second.step, renames=False)
            if lasso is not None and not lasso.why_not and lasso.needed <= len(runs):
                return columns.add(runs, lasso.period), None, ""
        return "no period of the second shows within so many turns", None, ""

    @staticmethod
    def _given_up(name: str, step: int, runs: Sequence[Recorder], lasso: Lasso | None) -> Count:
        why = lasso.why_not if lasso is not None and lasso.why_not else "no period shows within so many turns"
        return Count(name, step, step * len(runs), lasso, why, len(runs))


_FEW_TURNS = 16
"""As many come to each stage of a ring and each parity again."""
_MOST_TURNS = (10, 13, 16, 19, 22, 25, 29, 33, 37, 39, 41, 44, 50, 56, 64, 73, 77, 80, 86, 98, 114, 130)
"""Where a period is looked for: three of them, and some turns ahead of the first."""

_MOST_OF_COLUMN = (4, 7, *_MOST_TURNS)


def _differ(runs: Sequence[Recorder]) -> bool:
    return any(a.traces != b.traces for a, b in pairwise(runs))


_PRIMES = (2, 3, 5, 7)
"""By which a step that all sizes of a case share is divided, to find the least that is a turn."""


def _all_differ(runs: Sequence[Recorder]) -> bool:
    return bool(runs) and all(a.traces != b.traces for a, b in pairwise(runs))


def listed(sizes: Mapping[str, Number]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items()) or "its launch"


def _coordinates(launched: Launched) -> str:
    return ",".join(map(str, launched.geometry.first))
