# SPDX-License-Identifier: Apache-2.0
"""The table of the corpus' kinds of kernels: what stands in the record is what the command says."""

from __future__ import annotations

import json
import re
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
    assert all(script.case_of(row["kernel"].split()[0]).is_file() for row in ROWS)
    assert all(script.DEFAULT in row["ports"] for row in ROWS)


def test_what_is_not_graded_is_said_why(script: ModuleType) -> None:
    said: dict[str, Any] = {"kernels": [], "diagnostics": [{"message": "not known: stages"}]}
    assert script.figures(said, "port") == {"unknown": "not known: stages"}
    assert all("limit" in one or one["unknown"] for row in ROWS for one in (row["original"], *row["ports"].values()))


@pytest.mark.parametrize(
    "kernel", ["gemm_ws", "gemm_persistent", "gemm_fp8_scaled", "gemm_tma", "gemm_cooperative_128"]
)
def test_full_rate_is_graded_above_compat(kernel: str, script: ModuleType) -> None:
    (row,) = (r for r in ROWS if r["kernel"] == kernel)
    compat, full = (row["ports"][style]["percent_of_nominal"] for style in ("compat", "full-rate"))
    assert full >= 40
    assert full > 1.25 * compat


def test_attention_is_above_compat_with_two_blocks_on_an_sm() -> None:
    """One M=128 MMA for both warpgroups alone leaves the tensor core idle while their threads compute."""
    (row,) = (r for r in ROWS if r["kernel"] == "attention_fwd D=128")
    compat, full, native = (row["ports"][style] for style in ("compat", "full-rate", "native"))
    assert full["percent_of_nominal"] < compat["percent_of_nominal"] < native["percent_of_nominal"]
    assert native["percent_of_nominal"] >= 45
    assert (full["blocks_per_sm"], native["blocks_per_sm"]) == (1, 2)
    assert native["limit"] == "instruction issue"


def test_a_port_that_its_case_refuses_is_not_graded(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("chip", "problem", "capped_percent", "clocks_per_tile", "clocks_per_stage", "limit")
    percent = {"compat": 30.0, "full-rate": 60.0}

    def graded(_: str, arguments: tuple[str, str]) -> dict[str, object]:
        port = {"program": "port", "percent_of_nominal": percent[arguments[1]], "lifts": [], **dict.fromkeys(names, "")}
        return {"kernels": [{**port, "program": "original"}, port]}

    monkeypatch.setattr(script, "styles", lambda: tuple(percent))
    monkeypatch.setattr(script, "graded", graded)
    monkeypatch.setattr(script, "refused", lambda *_: "the port differs")
    (row,) = script.rows({"gemm_tma"})
    assert row["ports"]["full-rate"] == {**row["ports"]["compat"], "left": "the port differs"}
    monkeypatch.setattr(script, "refused", lambda *_: "")
    (row,) = script.rows({"gemm_tma"})
    assert row["ports"]["full-rate"]["percent_of_nominal"] == percent["full-rate"]


def test_no_case_of_the_table_refuses_a_port() -> None:
    """One is not given as the compat port is faster."""
    left = {(row["kernel"], style): port.get("left") for row in ROWS for style, port in row["ports"].items()}
    assert {key for key, why in left.items() if why} == {("cute_attention", "native")}
    assert re.fullmatch(
        r"stays at M=64: by the grade \S.* reaches 18\.1 % of .*, and 17\.1 % with .* native style",
        left["cute_attention", "native"],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel", ["gemm_ws", "gemm_persistent", "attention_fwd", "attention_fwd D=128", "gemm_cooperative_128"]
)
def test_the_record_is_what_the_command_says(kernel: str, script: ModuleType) -> None:
    (row,) = script.rows({kernel})
    (recorded,) = (r for r in ROWS if r["kernel"] == kernel)
    assert json.loads(json.dumps(row)) == recorded
