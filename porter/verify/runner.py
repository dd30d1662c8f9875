# SPDX-License-Identifier: Apache-2.0
"""Verification: build original and port, run both on the same inputs, compare with the reference and each
other."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError
from porter.sim.check.causes import Cause, causes, places
from porter.verify.backends import Backend, RunResult, SimBackend
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, Builder, BuiltKernel, PortPlan, materialize
from porter.verify.case import Case
from porter.verify.compare import Comparison
from porter.verify.dtypes import Array
from porter.verify.expr import Number
from porter.verify.hazards import HazardRun
from porter.verify.images import Image, changed_element, make_image, stray_write
from porter.verify.inputs import Family, choose, generate
from porter.verify.judge import Expectation, expectation, failed_controls
from porter.verify.locate import place_of
from porter.verify.params import check_arguments
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.recorded import RecordedExpectation
from porter.verify.results import Row, RunSummary, Verdict, VerifyResult

ProgressCall = Callable[[str], None]


@dataclass(frozen=True)
class VerifyOptions:
    """`families` None: all that apply. `sizes`: one mapping per problem size; names left out keep the case's
    default. `schedule` is recorded with the result. `second` is a backend with another schedule, named
    `second_schedule`: the family with exact sums is run on it once more, at the first size. `checking` gives, for
    original or port, a backend that also looks for hazards, which the first family of each size is run on."""

    families: Sequence[str] | None = None
    sizes: Sequence[Mapping[str, Number]] = ({},)
    seed: int = 0
    schedule: str = "late"
    progress: ProgressCall | None = None
    second: Backend | None = None
    second_schedule: str = "random"
    checking: Callable[[str], SimBackend] | None = None


_GOOD = (Verdict.CLEAN, Verdict.REVIEW)
_SECOND_FAMILY = "integers"
"""Exact sums show a tile that was read too early or overwritten too soon in every element it reaches."""


def verify(
    case: Case, port: PortPlan | None, builder: Builder, backend: Backend, options: VerifyOptions
) -> VerifyResult:
    """One row per size and family. Without a port only the original is checked against the reference.

    What a compiler refuses becomes the error of the rows of that size.

    Raises:
        PorterError: the case does not fit its sizes or kernel (PT50xx), or there is no compiler.
    """
    began = time.perf_counter()
    problems = [bind(case, sizes) for sizes in options.sizes]
    chosen = [choose(list(options.families) if options.families else None, p) for p in problems]
    rows: list[Row] = []
    session = _Session(case, port, builder, backend, options)
    for i, (problem, families) in enumerate(zip(problems, chosen, strict=True)):
        rows += session.size(problem, families, second=i == 0)
    return VerifyResult(
        rows=tuple(rows),
        backend=backend.name,
        schedule=options.schedule,
        arithmetic=backend.arithmetic,
        seed=options.seed,
        seconds=time.perf_counter() - began,
    )


@dataclass(frozen=True)
class _Program:
    """`original` or `port`, ready to run."""

    name: str
    arch: str
    kernel: BuiltKernel
    launch: LaunchValues


class _Session:
    def __init__(
        self, case: Case, port: PortPlan | None, builder: Builder, backend: Backend, options: VerifyOptions
    ) -> None:
        self.case, self.port, self.builder, self.backend, self.options = case, port, builder, backend, options

    def size(self, problem: Problem, families: Sequence[Family], second: bool = False) -> list[Row]:
        self._tell(problem, "building")
        try:
            programs = self._programs(problem)
        except PorterError as error:
            if error.exit_code is not ExitCode.BUILD_FAILED:
                raise
            return [self._row(problem, f, Verdict.ERROR, (error.diagnostic,)) for f in families]
        rows = [self._family(problem, f, programs, self.backend, check=i == 0) for i, f in enumerate(families)]
        again = next((f for f in families if f.name == _SECOND_FAMILY), None)
        # Where the usual schedule already shows an error, another one has nothing to add.
        if second and self.options.second is not None and again and all(r.verdict in _GOOD for r in rows):
            row = self._family(problem, again, programs, self.options.second)
            rows.append(dataclasses.replace(row, schedule=self.options.second_schedule))
        return rows

    def _programs(self, problem: Problem) -> list[_Program]:
        arch = ORIGINAL_ARCH if self.case.recorded is None else self.case.recorded.arch
        original = self.builder.build(problem, self.case.kernel, arch)
        programs = [_Program("original", arch, original, launch_of(problem, original))]
        if self.port is not None:
            source: Path = materialize(self.port, self.case.source or self.case.kernel)
            kernel = self.builder.build(problem, source, PORT_ARCH)
            launch = changed_launch(launch_of(problem, kernel), self.port)
            programs.append(_Program("port", PORT_ARCH, kernel, launch))
        return programs

    def _family(
        self,
        problem: Problem,
        family: Family,
        programs: Sequence[_Program],
        backend: Backend,
        check: bool = False,
    ) -> Row:
        inputs = generate(problem, family, self.options.seed)
        wanted = expectation(problem, family, inputs, backend.arithmetic)
        controls, diagnostics = failed_controls(wanted)
        comparisons: dict[str, tuple[Comparison, ...]] = {}
        outputs: dict[str, dict[str, Array]] = {}
        runs: list[RunSummary] = []
        hazards: list[HazardRun] = []
        incomplete = False
        for program in programs:
            self._tell(problem, f"{family.name}: {program.name}")
            images = {
                name: make_image(tensor, inputs.get(name), backend.guard)
                for name, tensor in problem.tensors.items()
            }
            checking = self.options.checking(program.name) if check and self.options.checking else None
            result = (checking or backend).run(program.kernel, problem, program.launch, images)
            if checking is not None:
                hazards.append(_checked(self.case, program, checking, self.options.seed, result))
            runs.append(_summary(program, backend, result))
            if result.status != "ok":
                incomplete |= result.status == "incomplete"
                diagnostics.append(_not_finished(self.case, program, result))
                continue
            diagnostics += _memory_damage(self.case, program, images, result)
            outputs[program.name] = {t.name: result.after[t.name].elements() for t in problem.outputs}
            comparisons[program.name] = tuple(
                wanted.against_reference(t, outputs[program.name][t.name], program.arch)
                for t in problem.outputs
            )
            # Of a wrong original nothing can be said about its port.
            if program.name == "original" or all(c.ok for c in comparisons.get("original", ())):
                diagnostics += _differences(problem, program, comparisons[program.name])
        between = _between(wanted, outputs)
        if all(c.ok for found in comparisons.values() for c in found):
            diagnostics += [_bits_differ(problem, c) for c in between if not c.ok]
        found = [(run, cause) for run in hazards for cause in causes(run.hazards)]
        diagnostics += [_hazard(self.case, run, cause) for run, cause in found if cause.lead.severity == "error"]
        verdict = _verdict(diagnostics, incomplete)
        if verdict is Verdict.CLEAN and any(run.hazards for run in hazards):
            verdict = Verdict.REVIEW
        return Row(
            case=self.case.name,
            sizes=problem.sizes,
            family=family.name,
            seed=self.options.seed,
            verdict=verdict,
            original=comparisons.get("original", ()),
            port=comparisons.get("port", ()),
            between=between,
            controls=controls,
            runs=tuple(runs),
            diagnostics=tuple(diagnostics),
            hazards=tuple(hazards),
        )

    def _row(
        self, problem: Problem, family: Family, verdict: Verdict, diagnostics: tuple[Diagnostic, ...]
    ) -> Row:
        return Row(self.case.name, problem.sizes, family.name, self.options.seed, verdict,
                   diagnostics=diagnostics)  # fmt: skip

    def _tell(self, problem: Problem, what: str) -> None:
        if self.options.progress is not None:
            sizes = ", ".join(f"{k}={v}" for k, v in problem.sizes.items())
            self.options.progress(f"{self.case.name} ({sizes}) {what}")


def launch_of(problem: Problem, kernel: BuiltKernel) -> LaunchValues:
    """The launch that the kernel's own host code makes, else the case's, whose arguments have to fit."""
    if kernel.recorded is None:
        check_arguments(problem, kernel.function)
    return kernel.launch(problem)


def changed_launch(launch: LaunchValues, plan: PortPlan) -> LaunchValues:
    smem = launch.dynamic_smem if plan.dynamic_smem is None else plan.dynamic_smem
    return dataclasses.replace(launch, block=plan.block or launch.block, dynamic_smem=smem)


def _between(
    wanted: Expectation | RecordedExpectation, outputs: Mapping[str, Mapping[str, Array]]
) -> tuple[Comparison, ...]:
    if not {"original", "port"} <= outputs.keys():
        return ()
    return tuple(
        wanted.between(t, outputs["original"][t.name], outputs["port"][t.name])
        for t in wanted.problem.outputs
    )


def _summary(program: _Program, backend: Backend, result: RunResult) -> RunSummary:
    return RunSummary(
        program=program.name,
        arch=program.arch,
        backend=result.where or backend.name,
        status=result.status,
        findings=result.findings,
        warp_instructions=result.warp_instructions,
        seconds=result.seconds,
    )


def _checked(case: Case, program: _Program, backend: SimBackend, seed: int, result: RunResult) -> HazardRun:
    options = backend.options
    bad = bool(result.hazards) or result.status != "ok"
    return HazardRun(case.name, program.name, program.kernel.entry, program.arch, options.checking or "strict",
                     options.schedule, (seed,), result.status, result.findings, tuple(result.hazards),
                     result.warp_instructions, result.seconds, seed if bad else None)  # fmt: skip


def _hazard(case: Case, run: HazardRun, cause: Cause) -> Diagnostic:
    """What a report of hazards says in several lines, as one diagnostic."""
    hazard = cause.lead
    loc = hazard.second.loc
    where = Location(str(case.kernel)) if loc is None else Location(loc.file, loc.line)
    sites = [s for s in (hazard.first, hazard.second) if s is not None]
    lines = [f"{run.program}: {hazard.where}"]
    lines += [f"{s.what} by {s.who}: {s.opcode} at {s.place}" for s in sites]
    lines += [f"missing: {missing}" + (f"; add {remedy}" if remedy else "") for missing, remedy in cause.edges]
    if len(cause.hazards) > 1:
        lines.append(f"{len(cause.hazards)} pairs of accesses")
        lines += [f"{place.opcode} at {place.text}" for place in places([*cause.first_sites, *cause.second_sites])]
    return Diagnostic(hazard.kind.code, where, {"id": hazard.kind.id, "what": hazard.kind.title}, "\n".join(lines))


def _verdict(diagnostics: Sequence[Diagnostic], incomplete: bool) -> Verdict:
    if any(d.code is not Code.RUN_INCOMPLETE for d in diagnostics):
        return Verdict.ERROR
    return Verdict.INCOMPLETE if incomplete else Verdict.CLEAN


def _not_finished(case: Case, program: _Program, result: RunResult) -> Diagnostic:
    code = Code.RUN_INCOMPLETE if result.status == "incomplete" else Code.RUN_FAILED
    reason = "; ".join(f"{f.code.id}: {f.message}" for f in result.findings[:3]) or "no reason given"
    detail = "\n".join(
        f"{f.code.id}: {f.message}" + (f" ({f.where})" if f.where else "") for f in result.findings
    )
    return Diagnostic(code, Location(str(case.kernel)), {"program": program.name, "reason": reason}, detail)


def _memory_damage(
    case: Case, program: _Program, before: Mapping[str, Image], result: RunResult
) -> list[Diagnostic]:
    found = []
    where = Location(str(case.path))
    for name, image in before.items():
        stray = stray_write(image, result.after[name].data)
        if stray is not None:
            values = {"program": program.name, "tensor": name, "where": stray}
            found.append(Diagnostic(Code.STRAY_WRITE, where, values))
        if image.tensor.role == "input":
            changed = changed_element(image, result.after[name])
            if changed is not None:
                values = {"program": program.name, "tensor": name, "where": changed}
                found.append(Diagnostic(Code.INPUT_CHANGED, where, values))
    return found


def _differences(problem: Problem, program: _Program, comparisons: Sequence[Comparison]) -> list[Diagnostic]:
    code = Code.ORIGINAL_DIFFERS if program.name == "original" else Code.PORT_DIFFERS
    return [_difference(code, problem, c) for c in comparisons if not c.ok]


def _bits_differ(problem: Problem, comparison: Comparison) -> Diagnostic:
    return _difference(Code.PORT_BITS_DIFFER, problem, comparison)


def _difference(code: Code, problem: Problem, comparison: Comparison) -> Diagnostic:
    values = {
        "tensor": comparison.tensor,
        "count": comparison.mismatches,
        "total": comparison.elements,
    }
    return Diagnostic(
        code, Location(str(problem.case.kernel)), values, describe_difference(problem, comparison)
    )


def describe_difference(problem: Problem, comparison: Comparison) -> str:
    """The first bad element: where it is, what it should be and what it is."""
    first = comparison.first
    if first is None:
        return ""
    apart = f", {first.ulps} ulp apart" if first.ulps is not None else ""
    where = f"{comparison.tensor}{list(first.index)}"
    lines = [f"first at {where}: expected {first.expected:.9g}, got {first.actual:.9g}{apart}"]
    if first.error is not None and first.bound is not None:
        lines.append(f"error {first.error:.3g}, allowed {first.bound:.3g}")
    if math.isnan(first.expected):
        lines.append("the reference is NaN there: it overflows or divides by zero for these inputs (docs/cases.md)")
    elif first.bound is not None and math.isnan(first.bound):
        lines.append("there is no bound: the reference over absolute values is NaN; give a `magnitude` (docs/cases.md)")
    place = place_of(problem, problem.tensors[comparison.tensor], first.index)
    if place is not None:
        lines.append(f"in {place}")
    if comparison.unwritten:
        lines.append(f"{comparison.unwritten} elements were never written")
    elif comparison.nans:
        lines.append(f"{comparison.nans} elements are NaN")
    return "\n".join(lines)
