# SPDX-License-Identifier: Apache-2.0
"""Why a mutant that nobody notices is harmless, shown by runs.

A synchronization is *covered* by others if it is missed as soon as those are missing too: without them the
same mutant is caught. Two barriers in a row cover each other; a wait covers an earlier one for the same phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from porter.verify.mutant_runs import MutantRuns, Outcome

_NEIGHBOURS = 2
"""How many survivors next to one are tried as what covers it."""
_OF_OWN = 2
_OTHERS = 5
"""How many noticed mutants are tried: of the survivor's own opcode, and in all, one of each other opcode."""


@dataclass(frozen=True)
class Reason:
    """Why nobody notices a mutant.

    =============  ===============================================================================
    `unreached`    no warp comes to the instruction at any of the sizes
    `unused`       the mbarrier is never used: the use of one without initialization ends a run
    `idle`         a wait with nothing to wait for: no group is pending, or it only asks for the phase before an
                   mbarrier's first; a fence that finds nothing to order
    `execution`    the instruction, made relaxed, is noticed only if it is left out: number `by[0]`. What it orders are
                   tcgen05 operations, for which the order of execution is enough
    `weaker`       leaving the instruction out altogether is not noticed either: number `by[0]`
    `covered`      with the mutants `by` as well, `then` is reported
    =============  ===============================================================================
    """

    kind: str
    by: tuple[int, ...] = ()
    then: tuple[str, ...] = ()


class Covers:
    """Finds what covers the survivors of one run."""

    def __init__(self, runs: MutantRuns, survivors: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        self.runs = runs
        self.survivors = [n for n in survivors if runs.mutants[n].drops and runs.reached(n)]
        # Mutants that are caught by hazards alone, so that there is a run to compare with.
        self.others = [
            n for n, outcome in enumerate(outcomes)
            if runs.mutants[n].drops and outcome.keys and not outcome.ended
        ]  # fmt: skip
        self._silent: list[int] | None = None

    def of(self, survivor: int) -> Reason | None:
        """What covers a survivor, None if nothing was found."""
        runs = self.runs
        for partners in ([n] for n in self._nearest(self.survivors, survivor)[:_NEIGHBOURS]):
            if runs.run(survivor, *partners).caught:
                return self._covered(survivor, partners)
        context = self._context(survivor)
        if context and runs.run(survivor, *context).caught:
            return self._covered(survivor, self._shrunk(survivor, context))
        for partner in self._various(survivor):
            if self._missed(survivor, [partner]):
                return self._covered(survivor, [partner])
        return None

    def _same(self, one: int, other: int) -> bool:
        return self.runs.mutants[one].place == self.runs.mutants[other].place

    def _nearest(self, numbers: Sequence[int], survivor: int) -> list[int]:
        found = [n for n in numbers if not self._same(n, survivor)]
        return sorted(found, key=lambda n: abs(n - survivor))

    def _various(self, survivor: int) -> list[int]:
        """Noticed mutants near a survivor, of many opcodes."""
        opcode = self.runs.mutants[survivor].instruction.opcode
        found: dict[str, list[int]] = {opcode: []}
        for n in self._nearest(self.others, survivor):
            found.setdefault(self.runs.mutants[n].instruction.opcode, []).append(n)
        own, *rest = found.values()
        return [*own[:_OF_OWN], *(same[0] for same in rest)][:_OTHERS]

    def _missed(self, survivor: int, partners: Sequence[int]) -> bool:
        """Whether the survivor makes a difference where its partners are missing."""
        without = self.runs.run(*partners)
        both = self.runs.run(survivor, *partners)
        return not without.ended and bool(both.ended or both.keys - without.keys)

    def _silent_set(self) -> list[int]:
        """As many survivors as can be missing together with nobody noticing."""
        if self._silent is None:
            self._silent = self._grown([], self.survivors)
        return self._silent

    def _grown(self, silent: list[int], more: Sequence[int]) -> list[int]:
        for n in more:
            if not any(self._same(n, s) for s in silent) and not self.runs.run(*silent, n).caught:
                silent = [*silent, n]
        return silent

    def _context(self, survivor: int) -> list[int]:
        """As many other survivors as can be missing together with nobody noticing, as long as this one stays."""
        start = [n for n in self._silent_set() if not self._same(n, survivor)]
        rest = [n for n in self.survivors if n not in start and not self._same(n, survivor)]
        return self._grown(start, rest)

    def _shrunk(self, survivor: int, partners: Sequence[int]) -> list[int]:
        """Few of the partners with which the survivor is still missed."""
        left = list(partners)
        step = max(len(left) // 2, 1)
        while True:
            at = 0
            while at < len(left):
                fewer = [*left[:at], *left[at + step :]]
                if fewer and self._missed(survivor, fewer):
                    left = fewer
                else:
                    at += step
            if step == 1:
                return left
            step //= 2

    def _covered(self, survivor: int, partners: Sequence[int]) -> Reason:
        without, both = self.runs.run(*partners), self.runs.run(survivor, *partners)
        new = {str(key[0]) for key in both.keys - without.keys}
        return Reason("covered", tuple(partners), tuple(sorted(new | ({both.ended} - {""}))))
