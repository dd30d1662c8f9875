# SPDX-License-Identifier: Apache-2.0
"""Whether two blocks of a port share an SM: where that is faster by the grade, and ptxas finds registers for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from porter.grade.changes import Impossible, blocks
from porter.grade.clocks import resident
from porter.passes.native.blocks import BLOCKS, NAME
from porter.passes.ported import Ported
from porter.tune.choosing import GAIN, Built, Choice, Chosen, Said, chosen
from porter.tune.searching import Make, Searching, cuda_roots


def shared(session: Searching, ported: Ported, make: Make) -> Chosen:
    """A port whose blocks share an SM where that is known to be faster."""
    choices = [_Choice(session, ported, root) for root in cuda_roots(ported)]
    said = [d for choice in choices for d in choice.try_to(choice.look)]
    return chosen(ported, make, [c for c in choices if c.rows], said)


@dataclass
class _Choice(Choice):
    """Whether blocks of one root are to share an SM. `rows`: what cases compile of it as it is, if the model finds two
    blocks faster."""

    rows: Mapping[str, Built] = field(default_factory=dict)

    NAME = NAME
    SAID = Said(
        f"a gain: by the grade {BLOCKS} blocks on an SM are as fast as one",
        f"{{name}} is slower with {BLOCKS} blocks on an SM",
        registers=f"{BLOCKS} blocks of {{name}}",
    )

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
            raise self.without(self.SAID.as_fast)
        self.rows = rows

    def without_step(self) -> Mapping[str, Built]:
        return self.rows

    def require_room(self, one: Built) -> None:
        if resident(one.shape) < BLOCKS:
            raise self.without(f"room for {BLOCKS} blocks of {one.name} on an SM")
