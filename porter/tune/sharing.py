# SPDX-License-Identifier: Apache-2.0
"""Whether two blocks of a port share an SM: where that is faster by the grade, and ptxas finds registers for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from porter.grade.changes import Impossible, blocks
from porter.grade.clocks import resident
from porter.passes.native.blocks import BLOCKS, NAME
from porter.passes.ported import Ported
from porter.tune.choosing import GAIN, Built, Choice, Chosen, Said, ended
from porter.tune.searching import Make, Searching, cuda_roots, of_step

_SAID = Said(
    f"a gain: by the grade {BLOCKS} blocks on an SM are as fast as one",
    f"{{name}} is slower with {BLOCKS} blocks on an SM",
    registers=f"{BLOCKS} blocks of {{name}}",
)


def shared(session: Searching, ported: Ported, make: Make) -> Chosen:
    """A port whose blocks share an SM where that is known to be faster."""
    choices = [_Choice(session, ported, root) for root in cuda_roots(ported)]
    said = [d for choice in choices for d in choice.try_to(choice.look)]
    choices = [c for c in choices if c.rows]
    trial = make(chosen=of_step(NAME, (c.root.path for c in choices))) if choices else ported
    said += [d for c in choices for d in c.try_to(partial(c.choose, trial))]
    return ended(ported, trial, choices, said, lambda found: make(chosen=of_step(NAME, found)))


@dataclass
class _Choice(Choice):
    """Whether blocks of one root are to share an SM. `rows`: what cases compile of it as it is, if the model finds two
    blocks faster."""

    rows: Mapping[str, Built] = field(default_factory=dict)

    NAME = NAME

    def look(self) -> None:
        """Raises WithoutError: two blocks are no faster; PorterError: what compiling raises."""
        if self.ported.keeps_hopper:
            raise self.without("a port by itself: the original's form, which needs an SM, stands beside it")
        rows, best = self.built_of(self.ported), 0.0
        for one in rows.values():
            try:
                best = max(best, self.gain(one.shape, blocks(one.shape, BLOCKS)))
            except Impossible as error:
                raise self.without(f"room on an SM for {one.name}: {error}") from None
            if resident(one.shape) >= BLOCKS:
                raise self.without(f"an SM with one block of {one.name}: it has {resident(one.shape)}")
        if best <= GAIN:
            raise self.without(_SAID.as_fast)
        self.rows = rows

    def choose(self, trial: Ported) -> None:
        """Raises WithoutError: a fact is missing in the text, or what ptxas makes of it is no faster; PorterError: what
        compiling raises."""
        if not self.has_step(trial):
            raise self.missing(trial)
        self.require_gain(self.rows, self.built_of(trial), _SAID)
        self.chosen = True

    def require_room(self, one: Built, said: Said) -> None:
        if resident(one.shape) < BLOCKS:
            raise self.without(f"room for {BLOCKS} blocks of {one.name} on an SM")
