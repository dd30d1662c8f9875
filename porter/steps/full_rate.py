# SPDX-License-Identifier: Apache-2.0
"""Two m64 tiles of raw CUDA become one M=128 MMA: those of a warpgroup, or those of two, which meet for it. Rows of A
change places in shared memory where threads keep theirs under it."""

from __future__ import annotations

from porter.steps.step import Declared, Step

STEPS = (
    Step(
        "rows-of-a", "PTR188", lambda wide: wide.rows_of_a(), style="full-rate", changes=Declared(rows=True, maps=True),
        follows=("two-tiles", "two-consumers"),
    ),
    Step(
        "two-consumers", "PTR180", lambda wide: wide.two_consumers(), style="full-rate",
        changes=Declared(rows=True, roles=True, barriers=True), follows=("two-tiles",),
    ),
    Step("two-tiles", "PTR181", lambda wide: wide.two_tiles(), style="full-rate", changes=Declared(rows=True)),
)  # fmt: skip
