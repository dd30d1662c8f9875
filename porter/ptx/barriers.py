# SPDX-License-Identifier: Apache-2.0
"""Barriers of blocks and clusters (PTX ISA 9.7.13.1, 9.7.13.3), and how large an mbarrier is."""

from __future__ import annotations

from porter.ptx.table import Decoded

MBARRIER_BYTES = 8
"""Of an mbarrier, which has this alignment too (PTX ISA 9.7.13.15.1)."""


def is_aligned(barrier: Decoded) -> bool:
    """Whether all threads of a warp have to execute the same instruction: `bar` is `barrier` with `.aligned`."""
    return barrier.parts[0] == "bar" or "aligned" in barrier.parts
