# SPDX-License-Identifier: Apache-2.0
"""The model against what others measured. Files with all rows of two sweeps are read where they lie beside the
checkout, or in the directory that PORTER_CALIBRATION names."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from grade.published import (
    BIG_STEP,
    Pair,
    ladder_points,
    ladders,
    mainloop_points,
    mma_points,
    pairs,
    recorded_mainloop,
    recorded_mma,
)

from porter.grade import chips, clocks, model
from porter.grade.calibration import Point, mean_error

SWEEPS = Path(os.environ.get("PORTER_CALIBRATION", Path(__file__).parents[3] / "shared/data"))


def rows(name: str) -> list[dict[str, str]]:
    path = SWEEPS / name
    if not path.is_file():
        pytest.skip(f"no {path}")
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def all_pairs() -> list[Pair]:
    return [p for ladder in ladders() for p in pairs(ladder, ladder_points(ladder))]


# --- Single MMAs


@pytest.mark.parametrize("point", recorded_mma(), ids=lambda p: p.name)
def test_the_rate_of_an_mma_is_the_measured_one(point: Point) -> None:
    assert abs(point.error) <= 0.04


def test_rates_of_mmas_over_the_whole_sweep() -> None:
    points = mma_points(rows("umma_throughput.csv"))
    assert len(points) == 264
    assert sum(abs(p.error) <= 0.04 for p in points) == len(points)
    held_out = [p for p in points if not p.fitted]
    assert len(held_out) == 216
    assert_recorded("umma_throughput/tput_results_max.csv", points)


@pytest.mark.parametrize(
    ("constant", "value"), [("smem_bytes_per_clock", 256), ("pair_a_factor", 0.5), ("pair_shortest_mma", 0)]
)
def test_a_wrong_constant_of_an_mma_is_seen(monkeypatch: pytest.MonkeyPatch, constant: str, value: float) -> None:
    changed(monkeypatch, {constant: value})
    assert any(abs(p.error) > 0.04 for p in recorded_mma())


# --- Main loops


def test_main_loops_that_are_recorded_here() -> None:
    points = recorded_mainloop()
    assert len(points) == 25
    assert mean_error(points) < 0.035


def test_main_loops_over_the_whole_sweep() -> None:
    points = mainloop_points(rows("cutlass_gemm_mainloop.csv"))
    assert len(points) == 144
    assert mean_error(points) <= 0.035
    held_out = [p for p in points if not p.fitted]
    assert len(held_out) == 72
    assert {p.name.split()[0] for p in held_out} == {"FP8_E4M3"}
    assert mean_error(held_out) <= 0.035
    assert_recorded("cutlass_gemm_mainloop/results.csv", points)


def assert_recorded(file: str, points: list[Point]) -> None:
    """What docs/grade.md says of a sweep."""
    row = next(r for r in chips.read("measured")["whole"] if r["file"] == file)
    fitted, held_out = [p for p in points if p.fitted], [p for p in points if not p.fitted]
    assert (row["points"], row["fitted"]) == (len(points), len(fitted))
    assert (row["fitted_error"], row["held_out_error"]) == (
        round(mean_error(fitted), 4), round(mean_error(held_out), 4)
    )  # fmt: skip


@pytest.mark.parametrize(("constant", "factor"), [("load_latency_l2_ns", 1.3), ("load_bytes_per_clock_l2", 0.5)])
def test_a_wrong_latency_is_seen(monkeypatch: pytest.MonkeyPatch, constant: str, factor: float) -> None:
    changed(monkeypatch, {constant: chips.values()[constant] * factor})
    assert mean_error(recorded_mainloop()) > 0.035


# --- Ladders


def test_published_kernels_are_in_their_order() -> None:
    found = all_pairs()
    assert len(found) == 67
    assert sum(p.right for p in found) >= 64
    assert not [p for p in found if p.factor >= BIG_STEP and not p.right]


@pytest.mark.parametrize(
    "constants",
    [
        pytest.param({"fill_narrow_rows": 80.0}, id="rows of 16 bytes cost nothing"),
        pytest.param({"load_latency_l2_ns": 0.0, "mma_latency_ss": 0.0, "stage_issue": 0.0}, id="no latency"),
        pytest.param({"fill_bytes_per_clock": 20.0}, id="a narrow path to shared memory"),
    ],
)
def test_a_model_without_one_of_its_parts_loses_the_order(
    monkeypatch: pytest.MonkeyPatch, constants: dict[str, float]
) -> None:
    changed(monkeypatch, constants)
    found = all_pairs()
    assert sum(p.right for p in found) < 64 or any(p.factor >= BIG_STEP and not p.right for p in found)


def test_a_model_that_forgets_stages_loses_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_stage(*arguments: object, **more: object) -> object:
        shape, timed, steps, tiles, blocks, _ = arguments[:6]
        return schedule(shape, timed, steps, tiles, blocks, 1)

    schedule = model.schedule
    monkeypatch.setattr(model, "schedule", one_stage)
    assert any(p.factor >= BIG_STEP and not p.right for p in all_pairs())


def test_a_model_in_which_pairs_bring_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = clocks.interval
    monkeypatch.setattr(clocks, "interval", lambda mma: alone(mma) * mma.cta_group)
    assert any(p.factor >= BIG_STEP and not p.right for p in all_pairs())


def changed(monkeypatch: pytest.MonkeyPatch, constants: dict[str, float]) -> None:
    given = {**chips.values(), **constants}
    for module in (chips, clocks, model):
        monkeypatch.setattr(module, "values", lambda: given)


@pytest.fixture(autouse=True)
def _constants_are_of_the_file() -> Iterator[None]:
    before = dict(chips.values())
    yield
    assert chips.values() == before


def test_every_constant_has_a_source() -> None:
    for constant in chips.constants().values():
        assert constant.source, constant.name
    for chip in chips.chips().values():
        assert chip.sources
    assert round(chips.chips()["B200"].nominal_tflops(), -1) == 2240
    assert round(chips.chips()["H100"].nominal_tflops()) == 989
