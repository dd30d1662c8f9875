# SPDX-License-Identifier: Apache-2.0
"""A wave of blocks under the checker's eyes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from porter.sim.check.accesses import SharedAccesses
from porter.sim.check.barrier_parts import BarrierParts
from porter.sim.check.checker import Checker
from porter.sim.check.early_tests import EarlyTests
from porter.sim.check.global_shadow import GlobalState
from porter.sim.check.hazard import Level
from porter.sim.check.operations import Operations
from porter.sim.check.pairs import TensorLifetime
from porter.sim.check.registers import RegisterWatch
from porter.sim.check.synchronization import Synchronization
from porter.sim.check.wgmma_pairs import WgmmaPairs
from porter.sim.machine import Machine
from porter.sim.observer import Observer


class CheckedWave(Observer):
    """The checker with its parts. `before` is the wave before this one of the same launch, `prerequisite` what the grid
    did that the first wave need not wait for."""

    def __init__(
        self,
        machine: Machine,
        level: Level,
        before: CheckedWave | None = None,
        prerequisite: GlobalState | None = None,
    ) -> None:
        self.check = Checker(machine, level)
        self._registers = RegisterWatch(self.check)
        if before is not None:
            self.check.global_memory.follow(before.check.global_memory.state)
            self._registers.follow(before._registers)
        elif prerequisite is not None:
            prerequisite.begin_dependent()
            self.check.global_memory.follow(prerequisite)
        self.observers: Sequence[Observer] = (
            self,
            self.check.mbarriers,
            self.check.global_memory,
            SharedAccesses(self.check),
            self._registers,
            WgmmaPairs(self.check),
            Synchronization(self.check),
            BarrierParts(self.check),
            EarlyTests(self.check),
            TensorLifetime(self.check),
            Operations(self.check),
        )

    def exited(self, warps: npt.NDArray[Any]) -> None:
        M = self.check.machine
        for cta in sorted(set(M.warp_cta[warps].tolist())):
            if M.alive[cta] == 0:
                self.check.block_ended(cta)
                self._registers.block_ended(cta)
