# SPDX-License-Identifier: Apache-2.0
"""What a user may choose about a run; free of the machinery that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from porter.build.entry import demangle
from porter.sim.results import DRAWN, Schedule
from porter.sim.trace.recorder import DEFAULT_LIMIT, Recorder


@dataclass(frozen=True)
class GpuOptions:
    """`seconds` limits one launch. `mode` and `arithmetic` concern emulated code: `eager` computes at issue,
    `deferred` as late as a waiting thread; `exact` is Blackwell's rule, `fast` plain f32 sums. `toolkit` is the
    one to assemble with, None for the first found; `tmem_check` has it check accesses to Tensor Memory."""

    seconds: float = 60.0
    mode: Literal["eager", "deferred"] = "deferred"
    arithmetic: Literal["exact", "fast"] = "exact"
    toolkit: Path | None = None
    tmem_check: bool = False


@dataclass(frozen=True)
class SimOptions:
    """How the simulator runs: see `porter.sim.Options`; `gpu` is for the other backends. `checking` is the level
    at which hazards are looked for, None for not at all. `rules` "sm_100" has wgmma add as tcgen05 does. `resident`:
    blocks that run at a time, where a launch does not say how many."""

    schedule: Schedule = "late"
    arithmetic: Literal["float64", "exact"] = "float64"
    rules: Literal["sm_90", "sm_100"] = "sm_90"
    seed: int = 0
    budget: int | None = None
    checking: Literal["strict", "practice"] | None = None
    progress: Callable[[int], None] | None = None
    print: Callable[[str], None] | None = None
    trace: Recorder | None = None
    gpu: GpuOptions = field(default_factory=GpuOptions)
    resident: int | None = None


def make_recorder(blocks: Callable[[int], bool] | None, kernel: str | None, limit: int | None) -> Recorder:
    """Of at most `limit` events, of the blocks by number, and of kernels with `kernel` in their name."""

    def called(mangled: str) -> bool:
        return kernel is None or kernel in mangled or kernel in demangle(mangled)

    return Recorder(limit=limit or DEFAULT_LIMIT, blocks=blocks, kernels=None if kernel is None else called)


__all__ = ["DRAWN", "GpuOptions", "Recorder", "Schedule", "SimOptions", "make_recorder"]
