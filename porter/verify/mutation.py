# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the checker: every mutant of a kernel run, and who notices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from porter.verify.backends import RunResult
from porter.verify.budget import Budget
from porter.verify.mutant_runs import MutantRuns, Outcome, Setup
from porter.verify.mutants import Mutant
from porter.verify.mutations import RELAXED
from porter.verify.redundancy import Covers, Reason
from porter.verify.settings import SimOptions

Progress = Callable[[str], None]
Stop = Literal["", "time", "interrupted"]

RANDOM_SCHEDULES = 3
"""Random schedules under which survivors run again."""


@dataclass(frozen=True)
class MutantRow:
    """Who notices a mutant; `at` is the size or schedule of the run, empty for the first. `by_value`: an output
    differs from the unmutated kernel's.
    `by_run`: the ID of the error that ended the run, such as a deadlock. `errors` and `reviews`: the kinds of
    hazards reported as errors at practice level, and those that only the strict level adds. `reason`: why nobody
    notices, None for the noticed and where no run shows why."""

    mutant: Mutant
    at: str
    by_value: bool
    by_run: str
    errors: tuple[str, ...]
    reviews: tuple[str, ...]
    reason: Reason | None = None

    @property
    def caught(self) -> bool:
        """Whether the checking run notices at strict level without looking at values."""
        return bool(self.by_run or self.errors or self.reviews)

    @property
    def caught_in_practice(self) -> bool:
        """The same at practice level."""
        return bool(self.by_run or self.errors)


@dataclass(frozen=True)
class MutationResult:
    """`baseline` is the unmutated kernel's run, whose hazards would hide those of mutants. `rows` are in the
    order of `porter.verify.mutants.mutants`."""

    kernel: str
    baseline: RunResult
    rows: tuple[MutantRow, ...]
    stopped: Stop = ""
    """Why not all was done; mutants that nobody has noticed so far are not known to be survivors then."""
    not_run: int = 0
    """Mutants that were not run at all."""

    @property
    def survivors(self) -> tuple[MutantRow, ...]:
        return tuple(r for r in self.rows if not r.caught)

    @property
    def unexplained(self) -> tuple[MutantRow, ...]:
        """Survivors of which no run shows why they are harmless."""
        return tuple(r for r in self.survivors if r.reason is None)


def mutate(
    setups: Sequence[Setup],
    options: SimOptions,
    progress: Progress | None = None,
    jobs: int = 1,
    only: Sequence[int] | None = None,
    time: Budget | None = None,
) -> MutationResult:
    """Run a kernel and its mutants in checking mode.

    All run at the first size; those whose instruction no warp comes to there, or which has nothing to wait for
    there, at the other sizes, as far as the same instructions are there. Survivors run again under random
    schedules. Then it is looked for what covers them.

    Args:
        only: numbers of the mutants to run, None for all. Their survivors get no reason.
        time: when no further mutants are begun. What is done then, or at an interrupt, is the result.
    """
    first, *others = setups
    runs = MutantRuns(first, options, jobs)
    if runs.baseline.status != "ok":
        return MutationResult(first.kernel.entry, runs.baseline, ())
    numbers = list(range(len(runs.mutants))) if only is None else list(only)
    rows: dict[int, MutantRow] = {}
    stopped: Stop = ""
    try:
        _run_all(runs, numbers, rows, time, jobs, progress)
        _run_again([first, *others], options, jobs, runs, (numbers, only is None), rows, time, progress)
    except _TimeSpent:
        stopped = "time"
    except KeyboardInterrupt:
        stopped = "interrupted"
    done = tuple(rows[n] for n in numbers if n in rows)
    return MutationResult(first.kernel.entry, runs.baseline, done, stopped, len(numbers) - len(done))


class _TimeSpent(Exception):
    pass


def _require_time(time: Budget | None) -> None:
    if time is not None and time.is_spent:
        raise _TimeSpent


def _run_all(
    runs: MutantRuns,
    numbers: Sequence[int],
    rows: dict[int, MutantRow],
    time: Budget | None,
    jobs: int,
    progress: Progress | None,
) -> None:
    """All mutants at the first size, some at a time: what is done when this ends is in `rows`."""
    tell = _counted(progress, "mutant")
    for start in range(0, len(numbers), _AT_A_TIME * jobs):
        _require_time(time)
        some = numbers[start : start + _AT_A_TIME * jobs]
        outcomes = runs.run_all([(n,) for n in some])
        rows.update((n, _row(runs, n, outcome, "")) for n, outcome in zip(some, outcomes, strict=True))
        if tell is not None:
            tell(start + len(some), len(numbers))


_AT_A_TIME = 4
"""Mutants of each process, between two looks at the clock."""


def _run_again(
    setups: Sequence[Setup],
    options: SimOptions,
    jobs: int,
    runs: MutantRuns,
    wanted: tuple[Sequence[int], bool],
    rows: dict[int, MutantRow],
    time: Budget | None,
    progress: Progress | None,
) -> None:
    """Survivors at other sizes and under random schedules; what covers them. `wanted`: the mutants, and whether it is
    said why those are harmless that nobody notices."""
    (first, *others), (numbers, explains) = setups, wanted
    more: list[MutantRuns] = []
    for setup in others:
        tried = runs, *more
        left = [n for n in numbers if not rows[n].caught and not any(r.matters(n) for r in tried)]
        if left:
            _require_time(time)
            more += _try_again(MutantRuns(setup, options, jobs), runs, left, rows, progress)
    for seed in range(1, RANDOM_SCHEDULES + 1):
        left = [n for n in numbers if not rows[n].caught]
        if left:
            _require_time(time)
            _try_again(MutantRuns(first, _random(options, seed), jobs), runs, left, rows, progress)
    survivors = [n for n in numbers if not rows[n].caught]
    if explains and survivors:
        _require_time(time)
        _explain([runs, *more], survivors, runs.run_all([(n,) for n in numbers]), rows, progress)


def _random(options: SimOptions, seed: int) -> SimOptions:
    return replace(options, schedule="random", seed=options.seed + seed)


def _row(runs: MutantRuns, number: int, outcome: Outcome, at: str) -> MutantRow:
    return MutantRow(
        runs.mutants[number],
        at,
        runs.differs(outcome),
        outcome.ended,
        outcome.errors,
        outcome.reviews,
    )


def _try_again(
    other: MutantRuns, runs: MutantRuns, left: Sequence[int], rows: dict[int, MutantRow], progress: Progress | None
) -> list[MutantRuns]:
    """Run mutants elsewhere and take over what is noticed there. Returns where they ran, if they could."""
    if other.baseline.status != "ok" or not _alike(other, runs):
        return []
    outcomes = other.run_all([(n,) for n in left], _counted(progress, f"{other.label}: mutant"))
    for n, outcome in zip(left, outcomes, strict=True):
        row = _row(other, n, outcome, other.label)
        if row.caught or (row.by_value and not rows[n].by_value):
            rows[n] = row
    return [other]


def _alike(one: MutantRuns, other: MutantRuns) -> bool:
    """Whether two compilations of a kernel hold the same synchronizing instructions."""
    return [(m.name, m.path) for m in one.mutants] == [(m.name, m.path) for m in other.mutants]


def _explain(
    sizes: Sequence[MutantRuns],
    survivors: Sequence[int],
    outcomes: Sequence[Outcome],
    rows: dict[int, MutantRow],
    progress: Progress | None,
) -> None:
    runs = sizes[0]
    covers = Covers(runs, survivors, outcomes)
    tell = _counted(progress, "what covers survivor")
    for done, n in enumerate(survivors):
        reason = _plain_reason(sizes, n, survivors)
        if reason is None and runs.reached(n) and runs.mutants[n].drops and runs.mutants[n].level != "other":
            reason = covers.of(n)
        if reason is not None:
            rows[n] = _explained(rows[n], reason)
        if tell is not None:
            tell(done + 1, len(survivors))


def _plain_reason(sizes: Sequence[MutantRuns], n: int, survivors: Sequence[int]) -> Reason | None:
    runs = sizes[0]
    mutant = runs.mutants[n]
    if not any(size.reached(n) for size in sizes):
        return Reason("unreached")
    if all(size.idle(n) for size in sizes):
        return Reason("idle")
    same = [s for s in survivors if runs.mutants[s].place == mutant.place and runs.mutants[s].drops]
    if mutant.instruction.parts[:2] == ("mbarrier", "init") and same:
        return Reason("unused")
    if same and not mutant.drops:
        return Reason("weaker", (same[0],))
    dropped = [n for n, m in enumerate(runs.mutants) if m.place == mutant.place and m.drops]
    return Reason("execution", (dropped[0],)) if mutant.how == RELAXED and dropped and not same else None


def _explained(row: MutantRow, reason: Reason) -> MutantRow:
    return MutantRow(row.mutant, row.at, row.by_value, row.by_run, row.errors, row.reviews, reason)


def _counted(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, of: progress(f"{what} {done} of {of}")
