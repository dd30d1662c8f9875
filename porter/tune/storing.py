# SPDX-License-Identifier: Apache-2.0
"""Whether results of a port leave by bulk copies: where that is faster by the grade."""

from __future__ import annotations

from porter.passes.native.bulk_store import NAME, NO_USE
from porter.passes.ported import Ported
from porter.tune.choosing import Choice, Chosen, Said, chosen
from porter.tune.searching import Make, Searching, cuda_roots

AS_FAST = "a gain: by the grade results leave as fast without"


class _Choice(Choice):
    """Whether results of one root are to leave by bulk copies."""

    NAME = NAME
    SAID = Said(AS_FAST, "{name} is slower with copies", room="what warps stage of {name}", no_use=NO_USE)


def stored(session: Searching, ported: Ported, make: Make) -> Chosen:
    """A port whose results leave by bulk copies where that is known to be faster."""
    return chosen(ported, make, [_Choice(session, ported, root) for root in cuda_roots(ported)])
