# SPDX-License-Identifier: Apache-2.0
"""How many stages kernels have whose MMAs are tiled MMAs of a library, and for how many there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.rules.load import load_rules
from porter.scan.library_ring import held_stages, most_stages
from porter.scan.staging import asked_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["cute_gemm_ws", "cute_gemm_persistent"])
def test_launches_of_the_corpus_are_numbers(name: str) -> None:
    """By a class in a template, and by names of types in a namespace."""
    path, rules = ROOT / f"corpus/{name}/{name}.cu", load_rules(())
    asked = asked_of(path, name, rules)
    assert asked is not None
    assert asked.dynamic_smem == 3 * 32768 + 1024
    assert held_stages(path, name, rules) == 3


def test_as_many_stages_as_there_is_room_for() -> None:
    assert most_stages(3, lambda count: count * 32768 + 1024) == 7
    assert most_stages(3, lambda count: count * 30000 + (30000 if count > 4 else 0)) == 6
    assert most_stages(3, lambda count: 3 * 32768) == 3
    assert most_stages(3, lambda count: count * 75000) == 3
