# SPDX-License-Identifier: Apache-2.0
"""Two accumulators take turns, in SM100's own words of CuTe: MMAs of a tile are issued while sums of the one before are
read."""

from __future__ import annotations

from porter.steps.step import Declared, Ring, Step

STEP = Step(
    "double-buffer", "PTR782", lambda words: words.ask(buffers=2), "cute",
    Declared(rings=(Ring("accumulators", "tiles"),)), after={"mma-thread": "a warp of its own that issues the MMAs"},
)  # fmt: skip
