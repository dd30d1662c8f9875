# SPDX-License-Identifier: Apache-2.0
"""Larger sizes for what runs did not come to: constants that a kernel compares with something which grows with a size,
and mbarriers that did not come round three times.

What a loop counts, which size it grows with and how many stages a ring has is read from runs, not from text: the
simulator tells the largest value that was compared with each constant, and the phases that each mbarrier completed. A
size that they grew with from one run to another is taken as many times as the goal needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from porter.sim.loader import load_program
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.further import ALONE, Further, checked_size, tiles_of, turning_of_dsl, unit_of, work
from porter.verify.problem import bind
from porter.verify.trial import Program

PHASES = 4
"""Phases of an mbarrier whose ring has come round three times."""

_MOST = 600_000
"""Warp-instructions of a program at a size that is added: some ten seconds."""

_FARTHEST = 1 << 20
"""Constants from here on are bits of floating-point numbers, addresses or masks: no run counts so far."""

_COUNTING = 0.5
"""What grows by less than this, of what a size grows by, is no counter of it."""

_MOST_SIZES = 4
_NAMED = 4


@dataclass(frozen=True)
class Goal:
    """`key` is the PTX line of a comparison, or the name of an mbarrier; `reach` the least value that is beyond the
    constant, or the number of phases."""

    kind: Literal["constant", "phases"]
    program: str
    module: int
    key: int | str
    reach: int


@dataclass
class _Seen:
    """What the runs of one size came to."""

    sizes: Mapping[str, Number]
    instructions: int = 0
    values: dict[Goal, int] = field(default_factory=dict)
    modules: set[int] = field(default_factory=set)


@dataclass
class Beyond:
    """`port`: whether there is one, whose goals then are all that is told of."""

    case: Case
    port: bool
    _seen: list[_Seen] = field(default_factory=list)
    _programs: dict[int, Program] = field(default_factory=dict)
    _tried: set[tuple[Goal, str]] = field(default_factory=set)
    _too_long: dict[Goal, str] = field(default_factory=dict)
    _made: int = 0
    _blocks: dict[float, int] = field(default_factory=dict)
    """Of kernels in CuTe DSL that were launched with fewer blocks than there are tiles, by tiles for each of them."""

    def add(self, program: Program, stats: Any) -> None:
        """Take in a run; `stats` is None for backends that count nothing."""
        if getattr(stats, "compared", None) is None:
            return
        sizes, module = dict(program.problem.sizes), id(program.kernel.module)
        seen = next((s for s in self._seen if dict(s.sizes) == sizes), None)
        if seen is None:
            seen = _Seen(sizes)
            self._seen.append(seen)
        if self.case.dsl is not None:
            blocks = math.prod(program.launch.grid)
            self._blocks[tiles_of(program.problem) / blocks] = blocks
        self._programs[module] = program
        seen.modules.add(module)
        seen.instructions = max(seen.instructions, stats.warp_instructions)
        for line, (constant, most) in stats.compared.items():
            if constant < _FARTHEST:
                _raise(seen.values, Goal("constant", program.name, module, line, constant + 1), most)
        for barrier, phases in stats.phases.items():
            _raise(seen.values, Goal("phases", program.name, module, barrier, PHASES), phases)

    def next(self) -> Further | None:
        """A size that comes to something that no run came to; None where there is none."""
        most_tiles = max(self._blocks, default=0.0)
        if 1 < most_tiles < ALONE:
            blocks = self._blocks[most_tiles]
            self._blocks.clear()
            if plan := turning_of_dsl(self.case, blocks).sizes:
                return plan[0]
        while self._made < _MOST_SIZES:
            offers = list(self._offers())
            if not offers:
                return None
            # the size that serves the farthest goal of a kind serves the nearer ones
            _, goal, name, further = max(offers, key=lambda offer: (offer[1].kind, offer[0]))
            self._tried.add((goal, name))
            if further is not None and all(dict(s.sizes) != dict(further.sizes) for s in self._seen):
                self._made += 1
                return further
        return None

    def left_out(self) -> Iterator[tuple[str, str]]:
        """What no run came to, of the port where there is one."""
        mine = "port" if self.port else "original"
        best = self._best()
        late = [g for g, most in best.items() if g.program == mine and most < g.reach and self._drivers(g)]
        constants = [g for g in late if g.kind == "constant"]
        if constants:
            named = ", ".join(dict.fromkeys(self._place(g) for g in constants[:_NAMED]))
            more = f", and {len(constants) - _NAMED} more" if len(constants) > _NAMED else ""
            reasons = dict.fromkeys(self._too_long.get(g, "no size of the case came so far") for g in constants)
            yield f"what is beyond constants of the {mine}: {named}{more}", "; ".join(reasons)
        phases: dict[str, int] = {}
        for goal, most in best.items():
            if goal.kind == "phases" and goal.program == mine:
                phases[str(goal.key)] = max(most, phases.get(str(goal.key), 0))
        once = sorted(name for name, most in phases.items() if most < 2)
        if once:
            named = ", ".join(once[:_NAMED]) + (f", and {len(once) - _NAMED} more" if len(once) > _NAMED else "")
            yield f"a second phase of {len(once)} of the {mine}'s mbarriers", named

    # --- what was reached

    def _best(self) -> dict[Goal, int]:
        best: dict[Goal, int] = {}
        for seen in self._seen:
            for goal, value in seen.values.items():
                _raise(best, goal, value)
        return best

    def _drivers(self, goal: Goal) -> dict[str, _Seen]:
        """Sizes that a value grew with, each with the run in which it came farthest: that at which the size is largest,
        and farther than any run of a lesser size. A counter grows about as much as the size does; what turns in a ring,
        or is left of a loop that is unrolled, grows with none."""
        runs = [s for s in self._seen if goal.module in s.modules]
        found: dict[str, _Seen] = {}
        for name in self.case.sizes:
            most = max(runs, key=lambda s: (s.sizes[name], s.values.get(goal, -1)))
            if goal not in most.values:
                continue
            lesser = [s for s in runs if goal in s.values and s.sizes[name] < most.sizes[name]]
            if not lesser or any(s.values[goal] >= most.values[goal] for s in lesser):
                continue
            nearest = max(lesser, key=lambda s: s.sizes[name])
            grown = (most.values[goal] + 1) / (max(0, nearest.values[goal]) + 1)
            if goal.kind == "phases" or grown >= _COUNTING * most.sizes[name] / nearest.sizes[name]:
                found[name] = most
        return found

    def _offers(self) -> Iterator[tuple[int, Goal, str, Further | None]]:
        """(times the size, goal, size, what to run) for what can be tried."""
        for goal, most in self._best().items():
            if most >= goal.reach or most < 1:
                continue
            for name, seen in self._drivers(goal).items():
                if (goal, name) not in self._tried:
                    # counters begin at 0
                    beside = 1 if goal.kind == "constant" else 0
                    times = math.ceil((goal.reach + beside) / (seen.values[goal] + beside) * 100) / 100
                    yield math.ceil(times), goal, name, self._larger(goal, name, seen, times)

    def _larger(self, goal: Goal, name: str, seen: _Seen, times: float) -> Further | None:
        base = bind(self.case, seen.sizes)
        unit = unit_of(self.case, base, name)
        value = math.ceil(int(seen.sizes[name]) * times / unit) * unit
        what = f"larger {name}, {f'beyond {goal.reach - 1}' if goal.kind == 'constant' else 'three wraps'}"
        plan = checked_size(self.case, base, {name: value}, what, tried=name not in self.case.multiples)
        for further in plan.sizes:
            cost = seen.instructions * work(bind(self.case, further.sizes)) / max(1.0, work(base))
            if cost <= _MOST:
                return further
            self._too_long[goal] = f"{name}={value} would take {cost:.0f} warp-instructions, {_MOST} at most are run"
        for _, reason in plan.left_out:
            self._too_long[goal] = reason
        return None

    def _place(self, goal: Goal) -> str:
        """`gemm.cu:12 (100)`."""
        program = self._programs[goal.module]
        code = load_program(program.kernel.module, program.kernel.entry).code
        loc = next((ins.loc for ins in code if ins.line == goal.key and ins.loc is not None), None)
        place = f"PTX line {goal.key}" if loc is None else f"{Path(loc.file).name}:{loc.line}"
        return f"{place} ({goal.reach - 1})"


def _raise(values: dict[Goal, int], goal: Goal, value: int) -> None:
    values[goal] = max(value, values.get(goal, value))
