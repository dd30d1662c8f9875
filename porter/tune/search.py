# SPDX-License-Identifier: Apache-2.0
"""Which steps of the native style a port has: those that the grade finds faster, each on top of those ahead of it.
Whether it may have them is judged behind that."""

from __future__ import annotations

from dataclasses import dataclass

from porter.diagnostics import Diagnostic
from porter.passes.native.ahead import NAME as AHEAD
from porter.passes.native.blocks import NAME as BLOCKS
from porter.passes.native.bulk_store import NAME as BULK_STORE
from porter.passes.native.wide import NAME as WIDE
from porter.passes.ported import Ported
from porter.tune.issuing import issued
from porter.tune.searching import Make, Searching, adding, of_step
from porter.tune.sharing import shared
from porter.tune.staging import staged
from porter.tune.storing import stored
from porter.tune.tuning import tuned
from porter.tune.widening import widened


@dataclass(frozen=True)
class Searched:
    """A port with the steps that are chosen for it, and what makes it so. `said`: why it is without others; `spilling`:
    why it spills."""

    ported: Ported
    make: Make
    said: tuple[Diagnostic, ...] = ()
    spilling: tuple[Diagnostic, ...] = ()

    def say(self, ported: Ported) -> None:
        """Add to a port, which may have been made again, why it is without other steps."""
        for one in self.said:
            ported.diagnostics += [one] if one not in ported.diagnostics else []


def searched(session: Searching, ported: Ported, make: Make) -> Searched:
    """A port with the steps that are faster by the grade."""
    wide = widened(session, ported, make)
    make = adding(make, chosen=of_step(WIDE, wide.roots))
    stages = staged(session, wide.ported, make)
    make = adding(make, stages=stages.counts, without=stages.without)
    sharing = shared(session, stages.ported, make)
    issuing = issued(session, sharing.ported, make, sharing.roots)
    chosen = of_step(BLOCKS, issuing.blocks) | of_step(AHEAD, issuing.chosen.roots)
    storing = stored(session, issuing.chosen.ported, adding(make, chosen=chosen))
    make = adding(make, chosen=chosen | of_step(BULK_STORE, storing.roots))
    ported, registers, spilling = tuned(session, storing.ported, make)
    said = (*wide.said, *stages.said, *sharing.said, *issuing.chosen.said, *storing.said)
    return Searched(ported, adding(make, registers=registers), said, tuple(spilling))
