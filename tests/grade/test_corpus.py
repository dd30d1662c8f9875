# SPDX-License-Identifier: Apache-2.0
"""The table of the corpus' kinds of kernels: what stands in the record is what the command says."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripts_loaded import script as loaded

ROOT = Path(__file__).resolve().parents[2]
ROWS = json.loads((ROOT / "docs/results/grade-corpus.json").read_text())["rows"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded("scripts/grade_corpus.py")


def test_the_record_has_every_kind_of_kernel(script: ModuleType) -> None:
    assert [(r["kind"], r["kernel"]) for r in ROWS] == [
        (kind, k) for kind, names in script.KINDS.items() for k in names
    ]
    assert all((script.CORPUS / row["kernel"] / "case.yaml").is_file() for row in ROWS)
    assert all(script.DEFAULT in row["ports"] for row in ROWS)


def test_what_is_not_graded_is_said_why(script: ModuleType) -> None:
    said: dict[str, Any] = {"kernels": [], "diagnostics": [{"message": "not known: stages"}]}
    assert script.figures(said, "port") == {"unknown": "not known: stages"}
    assert all("limit" in one or one["unknown"] for row in ROWS for one in (row["original"], *row["ports"].values()))


@pytest.mark.parametrize("kernel", ["gemm_ws", "gemm_persistent", "gemm_fp8_scaled", "attention_fwd"])
def test_full_rate_is_graded_above_compat(kernel: str, script: ModuleType) -> None:
    assert script.styles() == ("compat", "full-rate")
    (row,) = (r for r in ROWS if r["kernel"] == kernel)
    compat, full = (row["ports"][style]["percent_of_nominal"] for style in script.styles())
    assert full >= 40
    assert full > 1.25 * compat


def test_a_port_that_its_case_refuses_is_not_graded() -> None:
    (row,) = (r for r in ROWS if r["kernel"] == "gemm_cooperative_128")
    given = dict(row["ports"]["full-rate"])
    assert "the port differs" in given.pop("left")
    assert given == row["ports"]["compat"]
    assert not any("left" in r["ports"]["full-rate"] for r in ROWS if r is not row)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["gemm_ws", "gemm_persistent", "attention_fwd", "gemm_cooperative_128"])
def test_the_record_is_what_the_command_says(kernel: str, script: ModuleType) -> None:
    (row,) = script.rows({kernel})
    (recorded,) = (r for r in ROWS if r["kernel"] == kernel)
    assert json.loads(json.dumps(row)) == recorded
