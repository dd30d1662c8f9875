# SPDX-License-Identifier: Apache-2.0
"""Rows of A change places in shared memory where threads keep theirs under an M=128 MMA, in raw CUDA."""

from __future__ import annotations

from porter.steps.step import Declared, Step

STEP = Step(
    "rows-of-a", "PTR188", lambda wide: wide.rows_of_a(), style="full-rate", changes=Declared(rows=True, maps=True),
    follows=("two-tiles", "two-consumers"),
)  # fmt: skip
