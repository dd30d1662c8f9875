# SPDX-License-Identifier: Apache-2.0
"""A kernel as the grade takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from porter.build.entry import kernel_name
from porter.build.port_plan import PortPlan
from porter.diagnostics import Diagnostic
from porter.grade import calibration_file
from porter.grade.calibration_file import Calibration
from porter.grade.model import Grade, missing
from porter.grade.model import grade as grade_shape
from porter.grade.reading import Launch, Reading, read_shape
from porter.grade.shape import Problem as Product
from porter.grade.shape import Shape
from porter.passes.ported import PortedRoot
from porter.tune.searching import Searching
from porter.verify.builder import PORT_ARCH, BuiltKernel
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.expr import Number
from porter.verify.launched import launched
from porter.verify.problem import LaunchValues, Problem


@dataclass(frozen=True)
class Candidate:
    """A kernel that was read: `label` says whether it is an original, a port or just a kernel."""

    label: str
    kernel: str
    arch: str
    reading: Reading

    @property
    def gaps(self) -> Sequence[str]:
        """Facts without which it is not graded."""
        return missing(self.reading.shape) if self.reading.shape is not None else self.reading.unknown


def cases_of(root: PortedRoot) -> list[Case]:
    """The cases beside a root that compile kernels in its language."""
    found = map(load_case, cases_if_any(Path(root.path)))
    return [c for c in found if c.recorded is None and (c.dsl is not None) is root.dsl]


def port_of(plan: PortPlan) -> Callable[[Case], tuple[PortPlan, list[Diagnostic]]]:
    """A port with the launch of each case that it is compiled for."""
    return lambda case: (plan.on(case.template, case.launch.grid, case.map_params), [])


def graded_sizes(case: Case) -> Sequence[Mapping[str, Number]]:
    """The sizes of a case whose kernels are graded: what CuTe DSL traces hardly depends on the size, and takes long."""
    return case.all_sizes() if case.dsl is None else (case.sizes,)


def calibration_of(session: Searching, path: Path | None) -> Calibration | None:
    """That of a file, or of the configuration.

    Raises:
        PorterError: what `calibration_file.load` raises.
    """
    chosen = path or session.calibration
    return calibration_file.load(chosen) if chosen is not None else None


def grade_with(shape: Shape, problem: Product | None, using: Calibration | None, lifts: bool = True) -> Grade:
    """A grade; what was measured on a Blackwell GPU says nothing of another chip.

    Raises:
        ValueError: what `grade` raises.
    """
    constants = using.constants if using is not None and shape.arch == PORT_ARCH else None
    return grade_shape(shape, problem, lifts=lifts, constants=constants)


def candidate(label: str, kernel: BuiltKernel, problem: Problem, launch: LaunchValues) -> Candidate:
    """A kernel that was compiled, with its launch."""
    function = kernel.function
    assert function is not None
    facts = launched(kernel, problem, launch)
    if kernel.assembled is not None:
        used = kernel.assembled().resources.get(kernel.entry)
        facts["registers"] = used.registers if used is not None else None
    reading = read_shape(kernel.module, function, Launch(**facts))
    return Candidate(label, kernel_name(kernel.entry), kernel.arch, reading)


def with_stages_of(original: Candidate, port: Candidate) -> Candidate:
    """A port whose text does not say its stages, with those of its original, if it loads the same in each."""
    first, shape = original.reading.shape, port.reading.shape
    if first is None or shape is None or shape.stages is not None or first.stages is None:
        return port
    if (first.load_bytes, first.roles) != (shape.load_bytes, shape.roles):
        return port
    said = (*shape.assumed, "the port has as many stages as its original")
    return replace(port, reading=Reading(replace(shape, stages=first.stages, assumed=said), port.reading.unknown))
