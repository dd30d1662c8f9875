# SPDX-License-Identifier: Apache-2.0
"""Two CTAs multiply four tiles together, in SM100's own words of CuTe."""

from __future__ import annotations

from porter.steps.step import Declared, Ring, Step

NAME = "wide-pair"
STEP = Step(
    NAME, "PTR785", lambda words: words.ask(wide=True), "cute",
    Declared(rows=True, launch=("grid",), maps=True, rings=(Ring("stages", "k"),)),
    after={"pair": "pairs of CTAs"}, follows=("double-buffer",), cost=True,
)  # fmt: skip
