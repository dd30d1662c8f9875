# SPDX-License-Identifier: Apache-2.0
"""Steps of CuTe C++ in SM100's own words: what each asks for beside what the port has without it."""

from __future__ import annotations

from porter.steps.step import Declared, Ring, Step

WIDE_PAIR = "wide-pair"
"""Two CTAs multiply four tiles together."""
_OWN_WARP = {"mma-thread": "a warp of its own that issues the MMAs"}
_STAGES = (Ring("stages", "k"),)

STEPS = (
    # a warp that does nothing else waits for stages and issues the MMAs
    Step("mma-thread", "PTR781", lambda words: words.ask(issuer=True), "cute", Declared(roles=True, barriers=True)),
    # two CTAs multiply together
    Step(
        "pair", "PTR783", lambda words: words.ask(pair=True), "cute",
        Declared(rows=True, roles=True, barriers=True, launch=("grid", "cluster"), maps=True, rings=_STAGES),
        after=_OWN_WARP, follows=("double-buffer",), cost=True,
    ),
    # the constant that says how many stages the ring of operands has is another one
    Step(
        "stages", "PTR784", lambda words: words.ask(stages=words.stages), "cute",
        Declared(constants=True, launch=("shared memory",), rings=_STAGES), follows=("pair", WIDE_PAIR), asked=True,
        cost=True,
    ),
    # MMAs of a tile are issued while sums of the one before are read
    Step(
        "double-buffer", "PTR782", lambda words: words.ask(buffers=2), "cute",
        Declared(rings=(Ring("accumulators", "tiles"),)), after=_OWN_WARP,
    ),
    Step(
        WIDE_PAIR, "PTR785", lambda words: words.ask(wide=True), "cute",
        Declared(rows=True, launch=("grid",), maps=True, rings=_STAGES), after={"pair": "pairs of CTAs"},
        follows=("double-buffer",), cost=True,
    ),
)  # fmt: skip
