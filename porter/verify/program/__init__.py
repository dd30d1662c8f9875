# SPDX-License-Identifier: Apache-2.0
"""Whole programs: runs an executable's own main() with its kernels on the simulator."""

from porter.verify.program.device import LaunchHook, LaunchRecord
from porter.verify.program.runner import ProgramOptions, ProgramOutcome, run_program
from porter.verify.program.runtime import build_runtime

__all__ = [
    "LaunchHook",
    "LaunchRecord",
    "ProgramOptions",
    "ProgramOutcome",
    "build_runtime",
    "run_program",
]
