# SPDX-License-Identifier: Apache-2.0
"""Two m64 tiles of a warpgroup become one M=128 MMA, in raw CUDA."""

from __future__ import annotations

from porter.steps.step import Declared, Step

STEP = Step("two-tiles", "PTR181", lambda wide: wide.two_tiles(), style="full-rate", changes=Declared(rows=True))
