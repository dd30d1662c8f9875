# SPDX-License-Identifier: Apache-2.0
"""More stages in the ring of operands, in SM100's own words of CuTe: the constant that says how many."""

from __future__ import annotations

from porter.steps.step import Declared, Ring, Step

STEP = Step(
    "stages", "PTR784", lambda words: words.ask(stages=words.stages), "cute",
    Declared(constants=True, launch=("shared memory",), rings=(Ring("stages", "k"),)),
    follows=("pair", "wide-pair"), asked=True, cost=True,
)  # fmt: skip
