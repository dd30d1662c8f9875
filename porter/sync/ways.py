# SPDX-License-Identifier: Apache-2.0
"""What executions show of the ways that they take: where branches lead, how often inner loops turn, and how large
registers become at their heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

from porter.facts.events import WarpName
from porter.facts.flow import Flow
from porter.facts.values import Value
from porter.sync.repeating import Seen

State = Mapping[str, Value]


class Run(Protocol):
    """Of `porter.sync.turns.Recorder`."""

    flow: Flow
    branched: set[tuple[int, int]]
    states: dict[tuple[WarpName, int], list[tuple[int, dict[str, Value]]]]
    entries: dict[int, list[dict[str, Value]]]


def seen_in(runs: Sequence[Run]) -> Seen:
    """In the executions of two periods in a row."""
    half = len(runs) // 2
    steady = (
        head for head in runs[-1].flow.heads
        if all(_turns(one, head) == _turns(other, head) for one, other in zip(runs[:half], runs[half:], strict=True))
    )  # fmt: skip

    @cache
    def reached(head: int) -> Mapping[str, int]:
        return _greatest(runs, head)

    return Seen(frozenset().union(*(run.branched for run in runs)), frozenset(steady), reached)


def _turns(run: Run, head: int) -> dict[WarpName, list[int]]:
    """By warp for each turn of a loop how many turns those around it have made."""
    return {warp: [around for around, _ in entries] for (warp, of), entries in run.states.items() if of == head}


def _greatest(runs: Sequence[Run], head: int) -> dict[str, int]:
    """The greatest number of each register that is known whenever its loop's head is come to."""
    states: list[State] = [state for run in runs for state in run.entries.get(head, ())]
    states += [
        state for run in runs for (_, of), entries in run.states.items() if of == head for _, state in entries
    ]  # fmt: skip
    found: dict[str, int] = {}
    for name in set().union(*states):
        values = {one for state in states for one in _lanes(state.get(name))}
        numbers = [v for v in values if v is not None]
        if numbers and len(numbers) == len(values):
            found[name] = max(numbers)
    return found


def _lanes(value: Value) -> Sequence[int | None]:
    return value if isinstance(value, tuple) else (value,)


def steady_in(run: Run, warp: WarpName, head: int, period: int) -> frozenset[int]:
    """Heads of loops inside of a loop that make as many turns a period later. The first period and the last one may
    differ: what is ahead of the loop and behind it may stand in it."""
    around = len(run.states[warp, head])
    found = set()
    for inner in run.flow.inside[head]:
        turns = Counter(number for number, _ in run.states.get((warp, inner), ()))
        if all(turns[turn] == turns[turn + period] for turn in range(period, around - 2 * period)):
            found.add(inner)
    return frozenset(found)
