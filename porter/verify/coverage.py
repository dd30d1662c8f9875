# SPDX-License-Identifier: Apache-2.0
"""What a verification did not run: sizes and instantiations of the case, instructions of the port."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.diagnostics import PorterError
from porter.ptx import ast
from porter.sim.loader import load_program
from porter.verify.beyond import Beyond
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.further import instantiation
from porter.verify.problem import bind
from porter.verify.trial import Program


@dataclass(frozen=True)
class Place:
    """A source line, or a PTX line (`path` is empty) where that is not known, with its instructions: `missed` of
    `count` were executed by no run."""

    path: str
    line: int
    missed: int
    count: int


@dataclass(frozen=True)
class Coverage:
    """What was left open by the rows of one case.

    `sizes` and `instantiations` are listed by the case and were not run. `left_out` are sizes that Porter would have
    added, with the reason why it could not. Of `program`, the port where there is one, `missed` of `instructions` were
    executed by no run; both are None where no backend told. An instruction counts as executed when a warp came to it.
    `hazards`: whether they were looked for; `schedules`: whether a port, if there is one, ran under several.
    """

    case: str
    sizes: tuple[Mapping[str, Number], ...]
    instantiations: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    program: str
    instructions: int | None
    missed: int | None
    places: tuple[Place, ...]
    hazards: bool
    schedules: bool


class Executed:
    """The instructions that runs came to, by compiled kernel."""

    def __init__(self, beyond: Beyond | None = None) -> None:
        """`beyond` is told of the runs as well."""
        self._beyond = beyond
        self._lines: dict[str, dict[int, tuple[Program, set[int]]]] = {"original": {}, "port": {}}

    def add(self, program: Program, stats: Any) -> None:
        """Take in a run; `stats` is None for backends that count nothing."""
        if self._beyond is not None:
            self._beyond.add(program, stats)
        lines = getattr(stats, "lines", None)
        if lines is not None:
            known = self._lines[program.name].setdefault(id(program.kernel.module), (program, set()))
            known[1].update(lines)

    def coverage(
        self,
        case: Case,
        ran: Sequence[Mapping[str, Number]],
        left_out: Sequence[tuple[str, str]],
        hazards: bool,
        schedules: bool,
    ) -> Coverage:
        """What these runs and `ran`, the sizes of the rows, leave open of a case."""
        done = [dict(sizes) for sizes in ran]
        missing = tuple(sizes for sizes in case.all_sizes() if dict(sizes) not in done)
        made = {name for name in (_instantiation(case, s) for s in done) if name is not None}
        others = dict.fromkeys(_instantiation(case, sizes) for sizes in missing)
        name = "port" if self._lines["port"] else "original"
        count = missed = 0
        places: dict[tuple[str, int], list[int]] = {}
        for program, lines in self._lines[name].values():
            own = {p.resolve() for p in (program.source.parent, case.kernel.parent, *case.include_dirs)}
            for ins in load_program(program.kernel.module, program.kernel.entry).code:
                known = places.setdefault(_place(ins, own), [0, 0])
                known[1] += 1
                count += 1
                if ins.line not in lines:
                    known[0] += 1
                    missed += 1
        told = bool(self._lines[name])
        return Coverage(
            case=case.name,
            sizes=missing,
            instantiations=tuple(n for n in others if n is not None and n not in made),
            left_out=tuple(left_out),
            program=name,
            instructions=count if told else None,
            missed=missed if told else None,
            places=tuple(Place(*at, *n) for at, n in sorted(places.items()) if n[0]),
            hazards=hazards,
            schedules=schedules,
        )


def _instantiation(case: Case, sizes: Mapping[str, Number]) -> str | None:
    if case.recorded is not None:
        return ""
    try:
        return instantiation(bind(case, sizes))
    except PorterError:
        return None


def _place(ins: ast.Instruction, own: Set[Path]) -> tuple[str, int]:
    """The line in a file below one of `own`, the user's folders, that an instruction comes from, by way of inlining."""
    loc = ins.loc
    if loc is None:
        return "", ins.line
    while loc.inlined_at is not None and own.isdisjoint(_folders(loc.file)):
        loc = loc.inlined_at
    return loc.file, loc.line


@functools.lru_cache(maxsize=256)
def _folders(file: str) -> frozenset[Path]:
    return frozenset(Path(file).resolve().parents)
