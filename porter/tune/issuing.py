# SPDX-License-Identifier: Apache-2.0
"""Whether loops of a port issue their first product a turn ahead: where that is faster by the grade, and ptxas spills
no more. It is held against what a second block on the SM brings, and may go with one or stand in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from porter.diagnostics import Diagnostic
from porter.passes.native.ahead import NAME
from porter.passes.native.blocks import NAME as BLOCKS
from porter.passes.native.product import NO_USE
from porter.passes.ported import Ported, PortedRoot
from porter.tune.choosing import Built, Choice, Chosen, Said, SpillsError
from porter.tune.searching import Make, Searching, adding, cuda_roots, of_step
from porter.tune.tuning import tuned

AS_FAST = "a gain: by the grade its loops are as fast without"


@dataclass(frozen=True)
class Issued:
    """The choice, and the roots that have two blocks on an SM with it."""

    chosen: Chosen
    blocks: frozenset[str] = frozenset()


def issued(session: Searching, ported: Ported, make: Make, blocks: frozenset[str]) -> Issued:
    """A port whose loops issue their first product a turn ahead where that is known to be faster. `ported` has two
    blocks on an SM in the roots `blocks`; those for which one block is faster then lose them."""
    roots = [r for r in cuda_roots(ported) if _has_two(ported, r)]
    wanted = frozenset(r.path for r in roots)
    if not wanted:
        return Issued(Chosen(ported), blocks)

    def asked(aheads: frozenset[str], blocks: frozenset[str]) -> Make:
        return adding(make, chosen=of_step(NAME, aheads) | of_step(BLOCKS, blocks))

    trial = asked(wanted, blocks)()
    able = frozenset(r.path for r in trial.roots if NAME in r.native)
    choices = [_Choice(session, ported, root) for root in roots]
    said = [d for choice in choices for d in _tried(session, choice, trial, asked(wanted, blocks))]
    kept = blocks
    if able & blocks:
        # one block that multiplies ahead, in place of two
        single = asked(able, blocks - able)()
        for choice in (c for c in choices if c.root.path in able & blocks):
            choice.best = trial if choice.chosen else ported
            if not _tried(session, choice, single, asked(able, blocks - able)):
                kept -= {choice.root.path}
    found = frozenset(c.root.path for c in choices if c.chosen)
    said = [d for d in said if d.where is None or d.where.path not in found]
    if not found:
        return Issued(Chosen(ported, found, tuple(said)), blocks)
    same = found == able and kept == blocks
    return Issued(Chosen(trial if same else asked(found, kept)(), found, tuple(said)), kept)


def _has_two(ported: Ported, root: PortedRoot) -> bool:
    """Whether some MMA of a port has an operand that threads make in registers: what they hand on in shared memory, the
    step leaves to itself."""
    return any(b"store_operand" in text for text in ported.of_root(root).values())


def _tried(session: Searching, choice: _Choice, trial: Ported, make: Make) -> Sequence[Diagnostic]:
    """What keeps a root from the step. What spills for want of registers may do so no more once warps share them out
    anew, which is done in the end."""
    said = choice.try_to(partial(choice.choose, trial))
    if not choice.spills:
        return said
    again, counts, _ = tuned(session, trial, make)
    return choice.try_to(partial(choice.choose, again)) if counts else said


@dataclass
class _Choice(Choice):
    """Whether loops of one root are to issue their first product a turn ahead. `best`: the port that is held against
    others, if it is not the one without the step; `spills`: whether all that is missing is registers."""

    best: Ported | None = None
    spills: bool = False

    NAME = NAME
    SAID = Said(
        AS_FAST, "{name} is slower with its first product a turn ahead", room="{name}", registers="{name}",
        no_use=NO_USE,
    )  # fmt: skip

    def without_step(self) -> Mapping[str, Built]:
        return self.built_of(self.best or self.ported)

    def choose(self, trial: Ported) -> None:
        self.spills = False
        try:
            super().choose(trial)
        except SpillsError:
            self.spills = True
            raise
