# SPDX-License-Identifier: Apache-2.0
"""Whether results of a port leave by bulk copies: where that is faster by the grade."""

from __future__ import annotations

from functools import partial

from porter.passes.native.bulk_store import NAME, NO_USE
from porter.passes.ported import Ported
from porter.tune.choosing import Choice, Chosen, Said, ended
from porter.tune.searching import Make, Searching, cuda_roots, of_step

AS_FAST = "a gain: by the grade results leave as fast without"
_SAID = Said(AS_FAST, "{name} is slower with copies", room="what warps stage of {name}")


def stored(session: Searching, ported: Ported, make: Make) -> Chosen:
    """A port whose results leave by bulk copies where that is known to be faster."""
    roots = cuda_roots(ported)
    if not roots:
        return Chosen(ported)
    trial = make(chosen=of_step(NAME, (r.path for r in roots)))
    choices = [_Choice(session, ported, root) for root in roots]
    said = [d for choice in choices for d in choice.try_to(partial(choice.choose, trial))]
    return ended(ported, trial, choices, said, lambda found: make(chosen=of_step(NAME, found)))


class _Choice(Choice):
    """Whether results of one root are to leave by bulk copies."""

    NAME = NAME

    def choose(self, trial: Ported) -> None:
        """Raises WithoutError: a fact is missing in the text, or it is no faster; PorterError: what compiling
        raises."""
        if not self.has_step(trial):
            raise self.missing(trial, NO_USE)
        self.require_gain(self.built_of(self.ported), self.built_of(trial), _SAID)
        self.chosen = True
