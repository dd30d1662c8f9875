# SPDX-License-Identifier: Apache-2.0
"""The verdict on one launch: everything that one execution of a cluster shows, for every schedule of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, cast

from porter.facts.events import NotUnderstood
from porter.facts.executor import no_garbage, run
from porter.facts.launched import Launched
from porter.facts.machine import Machine, Schedule
from porter.sync.conflicts import Conflicts
from porter.sync.deadlocks import Waiting, told
from porter.sync.findings import Finding, Findings, Level
from porter.sync.lifetimes import look_at_lifetimes
from porter.sync.maps import look_at_maps
from porter.sync.phases import look_at_phases
from porter.sync.registers import look_at_registers
from porter.sync.views import views_of

Rulings = Literal["strict", "practice"]
"""Whether the letter of the PTX ISA counts, or what docs/rulings.md tolerates as well."""


class Verdict(StrEnum):
    CLEAN = "clean"
    REVIEW = "review"
    STRICT = "strict"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Checked:
    """`waiting`: who waits for ever, the starved first. `unknown` is what was not understood, at `unknown_at`; then
    nothing is known to be right."""

    findings: tuple[Finding, ...]
    assumed: frozenset[str] = frozenset()
    unknown: str = ""
    unknown_at: int | None = None
    waiting: tuple[Waiting, ...] = ()

    @property
    def verdict(self) -> Verdict:
        levels = {f.level for f in self.findings}
        if "error" in levels:
            return Verdict.ERROR
        if self.unknown:
            return Verdict.UNKNOWN
        for verdict in (Verdict.STRICT, Verdict.REVIEW):
            if verdict.value in levels:
                return verdict
        return Verdict.CLEAN


_OF_EXECUTION = {
    "wait::ld": "H31", "wgmma-wait": "H29", "wgmma-fence": "H29", "init": "M2", "barrier": "M4", "bar": "B2",
    "lanes apart": "B1", "alloc": "columns", "dealloc": "columns", "lanes": "A4", "lane of pair": "A2",
    "issue": "H23", "commit": "H22",
}  # fmt: skip
"""IDs of the catalog by the kind of what execution itself shows."""


def check(
    launched: Launched, schedule: Schedule | None = None, machine: Machine | None = None, rulings: Rulings = "strict"
) -> Checked:
    """Whether one launch is synchronized right: the worst of what its waits that may fail, and answers of try_cancel,
    may come to. `machine`: one that is made and has not run, to look at alone. What is read too early may be known in
    another order: what is not understood is looked at in a second one. In `practice` what the text asks for and
    published kernels leave out is to review (docs/rulings.md)."""
    if machine is not None:
        return _ruled(_checked(machine)[0], rulings)
    found = _worst(launched, schedule or Schedule(), rulings, is_whole=True)
    if found.verdict is Verdict.UNKNOWN:
        # addresses in global memory may be what is not understood
        found = _worst(launched, schedule or Schedule(), rulings)
    if found.verdict is Verdict.UNKNOWN:
        other = _worst(launched, Schedule(backward=True, late=True), rulings)
        return other if other.verdict is Verdict.ERROR else found
    return found


def _worst(launched: Launched, schedule: Schedule, rulings: Rulings, is_whole: bool = False) -> Checked:
    worst, assumed = Checked(()), frozenset[str]()
    for handed_out in _HANDED_OUT if launched.flow.asks_for_work else (launched.geometry.handed_out,):
        one = replace(launched, geometry=replace(launched.geometry, handed_out=handed_out))
        for peeks in (False, True):
            machine = Machine(one, replace(schedule, peeks=peeks))
            machine.is_whole = is_whole
            found, has_peeks = _checked(machine)
            found = _ruled(found, rulings)
            assumed |= found.assumed
            worst = max(worst, found, key=lambda checked: WORST_LAST.index(checked.verdict))
            if worst.verdict is Verdict.ERROR:
                return replace(worst, assumed=assumed)
            if not has_peeks:
                break
    return replace(worst, assumed=assumed)


def _ruled(found: Checked, rulings: Rulings) -> Checked:
    if rulings == "strict":
        return found
    tolerated = (replace(f, level="review") if f.level == "strict" else f for f in found.findings)
    return replace(found, findings=tuple(tolerated))


_HANDED_OUT = (0, 1, 3)
"""Blocks that try_cancel hands to each block, where it asks for some."""


def worse(one: Checked, other: Checked) -> bool:
    """Whether the verdict on one launch is worse than that on another."""
    return WORST_LAST.index(one.verdict) > WORST_LAST.index(other.verdict)


WORST_LAST = (Verdict.CLEAN, Verdict.REVIEW, Verdict.UNKNOWN, Verdict.STRICT, Verdict.ERROR)


@no_garbage()
def _checked(machine: Machine) -> tuple[Checked, bool]:
    """With whether there were waits whose failure need not be heeded: here all of them failed, or all succeeded."""
    history = machine.history
    unknown, place = "", None
    try:
        run(machine)
    except NotUnderstood as reason:
        unknown, place = str(reason), reason.at
    findings = Findings()
    for problem in history.problems:
        kind = _OF_EXECUTION.get(problem.kind, problem.kind)
        level: Level = "error" if problem.level not in ("strict", "review") else cast("Level", problem.level)
        findings.add(kind, problem.text, problem.at, first=problem.other, level=level)
    conflicts = Conflicts(history, findings, machine.names)
    views = views_of(history, conflicts.at_start)
    look_at_maps(history, views, findings, machine.code)
    if not unknown:
        look_at_phases(history, views, findings, machine.named)
        if not history.blocked:
            look_at_lifetimes(history, views, findings)
            look_at_registers(history, views, findings)
    errors = [f for f in findings.all() if f.level == "error"]
    if (
        errors
        and not history.blocked
        and all(f.between_blocks for f in errors)
        and history.unfollowed is not None
        and not unknown
    ):
        unknown, place = "what blocks tell each other by global memory", history.unfollowed
        findings = Findings()
    if history.peeks:
        history.assumed.add("waits that may fail are looked at as failing each time, and as succeeding each time")
    assumed, peeks = frozenset(history.assumed), history.peeks
    blocked = len(history.blocked)
    waiting = told(machine) if blocked else ()
    if waiting:
        findings.add("deadlock", f"{blocked} groups of lanes wait for ever", waiting[0].by[0].at)
    return Checked(tuple(findings.all()), assumed, unknown, place, waiting), peeks
