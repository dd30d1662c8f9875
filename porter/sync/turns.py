# SPDX-License-Identifier: Apache-2.0
"""Whether what holds for 1 to N turns of a loop holds for any number: each thread's trace is a prefix, a block that
repeats, and a suffix, and nothing that decides what comes next can end that.

Four conditions, for a period of P turns. Traces: that of n + P turns is that of n with one block put in, which equals
the block before it, in every warp. Registers: at each loop whose turns grow, each live one is periodic or moves evenly.
Comparisons: the difference of the two sides is periodic, or moves evenly and crosses zero near the first turn or near
the last. Operands: what synchronizes follows a counter through its low bits or comparisons alone.

Runs up to prefix + 3P turns are needed: two of a pair's events in different parts are ordered by a chain that crosses
the middle, which must hold a period besides the reach of one edge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from porter.facts.code import Loop
from porter.facts.events import WarpName
from porter.facts.flow import Flow
from porter.facts.integers import signed
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import Value, of_lane
from porter.ptx import ast
from porter.ptx.arch import WARP

Trace = list[tuple[object, ...]]
_LOW_BITS = 16
"""A counter below this number, taken by a mask, is periodic whatever the period of the traces."""


class Recorder:
    """What one run shows of its loops: live registers at each turn, and the sides of each comparison of numbers."""

    def __init__(self, machine: Machine) -> None:
        self.flow = machine.flow
        self.traces: Mapping[WarpName, Trace] = machine.history.trace
        self.states: dict[tuple[WarpName, int], list[dict[str, Value]]] = defaultdict(list)
        self.comparisons: dict[tuple[WarpName, int], list[tuple[int, int]]] = defaultdict(list)
        machine.on_turn = self._turn
        machine.on_comparison = self._comparison

    def _turn(self, warp: Warp, group: Group, target: int) -> None:
        if target in self.flow.heads:
            live = self.flow.live[target]
            state = {name: value for name, value in group.registers.items() if name in live}
            self.states[warp.name, target].append(state)

    def _comparison(self, warp: Warp, at: int, left: int, right: int) -> None:
        self.comparisons[warp.name, at].append((left, right))


@dataclass(frozen=True)
class Lasso:
    """Turns repeat with this period from `start` on. `why_not`: what keeps that from holding for all numbers of turns,
    with the instruction."""

    period: int
    start: int
    why_not: str = ""
    at: int | None = None

    @property
    def needed(self) -> int:
        """Turns up to which runs must have been looked at."""
        return self.start + 3 * self.period


def find_lasso(runs: Sequence[Recorder]) -> Lasso | None:
    """The shortest period of runs for 1, 2, … turns; None if there is none that so few show."""
    last = None
    for period in range(1, len(runs) // 3 + 1):
        start = _regular_from(runs, period)
        if start is None:
            continue
        why, at = _broken(runs[-1 - period], runs[-1], period)
        found = Lasso(period, start, why, at)
        if not why:
            return found
        last = last or found
    return last


def _broken(shorter: Recorder, longer: Recorder, period: int) -> tuple[str, int | None]:
    for condition in (_registers, _comparisons, _operands):
        for why, at in condition(shorter, longer, period):
            return why, at
    return "", None


# Traces -----------------------------------------------------------------------------------------------


def _regular_from(runs: Sequence[Recorder], period: int) -> int | None:
    """The first number of turns from which every trace grows by one block in each period."""
    for start in range(1, len(runs) - 3 * period + 1):
        if all(_grows(runs, start, period, warp) for warp in _warps(runs)):
            return start
    return None


def _warps(runs: Sequence[Recorder]) -> set[WarpName]:
    return {warp for run in runs for warp in run.traces}


def _grows(runs: Sequence[Recorder], start: int, period: int, warp: WarpName) -> bool:
    sizes: dict[int, int] = {}
    for turns in range(start, len(runs) - period + 1):
        shorter = runs[turns - 1].traces.get(warp, [])
        longer = runs[turns - 1 + period].traces.get(warp, [])
        found = _put_in(shorter, longer)
        if found is None or sizes.setdefault(turns % period, found[1]) != found[1]:
            return False
        if turns >= start + period and not _repeats(longer, *found):
            return False
    return True


def _put_in(shorter: Trace, longer: Trace) -> tuple[int, int] | None:
    """Where the longer trace has one block that the shorter has not, as late as that may be, and how long it is."""
    if len(longer) < len(shorter):
        return None
    ahead = 0
    while ahead < len(shorter) and shorter[ahead] == longer[ahead]:
        ahead += 1
    behind = 0
    while behind < len(shorter) and shorter[-1 - behind] == longer[-1 - behind]:
        behind += 1
    return (ahead, len(longer) - len(shorter)) if ahead + behind >= len(shorter) else None


def _repeats(trace: Trace, at: int, size: int) -> bool:
    """Whether a block equals the one before it."""
    return not size or (at >= size and trace[at - size : at] == trace[at : at + size])


# Registers --------------------------------------------------------------------------------------------


def _registers(shorter: Recorder, longer: Recorder, period: int) -> Iterator[tuple[str, int]]:
    """Registers at the head of a loop that are neither periodic nor move evenly."""
    for (warp, head), states in longer.states.items():
        turns = len(states) - len(shorter.states.get((warp, head), ()))
        if turns <= 0:
            continue
        if len(states) < 2 * turns + 1:
            yield f"a loop of {warp} makes {len(states)} turns, {turns} of them in a period", head
            continue
        for name in sorted(set().union(*states)):
            values = [state.get(name) for state in states]
            lanes = range(WARP) if any(isinstance(v, tuple) for v in values) else range(1)
            if not all(_moves_evenly([of_lane(v, lane) for v in values], turns) for lane in lanes):
                yield f"a register of {warp} neither repeats nor moves evenly", head


def _moves_evenly(values: Sequence[int | None], period: int) -> bool:
    """Whether from some turn on, with two periods to go, the value moves by one number in each period."""
    if not any(v is not None for v in values):
        return True
    steps: list[int | None] = []
    for before, after in zip(values, values[period:], strict=False):
        if before is None or after is None:
            steps.append(0 if before is after else None)
        else:
            steps.append(after - before & 0xFFFFFFFF)
    for start in range(max(1, len(values) - 2 * period + 1)):
        found = set(steps[start:])
        if len(found) == 1 and None not in found:
            return True
    return False


# Comparisons ------------------------------------------------------------------------------------------


def _comparisons(shorter: Recorder, longer: Recorder, period: int) -> Iterator[tuple[str, int]]:
    """Comparisons in a loop whose sides may change places at some turn that no run has come to."""
    inner = _innermost(longer.flow)
    for (warp, at), sides in longer.comparisons.items():
        if at not in inner:
            continue
        now = _differences(sides)
        before = _differences(shorter.comparisons.get((warp, at), ()))
        turns = len(now) - len(before)
        if not turns:
            continue
        if len(now) < 2 * turns + 1:
            yield f"a comparison of {warp} is made {len(now)} times, {turns} of them in a period", at
        elif not _is_periodic(now, turns) and (why := _unsettled(now, before, turns)):
            yield f"a comparison of {warp} {why}", at


def _innermost(flow: Flow) -> frozenset[int]:
    """Instructions in loops."""
    return frozenset(at for loop in flow.heads.values() for at in loop.body)


def _differences(sides: Sequence[tuple[int, int]]) -> list[int]:
    return [signed(left, 32) - signed(right, 32) for left, right in sides]


def _is_periodic(values: Sequence[int], period: int) -> bool:
    return all(values[i] == values[i + period] for i in range(period, len(values) - period))


def _unsettled(now: Sequence[int], before: Sequence[int], period: int) -> str:
    middle = len(now) // 2 - period // 2
    step = now[middle + period] - now[middle]
    even = sum(now[i + period] - now[i] == step for i in range(len(now) - period))
    if even < len(now) - 2 * period:
        return "does not move evenly"
    if now[-1] == before[-1]:
        # it moves with the number of turns: it crosses zero near the last
        return ""
    if now[:period] == before[:period]:
        # it starts at one number: it has to have crossed zero
        crossed = (step > 0 and now[-1] > 0) or (step < 0 and now[-1] < 0)
        return "" if crossed else "may change its result at a later turn"
    return "follows neither the first turn nor the last"


# Operands ---------------------------------------------------------------------------------------------

_SYNCHRONIZING = frozenset(("mbarrier", "cp", "tcgen05", "wgmma", "st", "ld", "bar", "barrier", "atom", "stmatrix"))


def _operands(shorter: Recorder, longer: Recorder, period: int) -> Iterator[tuple[str, int]]:
    """Synchronizing instructions an operand of which follows a counter otherwise than by its low bits."""
    flow = longer.flow
    for (_, head), states in longer.states.items():
        if len(states) < 2 * period + 2:
            continue
        loop = flow.heads[head]
        counters = _counters(states, period)
        following = _following(flow, loop, counters) if counters else set()
        for at in loop.body:
            ins = flow.code.code[at]
            if ins.parts[0] not in _SYNCHRONIZING or {"global", "param"} & set(ins.parts):
                continue
            operands = ins.operands[1:] if ins.parts[0] == "ld" else ins.operands
            if any(_named(flow, at, o) & following for o in operands):
                yield f"an operand of {ins.parts[0]} follows a counter", at


def _named(flow: Flow, at: int, operand: ast.Operand) -> set[str]:
    """The register whose value an operand is; coordinates of a copy may be anything."""
    if isinstance(operand, ast.Reg):
        return {flow.code.renamed(at, operand.name)}
    return _named(flow, at, operand.base) if isinstance(operand, ast.Mem) else set()


def _counters(states: Sequence[Mapping[str, Value]], period: int) -> set[str]:
    """Registers that go on moving."""
    found = set()
    for name in states[0].keys() & states[-1].keys():
        values = [state.get(name) for state in states]
        numbers = [v for v in values if isinstance(v, int)]
        if len(numbers) == len(values) and len(set(numbers)) > 2 * period and numbers[-1] != numbers[-1 - period]:
            found.add(name)
    return found


def _following(flow: Flow, loop: Loop, counters: set[str]) -> set[str]:
    """Registers that depend on more of a counter than its low bits."""
    found = set(counters)
    scaled: dict[str, int] = {}
    while True:
        more: set[str] = set()
        for at in loop.body:
            used = flow.uses[at] & found
            if used and not _keeps_low_bits(flow, at, used, scaled):
                more |= flow.writes[at] - found
        if not more:
            return found
        found |= more


def _keeps_low_bits(flow: Flow, at: int, used: frozenset[str], scaled: dict[str, int]) -> bool:
    """Whether what an instruction writes takes only few values, whatever the counter does."""
    ins = flow.code.code[at]
    head = ins.parts[0]
    if head in ("setp", "bra", *_SYNCHRONIZING):
        return True
    if head == "selp":
        return not any(flow.code.register(at, o) in used for o in ins.operands[1:3])
    if head == "and":
        shift = min((scaled.get(name, 0) for name in used), default=0)
        masks = [int(o.value) for o in ins.operands[1:] if isinstance(o, ast.Imm)]
        return any(0 <= mask >> shift < _LOW_BITS for mask in masks)
    if head == "shl" and isinstance(ins.operands[-1], ast.Imm):
        for name in flow.writes[at]:
            if len(flow.code.written[name]) == 1:
                scaled[name] = int(ins.operands[-1].value)
    return False
