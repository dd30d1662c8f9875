# SPDX-License-Identifier: Apache-2.0
"""The m64 tiles of two warpgroups become one M=128 MMA, for which they meet, in raw CUDA."""

from __future__ import annotations

from porter.steps.step import Declared, Step

STEP = Step(
    "two-consumers", "PTR180", lambda wide: wide.two_consumers(), style="full-rate",
    changes=Declared(rows=True, roles=True, barriers=True), follows=("two-tiles",),
)  # fmt: skip
