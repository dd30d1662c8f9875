# SPDX-License-Identifier: Apache-2.0
"""Where kernels run: the protocol that every backend answers, and the simulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from porter.build.entry import demangled
from porter.diagnostics import Code, PorterError
from porter.ptx import ast
from porter.ptx.tensormap import ENCODED_BYTES
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.check.hazard import Hazard
from porter.verify.arguments import MapAddress, MapValue, Pointer
from porter.verify.builder import BuiltKernel
from porter.verify.case import place
from porter.verify.images import Image, placed, recorded_again
from porter.verify.outcome import RunFinding
from porter.verify.params import argument_bytes
from porter.verify.problem import LaunchValues, Problem
from porter.verify.register_moves import stopped_for_nothing
from porter.verify.settings import SimOptions


@dataclass(frozen=True)
class Left:
    """What a launch on the simulator leaves to the one behind it: memory, where tensors lie in it, what was put there
    ahead of the first launch, and the launch itself."""

    memory: GlobalMemory
    starts: Mapping[str, int]
    before: Mapping[str, Any]
    outcome: Outcome

    def contents(self) -> dict[str, Any]:
        """The bytes of all tensors."""
        return {name: np.array(self.memory.read(self.starts[name], data.size)) for name, data in self.before.items()}

    def put_back(self, contents: Mapping[str, Any]) -> None:
        for name, data in contents.items():
            self.memory.write(self.starts[name], data)


@dataclass(frozen=True)
class RunResult:
    """`status` ok, incomplete or error; `after` holds the image of every tensor after the run, `where` says
    what ran it, where that is not the backend alone, `variables` what is in variables of the module that hold other
    bytes than before."""

    status: Literal["ok", "incomplete", "error"]
    findings: tuple[RunFinding, ...]
    after: Mapping[str, Image]
    warp_instructions: int = 0
    seconds: float = 0.0
    stats: Any = None
    where: str = ""
    hazards: tuple[Hazard, ...] = ()
    variables: Mapping[str, bytes] = field(default_factory=dict)
    left: Left | None = field(default=None, compare=False, repr=False)
    """For a launch behind this one."""


class Backend(Protocol):
    """Runs one launch of a compiled kernel. `guard` is how many guard bytes lie around each tensor,
    `arithmetic` how its tensor cores add (see `porter.verify.arithmetic.step_loss`)."""

    name: str
    guard: int
    arithmetic: str

    def run(
        self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]
    ) -> RunResult:
        """Run with copies of `images`, which stay as they are."""
        ...


def simulator_options(options: SimOptions) -> Options:
    """The options as the simulator takes them; without a budget its own holds."""
    found = Options(
        schedule=options.schedule,
        seed=options.seed,
        arithmetic=options.arithmetic,
        rules=options.rules,
        progress=options.progress,
        print=options.print,
        trace=options.trace,
    )
    if options.checking is None:
        # What runs on GPUs is to run here.
        found = dataclasses.replace(found, level="practice")
    else:
        found = dataclasses.replace(found, mode="checking", level=options.checking)
    if options.budget is None:
        return found
    return dataclasses.replace(found, max_warp_instructions=options.budget)


class SimBackend:
    """The CPU simulator. It refuses any access outside a tensor by itself, so tensors need no guards."""

    name = "sim"
    guard = 0

    def __init__(
        self, options: SimOptions | None = None, state: Mapping[str, bytes] | None = None, keeps: bool = False
    ) -> None:
        """`state`: what variables of the module hold when a launch begins, where that is not what their initializers
        say. `keeps`: results have what they left to other launches."""
        self.options = options or SimOptions()
        self.arithmetic: str = self.options.arithmetic
        self.state = state or {}
        self.keeps = keeps

    def on(self, state: Mapping[str, bytes]) -> SimBackend:
        """The same one, for launches that begin with other contents of module variables."""
        return SimBackend(self.options, state, self.keeps)

    def run(
        self,
        kernel: BuiltKernel,
        problem: Problem,
        launch: LaunchValues,
        images: Mapping[str, Image],
        behind: Left | None = None,
        overlaps: bool = False,
    ) -> RunResult:
        """`behind`: what the launch before this one left, in place of `images`; one that `overlaps` need not wait for
        its end."""
        if kernel.function is None:
            raise PorterError(Code.CAPTURE_NO_PTX, place(problem.case, "kernel"), kernel=kernel.entry)
        bound = kernel.bound(problem)
        at = Launch(launch.grid, launch.block, launch.cluster, launch.dynamic_smem, launch.cooperative)
        resident = self.options.resident if launch.resident is None else launch.resident
        options = simulator_options(self.options)
        options = dataclasses.replace(options, resident=resident, taken=kernel.taken)
        found = behind.contents() if behind is not None else {}
        outcome, after, left = self._once(kernel, kernel.function, bound, at, options, images, behind, overlaps)
        if stopped_for_nothing(kernel, at, outcome):
            at = dataclasses.replace(at, registers=0)
            if behind is not None:
                behind.put_back(found)
            outcome, after, left = self._once(kernel, kernel.function, bound, at, options, images, behind, overlaps)
        return RunResult(
            status=outcome.status,
            findings=tuple(run_finding(f) for f in outcome.findings),
            after=after,
            warp_instructions=outcome.stats.warp_instructions,
            seconds=outcome.stats.seconds,
            stats=outcome.stats,
            hazards=tuple(outcome.hazards),
            variables=outcome.variables,
            left=left if self.keeps else None,
        )

    def _once(
        self,
        kernel: BuiltKernel,
        function: ast.Function,
        problem: Problem,
        launch: Launch,
        options: Options,
        images: Mapping[str, Image],
        behind: Left | None,
        overlaps: bool,
    ) -> tuple[Outcome, dict[str, Image], Left]:
        """The outcome of one launch, and the tensors after it."""
        memory, starts = _allocated(images) if behind is None else (behind.memory, behind.starts)

        def map_data(name: str) -> bytes:
            bound = problem.tensor_maps[name]
            base = starts[bound.tensor] + images[bound.tensor].guard
            return dataclasses.replace(bound.map, address=base + bound.map.address).encode()

        def address(argument: Pointer | MapAddress) -> int:
            if isinstance(argument, MapAddress):
                at = memory.alloc(ENCODED_BYTES, align=ENCODED_BYTES, name=argument.tensor_map)
                memory.write(at, map_data(argument.tensor_map))
                return at
            return starts[argument.tensor] + images[argument.tensor].guard + argument.offset

        def by_value(argument: MapValue) -> bytes:
            return map_data(argument.tensor_map)

        if behind is None:
            before: Mapping[str, Any] = {name: placed(i, address, by_value) for name, i in images.items()}
            for name, data in before.items():
                memory.write(starts[name], data)
        else:
            before = behind.before
        values = argument_bytes(problem, function, address, by_value)
        outcome = simulate(
            kernel.module,
            kernel.entry,
            launch,
            pack_params(function, values),
            memory,
            options,
            prerequisite=behind.outcome if behind is not None and overlaps else None,
            state=self.state,
        )
        left = Left(memory, starts, before, outcome)
        now = left.contents()
        after = {
            name: Image(image.tensor, image.guard, recorded_again(image, before[name], now[name]))
            for name, image in images.items()
        }
        return outcome, after, left


def _allocated(images: Mapping[str, Image]) -> tuple[GlobalMemory, dict[str, int]]:
    """Memory with room for tensors, and where it is."""
    memory = GlobalMemory()
    return memory, {
        name: memory.alloc(image.data.size, align=max(256, image.tensor.align), name=name)
        for name, image in images.items()
    }


def run_finding(finding: Any) -> RunFinding:
    """A simulator finding in the form that reports use; text places are for people."""
    places = []
    loc = finding.loc
    if loc is not None:
        places.append(f"{loc.file}:{loc.line}")
    if finding.ptx_line:
        places.append(f"PTX line {finding.ptx_line}")
    if finding.block is not None:
        places.append(f"block {','.join(map(str, finding.block))}")
    if finding.warp is not None:
        places.append(f"warp {finding.warp}" + ("" if finding.lane is None else f" lane {finding.lane}"))
    return RunFinding(
        code=finding.code,
        message=demangled(finding.message),
        where=", ".join(places),
        kernel=finding.kernel,
        block=finding.block,
        warp=finding.warp,
        lane=finding.lane,
        ptx_line=finding.ptx_line,
        source=loc.file if loc else "",
        line=loc.line if loc else 0,
    )
