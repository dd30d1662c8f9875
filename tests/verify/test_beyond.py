# SPDX-License-Identifier: Apache-2.0
"""Larger sizes from what runs came to; the runs are made up."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes_verify import CASE, FakeBuilder, write_case

from porter.sim.results import Stats
from porter.verify.beyond import Beyond
from porter.verify.case import Case, load_case
from porter.verify.further import further_sizes
from porter.verify.problem import bind
from porter.verify.trial import Program

RUNS = [{"M": 64, "N": 128, "K": 64}, {"M": 64, "N": 128, "K": 4288}, {"M": 192, "N": 192, "K": 64}]


def case_of(folder: Path, more: str = "") -> Case:
    return load_case(write_case(folder, textwrap.dedent(CASE) + more))


def beyond(folder: Path, values: list[int | None], what: str, constant: int = 100, instructions: int = 1000) -> Beyond:
    """After `RUNS`, which came to these values of a comparison or of the phases of an mbarrier."""
    case = case_of(folder)
    found = Beyond(case, port=False)
    built = FakeBuilder().build(bind(case), case.kernel, "sm_90a")
    for sizes, value in zip(RUNS, values, strict=True):
        problem = bind(case, sizes)
        stats = Stats(warp_instructions=instructions)
        if value is not None and what == "compared":
            stats.compared[7] = (constant, value)
        elif value is not None:
            stats.phases["mbarrier 0x400"] = value
        found.add(Program("original", "sm_90a", case.kernel, built, problem, problem.launch), stats)
    return found


def test_a_counter_of_steps_is_taken_beyond_its_constant(tmp_path: Path) -> None:
    found = beyond(tmp_path, [0, 66, 0], "compared").next()
    assert found is not None
    assert found.why == "larger K, beyond 100"
    assert (found.sizes["M"], found.sizes["N"]) == (64, 128)
    assert 102 * 64 <= int(found.sizes["K"]) <= 110 * 64


def test_the_farthest_constant_serves_the_nearer_ones(tmp_path: Path) -> None:
    goals = beyond(tmp_path, [0, 66, 0], "compared")
    for seen, value in zip(goals._seen, (0, 66, 0), strict=True):
        goal = next(iter(seen.values))
        seen.values[replace(goal, key=9, reach=201)] = value
    found = goals.next()
    assert found is not None
    assert found.why == "larger K, beyond 200"


@pytest.mark.parametrize(
    ("values", "constant"),
    [
        pytest.param([0, 66, 0], 60, id="it was beyond"),
        pytest.param([127, 127, 127], 383, id="the index of a thread"),
        pytest.param([1, 3, 1], 3, id="the index of a ring"),
        pytest.param([0, None, 1], 5, id="not met where K is largest, nor grown as M and N did"),
        pytest.param([0, 66, 0], 1 << 30, id="no counter comes so far"),
    ],
)
def test_what_no_size_moves_needs_no_larger_one(tmp_path: Path, values: list[int | None], constant: int) -> None:
    goals = beyond(tmp_path, values, "compared", constant)
    if values[1] is None:
        goals._seen[2].sizes = RUNS[0] | {"K": 128}
    assert goals.next() is None
    assert list(goals.left_out()) == []


def test_what_would_take_too_long_is_said(tmp_path: Path) -> None:
    goals = beyond(tmp_path, [0, 66, 0], "compared", 5000, 100_000)
    assert goals.next() is None
    ((what, why),) = goals.left_out()
    assert what.startswith("what is beyond constants of the original")
    assert "warp-instructions" in why


def test_a_ring_goes_round_three_times(tmp_path: Path) -> None:
    found = beyond(tmp_path, [0, 2, 0], "phases").next()
    assert found is not None
    assert (found.why, found.sizes["K"]) == ("larger K, three wraps", 2 * 4288)
    assert beyond(tmp_path / "b", [1, 4, 1], "phases").next() is None


def test_a_barrier_of_one_phase_is_said(tmp_path: Path) -> None:
    goals = beyond(tmp_path, [1, 1, 1], "phases")
    assert goals.next() is None
    assert list(goals.left_out()) == [("a second phase of 1 of the original's mbarriers", "mbarrier 0x400")]


def test_backends_that_count_nothing_tell_nothing(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    goals = Beyond(case, port=True)
    program: Any = SimpleNamespace()
    goals.add(program, None)
    assert goals.next() is None


def test_sizes_have_three_blocks_a_dimension_and_more_steps_than_a_mask_has_bits(tmp_path: Path) -> None:
    found = {f.why: f.sizes for f in further_sizes(case_of(tmp_path)).sizes}
    assert found["long K"]["K"] == 67 * 64
    grid = bind(case_of(tmp_path), found["three blocks a dimension"]).launch.grid
    assert min(grid[:2]) >= 3


def test_a_case_without_a_size_to_change_says_so(tmp_path: Path) -> None:
    text = textwrap.dedent(CASE).replace("reduction: K", "reduction: 64")
    plan = further_sizes(load_case(write_case(tmp_path, text)))
    assert "a long loop" in dict(plan.left_out)


def test_blocks_that_have_one_tile_each_get_many(tmp_path: Path) -> None:
    """The grid is a size of its own; nobody says what a tile is."""
    text = textwrap.dedent(CASE).replace("[N / BN, M / BM, 1]", "[CTAS, 1, 1]").replace("K: 64}", "K: 64, CTAS: 2}")
    case = load_case(write_case(tmp_path, text.replace("constants: {BM: 64, BN: 64}", "constants: {BM: 64}")))
    found = {f.why: f.sizes for f in further_sizes(case).sizes}
    assert found["three blocks a dimension"]["CTAS"] >= 3
    assert int(found["many tiles of a block"]["M"]) >= 12 * 64
