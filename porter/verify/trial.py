# SPDX-License-Identifier: Apache-2.0
"""One program run on the inputs of one family, and what is to be said about its outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from porter.diagnostics import Code, Diagnostic, Location
from porter.verify.backends import Backend, RunResult
from porter.verify.builder import BuiltKernel
from porter.verify.case import Case, place
from porter.verify.compare import Comparison
from porter.verify.dtypes import Array
from porter.verify.images import Image, changed_element, make_image, stray_write
from porter.verify.inputs import Family, generate
from porter.verify.judge import Expectation, expectation, failed_controls
from porter.verify.locate import place_of
from porter.verify.outcome import RunSummary
from porter.verify.problem import LaunchValues, Problem
from porter.verify.recorded import RecordedExpectation


@dataclass(frozen=True)
class Program:
    """`original` or `port`, ready to run; `source` is what it was compiled from, `problem` what it is given."""

    name: str
    arch: str
    source: Path
    kernel: BuiltKernel
    problem: Problem
    launch: LaunchValues


@dataclass
class Ran:
    """A program after its run. `diagnostics` say what is wrong with it, as far as this program alone tells."""

    program: Program
    result: RunResult
    summary: RunSummary
    outputs: dict[str, Array] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether it ended, agrees with the reference, and damaged nothing."""
        return not self.diagnostics


class Trial:
    """The inputs of one family at one size, and what outputs they should give.

    Raises:
        PorterError: CASE_REFERENCE.
    """

    def __init__(self, problem: Problem, family: Family, seed: int, arithmetic: str) -> None:
        self.problem, self.family = problem, family
        self._inputs = generate(problem, family, seed)
        self._wanted = expectation(problem, family, self._inputs, arithmetic)
        self.controls, self.failed = failed_controls(self._wanted)

    def _images(self, guard: int) -> dict[str, Image]:
        return {n: make_image(t, self._inputs.get(n), guard) for n, t in self.problem.tensors.items()}

    def left(self, ran: Ran) -> dict[str, Image]:
        """The scratch tensors that hold something else after a run than before it."""
        after = ran.result.after
        guards = {image.guard for image in after.values()} or {0}
        return {
            name: after[name]
            for name, before in self._images(guards.pop()).items()
            if before.tensor.role == "scratch" and not np.array_equal(before.data, after[name].data)
        }

    def run(
        self, program: Program, backend: Backend, name: str | None = None, scratch: Mapping[str, Image] | None = None
    ) -> Ran:
        """Run a program; `name` is how its backend is known, where that is not its own name, `scratch` what scratch
        tensors hold, where that is not what the case says."""
        problem = self.problem
        images = {**self._images(backend.guard), **(scratch or {})}
        result = backend.run(program.kernel, program.problem, program.launch, images)
        ran = Ran(program, result, _summary(program, name or backend.name, result))
        if result.status != "ok":
            ran.diagnostics.append(_not_finished(problem.case, program, result))
            return ran
        ran.outputs = {t.name: result.after[t.name].elements() for t in problem.outputs}
        ran.comparisons = tuple(
            self._wanted.against_reference(t, ran.outputs[t.name], program.arch) for t in problem.outputs
        )
        ran.diagnostics += _memory_damage(problem.case, program, images, result)
        ran.diagnostics += _differences(problem, program, ran.comparisons)
        return ran

    def between(self, original: Ran, port: Ran) -> tuple[Comparison, ...]:
        """The port's outputs against the original's; nothing where one of them has none."""
        return _between(self._wanted, {"original": original.outputs, "port": port.outputs})

    def bits(self, original: Ran, port: Ran, between: Sequence[Comparison]) -> list[Diagnostic]:
        """Bits that differ although both agree with the reference."""
        if not all(c.ok for ran in (original, port) for c in ran.comparisons):
            return []
        return [_bits_differ(self.problem, c) for c in between if not c.ok]


def _between(
    wanted: Expectation | RecordedExpectation, outputs: Mapping[str, Mapping[str, Array]]
) -> tuple[Comparison, ...]:
    if not all(outputs.values()):
        return ()
    return tuple(
        wanted.between(t, outputs["original"][t.name], outputs["port"][t.name]) for t in wanted.problem.outputs
    )


def _summary(program: Program, backend: str, result: RunResult) -> RunSummary:
    return RunSummary(
        program=program.name,
        arch=program.arch,
        backend=result.where or backend,
        status=result.status,
        findings=result.findings,
        warp_instructions=result.warp_instructions,
        seconds=result.seconds,
    )


def _not_finished(case: Case, program: Program, result: RunResult) -> Diagnostic:
    code = Code.RUN_INCOMPLETE if result.status == "incomplete" else Code.RUN_FAILED
    reason = "; ".join(f"{f.code.id}: {f.message}" for f in result.findings[:3]) or "no reason given"
    detail = "\n".join(f"{f.code.id}: {f.message}" + (f" ({f.where})" if f.where else "") for f in result.findings)
    return Diagnostic(code, Location(str(case.kernel)), {"program": program.name, "reason": reason}, detail)


def _memory_damage(case: Case, program: Program, before: Mapping[str, Image], result: RunResult) -> list[Diagnostic]:
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


def _differences(problem: Problem, program: Program, comparisons: Sequence[Comparison]) -> list[Diagnostic]:
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
    case = problem.case
    # the first thing to look at is what the case says that the kernel computes
    is_said = code is Code.ORIGINAL_DIFFERS and case.recorded is None
    where = place(case, "reference") if is_said else Location(str(case.kernel))
    return Diagnostic(code, where, values, describe_difference(problem, comparison))


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
    spot = place_of(problem, problem.tensors[comparison.tensor], first.index)
    if spot is not None:
        lines.append(f"in {spot}")
    if comparison.unwritten:
        lines.append(f"{comparison.unwritten} elements were never written")
    elif comparison.nans:
        lines.append(f"{comparison.nans} elements are NaN")
    return "\n".join(lines)
