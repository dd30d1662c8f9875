# SPDX-License-Identifier: Apache-2.0
"""How many CTAs of a kernel share an SM, original and port, and whether it matters that they are fewer: to kernels
whose CTAs wait for each other, and to grids that are sized by how many fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from porter.build.entry import demangle, kernel_place
from porter.build.ptxas import Resources
from porter.build.table import ResourceRow, Room
from porter.diagnostics import Code, Diagnostic, PorterError
from porter.ptx.arch import limits
from porter.ptx.occupancy import Resident, Taken, resident
from porter.ptx.parser import PtxSyntaxError, parse_module
from porter.sim.block_needs import columns_held, has_dynamic_shared, meets_as_a_grid, threads_at_most
from porter.sim.block_waits import waits_for_blocks
from porter.sim.loader import load_program
from porter.sim.program import Program
from porter.verify.builder import BuiltKernel
from porter.verify.problem import LaunchValues

HINTS = re.compile(
    r"\b(?:cuda|cu)(?:LaunchCooperativeKernel|OccupancyMaxActiveBlocksPerMultiprocessor|OccupancyMaxActiveClusters)\w*"
    r"|\bcudaLaunchAttributeCooperative\b|\bCU_LAUNCH_ATTRIBUTE_COOPERATIVE\b"
)
"""What host code calls that launches all blocks at one time, or asks how many that may be: the PTX of a kernel does not
say how its grid is sized."""


@dataclass(frozen=True)
class Side:
    """A compiled module, what ptxas says of its kernels, and launches of those of which one is known; all by their
    mangled names."""

    ptx: str
    arch: str
    resources: Mapping[str, Resources]
    launches: Mapping[str, LaunchValues] = field(default_factory=dict)

    def programs(self) -> Mapping[str, Program]:
        """Its kernels, those that can be read."""
        found: dict[str, Program] = {}
        with suppress(PtxSyntaxError):
            module = parse_module(self.ptx)
            for name in self.resources:
                with suppress(KeyError, ValueError):
                    found[name] = load_program(module, name)
        return found

    def resident(self, name: str, program: Program) -> Resident | None:
        """How many of a kernel's blocks share an SM; None if nobody knows their threads."""
        launch = self.launches.get(name)
        threads = threads_at_most(program) if launch is None else math.prod(launch.block)
        if threads is None:
            return None
        used = self.resources[name]
        shared = used.static_smem + (0 if launch is None else launch.dynamic_smem)
        taken = Taken(threads, used.registers, shared, used.barriers, columns_held(program))
        return resident(taken, limits(self.arch))


def with_rooms(rows: Iterable[ResourceRow], before: Side, after: Side, hint: str = "") -> list[ResourceRow]:
    """The rows with how many CTAs share an SM, where the threads of a block are known: by launch bounds, or from a
    launch. `hint`: what host code calls of `HINTS`."""
    sides = before.programs(), after.programs()
    return [_with_room(row, before, after, sides, hint) for row in rows]


def _with_room(
    row: ResourceRow, before: Side, after: Side, sides: tuple[Mapping[str, Program], ...], hint: str
) -> ResourceRow:
    name, other = row.entries
    if name not in sides[0] or other is None or other not in sides[1]:
        return row
    programs = sides[0][name], sides[1][other]
    one, two = before.resident(name, programs[0]), after.resident(other, programs[1])
    if one is None or two is None:
        return row
    launch = before.launches.get(name)
    why = _reason(programs[0], launch, hint) if two.blocks < one.blocks else ""
    unknown = launch is None and any(map(has_dynamic_shared, programs))
    return replace(row, room=Room(one, two, unknown or any(columns_held(p) is None for p in programs), why))


def _reason(program: Program, launch: LaunchValues | None, hint: str) -> str:
    """Why all blocks of a kernel may have to be there at one time."""
    if meets_as_a_grid(program):
        return "they meet at a barrier of the grid"
    if (at := waits_for_blocks(program)) is not None:
        place = program.code[at].loc
        return "they wait for each other" + (f" ({Path(place.file).name}:{place.line})" if place else "")
    if launch is not None and launch.cooperative:
        return "their launch is cooperative"
    return f"the program calls {hint}" if hint else ""


def crowded(rows: Iterable[ResourceRow], path: Path | str) -> list[Diagnostic]:
    """A warning for each kernel of the file `path` to which it matters that fewer of its port's CTAs share an SM."""
    return [_warning(row.kernel, row.room, path) for row in rows if row.room is not None and row.room.why]


def _warning(kernel: str, room: Room, path: Path | str) -> Diagnostic:
    at_most = "at most " if room.at_most else ""
    before, after = (f"{at_most}{one.blocks}" for one in (room.before, room.after))
    values = {"kernel": kernel, "before": before, "after": after, "by": room.after.by, "why": room.why}
    return Diagnostic(Code.FEWER_BLOCKS, kernel_place(str(path), kernel), values)


def room_of_port(
    original: BuiltKernel, port: BuiltKernel, launches: Sequence[LaunchValues], path: Path
) -> list[Diagnostic]:
    """The same for two kernels, each with its launch, of which only PTX is known so far. ptxas is asked where it may
    matter."""
    if original.assembled is None or port.assembled is None or not _reason(_program(original), launches[0], ""):
        return []
    try:
        before, after = (
            Side(one.ptx, one.arch, one.assembled().resources, {one.entry: launch})
            for one, launch in zip((original, port), launches, strict=True)
            if one.assembled is not None
        )
    except PorterError:
        return []  # what ptxas refuses is told by `porter build`
    entries = original.entry, port.entry
    row = ResourceRow(demangle(original.entry), original.arch, port.arch, (), entries=entries)
    if original.entry not in before.resources or port.entry not in after.resources:
        return []
    return crowded(with_rooms([row], before, after), path)


def _program(kernel: BuiltKernel) -> Program:
    return load_program(kernel.module, kernel.entry)
