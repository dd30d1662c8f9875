# SPDX-License-Identifier: Apache-2.0
"""A warp that does nothing else waits for stages and issues the MMAs, in SM100's own words of CuTe."""

from __future__ import annotations

from porter.steps.step import Declared, Step

STEP = Step("mma-thread", "PTR781", lambda words: words.ask(issuer=True), "cute", Declared(roles=True, barriers=True))
