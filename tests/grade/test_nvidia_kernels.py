# SPDX-License-Identifier: Apache-2.0
"""The table beside NVIDIA's kernels: what its record has, and that the script makes it so."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripts_loaded import script as loaded

ROOT = Path(__file__).resolve().parents[2]
ROWS = json.loads((ROOT / "docs/results/nvidia-kernels.json").read_text())["rows"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded("scripts/nvidia_kernels.py")


def test_the_record_has_what_the_script_asks_for(script: ModuleType) -> None:
    examples = [f"example 70, {m} x {n}, clusters of {rows} x {columns}" for (m, n), (rows, columns) in script.TILES]
    tutorials = [f"tutorial {name[:2]}" for name in script.TUTORIALS]
    assert [r["kernel"] for r in ROWS] == [*tutorials, *examples, *script.PORTS]
    assert [r["of"] for r in ROWS if r["kernel"] in script.PORTS] == ["native port"] * len(script.PORTS)
    assert not [r for r in ROWS if "unknown" in r]
    assert all(r["problem"] == [4096, 4096, 4096] for r in ROWS)


def test_tutorials_are_in_their_known_order() -> None:
    rates = [r["percent_of_nominal"] for r in ROWS if r["kernel"].startswith("tutorial")]
    assert len(rates) == 5
    assert rates == sorted(set(rates))


def test_example_70_is_read_as_it_is_compiled(script: ModuleType) -> None:
    """Tile and pair are those of the text; pairs come nearer to the nominal rate, and so do CTAs that share loads."""
    rows = [r for r in ROWS if r["kernel"].startswith("example")]
    rates: dict[tuple[int, int, int, int], float] = {}
    for row, ((m, n), (ctas, others)) in zip(rows, script.TILES, strict=True):
        assert row["tile"] == [m, n, 64]
        assert row["pair"] is (m == 256)
        assert row["stages"] >= 3
        rates[m, n, ctas, others] = row["percent_of_nominal"]
    assert rates[128, 128, 1, 1] < rates[128, 256, 1, 1] < rates[256, 128, 2, 1] < rates[256, 256, 2, 1]
    assert rates[256, 128, 2, 1] < rates[256, 128, 2, 2]


def test_a_port_is_beside_the_best_of_its_tile() -> None:
    page = loaded("docs/grade_page.py")
    rows: list[dict[str, Any]] = [
        {"of": "NVIDIA", "tile": [128, 128, 64], "percent_of_nominal": 50.0},
        {"of": "NVIDIA", "tile": [128, 128, 64], "percent_of_nominal": 60.0},
        {"of": "NVIDIA", "tile": [128, 256, 64], "percent_of_nominal": 90.0},
        {"of": "NVIDIA", "unknown": "the number of stages"},
    ]
    port = {"of": "native port", "tile": [128, 128, 64], "percent_of_nominal": 54.0}
    assert page.beside(port, rows) == pytest.approx(0.9)
    assert page.beside({**port, "tile": [64, 64, 64]}, rows) is None
    assert page.beside(rows[0], rows) is None


def test_what_is_not_graded_is_said_why(script: ModuleType) -> None:
    said: dict[str, Any] = {"kernels": [], "diagnostics": [{"message": "not known: stages"}]}
    assert script.figures("x", said, "kernel") == {"kernel": "x", "unknown": "not known: stages"}


@pytest.mark.slow
@pytest.mark.external
def test_the_record_is_what_the_command_says(script: ModuleType) -> None:
    """Of the quickest program and of a port."""
    chosen = {"tutorial 02", "gemm_ws"}
    made = json.loads(json.dumps(list(script.rows(chosen))))
    assert made == [r for r in ROWS if r["kernel"] in chosen]
