# SPDX-License-Identifier: Apache-2.0
"""The launches that a program makes: their synchronization proved, and those of a port compared with the original's, on
the PTX of their kernels."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from porter.build.entry import kernel_name
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import Geometry, Launched, Triple
from porter.sync.checked import Checked, Rulings, check, worse
from porter.verify.budget import Budget
from porter.verify.builder import parse_ptx
from porter.verify.equality import Pair, compare_all
from porter.verify.hazards import usual_level
from porter.verify.line_map import LineMap
from porter.verify.outcomes import Subject
from porter.verify.program.device import LaunchRecord
from porter.verify.proved import CaseProofs, compared, with_proofs
from porter.verify.proving import Proof, firsts

_MOST = 4
"""Launches of a kernel that are looked at: those that differ from the ones before."""


class _Kernel(NamedTuple):
    """A kernel that a program launches. `launches`: those that differ, by their number from 1 on."""

    flow: Flow
    launches: dict[int, LaunchRecord]


def _kernels(case: str, launches: Sequence[LaunchRecord]) -> Iterator[_Kernel]:
    chosen: dict[tuple[str, str], dict[int, LaunchRecord]] = {}
    seen: set[object] = set()
    for number, record in enumerate(launches, 1):
        key = record.kernel, record.grid, record.block, record.cluster, record.dynamic_smem, record.params
        if key not in seen:
            seen.add(key)
            chosen.setdefault((record.ptx, record.kernel), {})[number] = record
    for (ptx, kernel), records in chosen.items():
        module = parse_ptx(ptx, case)
        yield _Kernel(Flow(Code(module, module.function(kernel))), records)


def prove_launches(
    case: str, program: str, launches: Sequence[LaunchRecord], seconds: float, rulings: Rulings
) -> Iterator[Proof]:
    """A proof for each kernel that a program launches, at the first launches that differ, for `seconds` each: what its
    loops do in others is not known."""
    for kernel in _kernels(case, launches):
        yield _proof(case, program, kernel, seconds, rulings)


def _proof(case: str, program: str, kernel: _Kernel, seconds: float, rulings: Rulings) -> Proof:
    began = time.perf_counter()
    worst, at = Checked(()), ""
    assumed: set[str] = set()
    looked_at: list[str] = []
    for number, record in list(kernel.launches.items())[:_MOST]:
        if looked_at and time.perf_counter() - began > seconds:
            break
        text = _told(number, record)
        for first in firsts(record.grid, record.cluster):
            found = check(launched_record(record, kernel.flow, first), rulings=rulings)
            assumed |= found.assumed
            if not at or worse(found, worst):
                worst, at = found, f"{text}, block {','.join(map(str, first))}"
        looked_at.append(text)
    took = time.perf_counter() - began
    return Proof(case, program, kernel.flow.code.entry.name, worst, at, (), tuple(looked_at), took,
                 frozenset(assumed), kernel.flow)  # fmt: skip


def _told(number: int, record: LaunchRecord) -> str:
    return f"launch {number}: a grid of {_extents(record.grid)} blocks of {_extents(record.block)} threads"


def launched_record(record: LaunchRecord, flow: Flow, first: Triple = (0, 0, 0)) -> Launched:
    """A launch as the cluster with the block `first` sees it."""
    names = [param.name for param in flow.code.entry.params]
    parameters = dict(zip(names, record.params, strict=False))
    geometry = Geometry(record.block, record.grid, record.cluster, record.dynamic_smem, first)
    return Launched(flow, geometry, parameters, record.maps)


def prove_programs(
    original: tuple[Path, Sequence[LaunchRecord]], port: tuple[Path, Sequence[LaunchRecord]],
    unlike: Collection[int], seconds: float,
) -> Iterator[CaseProofs]:  # fmt: skip
    """Proofs of a program's kernels and of those that its port launches in their place, and whether they leave the
    same. `unlike`: numbers of launches whose runs have left other bits."""
    lines, name = LineMap(original[0], port[0]), original[0].name
    for ours, theirs in zip(_kernels(name, original[1]), _kernels(name, port[1]), strict=False):
        one = _proof(name, "original", ours, seconds, usual_level("original"))
        other = _proof(name, "port", theirs, seconds, usual_level("port"))
        # the launches that are proved in both
        held = [n for n, _, _ in zip(ours.launches, one.sizes, other.sizes, strict=False) if n in theirs.launches]
        label = f"{name}, {kernel_name(ours.flow.code.entry.name)}"
        equality = compare_all(label, _pairs(ours, theirs, held, unlike), Budget(seconds))
        yield with_proofs(compared(one, other, lines), equality)


def _pairs(ours: _Kernel, theirs: _Kernel, numbers: Sequence[int], unlike: Collection[int]) -> Iterator[Pair]:
    for number in numbers:
        record = ours.launches[number]
        original, port = _subject("original", ours, number), _subject("port", theirs, number)
        shown = "its run" if number in unlike else ""
        yield Pair(_told(number, record), original, port, partial(_byte, record.allocations), partial(str, shown))


def _subject(program: str, kernel: _Kernel, number: int) -> Subject:
    record = kernel.launches[number]
    return Subject(
        program, kernel.flow, record.grid, record.cluster, partial(launched_record, record, kernel.flow)
    )  # fmt: skip


def _byte(allocations: Sequence[tuple[int, int]], address: int) -> str:
    for number, (start, size) in enumerate(allocations):
        if start <= address < start + size:
            return f"allocation {number}, byte {address - start}"
    return f"address {address:#x}"


def _extents(values: Sequence[int]) -> str:
    return "x".join(map(str, values))
