# SPDX-License-Identifier: Apache-2.0
"""Simulator: executes the PTX of Hopper and Blackwell kernels on the CPU."""

from porter.sim.launch import pack_params, simulate
from porter.sim.memory import GlobalMemory, MemoryAccessError
from porter.sim.results import Finding, Launch, Options, Outcome, Stats

__all__ = [
    "Finding",
    "GlobalMemory",
    "Launch",
    "MemoryAccessError",
    "Options",
    "Outcome",
    "Stats",
    "pack_params",
    "simulate",
]
