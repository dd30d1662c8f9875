# SPDX-License-Identifier: Apache-2.0
"""Looking for hazards in the programs of a case, each of the port's held against its original's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.diagnostics.reading import read_file
from porter.diagnostics.spread import spread
from porter.sim.check.hazard import Level
from porter.verify.budget import SETTLED, digest_of
from porter.verify.builder import Builder
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.hazards import HazardRun, OneRun, against_original, put_together, run_case, usual_level
from porter.verify.line_map import LineMap
from porter.verify.prepare import PortOf, Prepared, prepare
from porter.verify.settings import SimOptions


@dataclass(frozen=True)
class Search:
    """What is looked at in every case: `programs` as of `prepare`, at `level` (None: the usual one of each), under a
    schedule with each of `seeds`, in `jobs` processes. `finished` as of `prepare`, with which a program `kernel` is
    compiled for `arch`. `done`: as of `settled`."""

    programs: Sequence[str]
    options: SimOptions
    seeds: Sequence[int]
    port_of: PortOf
    level: Level | None = None
    arch: str = ""
    finished: bool = False
    jobs: int = 1
    done: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def check(self, prepared: Sequence[Prepared]) -> list[HazardRun]:
        """What is found in each; all runs of all of them are independent."""
        count = len(self.seeds)
        ones = spread(self._once, [(p, seed) for p in prepared for seed in self.seeds], self.jobs, chunk=1)
        return [self._gathered(p, ones[i * count : (i + 1) * count]) for i, p in enumerate(prepared)]

    def _once(self, asked: tuple[Prepared, int]) -> OneRun:
        p, seed = asked
        options = replace(self.options, checking=self._level(p), seed=seed)
        return run_case(p.kernel, p.problem, p.launch, p.images, options)

    def _gathered(self, p: Prepared, ones: Sequence[OneRun]) -> HazardRun:
        k, name = p.kernel, p.problem.case.name
        return put_together(ones, name, p.program, k.entry, k.arch, self._level(p), self.options, self.seeds)

    def _level(self, p: Prepared) -> Level:
        return self.level or usual_level(p.program)

    def digest(self, prepared: Sequence[Prepared]) -> str:
        """Of all that the runs of a case at one size depend on."""
        case, problem, o = prepared[0].problem.case, prepared[0].problem, self.options
        settings = [case.name, o.schedule, o.arithmetic, o.budget, list(self.seeds), sorted(problem.sizes.items())]
        given = [(p.program, p.kernel.arch, self._level(p), p.launch, p.problem.tensor_maps) for p in prepared]
        # hazards of a port that is checked alone are held against those of this file
        text = read_file(case.kernel).hex()
        return digest_of(case, [p.kernel for p in prepared], ["hazards", text, *map(repr, [*settings, *given])])


@dataclass(frozen=True)
class Found:
    """What was found in the programs of a case: `left` says why a port is missing, `earlier` are runs of the document
    of an earlier search."""

    runs: Sequence[HazardRun]
    left: Sequence[Diagnostic] = ()
    earlier: Sequence[Mapping[str, Any]] = ()


def settled(document: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """The runs of a document of `porter hazards` that need not be made again, by the digest that a case has at one
    size."""
    by_digest: dict[str, list[Mapping[str, Any]]] = {}
    for run in document["runs"]:
        if run.get("digest"):
            by_digest.setdefault(run["digest"], []).append(run)
    return {digest: runs for digest, runs in by_digest.items() if all(map(_is_settled, runs))}


def _is_settled(run: Mapping[str, Any]) -> bool:
    return run["verdict"] in SETTLED or (run.get("baseline", False) and run["status"] == "ok")


def hazards_of_case(case: Case, sizes: Sequence[Mapping[str, Number]], builder: Builder, search: Search) -> Found:
    """What is found in the programs of a case at each size.

    Raises:
        PorterError: what binding, porting, compiling and running raise.
    """
    runs: list[HazardRun] = []
    left: list[Diagnostic] = []
    earlier: list[Mapping[str, Any]] = []
    at_sizes: list[tuple[Mapping[str, Number], list[Prepared], str]] = []
    for size in sizes:
        prepared, left = prepare(
            case, search.programs, builder, size, search.options.seed, search.port_of, search.arch, search.finished
        )
        digest = search.digest(prepared) if prepared else ""
        if digest in search.done:
            earlier += search.done[digest]
        else:
            at_sizes.append((size, prepared, digest))
    found = iter(search.check([p for _, prepared, _ in at_sizes for p in prepared]))
    for size, prepared, digest in at_sizes:
        checked = {p.program: (p, next(found)) for p in prepared}
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
        runs += [replace(run, digest=digest) for _, run in checked.values()]
    return Found(runs, left, earlier)


def _baseline(
    case: Case, builder: Builder, size: Mapping[str, Number], search: Search
) -> tuple[Prepared, HazardRun] | None:
    """The original of a port that is checked alone; None if it is known as a binary only."""
    try:
        (found,), _ = prepare(case, ["original"], builder, size, search.options.seed, search.port_of)
        (run,) = search.check([found])
        return found, run
    except PorterError as error:
        if error.diagnostic.code is Code.CAPTURE_NO_PTX:
            return None
        raise
