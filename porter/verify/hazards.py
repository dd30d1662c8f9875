# SPDX-License-Identifier: Apache-2.0
"""Looking for hazards: a kernel run in the checking simulator, once for each seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from porter.build.port_plan import PortPlan
from porter.diagnostics.spread import spread
from porter.ptx import ast
from porter.sim.check.hazard import Hazard, Level, collect
from porter.verify.backends import SimBackend
from porter.verify.bare import Buffer, run_bare
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image
from porter.verify.inherited import Inherited, as_introduced, split
from porter.verify.line_map import LineMap
from porter.verify.outcome import RunFinding, Verdict
from porter.verify.problem import LaunchValues, Problem
from porter.verify.settings import SimOptions


@dataclass(frozen=True)
class HazardRun:
    """What was found in one kernel, over all its runs. `replay` is the seed of the first run that was not
    clean, `finding_seeds` those of the first runs with each finding.

    Of a port that was compared with its original, `hazards` are those that the port introduces; `inherited` are the
    others, which say nothing about the port, and `similar` tells of which introduced ones the original has one of
    the kind in the same place. `baseline` is for an original that a port was compared with: what it has is no
    verdict on the port.
    """

    name: str
    program: str
    kernel: str
    arch: str
    level: Level
    schedule: str
    seeds: tuple[int, ...]
    status: Literal["ok", "incomplete", "error"]
    findings: tuple[RunFinding, ...]
    hazards: tuple[Hazard, ...]
    warp_instructions: int
    seconds: float
    replay: int | None = None
    finding_seeds: tuple[int, ...] = ()
    inherited: tuple[Inherited, ...] = ()
    similar: tuple[Inherited, ...] = ()
    baseline: bool = False
    known: tuple[Hazard, ...] = ()
    """What an earlier run has told, where only what is new is asked for: to review."""
    digest: str = ""
    """Of all that it depends on; empty where nothing is kept of it."""
    lacks_fences: bool = False
    """Whether the library of a port has no name for fences of Tensor Memory: those that only the letter asks for stay
    to review."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on this kernel alone."""
        if self.status == "error" or any(h.severity == "error" for h in self.hazards):
            return Verdict.ERROR
        if self.status == "incomplete":
            return Verdict.INCOMPLETE
        return Verdict.REVIEW if self.hazards or self.inherited or self.known else Verdict.CLEAN

    @property
    def counted(self) -> Verdict:
        """What it adds to the verdict on all: a baseline's hazards are to review."""
        if self.baseline and self.status == "ok" and self.hazards:
            return Verdict.REVIEW
        return self.verdict


def worst(runs: Iterable[HazardRun]) -> Verdict:
    """The verdict on several kernels; where none ran there is nothing that is clean."""
    order = (Verdict.ERROR, Verdict.INCOMPLETE, Verdict.REVIEW, Verdict.CLEAN)
    return min((r.counted for r in runs), key=order.index, default=Verdict.INCOMPLETE)


def against_original(port: HazardRun, original: HazardRun, lines: LineMap) -> tuple[HazardRun, HazardRun]:
    """Both runs with the port's hazards told apart: those that it introduces, and those that the original has too."""
    found = split(port.hazards, original.hazards, lines)
    changed = {
        id(h): h if port.lacks_fences and _is_of_fences(h) else as_introduced(h, port.level) for h in found.introduced
    }
    judged = dataclasses.replace(
        port,
        hazards=tuple(changed.values()),
        inherited=found.inherited,
        similar=tuple(Inherited(changed[id(s.hazard)], s.original) for s in found.similar),
    )
    return judged, dataclasses.replace(original, baseline=True)


def _is_of_fences(hazard: Hazard) -> bool:
    """Whether all that it lacks are fences of Tensor Memory."""
    return bool(hazard.edges) and all(e.missing.startswith("tcgen05.fence::") for e in hazard.edges)


@dataclass(frozen=True)
class OneRun:
    """What one run answers."""

    status: str
    findings: Sequence[RunFinding]
    hazards: Sequence[Hazard]
    warp_instructions: int
    seconds: float


def check_case(
    kernel: BuiltKernel,
    problem: Problem,
    launch: LaunchValues,
    images: Mapping[str, Image],
    program: str,
    level: Level,
    options: SimOptions,
    seeds: Sequence[int],
    jobs: int = 1,
) -> HazardRun:
    """Check a kernel on the inputs of a case, in `jobs` processes."""

    def run(settings: SimOptions) -> OneRun:
        return run_case(kernel, problem, launch, images, settings)

    return check_runs(run, problem.case.name, program, kernel.entry, kernel.arch, level, options, seeds, jobs)


def run_case(
    kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image], settings: SimOptions
) -> OneRun:
    """One run of a kernel on the inputs of a case."""
    r = SimBackend(settings).run(kernel, problem, launch, images)
    return OneRun(r.status, r.findings, r.hazards, r.warp_instructions, r.seconds)


def check_bare(
    module: ast.Module,
    entry: ast.Function,
    launch: LaunchValues,
    arguments: Sequence[int | float | Buffer],
    name: str,
    level: Level,
    options: SimOptions,
    seeds: Sequence[int],
    jobs: int = 1,
) -> HazardRun:
    """Check a kernel of a PTX module with arguments given by hand, in `jobs` processes."""

    def run(settings: SimOptions) -> OneRun:
        r = run_bare(module, entry, launch, arguments, settings)
        return OneRun(r.status, r.findings, r.hazards, r.warp_instructions, r.seconds)

    return check_runs(run, name, "kernel", entry.name, module.target, level, options, seeds, jobs)


def check_runs(
    run: Callable[[SimOptions], OneRun],
    name: str,
    program: str,
    entry: str,
    arch: str,
    level: Level,
    options: SimOptions,
    seeds: Sequence[int],
    jobs: int = 1,
) -> HazardRun:
    """Run with each seed, in `jobs` processes, and put together what was found; `run` gets the options of one run."""
    ones = spread(lambda seed: run(dataclasses.replace(options, checking=level, seed=seed)), seeds, jobs, chunk=1)
    return put_together(ones, name, program, entry, arch, level, options, seeds)


def put_together(
    ones: Sequence[OneRun],
    name: str,
    program: str,
    entry: str,
    arch: str,
    level: Level,
    options: SimOptions,
    seeds: Sequence[int],
) -> HazardRun:
    """What was found in the runs with each seed."""
    status: Literal["ok", "incomplete", "error"] = "ok"
    findings: list[RunFinding] = []
    hazards: list[Hazard] = []
    finding_seeds: list[int] = []
    instructions, seconds = 0, 0.0
    replay = None
    for seed, one in zip(seeds, ones, strict=True):
        for hazard in one.hazards:
            hazard.seed = seed
        collect(hazards, one.hazards)
        new = [f for f in one.findings if (f.code, f.ptx_line) not in {(g.code, g.ptx_line) for g in findings}]
        findings += new
        finding_seeds += [seed] * len(new)
        if one.status == "error" or (one.status == "incomplete" and status == "ok"):
            status = "error" if one.status == "error" else "incomplete"
        if replay is None and (one.hazards or one.status != "ok"):
            replay = seed
        instructions += one.warp_instructions
        seconds += one.seconds
    return HazardRun(name, program, entry, arch, level, options.schedule, tuple(seeds), status, tuple(findings),
                     tuple(hazards), instructions, seconds, replay, tuple(finding_seeds))  # fmt: skip


def usual_level(program: str, plan: PortPlan | None = None) -> Level:
    """Strict for what Porter emits, where its `plan` does not say otherwise."""
    return "strict" if program == "port" and not (plan is not None and plan.at_practice) else "practice"
