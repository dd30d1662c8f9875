# SPDX-License-Identifier: Apache-2.0
"""The state of the thread blocks that run at one time, and their threads' progress.

State map (C blocks, W warps in all, warp w of block c is row c*warps_per_cta + w; S shared bytes per block):

=================  ===================  ===========================================================
`regs[slot]`       [W, 32]              registers that outlive a block of code (bool, u16, u32, u64)
`smem`             [C, S] u8            shared memory; a shared::cta address is the column index
`local`            [W*32, L] u8         local memory
`tmem[c]`          [128, 512] u32       Tensor Memory, made when first allocated (of `Machine`)
`warp_next`        [W]                  the block its runnable threads are at (lowest), NONE if none
`converged`        [W] bool             all 32 threads are runnable and at `warp_next`
`lane_pc`          [W, 32]              block of each thread; valid only if not converged
`lane_state`       [W, 32]              RUN, PARKED or GONE; valid only if not converged
`parked`           {key: [(warp, lanes)]}  who waits for what: see `park`
`key`, `epoch`     [W]                  scheduling order: epoch + block; epochs keep loops fair
=================  ===================  ===========================================================

Addresses. Generic addresses: a global address is itself; shared, local and kernel parameters are windows far
above. Shared addresses are made as on hardware (`porter.ptx.shared_window`).
"""

from __future__ import annotations

import math
import random
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from porter.ptx.shared_window import RANK_SHIFT, SYSTEM_SHARED
from porter.ptx.tensormap import TensorMap
from porter.sim.block_grid import BlockGrid
from porter.sim.memory import Allocation, GlobalMemory
from porter.sim.pending import Pending
from porter.sim.program import Program, Variable
from porter.sim.progress import Progress
from porter.sim.results import Launch, Options

Array = npt.NDArray[Any]

SHARED_WINDOW = 1 << 48
LOCAL_WINDOW = 2 << 48
PARAM_WINDOW = 3 << 48
FUNCTION_WINDOW = 4 << 48
INTERNAL_BASE = 5 << 48


class Wave(Progress):
    """The blocks `ctas` (linear indices) of a launch."""

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
    ) -> None:
        self.program = program
        self.launch = launch
        self.params = params
        self.memory = memory
        self.internal = internal
        self.addresses = addresses
        self.options = options
        self.late = options.schedule != "eager"
        self.random = random.Random(seed) if options.schedule == "random" else None
        self.ctas = ctas
        n_cta = len(ctas)
        self.n_cta = n_cta
        bx, by, bz = launch.block
        self.threads = bx * by * bz
        self.warps_per_cta = -(-self.threads // 32)
        W = n_cta * self.warps_per_cta
        self.W = W
        self.cluster_size = math.prod(launch.cluster)
        self.clustered = self.cluster_size > 1

        self.smem_size = SYSTEM_SHARED + program.dynamic_offset + launch.dynamic_smem
        self.smem_stride = -(-self.smem_size // 1024) * 1024
        self.smem = np.full((n_cta, self.smem_stride), 0xFF, np.uint8)
        self.smem_flat = self.smem.reshape(-1)
        self._smem_views: dict[tuple[int, int], Array] = {}
        self.local_stride = -(-max(program.local_size, 16) // 16) * 16
        self.local = np.zeros(0, np.uint8)
        self._local_views: dict[tuple[int, int], Array] = {}

        warp = np.arange(W)
        self.warp_cta = warp // self.warps_per_cta
        self.warp_rank = warp % self.warps_per_cta
        self.thread = (self.warp_rank[:, None] * 32 + np.arange(32)).astype(np.uint32)
        self.grid = BlockGrid(launch, ctas)
        self.cta_rank, self.cta_first = self.grid.rank, self.grid.first
        shared = ((self.cta_rank << RANK_SHIFT) + SYSTEM_SHARED).astype(np.uint32)
        self._shared_base = shared[self.warp_cta][:, None] if self.clustered else np.uint32(SYSTEM_SHARED)
        self.smem_base = (self.warp_cta * self.smem_stride).astype(np.int64)[:, None]

        Progress.__init__(self, self.warp_cta, self.thread < self.threads, np.full(n_cta, self.threads, np.int64))
        self.has_token = np.zeros((W, 32), bool)
        self.tokens = np.zeros((W, 32), np.int64)
        clusters = n_cta // self.cluster_size
        self.cluster_arrived = np.zeros(clusters, np.int64)
        self.cluster_phase = np.zeros(clusters, np.int64)
        self.cluster_seen = np.full((W, 32), -1, np.int64)
        self.stuck_activity = -1
        self.stuck_rounds = 0
        self.last_allocation: Allocation | None = None
        self.stores = 0
        self.steps = 0

        self.instructions = 0
        self.regs: list[Array] = []
        self.banks: dict[int, Array] = {}
        self.bank_index: list[int] = []

        self.barriers: dict[tuple[int, int], Any] = {}
        self.copies: dict[int, Any] = {}
        self.bulk: dict[int, dict[int, Any]] = {}
        self.warpgroups: dict[int, Any] = {}
        self.wgmma_warps: dict[int, Any] = {}
        self.pipes: dict[int, Any] = {}
        self.architecture: Literal["sm_90", "sm_100"] = (
            "sm_90" if program.module.target.startswith("sm_9") else "sm_100"
        )
        self.tensor_maps: dict[bytes, TensorMap] = {}

    def make_registers(self, widths: list[int]) -> None:
        """Storage for registers of these widths."""
        kinds = {1: np.bool_, 16: np.uint16, 32: np.uint32, 64: np.uint64}
        counts = dict.fromkeys(kinds, 0)
        for w in widths:
            self.bank_index.append(counts[w])
            counts[w] += 1
        for w, kind in kinds.items():
            self.banks[w] = np.zeros((counts[w], self.W, 32), kind)
        self.regs = [self.banks[w][i] for w, i in zip(widths, self.bank_index, strict=True)]

    # Geometry -----------------------------------------------------------------------------------------

    def shared_base(self, idx: Any) -> Any:
        """Shared address of the first byte of the kernel's own shared memory."""
        return self._shared_base[idx] if isinstance(self._shared_base, np.ndarray) else self._shared_base

    def window(self, space: str) -> int:
        """What is added to an address in a state space to make it generic."""
        return {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": 0}[space]

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

    def block_position(self, cta: int) -> tuple[int, int, int]:
        """Index of a block of the wave in the grid."""
        return self.grid.position(cta)

    # Memory -------------------------------------------------------------------------------------------

    def smem_view(self, itemsize: int, count: int) -> Array:
        """All shared memory as rows of `count` items of `itemsize` bytes."""
        return self._view(self._smem_views, self.smem_flat, itemsize, count)

    def local_view(self, itemsize: int, count: int) -> Array:
        if self.local.size == 0:
            self.local = np.full(self.W * 32 * self.local_stride, 0xFF, np.uint8)
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

    # Where things happen ------------------------------------------------------------------------------

    def first_lane(self, idx: Any, n: int, mask: Any, where: Any = None) -> tuple[int, int]:
        """(warp, lane) of the first active thread, for a finding."""
        active = np.broadcast_to(True if mask is None else mask, (n, 32))
        if where is not None:
            active = active & where
        row, lane = np.unravel_index(int(np.argmax(active)), (n, 32))
        return int(self.warps(idx)[row]), int(lane)
