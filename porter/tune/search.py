# SPDX-License-Identifier: Apache-2.0
"""Which steps of the native style a port has: those that the grade finds faster, each on top of those ahead of it.
Whether it may have them is judged behind that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from porter.diagnostics import Diagnostic
from porter.passes.ported import Ported
from porter.tune.issuing import issued
from porter.tune.searching import Searching
from porter.tune.sharing import shared
from porter.tune.staging import remade, staged
from porter.tune.storing import stored
from porter.tune.tuning import tuned
from porter.tune.widening import widened

Make = Callable[..., Any]
"""The same port with what is asked for: `half_rate`, `without`, `stages`, `registers`, `blocks`, `bulk_stores`,
`aheads`, `wide`."""


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
    if wide.roots:
        ported, make = wide.ported, partial(make, wide=wide.roots)
    stages = staged(session, ported, make)
    if stages.counts or stages.without:
        ported, make = stages.ported, partial(remade, make, stages)
    sharing = shared(session, ported, make)
    if sharing.roots:
        ported, make = sharing.ported, partial(make, blocks=sharing.roots)
    issuing = issued(session, ported, make, sharing.roots)
    if issuing.chosen.roots:
        ported, make = issuing.chosen.ported, partial(make, aheads=issuing.chosen.roots, blocks=issuing.blocks)
    storing = stored(session, ported, make)
    if storing.roots:
        ported, make = storing.ported, partial(make, bulk_stores=storing.roots)
    ported, registers, spilling = tuned(session, ported, make)
    said = (*wide.said, *stages.said, *sharing.said, *issuing.chosen.said, *storing.said)
    return Searched(ported, partial(make, registers=registers), said, tuple(spilling))
