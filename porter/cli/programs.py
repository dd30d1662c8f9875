# SPDX-License-Identifier: Apache-2.0
"""Whole programs for `porter sim`: built if source is given, then run with their own main()."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from porter.build.program import build_program
from porter.build.toolchain import Toolkit
from porter.lang.sources import CUDA_ENDINGS
from porter.verify.backends import simulator_options
from porter.verify.program import ProgramOptions, ProgramOutcome, run_program
from porter.verify.settings import SimOptions


def run_source_or_executable(
    path: Path,
    arguments: Sequence[str],
    arch: str,
    include_dirs: Sequence[Path],
    defines: Sequence[str],
    options: SimOptions,
    toolkit: Toolkit,
) -> ProgramOutcome:
    """Run a program given as source or as an executable made for the stand-in runtime.

    Raises:
        PorterError: what the compiler and the runner raise.
    """
    simulator = simulator_options(options)
    with tempfile.TemporaryDirectory(prefix="porter-") as folder:
        executable = path
        if path.suffix.lower() in CUDA_ENDINGS:
            executable = Path(folder) / path.stem
            build_program(path, arch, executable, include_dirs, defines=defines, toolkit=toolkit)
        return run_program(executable.resolve(), list(arguments), ProgramOptions(simulator=simulator))
