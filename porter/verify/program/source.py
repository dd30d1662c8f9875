# SPDX-License-Identifier: Apache-2.0
"""Whole programs: built if source is given, then run with their own main(), or looked at for hazards."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from porter.build.entry import display_name, kernel_name
from porter.build.host_headers import host_headers_note
from porter.build.program import build_program
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, Diagnostic, PorterError
from porter.sim import GlobalMemory
from porter.sim.check.hazard import Level
from porter.verify.backends import simulator_options
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH
from porter.verify.hazards import HazardRun, OneRun, check_runs
from porter.verify.outcome import RunFinding
from porter.verify.program.device import LaunchHook, LaunchRecord
from porter.verify.program.results import as_run
from porter.verify.program.runner import SCRIPT, ProgramOptions, ProgramOutcome, run_program
from porter.verify.program.runtime import build_runtime
from porter.verify.settings import SimOptions


@dataclass(frozen=True)
class Request:
    """A program, given as source or as an executable made for the stand-in runtime, and its arguments.

    `arch` is what source is compiled for; for an executable, which of its images runs (None: the newest).
    `flags` go to nvcc. `report` gets what is to be said about the build.
    A Python script is one that launches Triton's kernels; they are compiled for `arch`, sm_100a by default.
    `kernels`: names of those in which hazards are looked for, all if there are none.
    With `attached` the program has our standard streams, else its output is returned.
    """

    path: Path
    arguments: Sequence[str]
    arch: str | None = None
    include_dirs: Sequence[Path] = ()
    defines: Sequence[str] = ()
    flags: Sequence[str] = ()
    libraries: Sequence[str] = ()
    is_source: bool = False
    multiprocessors: int | None = None
    attached: bool = False
    kernels: Sequence[str] = ()
    tell: Callable[[str], None] | None = field(default=None, compare=False)
    report: Callable[[list[Diagnostic]], None] | None = field(default=None, compare=False)

    @property
    def is_script(self) -> bool:
        return self.path.suffix == SCRIPT

    @property
    def target(self) -> str | None:
        """The chip that is simulated; None for the newest that the program has an image for."""
        if self.is_script:
            return self.arch or PORT_ARCH
        return None if self.is_source else self.arch


def run_source_or_executable(
    request: Request,
    options: SimOptions,
    toolkit: Toolkit,
    default_arch: str = ORIGINAL_ARCH,
    watch: LaunchHook | None = None,
) -> ProgramOutcome:
    """Build if need be, and run. `watch` is called before and after each launch.

    Raises:
        PorterError: what the compiler and the runner raise.
    """
    tell = request.tell or (lambda text: None)
    launches = 0
    kernel = ""

    def on_launch(when: Literal["before", "after"], record: LaunchRecord, memory: GlobalMemory) -> None:
        nonlocal launches, kernel
        if when == "before":
            launches += 1
            kernel = kernel_name(record.kernel)
            tell(f"{request.path.name}: launch {launches}, {kernel}")
        if watch is not None:
            watch(when, record, memory)

    def progress(instructions: int) -> None:
        tell(f"{request.path.name}: launch {launches}, {kernel}, {instructions:,} warp instructions")

    simulator = simulator_options(options if options.progress else replace(options, progress=progress))
    hook: LaunchHook | None = on_launch if request.tell is not None or watch is not None else None
    settings = ProgramOptions(
        simulator=simulator, on_launch=hook, attached=request.attached, target=request.target,
        runtime=None if request.is_script else build_runtime(toolkit), looks_at=partial(_is_named, request.kernels),
    )  # fmt: skip
    if request.multiprocessors is not None:
        settings = replace(settings, multiprocessors=request.multiprocessors)
    place: AbstractContextManager[str] = nullcontext("")
    if request.is_source:
        place = tempfile.TemporaryDirectory(prefix="porter-")
    with place as folder:
        executable = executable_of(request, toolkit, Path(folder), default_arch)
        return run_program(executable.resolve(), list(request.arguments), settings)


def _is_named(names: Sequence[str], mangled: str) -> bool:
    return not names or any(name in text for name in names for text in (mangled, display_name(mangled)))


def check_program(
    request: Request, toolkit: Toolkit, level: Level, options: SimOptions, seeds: Sequence[int]
) -> tuple[HazardRun, list[ProgramOutcome]]:
    """What is found in runs of a program with each seed, and how the runs ended.

    Raises:
        PorterError: ENTRY_NOT_FOUND, where no kernel of these names is launched, NOTHING_TO_RUN, where none is at all
            (but by a program that fails: that is found); what compiler and runner raise.
    """
    outcomes: list[ProgramOutcome] = []

    def run(settings: SimOptions) -> OneRun:
        outcomes.append(run_source_or_executable(request, settings, toolkit))
        launched = dict.fromkeys(record.kernel for record in outcomes[-1].launches)
        if not launched and not request.kernels and outcomes[-1].exit_status == 0:
            raise PorterError(Code.NOTHING_TO_RUN, path=request.path, reason="the program launches no kernel")
        if outcomes[-1].exit_status == 0 and not any(_is_named(request.kernels, kernel) for kernel in launched):
            listed = "\n".join(map(kernel_name, launched))
            raise PorterError(
                Code.ENTRY_NOT_FOUND, path=request.path, entry=" or ".join(request.kernels), detail=listed
            )
        one, left = as_run(outcomes[-1]), outcomes[-1].diagnostics
        return replace(one, findings=[*one.findings, *(RunFinding(d.code, d.message) for d in left)])

    label = request.arch or (ORIGINAL_ARCH if request.is_source else request.target or "executable")
    return check_runs(run, request.path.name, "program", "", label, level, options, seeds), outcomes


def executable_of(request: Request, toolkit: Toolkit, folder: Path, default_arch: str = ORIGINAL_ARCH) -> Path:
    """The executable of a request, built in `folder` if it is given as source.

    Raises:
        PorterError: what the compiler raises.
    """
    if not request.is_source:
        return request.path
    executable = folder / request.path.stem
    arch = request.arch or default_arch
    if request.tell is not None:
        request.tell(f"{request.path.name}: compiling for {arch}")
    built = build_program(
        request.path, arch, executable, request.include_dirs, defines=request.defines, flags=request.flags,
        libraries=request.libraries, toolkit=toolkit,
    )  # fmt: skip
    if request.report is not None:
        request.report(host_headers_note(request.path, built.stood_in))
    return executable
