# SPDX-License-Identifier: Apache-2.0
"""Running SM100 code on a Hopper GPU: PTX for `sm_100a` rewritten so that `sm_90a` executes it.

Every `tcgen05` instruction becomes a call of a device function; Tensor Memory is an array in global memory.
"""

from porter.hopper.library import LIBRARY_SOURCE, HostBlock, Layout
from porter.hopper.lower import CannotLower, Lowered, Site, lower
from porter.hopper.traps import TRAPS, Trap, TrapReport, describe

__all__ = [
    "LIBRARY_SOURCE",
    "TRAPS",
    "CannotLower",
    "HostBlock",
    "Layout",
    "Lowered",
    "Site",
    "Trap",
    "TrapReport",
    "describe",
    "lower",
]
