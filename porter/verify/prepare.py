# SPDX-License-Identifier: Apache-2.0
"""What looking for hazards and mutation share: the programs of a case, built and given inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.build.port_plan import PortPlan
from porter.diagnostics import Code, Diagnostic, PorterError
from porter.verify.backends import RunResult, SimBackend
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, Builder, BuiltKernel
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.images import Image, make_image
from porter.verify.inputs import choose, generate
from porter.verify.launching import build_port, launch_of
from porter.verify.mutant_runs import Setup
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.settings import SimOptions

PortOf = Callable[[Case], tuple[PortPlan | None, list[Diagnostic]]]
"""The port of a case's kernel; None if constructs were left unported, as the diagnostics then say."""


@dataclass(frozen=True)
class Prepared:
    """A kernel ready to run: `program` is `original`, `port` or `kernel` (a file taken as it is), compiled from
    `source`."""

    program: str
    source: Path
    problem: Problem
    kernel: BuiltKernel
    launch: LaunchValues
    images: Mapping[str, Image]


def prepare(
    case: Case,
    programs: Sequence[str],
    builder: Builder,
    sizes: Mapping[str, Number],
    seed: int,
    port_of: PortOf,
    arch: str = PORT_ARCH,
    finished: bool = False,
) -> tuple[list[Prepared], list[Diagnostic]]:
    """The programs of a case on its first input family; diagnostics say why a port is missing. `finished`: the port is
    there already, so that also an original which is known as PTX or a binary has one.

    Raises:
        PorterError: what binding, porting and compiling raise.
    """
    problem = bind(case, sizes)
    family = choose(None, problem)[0]
    inputs = generate(problem, family, seed)
    images = {name: make_image(t, inputs.get(name), 0) for name, t in problem.tensors.items()}
    found: list[Prepared] = []
    for program in programs:
        if program != "port":
            own = ORIGINAL_ARCH if case.recorded is None else case.recorded.arch
            kernel = builder.build(problem, case.kernel, own if program == "original" else arch)
            found.append(Prepared(program, case.kernel, problem, kernel, launch_of(problem, kernel), images))
            continue
        if not finished and case.recorded is not None and case.source is None and found:
            continue  # The original is PTX or a binary, of which no port is made.
        plan, notes = port_of(case)
        if plan is None:
            return found, notes
        port = build_port(problem, plan, builder)
        found.append(Prepared(program, port.source, port.problem, port.kernel, port.launch, images))
    return found, []


def mutation_setups(
    case: Case,
    program: str,
    builder: Builder,
    sizes: Sequence[Mapping[str, Number]],
    seed: int,
    port_of: PortOf,
) -> tuple[list[Setup], list[Diagnostic]]:
    """A program of a case at several sizes; none if it cannot be ported, as the diagnostics then say.

    Raises:
        PorterError: what binding, porting and compiling raise.
    """
    setups: list[Setup] = []
    notes: list[Diagnostic] = []
    for chosen in sizes:
        prepared, left = prepare(case, [program], builder, chosen, seed, port_of)
        notes += [d for d in left if d not in notes]
        for p in prepared:
            label = ", ".join(f"{name}={value}" for name, value in p.problem.sizes.items())
            setups.append(Setup(label, p.kernel, p.problem, p.launch, p.images))
        if not prepared:
            break
    return setups, notes


def run_once(
    case: Case,
    sizes: Mapping[str, Number],
    family: str,
    arch: str,
    builder: Builder,
    options: SimOptions,
    port: Path | None = None,
) -> tuple[Problem, BuiltKernel, RunResult]:
    """One run of a case's kernel on the simulator, or of its `port`, compiled for `arch`.

    Raises:
        PorterError: BAD_OPTION for a family that does not apply; what binding, compiling and running raise.
    """
    problem = bind(case, sizes)
    chosen = choose([family], problem)
    if not chosen:
        raise PorterError(Code.BAD_OPTION, option="--family", problem=f"{family} does not apply to this case")
    backend = SimBackend(options)
    built = builder.build(problem, port or case.kernel, arch)
    inputs = generate(problem, chosen[0], options.seed)
    images = {n: make_image(t, inputs.get(n), backend.guard) for n, t in problem.tensors.items()}
    return problem, built, backend.run(built, problem, built.launch(problem), images)
