# SPDX-License-Identifier: Apache-2.0
"""The state of the thread blocks that run at one time, and their threads' progress.

State map (C blocks, W warps in all, warp w of block c is row c*warps_per_cta + w; S shared bytes per block):

=================  ===================  =========================================  ===================
`warp_cta`         [W]                  the block of each warp                     `geometry`
`warp_next`        [W]                  the block of code its runnable threads     `progress`
                                        are at (lowest), NONE if none
`converged`        [W] bool             all 32 threads are runnable and there      `progress`
`lane_pc`          [W, 32]              block of code of each thread; valid only   `progress`
                                        if not converged
`lane_state`       [W, 32]              RUN, PARKED or GONE; valid likewise        `progress`
`parked`           {key: [(warp,        who waits for what: see `park`             `progress`
                   lanes)]}
`key`, `epoch`     [W]                  scheduling order: epoch + block of code;   `progress`
                                        epochs keep loops fair
`regs[slot]`       [W, 32]              registers that outlive a block of code     `banks`
                                        (bool, u16, u32, u64)
`smem`             [C, S] u8            shared memory; a shared::cta address is    `memories`
                                        the column index
`local`            [W*32, L] u8         local memory                               `memories`
`barriers`                              named barriers and cluster barriers        `barriers`
`tmem.cells(c)`    [128, 512] u32       Tensor Memory, made when first used (of    `tensor_memory`
                                        `Machine`)
=================  ===================  =========================================  ===================
"""

from __future__ import annotations

import random
from typing import Literal

import numpy as np

from porter.sim.banks import Banks
from porter.sim.barriers import Barriers
from porter.sim.memories import Memories
from porter.sim.memory import GlobalMemory
from porter.sim.operation import Groups
from porter.sim.pending import Pending
from porter.sim.program import Program
from porter.sim.progress import Progress
from porter.sim.results import DRAWN, Launch, Options


class Wave(Progress, Memories, Banks):
    """The blocks `ctas` (linear indices) of a launch. `multiprocessor` [C] is the one that each is on, of so many; 0:
    of as many as there are blocks."""

    pending: Pending

    def __init__(
        self,
        program: Program,
        launch: Launch,
        params: bytes,
        memory: GlobalMemory,
        internal: GlobalMemory,
        addresses: dict[str, int],
        options: Options,
        ctas: range,
        seed: int,
        multiprocessors: int = 0,
    ) -> None:
        Progress.__init__(self, launch, ctas)
        self.multiprocessor = np.arange(self.n_cta) % (multiprocessors or self.n_cta)
        Memories.__init__(self, program, self, memory, internal, addresses, launch.dynamic_smem)
        Banks.__init__(self)
        self.params = params
        self.options = options
        self.refused: set[int] = set()
        """Blocks that have seen a request for another cluster's work fail."""
        self.late = options.schedule != "eager"
        self.random = random.Random(seed) if options.schedule in DRAWN else None
        self.architecture: Literal["sm_90", "sm_100"] = (
            "sm_90" if program.module.target.startswith("sm_9") else "sm_100"
        )
        self.stuck_activity = -1
        self.stuck_rounds = 0
        self.steps = 0
        self.instructions = 0
        self.barriers = Barriers(self)
        # Groups of copies, by warp and lane.
        self.copies: dict[int, Groups] = {}
        self.bulk: dict[int, dict[int, Groups]] = {}
