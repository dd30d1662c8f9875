# SPDX-License-Identifier: Apache-2.0
"""The synchronization of the launches that a program makes, proved on the PTX of their kernels."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import Geometry, Launched, Triple
from porter.sync.checked import Checked, Rulings, check, worse
from porter.verify.builder import parse_ptx
from porter.verify.hazards import usual_level
from porter.verify.line_map import LineMap
from porter.verify.program.device import LaunchRecord
from porter.verify.proved import CaseProofs, compared
from porter.verify.proving import Proof, firsts

_MOST = 4
"""Launches of a kernel that are looked at: those that differ from the ones before."""


def prove_launches(
    case: str, program: str, launches: Sequence[LaunchRecord], seconds: float, rulings: Rulings
) -> Iterator[Proof]:
    """A proof for each kernel that a program launches, at the first launches that differ, for `seconds` each: what its
    loops do in others is not known."""
    chosen: dict[tuple[str, str], list[LaunchRecord]] = {}
    seen: set[object] = set()
    for record in launches:
        key = record.kernel, record.grid, record.block, record.cluster, record.dynamic_smem, record.params
        if key not in seen:
            seen.add(key)
            chosen.setdefault((record.ptx, record.kernel), []).append(record)
    for (ptx, kernel), records in chosen.items():
        module = parse_ptx(ptx, case)
        yield _proof(case, program, Flow(Code(module, module.function(kernel))), records, seconds, rulings)


def _proof(
    case: str, program: str, flow: Flow, records: Sequence[LaunchRecord], seconds: float, rulings: Rulings
) -> Proof:
    began = time.perf_counter()
    worst, at = Checked(()), ""
    assumed: set[str] = set()
    looked_at: list[str] = []
    for record in records[:_MOST]:
        if looked_at and time.perf_counter() - began > seconds:
            break
        text = f"a grid of {_extents(record.grid)} blocks of {_extents(record.block)} threads"
        for first in firsts(record.grid, record.cluster):
            found = check(launched_record(record, flow, first), rulings=rulings)
            assumed |= found.assumed
            if not at or worse(found, worst):
                worst, at = found, f"{text}, block {','.join(map(str, first))}"
        looked_at.append(text)
    shown = tuple(f"{text}{f' ({n} launches)' if n > 1 else ''}" for text, n in Counter(looked_at).items())
    took = time.perf_counter() - began
    return Proof(case, program, flow.code.entry.name, worst, at, (), shown, took, frozenset(assumed), flow)


def launched_record(record: LaunchRecord, flow: Flow, first: Triple = (0, 0, 0)) -> Launched:
    """A launch as the cluster with the block `first` sees it."""
    names = [param.name for param in flow.code.entry.params]
    parameters = dict(zip(names, record.params, strict=False))
    geometry = Geometry(record.block, record.grid, record.cluster, record.dynamic_smem, first)
    return Launched(flow, geometry, parameters)


def prove_programs(
    original: tuple[Path, Sequence[LaunchRecord]], port: tuple[Path, Sequence[LaunchRecord]], seconds: float
) -> Iterator[CaseProofs]:
    """Proofs of a program's kernels and of those that its port launches in their place."""
    lines = LineMap(original[0], port[0])
    name = original[0].name
    proofs = [prove_launches(name, which, launches, seconds, usual_level(which))
              for which, (_, launches) in (("original", original), ("port", port))]  # fmt: skip
    for one, other in zip(*proofs, strict=False):
        yield compared(one, other, lines)


def _extents(values: Sequence[int]) -> str:
    return "x".join(map(str, values))
