# SPDX-License-Identifier: Apache-2.0
"""Looking for hazards in the programs of a case, each of the port's held against its original's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.sim.check.hazard import Level
from porter.verify.builder import Builder
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.hazards import HazardRun, against_original, check_case, usual_level
from porter.verify.line_map import LineMap
from porter.verify.prepare import PortOf, Prepared, prepare
from porter.verify.settings import SimOptions


@dataclass(frozen=True)
class Search:
    """What is looked at in every case: `programs` as of `prepare`, at `level` (None: the usual one of each), under a
    schedule with each of `seeds`. `finished` as of `prepare`, with which a program `kernel` is compiled for `arch`."""

    programs: Sequence[str]
    options: SimOptions
    seeds: Sequence[int]
    port_of: PortOf
    level: Level | None = None
    arch: str = ""
    finished: bool = False

    def check(self, p: Prepared) -> HazardRun:
        at = self.level or usual_level(p.program)
        return check_case(p.kernel, p.problem, p.launch, p.images, p.program, at, self.options, self.seeds)


def hazards_of_case(
    case: Case, sizes: Sequence[Mapping[str, Number]], builder: Builder, search: Search
) -> tuple[list[HazardRun], list[Diagnostic]]:
    """What is found in the programs of a case at each size; diagnostics say why a port is missing.

    Raises:
        PorterError: what binding, porting, compiling and running raise.
    """
    runs: list[HazardRun] = []
    left: list[Diagnostic] = []
    for size in sizes:
        prepared, left = prepare(
            case, search.programs, builder, size, search.options.seed, search.port_of, search.arch, search.finished
        )
        checked = {p.program: (p, search.check(p)) for p in prepared}
        if "port" in checked:
            ported, run = checked["port"]
            base = checked.get("original")
            if base is None and run.hazards:
                base = _baseline(case, builder, size, search)
            if base is not None:
                lines = LineMap(base[0].source, ported.source)
                judged, original = against_original(run, base[1], lines)
                checked["port"] = ported, judged
                if "original" in checked:
                    checked["original"] = base[0], original
        runs += [run for _, run in checked.values()]
    return runs, left


def _baseline(
    case: Case, builder: Builder, size: Mapping[str, Number], search: Search
) -> tuple[Prepared, HazardRun] | None:
    """The original of a port that is checked alone; None if it is known as a binary only."""
    try:
        (found,), _ = prepare(case, ["original"], builder, size, search.options.seed, search.port_of)
        return found, search.check(found)
    except PorterError as error:
        if error.diagnostic.code is Code.CAPTURE_NO_PTX:
            return None
        raise
