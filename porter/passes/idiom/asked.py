# SPDX-License-Identifier: Apache-2.0
"""What steps ask of a port in SM100's own words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """`issuer`: a warp that does nothing else waits for operands and issues MMAs. `buffers`: accumulators that take
    turns. `pair`: two CTAs multiply together, each with its own rows and half of the columns of B; `wide`: with
    twice the columns, of which each of two warpgroups has those of one tile. `stages`: of the ring of operands, 0 for
    those that there are."""

    issuer: bool = False
    buffers: int = 1
    pair: bool = False
    wide: bool = False
    stages: int = 0
