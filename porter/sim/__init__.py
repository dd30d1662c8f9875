# SPDX-License-Identifier: Apache-2.0
"""Simulator: executes the PTX of Hopper and Blackwell kernels on the CPU."""

from threadpoolctl import threadpool_limits

from porter.sim.launch import pack_params, simulate
from porter.sim.memory import GlobalMemory, MemoryAccessError
from porter.sim.results import Finding, Launch, Options, Outcome, Stats

threadpool_limits(1, user_api="blas")
"""Matrices are an instruction's tiles: threads of the linear algebra library would wait for each other most of the
time, and sums depend on how many there are."""

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
