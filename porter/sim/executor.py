# SPDX-License-Identifier: Apache-2.0
"""Runs the threads of a wave to their end: which block of code is next, for which warps, and what it is compiled to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
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
    exec_multimem,
    exec_registers,
    exec_store_async,
    exec_tcgen05,
    exec_tensor,
    exec_tensormap,
    exec_tmem,
    exec_warp,
    float_arithmetic,
)
from porter.sim.compiler import Compiler
from porter.sim.dead_ends import stuck, threads_gone
from porter.sim.freeing import freeing_blocks
from porter.sim.holding import Holding
from porter.sim.livelock import LivelockWatch
from porter.sim.machine import Machine
from porter.sim.program import Program
from porter.sim.progress import IDLE, PARKED, RUN
from porter.sim.results import Stop

Array = npt.NDArray[Any]

_EPOCH = 1 << 24
_EPOCH_STEPS = 512


class Executor(Machine):
    """A machine that runs. What it compiles is kept by block of code and whether warps are converged there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.compiler = Compiler(self.program, self)
        self.make_registers(self.compiler.slot_widths, self.W)
        self.freeing = freeing_blocks(self.program)
        self._functions: dict[tuple[int, bool], tuple[Callable[..., Any], list[int], int]] = {}
        self.executed: dict[tuple[int, bool], int] = {}
        self.watch = LivelockWatch(self)
        self.holding: Holding | None = None
        if self.random is not None and self.options.schedule == "lagging":
            self.holding = Holding(self.random, self.warp_rank)

    def follow(self, before: Executor | None) -> None:
        """The wave before this one of the same launch has ended. What it compiled serves this one too."""
        if before is not None:
            self._functions = before._functions

    def _exit(self, warps: Array, gone: Array) -> None:
        super()._exit(warps, gone)
        if self.observer is not None:
            self.observer.exited(warps)
        threads_gone(self, warps, gone)

    # The loop -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all threads to their end. Raises Stop."""
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
                if self.steps % 64 == 0 and (self.steps % 1024 == 0 or self.tmem.requests):
                    self.watch.check()
                if self.steps % 4096 == 0:
                    if report is not None:
                        report(self.instructions)
                    self.engine.nudge()
        self.tmem.check_leaks()

    def _lowest(self) -> int:
        """The least key; of warps whose turn it is, one on its way to free Tensor Memory comes first."""
        key = self.key
        if self.holding is not None and self.holding.on:
            key = np.where(self.holding.held, IDLE, key)
        low = int(key.min())
        if self.freeing is None or low >= IDLE:
            return low
        there = self.freeing.take(self.warp_next, mode="clip")
        if not there.any():
            return low
        first = int(key[there].min())
        return first if first // _EPOCH == low // _EPOCH else low

    def _random_pick(self) -> int:
        assert self.random is not None
        runnable = np.flatnonzero(self.key < IDLE)
        if self.holding is not None:
            runnable = self._not_held(self.holding, runnable)
        if runnable.size == 0:
            return IDLE
        if self.random.random() < 0.7:
            return self._lowest()
        return int(self.key[runnable[self.random.randrange(runnable.size)]])

    def _not_held(self, holding: Holding, runnable: Array) -> Array:
        """Which of the warps that can go on may do so. A hold is given up when nothing else is left to happen."""
        if runnable.size:
            holding.step(self.steps, runnable, (self.activity, self.stores))
        while holding.on:
            free = np.flatnonzero((self.key < IDLE) & ~holding.held)
            if free.size:
                return free
            if not self.engine.land_any():
                holding.give_up()
        return np.flatnonzero(self.key < IDLE)

    def step(self, low: int) -> None:
        """Execute one block for all warps that are at it."""
        self.steps += 1
        number = low % _EPOCH
        self.current_epoch = low - number
        there = self.warp_next == number
        if self.holding is not None and self.holding.on:
            there &= ~self.holding.held
        selected = np.flatnonzero(there)
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
        if self.observer is not None:
            self.observer.step(self.warps(idx), self.program.blocks[number].start, length)
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
