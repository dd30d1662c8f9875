# SPDX-License-Identifier: Apache-2.0
"""The state of the thread blocks that run at one time, and their threads' progress.

State map (C blocks, W warps in all, warp w of block c is row c*warps_per_cta + w; S shared bytes per block):

=================  ===================  ===========================================================
`regs[slot]`       [W, 32]              registers that outlive a block of code (bool, u16, u32, u64)
`smem`             [C, S] u8            shared memory; a shared::cta address is the column index
`local`            [W*32, L] u8         local memory
`tmem[c]`          [128, 512] u32       Tensor Memory, made when first allocated
`warp_next`        [W]                  the block its runnable threads are at (lowest), NONE if none
`converged`        [W] bool             all 32 threads are runnable and at `warp_next`
`lane_pc`          [W, 32]              block of each thread; valid only if not converged
`lane_state`       [W, 32]              RUN, PARKED or GONE; valid only if not converged
`parked`           {key: [(warp, lanes)]}  who waits for what: see `park`
`key`, `epoch`     [W]                  scheduling order: epoch + block; epochs keep loops fair
=================  ===================  ===========================================================

Addresses. Generic addresses: a global address is itself; shared, local and kernel parameters are windows far
above. A shared address is `rank << 24 | offset` where rank is the block's place in its cluster, as on
hardware, and the first 1024 bytes of shared memory are the system's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.tensormap import TensorMap
from porter.sim import (  # noqa: F401  (they register instructions)
    exec_atomic,
    exec_bits,
    exec_bulk,
    exec_call,
    exec_control,
    exec_convert,
    exec_cp_async,
    exec_float,
    exec_integer,
    exec_launch,
    exec_mbarrier,
    exec_memory,
    exec_move,
    exec_store_async,
    exec_tcgen05,
    exec_tensor,
    exec_tensormap,
    exec_tmem,
    exec_warp,
    float_arithmetic,
    registers,
)
from porter.sim.accumulators import Accumulators
from porter.sim.addresses import RANK_SHIFT, Everything
from porter.sim.block_grid import BlockGrid
from porter.sim.compiler import Compiler
from porter.sim.engine import Engine
from porter.sim.freeing import freeing_blocks
from porter.sim.livelock import LivelockWatch
from porter.sim.mbarrier import Mbarriers
from porter.sim.memory import Allocation, GlobalMemory
from porter.sim.program import Program, Variable
from porter.sim.progress import IDLE, PARKED, RUN, Progress
from porter.sim.results import Launch, Options, Stop
from porter.sim.special_registers import SYSTEM_SHARED, special_registers
from porter.sim.tensor_memory import TensorMemory

Array = npt.NDArray[Any]

SHARED_WINDOW = 1 << 48
LOCAL_WINDOW = 2 << 48
PARAM_WINDOW = 3 << 48
FUNCTION_WINDOW = 4 << 48
INTERNAL_BASE = 5 << 48

_EPOCH = 1 << 24
_EPOCH_STEPS = 512


class Machine(Progress):
    """One wave: the blocks `ctas` (linear indices) of a launch."""

    check: Any = None
    pending: exec_launch.Pending
    observe: Callable[[Any, ast.Instruction], None] | None = None

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
        self._special = special_registers(self)
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

        self.compiler = Compiler(program, self)
        self.freeing = freeing_blocks(program)
        self.regs: list[Array] = []
        self._make_registers()
        self._functions: dict[tuple[int, bool], tuple[Callable[..., Any], list[int], int]] = {}
        self.executed: dict[tuple[int, bool], int] = {}
        self.instructions = 0

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
        self.everything = Everything(self)
        self.accumulators = Accumulators(self)
        self.mbar = Mbarriers(self)
        self.tmem = TensorMemory(self)
        self.registers = registers.Registers(self, program, launch)
        self.engine = Engine(self)
        self.watch = LivelockWatch(self)

    def _make_registers(self) -> None:
        kinds = {1: np.bool_, 16: np.uint16, 32: np.uint32, 64: np.uint64}
        self.banks: dict[int, Array] = {}
        self.bank_index: list[int] = []
        widths = self.compiler.slot_widths
        counts = dict.fromkeys(kinds, 0)
        for w in widths:
            self.bank_index.append(counts[w])
            counts[w] += 1
        for w, kind in kinds.items():
            self.banks[w] = np.zeros((counts[w], self.W, 32), kind)
        self.regs = [self.banks[w][i] for w, i in zip(widths, self.bank_index, strict=True)]

    def follow(self, before: Machine | None) -> None:
        """The wave before this one of the same launch has ended. What it compiled serves this one too."""
        if before is not None:
            self._functions = before._functions

    # Geometry -----------------------------------------------------------------------------------------

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

    def _exit(self, warps: Array, gone: Array) -> None:
        from porter.sim.dead_ends import threads_gone

        super()._exit(warps, gone)
        threads_gone(self, warps, sorted(set(self.warp_cta[warps].tolist())))

    # The loop -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all threads to their end. Raises Stop."""
        from porter.sim.dead_ends import stuck

        budget = self.options.max_warp_instructions
        report = self.options.progress
        idle = IDLE
        self._settle(np.flatnonzero(~self.converged))
        with np.errstate(all="ignore"):
            while True:
                if self.random is not None:
                    self.engine.maybe_land()
                    low = self._random_pick()
                else:
                    low = self._lowest()
                if low >= idle:
                    if (self.lane_state == PARKED).any():
                        if not stuck(self):
                            break
                        continue
                    if not self.engine.drain():
                        break
                    continue
                self.step(low)
                if self.instructions > budget:
                    raise Stop(Code.SIM_BUDGET, f"{self.instructions:,} warp-instructions executed")
                if self.watch.window:
                    self.watch.step()
                if self.steps % 1024 == 0:
                    self.watch.check()
                if self.steps % 4096 == 0:
                    if report is not None:
                        report(self.instructions)
                    self.engine.nudge()
        self.tmem.check_leaks()
        self.registers.check_end()

    def _lowest(self) -> int:
        """The least key; of warps whose turn it is, one on its way to free Tensor Memory comes first."""
        low = int(self.key.min())
        if self.freeing is None or low >= IDLE:
            return low
        there = self.freeing.take(self.warp_next, mode="clip")
        if not there.any():
            return low
        first = int(self.key[there].min())
        return first if first // _EPOCH == low // _EPOCH else low

    def _random_pick(self) -> int:
        assert self.random is not None
        runnable = np.flatnonzero(self.key < IDLE)
        if runnable.size == 0:
            return IDLE
        if self.random.random() < 0.7:
            return self._lowest()
        return int(self.key[runnable[self.random.randrange(runnable.size)]])

    def step(self, low: int) -> None:
        """Execute one block for all warps that are at it."""
        self.steps += 1
        number = low % _EPOCH
        self.current_epoch = low - number
        selected = np.flatnonzero(self.warp_next == number)
        n = selected.size
        runs = self.steps_run
        runs[selected] += 1
        if runs[selected[0]] % _EPOCH_STEPS == 0:
            tired = selected[runs[selected] % _EPOCH_STEPS == 0]
            self.epoch[tired] += _EPOCH
            self.key[tired] = self.epoch[tired] + number
        conv = self.converged[selected]
        idx: Any = selected
        if int(selected[-1]) - int(selected[0]) + 1 == n:
            idx = slice(int(selected[0]), int(selected[-1]) + 1)
        if conv.all():
            mask = None
        else:
            self._spread(selected)
            mask = self._active(selected, number)
        self._execute(number, idx, n, mask)

    def _active(self, selected: Array, number: int) -> Array:
        """Active lanes of divergent warps at a block. Long divergence takes turns among a warp's paths."""
        here = (self.lane_pc[selected] == number) & (self.lane_state[selected] == RUN)
        self.lane_stamp[selected] = np.where(here, self.steps, self.lane_stamp[selected])
        self.streak[selected] += 1
        return here

    def _function(self, number: int, converged: bool) -> tuple[Callable[..., Any], list[int], int]:
        found = self._functions.get((number, converged))
        if found is None:
            fn, chain = self.compiler.compile(number, converged)
            length = sum(b.end - b.start for b in chain)
            found = fn, [b.number for b in chain], length
            self._functions[number, converged] = found
        return found

    def _execute(self, number: int, idx: Any, n: int, mask: Any) -> None:
        fn, _, length = self._function(number, mask is None)
        key = (number, mask is None)
        self.executed[key] = self.executed.get(key, 0) + n
        self.instructions += n * length
        result = fn(self, self.regs, idx, n, mask)
        if result is None:
            return
        idx, mask, target = result
        if target is None:
            return
        n = idx.stop - idx.start if isinstance(idx, slice) else len(idx)
        if isinstance(target, tuple):
            self.branch(idx, n, mask, *target)
        else:
            self.goto(idx, n, mask, target)
        if mask is not None:
            self._take_turns(idx)

    def block_position(self, cta: int) -> tuple[int, int, int]:
        """Index of a block of the wave in the grid."""
        return self.grid.position(cta)

    def opcode_counts(self) -> dict[str, int]:
        """Executions per opcode, in warp-instructions."""
        counts: dict[str, int] = {}
        for (number, converged), times in self.executed.items():
            for b in self._functions[number, converged][1]:
                block = self.program.blocks[b]
                for ins in self.program.code[block.start : block.end]:
                    counts[ins.opcode] = counts.get(ins.opcode, 0) + times
        return counts

    def lines_reached(self) -> set[int]:
        """PTX lines of the instructions that some warp came to."""
        blocks = {b for key in self.executed for b in self._functions[key][1]}
        code = self.program.code
        return {i.line for b in blocks for i in code[self.program.blocks[b].start : self.program.blocks[b].end]}


def instruction_at(program: Program, at: int) -> ast.Instruction | None:
    return program.code[at] if 0 <= at < len(program.code) else None
