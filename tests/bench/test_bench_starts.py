# SPDX-License-Identifier: Apache-2.0
"""How soon a CuTe C++ program that was built before starts (docs/benchmarks.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starts import hopper_tutorial, start

Record = Callable[[str, float, float, str], None]

# The compiler takes half a minute for it.
pytestmark = [pytest.mark.target, pytest.mark.external, pytest.mark.slow]


@pytest.mark.parametrize("command", ["run", "hazards"])
def test_second_run(command: str, benchmark: Any, figure: Record, tmp_path: Path) -> None:
    folders, source = hopper_tutorial()
    seconds: list[float] = []

    def run() -> None:
        seconds.append(start(command, source, folders, ("64", "64", "64", "N", "T"), tmp_path).seconds)

    run()
    benchmark.pedantic(run, rounds=4)
    if benchmark.stats is not None:
        figure(f"porter {command}, second start", 1 / min(seconds[1:]), 1, "a second")
