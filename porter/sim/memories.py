# SPDX-License-Identifier: Apache-2.0
"""The memories that a wave's threads address, and what addresses mean.

A global address is itself as a generic address; shared, local and kernel parameters are windows far above. Shared
addresses are made as on hardware (`porter.ptx.shared_window`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.arch import WARP
from porter.ptx.shared_window import RANK_SHIFT, SYSTEM_SHARED
from porter.ptx.swizzle import PERIOD
from porter.ptx.tensormap import TensorMap
from porter.sim.geometry import Geometry
from porter.sim.memory import Allocation, Everything, GlobalMemory
from porter.sim.program import Program, Variable

Array = npt.NDArray[Any]

SHARED_WINDOW = 1 << 48
LOCAL_WINDOW = 2 << 48
PARAM_WINDOW = 3 << 48
FUNCTION_WINDOW = 4 << 48
INTERNAL_BASE = 5 << 48


class Memories:
    """`addresses` are those of the program's variables outside of blocks, `internal` the memory that holds them and the
    kernel's parameters, `everything` all global memory."""

    def __init__(
        self,
        program: Program,
        geometry: Geometry,
        memory: GlobalMemory,
        internal: GlobalMemory,
        addresses: dict[str, int],
        dynamic_smem: int,
    ) -> None:
        self.program = program
        self._geometry = geometry
        self.memory = memory
        self.internal = internal
        self.everything = Everything(memory, internal)
        self.addresses = addresses
        self.last_allocation: Allocation | None = None
        self.tensor_maps: dict[bytes, TensorMap] = {}
        self.stores = 0

        self.smem_size = SYSTEM_SHARED + program.dynamic_offset + dynamic_smem
        self.smem_stride = -(-self.smem_size // PERIOD) * PERIOD
        self.smem = np.full((geometry.n_cta, self.smem_stride), 0xFF, np.uint8)
        self.smem_flat = self.smem.reshape(-1)
        self._smem_views: dict[tuple[int, int], Array] = {}
        self.local_stride = -(-max(program.local_size, 16) // 16) * 16
        self.local = np.zeros(0, np.uint8)
        self._local_views: dict[tuple[int, int], Array] = {}
        shared = ((geometry.cta_rank << RANK_SHIFT) + SYSTEM_SHARED).astype(np.uint32)
        clustered = geometry.clustered
        self._shared_base = shared[geometry.warp_cta][:, None] if clustered else np.uint32(SYSTEM_SHARED)
        self.smem_base = (geometry.warp_cta * self.smem_stride).astype(np.int64)[:, None]

    def shared_base(self, idx: Any) -> Any:
        """Shared address of the first byte of the kernel's own shared memory."""
        return self._shared_base[idx] if isinstance(self._shared_base, np.ndarray) else self._shared_base

    def window(self, space: str) -> int:
        """What is added to an address in a state space to make it generic."""
        return {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": PARAM_WINDOW}[space]

    def address_of(self, variable: Variable) -> int:
        if variable.space == "kernelparam":
            return PARAM_WINDOW + variable.offset
        if variable.space == "local":
            return variable.offset
        return self.addresses[variable.name]

    def function_address(self, name: str) -> int | None:
        for i, f in enumerate(self.program.module.functions):
            if f.name == name:
                return FUNCTION_WINDOW + 16 * i
        return None

    def smem_view(self, itemsize: int, count: int) -> Array:
        """All shared memory as rows of `count` items of `itemsize` bytes."""
        return self._view(self._smem_views, self.smem_flat, itemsize, count)

    def local_view(self, itemsize: int, count: int) -> Array:
        if self.local.size == 0:
            self.local = np.full(self._geometry.W * WARP * self.local_stride, 0xFF, np.uint8)
        return self._view(self._local_views, self.local, itemsize, count)

    @staticmethod
    def _view(cache: dict[tuple[int, int], Array], flat: Array, itemsize: int, count: int) -> Array:
        found = cache.get((itemsize, count))
        if found is None:
            found = flat[: flat.size // (itemsize * count) * itemsize * count].view(f"u{itemsize}")
            if count > 1:
                found = found.reshape(-1, count)
            cache[itemsize, count] = found
        return found
