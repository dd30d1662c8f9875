# SPDX-License-Identifier: Apache-2.0
"""The registers of the running blocks, which setmaxnreg moves between warps (PTX ISA 9.7.19.5).

Every warp starts with the registers of the launch. What `setmaxnreg.dec` gives back goes to its block's pool, from
which `setmaxnreg.inc` takes: it waits until there is enough. The pool starts out empty, and warps that end give it
nothing: the ISA names no other source than the dec. Warps move one by one, as shipped code wants it that has roles of
single warps; that the ISA has a whole warpgroup execute the same instruction is the checker's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.arch import WARP, limits
from porter.ptx.register_file import LEAST, allocated, entry_registers, legal_count
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.sim.program import Program
from porter.sim.results import Launch, Stop
from porter.sim.wave import Wave

Array = npt.NDArray[Any]

_WARPS = WARPGROUP // WARP
"""Of a warpgroup."""


@dataclass(frozen=True)
class Move:
    """A setmaxnreg of a warp: `inc` or `dec`, its count, and the index of the instruction."""

    action: str
    count: int
    at: int

    def same(self, other: Move) -> bool:
        """Whether it is the same instruction, wherever it stands."""
        return (self.action, self.count) == (other.action, other.count)

    def __str__(self) -> str:
        return f"setmaxnreg.{self.action} {self.count}"


class Registers:
    """`per_thread` is what the launch gives, 0 where setmaxnreg moves nothing; `pool` [blocks] counts registers."""

    def __init__(self, machine: Wave, program: Program, launch: Launch) -> None:
        self.machine = machine
        self.per_thread = launch_registers(program, launch)
        self.held = np.full(machine.W, self.per_thread, np.int64)
        self.pool = np.zeros(machine.n_cta, np.int64)
        self.moves: dict[int, list[Move]] = {}
        # What waiting warps ask for.
        self.wanted: dict[int, int] = {}

    def group(self, warp: int) -> range:
        """The warps of a warp's warpgroup; the last one of a block may have fewer than four."""
        first = warp - int(self.machine.warp_rank[warp]) % _WARPS
        block_end = (int(self.machine.warp_cta[warp]) + 1) * self.machine.warps_per_cta
        return range(first, min(first + _WARPS, block_end))

    def move(self, warp: int, move: Move) -> bool:
        """Execute a setmaxnreg of a warp; False if it has to wait. Raises Stop where the ISA leaves it undefined."""
        M, held, at = self.machine, int(self.held[warp]), move.at
        if not legal_count(move.count):
            raise Stop(Code.SIM_REGISTERS, f"{move}: the count is a multiple of 8 from 24 to 256", at, warp)
        if not self.per_thread:
            return True
        if (move.count > held) if move.action == "dec" else (move.count < held):
            wrong = "more" if move.action == "dec" else "fewer"
            raise Stop(Code.SIM_REGISTERS, f"{move}: {wrong} than the {held} that the warp's threads have", at, warp)
        cta, change = int(M.warp_cta[warp]), WARP * (allocated(move.count) - allocated(held))
        if change > self.pool[cta]:
            self.wanted[warp] = move.count
            return False
        self.pool[cta] -= change
        self.held[warp] = move.count
        self.wanted.pop(warp, None)
        self.moves.setdefault(warp, []).append(move)
        M.activity += 1
        if M.observer is not None:
            M.observer.moved(warp)
        if change < 0:
            M.wake(("registers", cta))
        return True

    def describe(self, cta: int) -> tuple[str, str]:
        """What a block's waiting warps need and what there is; what would help."""
        M = self.machine
        mine = range(cta * M.warps_per_cta, (cta + 1) * M.warps_per_cta)
        waiting = {w: count for w, count in self.wanted.items() if w in mine}
        need = sum(WARP * (allocated(count) - allocated(int(self.held[w]))) for w, count in waiting.items())
        have, threads = int(self.pool[cta]), M.warps_per_cta * WARP
        total = allocated(self.per_thread) * threads
        given = sum(1 for w in mine for move in self.moves.get(w, ()) if move.action == "dec")
        counts = sorted(set(waiting.values()))
        text = (
            f"setmaxnreg.inc {', '.join(map(str, counts))} waits for registers, {need} more are asked for, the block's"
            f" pool has {have}, {need - have} are missing"
        )
        advice = f"The launch gives {self.per_thread} registers to each of {threads} threads, {total} in all, and "
        advice += f"{given} warps have given some back." if given else "no warp has executed setmaxnreg.dec."
        # The most there can be: warps that have taken registers keep them, the others go down to the least.
        taken = {w for w in mine if any(move.action == "inc" for move in self.moves.get(w, ()))}
        kept = [int(self.held[w]) if w in taken else LEAST for w in mine if w not in waiting]
        most = total - WARP * sum(map(allocated, kept))
        if WARP * sum(map(allocated, waiting.values())) > most:
            return text, f"{advice} At most {most} can be had by who waits: ask for less."
        return text, f"{advice} Add the setmaxnreg.dec of the other warpgroups, lower its count, or ask for less."


def launch_registers(program: Program, launch: Launch) -> int:
    """Registers per thread at launch; 0 where setmaxnreg has no effect."""
    if launch.registers is not None:
        return launch.registers
    try:
        chip = limits(program.module.target)
    except (KeyError, ValueError):
        return 0
    return (
        entry_registers(program.entry.directives, program.code, chip.registers_per_sm, chip.registers_per_thread) or 0
    )
