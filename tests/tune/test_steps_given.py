# SPDX-License-Identifier: Apache-2.0
"""Which steps a port is given: all together where they are judged to be right, else what PTX refuses is left out
without a run, and what only a run refuses is found step by step."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from porter.passes.ported import Ported, PortedRoot
from porter.tune.given import Given, given
from porter.tune.searching import Pairs

PATH = "kernel.cu"
STEPS = ("release", "raster", "stages", "blocks")


def port(steps: Collection[str]) -> Ported:
    text = ", ".join(steps).encode()
    return Ported(old={PATH: b""}, new={PATH: text}, roots=[PortedRoot(PATH, (PATH,), native=tuple(steps))])


def make(*, without: Pairs = frozenset(), **asked: object) -> Ported:
    """`blocks` is nothing without `stages`."""
    steps = [step for step in STEPS if (PATH, step) not in without]
    return port([s for s in steps if s != "blocks" or "stages" in steps])


class Judged:
    """Says no to ports with a step of `on_ptx`, and in a run to those with one of `in_runs`."""

    def __init__(self, on_ptx: str = "", in_runs: str = "") -> None:
        self.on_ptx, self.in_runs, self.runs = on_ptx.split(), in_runs.split(), set[tuple[str, ...]]()

    def refused(self, ported: Ported, root: PortedRoot) -> str:
        return "something else is left" if set(root.native) & set(self.on_ptx) else ""

    def missing(self, ported: Ported, root: PortedRoot) -> str:
        if what := self.refused(ported, root):
            return what
        self.runs.add(root.native)
        return "bits differ" if set(root.native) & set(self.in_runs) else ""

    def given(self) -> tuple[Given, dict[str, str]]:
        found = given(port(STEPS), make, self.missing, self.refused)
        return found, {str(d.values["step"]): str(d.values["what"]) for d in found.said}


@pytest.mark.parametrize(
    ("on_ptx", "in_runs", "steps", "runs"),
    [
        ("", "", STEPS, 1),
        # a run of what is left, and none of what it is made of
        ("raster", "", ("release", "stages", "blocks"), 1),
        ("raster release", "", ("stages", "blocks"), 1),
        ("stages", "", ("release", "raster"), 1),
        ("release raster stages blocks", "", (), 0),
        # which of them it is shows step by step
        ("", "raster", ("release", "stages", "blocks"), 6),
        ("release", "stages", ("raster",), 4),
    ],
)
def test_what_is_given_and_how_much_is_run(on_ptx: str, in_runs: str, steps: tuple[str, ...], runs: int) -> None:
    judged = Judged(on_ptx, in_runs)
    found, said = judged.given()
    assert found.ported.roots[0].native == steps
    assert set(said) == set(STEPS) - set(steps)
    assert len(judged.runs) == runs, judged.runs
    assert {(PATH, step) for step in STEPS} - found.without == {(PATH, step) for step in steps}
    for step, what in said.items():
        who = on_ptx if what == "something else is left" else in_runs if what == "bits differ" else "blocks"
        assert step in who
