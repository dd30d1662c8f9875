# SPDX-License-Identifier: Apache-2.0
"""The parts of the machine that instructions speak to: registers, memories, barriers, asynchronous operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.sim.accumulators import Accumulators
from porter.sim.engine import Engine
from porter.sim.mbarrier import Mbarriers
from porter.sim.registers import Registers
from porter.sim.special_registers import special_registers
from porter.sim.tensor_memory import TensorMemory
from porter.sim.wave import Wave


class Machine(Wave):
    """A wave of blocks with its parts; `porter.sim.executor` runs it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._special = special_registers(self)
        self.accumulators = Accumulators(self)
        self.mbar = Mbarriers(self)
        self.tmem = TensorMemory(self)
        self.registers = Registers(self, self.program, self.launch)
        self.engine = Engine(self)

    def special(self, name: str, idx: Any) -> Any:
        """A special register for the selected warps; broadcasts to [n, 32]."""
        found = self._special.get(name)
        if found is None:
            if name.startswith(("clock", "globaltimer")):
                t = self.steps * 32
                if name.endswith("_hi"):
                    return np.uint32(t >> 32)
                if name in ("clock64", "globaltimer"):
                    return np.uint64(t)
                return np.uint32(t & 0xFFFFFFFF)
            return np.uint32(0)
        if isinstance(found, np.ndarray) and found.shape[0] == self.W and self.W != 1:
            return found[idx]
        return found
