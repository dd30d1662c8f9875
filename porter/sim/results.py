# SPDX-License-Identifier: Apache-2.0
"""What a simulation is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.occupancy import Taken
from porter.sim.check.global_shadow import GlobalState
from porter.sim.check.hazard import Hazard
from porter.sim.trace.recorder import Recorder

Mode = Literal["functional", "checking"]
Status = Literal["ok", "incomplete", "error"]
Arithmetic = Literal["float64", "exact"]
Schedule = Literal["eager", "late", "random", "lagging"]
DRAWN: tuple[Schedule, ...] = ("random", "lagging")
"""Schedules that are drawn from a seed."""


@dataclass(frozen=True)
class Launch:
    """A launch configuration: extents in x, y, z; `dynamic_smem` in bytes. The blocks of a `cooperative` launch
    may wait for each other. `registers` are those that each thread starts with where setmaxnreg moves them, 0 where it
    has no effect; None: what ptxas makes of the kernel's directives (`porter.ptx.register_file`)."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dynamic_smem: int = 0
    cooperative: bool = False
    registers: int | None = None


@dataclass(frozen=True)
class Options:
    """How to simulate.

    `mode` "checking" also looks for hazards, on a `level` (see `porter.sim.check.catalog`); at level practice some
    operands are taken that the PTX ISA does not allow (docs/rulings.md).
    `schedule` says when asynchronous operations land: at issue (`eager`), only when no warp can go on without
    them (`late`), or at random times drawn from `seed` (`random`, and `lagging`, which also holds back warps that could
    go on). `arithmetic` "exact" adds as the tensor cores do, and
    `rules` "sm_100" lets wgmma do it as tcgen05 does. `max_warp_instructions` is the budget; beyond it the
    outcome is incomplete. `progress` is called with the number of warp-instructions now and then, `print` with
    the text of the kernel's printf. `resident` bounds how many thread blocks run at the same time; by default they
    are those of an H100 or H200, one on each multiprocessor, and of a kernel that takes over work by
    clusterlaunchcontrol a third of the grid, so that there is some to take over. Where blocks wait for each other, as
    many run as the chip's `multiprocessors` (None: as many as it has) take, by what `taken`, if given, answers of the
    registers and barriers that ptxas gives a block, and share Tensor Memory (`porter.sim.placement`). `trace`, if
    given, records what happens in which order.
    """

    mode: Mode = "functional"
    level: Literal["strict", "practice"] = "strict"
    schedule: Schedule = "late"
    seed: int = 0
    arithmetic: Arithmetic = "float64"
    rules: Literal["sm_90", "sm_100"] = "sm_90"
    max_warp_instructions: int = 2_000_000_000
    progress: Callable[[int], None] | None = None
    print: Callable[[str], None] | None = None
    resident: int | None = None
    multiprocessors: int | None = None
    taken: Callable[[], Taken | None] | None = None
    trace: Recorder | None = None


@dataclass(frozen=True)
class Finding:
    """Something wrong, and where: block index, warp within the block, lane; the PTX line and CUDA source."""

    code: Code
    message: str
    kernel: str = ""
    block: tuple[int, int, int] | None = None
    warp: int | None = None
    lane: int | None = None
    ptx_line: int = 0
    loc: ast.SourceLoc | None = None

    def __str__(self) -> str:
        where = []
        if self.loc is not None:
            where.append(f"{self.loc.file}:{self.loc.line}")
        if self.ptx_line:
            where.append(f"PTX line {self.ptx_line}")
        if self.block is not None:
            where.append("block " + ",".join(map(str, self.block)))
        if self.warp is not None:
            where.append(f"warp {self.warp}" + ("" if self.lane is None else f" lane {self.lane}"))
        if self.kernel:
            where.append(f"kernel {self.kernel}")
        return f"{self.code.id}: {self.message}" + (f" ({'; '.join(where)})" if where else "")


@dataclass
class Stats:
    """`warp_instructions` executed, scheduler `steps`, executions per opcode, wall `seconds`, the PTX `lines` whose
    instructions some warp came to (with a guard that was false, too). Checking runs also say which lines are
    `waits`, those of waits and after_thread_sync fences that had something to wait for or to order: an mbarrier
    phase other than the one before the first, a pending group; and what integers were `compared` with constants, by
    line: the constant and the largest value. `phases`: by the name of an mbarrier how many the block that completed
    most of them has completed."""

    warp_instructions: int = 0
    steps: int = 0
    opcodes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    lines: set[int] = field(default_factory=set)
    waits: set[int] = field(default_factory=set)
    compared: dict[int, tuple[int, int]] = field(default_factory=dict)
    phases: dict[str, int] = field(default_factory=dict)


@dataclass
class Outcome:
    """`grid` is what a checked launch did in global memory, for one that depends on it. `variables`: the module's, by
    name, that hold other bytes than before the launch."""

    status: Status
    findings: list[Finding]
    stats: Stats
    hazards: list[Hazard] = field(default_factory=list)
    grid: GlobalState | None = None
    variables: dict[str, bytes] = field(default_factory=dict)


class Stop(Exception):
    """Ends a run with a finding; `at` is the index of the instruction, `lane` within the warp."""

    def __init__(
        self, code: Code, message: str, at: int = -1, warp: int | None = None, lane: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.at = at
        self.warp = warp
        self.lane = lane
