# SPDX-License-Identifier: Apache-2.0
"""The synchronization of the launches that a program makes, proved on the PTX of their kernels."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from porter.build.entry import kernel_name
from porter.equal.outcome import Difference, Outcome
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import Area, Geometry, Launched, Triple
from porter.facts.machine import Schedule
from porter.sync.checked import Checked, Rulings, Verdict, check, worse
from porter.verify.budget import Budget
from porter.verify.builder import parse_ptx
from porter.verify.equality import (
    IN_TURN,
    LAST_FIRST,
    Equality,
    Place,
    Side,
    Status,
    UnknownError,
    difference_between,
    how,
    left_by_clusters,
    places_of,
    with_tables,
)
from porter.verify.hazards import usual_level
from porter.verify.line_map import LineMap
from porter.verify.moved import Party, at_any_place
from porter.verify.program.device import LaunchRecord
from porter.verify.proved import CaseProofs, compared, with_proofs
from porter.verify.proving import Proof, firsts

_MOST = 4
"""Launches of a kernel that are looked at: those that differ from the ones before."""


@dataclass(frozen=True)
class Launches:
    """Those that a run of a program made. `held`: of each, allocations that it left as they were and that may hold
    counts and indices, by address."""

    path: Path
    records: Sequence[LaunchRecord]
    held: Sequence[Mapping[int, bytes]] = ()

    def held_by(self, number: int) -> Mapping[int, bytes]:
        return self.held[number] if self.held else {}

    def of_kernels(self) -> list[list[int]]:
        """The numbers of those that differ from the ones before, by kernel."""
        chosen: dict[tuple[str, str], list[int]] = {}
        seen: set[object] = set()
        for number, record in enumerate(self.records):
            key = what_is_launched(record)
            if key not in seen:
                seen.add(key)
                chosen.setdefault((record.ptx, record.kernel), []).append(number)
        return list(chosen.values())


def what_is_launched(record: LaunchRecord) -> object:
    """The same for launches that differ in nothing but memory."""
    return record.kernel, record.grid, record.block, record.cluster, record.dynamic_smem, record.params


def prove_launches(case: str, program: str, launches: Launches, seconds: float, rulings: Rulings) -> Iterator[Proof]:
    """A proof for each kernel that a program launches, at the first launches that differ, for `seconds` each: what its
    loops do in others is not known."""
    for numbers in launches.of_kernels():
        yield _proof(case, program, _flow(launches.records[numbers[0]], case), launches, numbers, seconds, rulings)


def _flow(record: LaunchRecord, case: str) -> Flow:
    module = parse_ptx(record.ptx, case)
    return Flow(Code(module, module.function(record.kernel)))


def _proof(
    case: str, program: str, flow: Flow, launches: Launches, numbers: Sequence[int], seconds: float, rulings: Rulings
) -> Proof:
    began = time.perf_counter()
    worst, at = Checked(()), ""
    assumed: set[str] = set()
    looked_at: list[str] = []
    for number in numbers[:_MOST]:
        if looked_at and time.perf_counter() - began > seconds:
            break
        record, held = launches.records[number], launches.held_by(number)
        text = _text(record)
        for first in firsts(record.grid, record.cluster):
            found = check(launched_record(record, flow, first), rulings=rulings)
            if found.verdict is Verdict.UNKNOWN and held:
                # counts and indices decide what is done
                found = check(launched_record(record, flow, first, held), rulings=rulings)
            assumed |= found.assumed
            if not at or worse(found, worst):
                worst, at = found, f"{text}, block {','.join(map(str, first))}"
        looked_at.append(text)
    shown = _counted(looked_at)
    took = time.perf_counter() - began
    return Proof(case, program, flow.code.entry.name, worst, at, (), shown, took, frozenset(assumed), flow)


def launched_record(
    record: LaunchRecord, flow: Flow, first: Triple = (0, 0, 0), held: Mapping[int, bytes] | None = None
) -> Launched:
    """A launch as the cluster with the block `first` sees it."""
    names = [param.name for param in flow.code.entry.params]
    parameters = dict(zip(names, record.params, strict=False))
    geometry = Geometry(record.block, record.grid, record.cluster, record.dynamic_smem, first)
    areas = [Area(address, len(data), partial(bytes, data)) for address, data in (held or {}).items()]
    allocated = [(address, address + size) for address, size in record.allocations]
    return Launched(flow, geometry, parameters, record.maps, areas, allocated, as_begun=record.as_begun)


def prove_programs(
    original: Launches, port: Launches, differing: Collection[int], seconds: float
) -> Iterator[CaseProofs]:
    """Proofs of a program's kernels and of those that its port launches in their place, and whether both leave the
    same. `differing`: the numbers of launches that left other bits in the run."""
    lines = LineMap(original.path, port.path)
    name = original.path.name
    proofs = [prove_launches(name, which, launches, seconds, usual_level(which))
              for which, launches in (("original", original), ("port", port))]  # fmt: skip
    for numbers, one, other in zip(original.of_kernels(), *proofs, strict=False):
        found = compared(one, other, lines)
        pairs = _Pairs(original, port, (one.flow, other.flow), differing)
        equality = pairs.compare(numbers, seconds)
        again = partial(replace(pairs, schedule=LAST_FIRST).compare, numbers, seconds)
        yield replace(found, equality=with_proofs(equality, found, reorders=False, again=again))


@dataclass
class _Pairs:
    """Launches of one kernel in two programs, the n-th of one with the n-th of the other."""

    original: Launches
    port: Launches
    flows: tuple[Flow, Flow]
    differing: Collection[int]
    schedule: Schedule = IN_TURN
    _assumed: set[str] = field(default_factory=set)

    def compare(self, numbers: Sequence[int], seconds: float) -> Equality:
        began, budget = time.perf_counter(), Budget(seconds)
        looked_at: list[str] = []
        total = 0

        def result(status: Status, why: str = "", at: str = "", places: tuple[Place, ...] = ()) -> Equality:
            took = time.perf_counter() - began
            name = f"{self.original.path.name}, {kernel_name(self.flows[0].code.entry.name)}"
            return Equality(name, status, _counted(looked_at), total, took, why, at, places,
                            frozenset(self._assumed))  # fmt: skip

        for number in numbers[:_MOST]:
            if looked_at and budget.is_spent:
                break
            at = f"launch {number + 1}"
            if (why := self._unlike(number)) is not None:
                return result("unknown", why, at)
            try:
                found, count = self._difference(number)
            except UnknownError as error:
                return result("unknown", error.why, at, (Place(error.program, error.flow, error.at),))
            if found is not None:
                shown = number in self.differing
                run = "the run of both programs shows it" if shown else "the run of both leaves the same bits"
                return result("differs" if shown else "unknown", f"{self._told(number, found)}; {run}", at,
                              places_of(found, *self.flows))  # fmt: skip
            if number == min(self.differing, default=None):
                # both make the same of what they are given, which is not the same, and no launch ahead says why
                return result("unknown", "the run of both leaves other bits, of other inputs", at)
            looked_at.append(_text(self.original.records[number]))
            total += count
        if not total:
            return result("unknown", "neither writes anything")
        return at_any_place(result("equal"), self._party("original", numbers[0]), self._party("port", numbers[0]))

    def _difference(self, number: int) -> tuple[Difference | None, int]:
        """Raises UnknownError: something is not understood."""
        original, port = self._side("original", number), self._side("port", number)
        found, count = difference_between(original, port)
        if found is None or number in self.differing:
            return found, count
        return with_tables(found, count, original, port)

    def _unlike(self, number: int) -> str | None:
        if len(self.original.records) != len(self.port.records):
            return "the programs do not make the same number of launches"
        if self.original.records[number].allocations != self.port.records[number].allocations:
            return "the programs do not allocate memory alike"
        return None

    def _party(self, program: Literal["original", "port"], number: int) -> Party:
        launches, flow = (self.original, self.flows[0]) if program == "original" else (self.port, self.flows[1])
        record = launches.records[number]
        held = launches.held_by(number)
        return Party(program, flow, lambda first: launched_record(record, flow, first, held))

    def _side(self, program: Literal["original", "port"], number: int) -> Side:
        party, record = self._party(program, number), self.original.records[number]
        if program == "port":
            record = self.port.records[number]

        def left(firsts: Sequence[Triple], knows_tables: bool) -> Outcome:
            return left_by_clusters(program, party.flow, party.launched_at, firsts, self._assumed, self.schedule,
                                    knows_tables)  # fmt: skip

        return Side(record.grid, record.cluster, party.flow, left)

    def _told(self, number: int, found: Difference) -> str:
        """What differs, by the number of an allocation in the order in which they were made."""
        allocations = self.original.records[number].allocations
        where = next(
            (f"allocation {i}, byte {found.address - a}" for i, (a, n) in enumerate(allocations)
             if a <= found.address < a + n), f"byte {found.address:#x}",
        )  # fmt: skip
        return f"{where}: {how(found)}"


def _text(record: LaunchRecord) -> str:
    return f"a grid of {_extents(record.grid)} blocks of {_extents(record.block)} threads"


def _counted(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{text}{f' ({n} launches)' if n > 1 else ''}" for text, n in Counter(texts).items())


def _extents(values: Sequence[int]) -> str:
    return "x".join(map(str, values))
