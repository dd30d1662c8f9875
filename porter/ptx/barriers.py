# SPDX-License-Identifier: Apache-2.0
"""Barriers of blocks and clusters (PTX ISA 9.7.13.1, 9.7.13.3), and how large an mbarrier is."""

from __future__ import annotations

from porter.ptx.arch import WARP
from porter.ptx.table import Decoded

MBARRIER_BYTES = 8
"""Of an mbarrier, which has this alignment too (PTX ISA 9.7.13.15.1)."""
_OF_BLOCK = 16
"""Barriers of a block (PTX ISA 9.7.13.1)."""


def is_barrier(number: int) -> bool:
    """Whether a block has a barrier of this number."""
    return 0 <= number < _OF_BLOCK


def is_count(threads: int) -> bool:
    """Whether a barrier can be for so many threads: whole warps (PTX ISA 9.7.13.1)."""
    return threads > 0 and threads % WARP == 0


def is_aligned(barrier: Decoded) -> bool:
    """Whether all threads of a warp have to execute the same instruction: `bar` is `barrier` with `.aligned`."""
    return barrier.parts[0] == "bar" or "aligned" in barrier.parts
