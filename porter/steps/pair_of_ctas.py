# SPDX-License-Identifier: Apache-2.0
"""Two CTAs multiply together, in SM100's own words of CuTe."""

from __future__ import annotations

from porter.steps.step import Declared, Ring, Step

STEP = Step(
    "pair", "PTR783", lambda words: words.ask(pair=True), "cute",
    Declared(rows=True, roles=True, barriers=True, launch=("grid", "cluster"), maps=True, rings=(Ring("stages", "k"),)),
    after={"mma-thread": "a warp of its own that issues the MMAs"}, follows=("double-buffer",), cost=True,
)  # fmt: skip
