# SPDX-License-Identifier: Apache-2.0
"""The kept results of mutation of ports with MMAs of 128 rows: no survivor that nobody explains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_mutation_results import CASES, FOLDER, stale

from porter.cli.main import main
from porter.report.mutation_review import load_explanations, unexplained
from porter.verify.mutation_record import Record, read_record, write_record

HERE = FOLDER / "full_rate"
KERNELS = [
    "attention_fwd", "gemm_cluster",
    "gemm_cooperative_128", "gemm_fp8_scaled", "gemm_fp8_ue8m0", "gemm_fused", "gemm_lambda", "gemm_mn_major",
    "gemm_persistent", "gemm_pipelined", "gemm_rs", "gemm_struct", "gemm_tf32", "gemm_tma", "gemm_two_n", "gemm_ws",
]  # fmt: skip
AGAIN = "porter mutate --trust --style full-rate corpus/NAME --record docs/results/mutation/full_rate"


def records() -> list[Record]:
    return [record for path in sorted(HERE.glob("*.json")) if (record := read_record(path)) is not None]


def record_of(name: str) -> Record:
    return next(r for r in records() if r.case == name)


def compat(name: str) -> Record:
    found = read_record(FOLDER / f"{name.replace(':', '.')}.json")
    assert found is not None
    return found


def test_no_survivor_is_unexplained_and_no_explanation_is_stale() -> None:
    assert sorted(r.case for r in records()) == sorted(KERNELS)
    explanations = load_explanations(HERE)
    left = unexplained(records(), explanations)
    assert not left, [f"{record.case}: {row.how} {row.opcode} {row.place}" for record, row in left]
    assert not stale(records(), explanations)


@pytest.mark.parametrize("name", KERNELS)
def test_values_and_the_unmutated_port_are_right(name: str) -> None:
    """Notes of the unmutated port are its original's, as at 64 rows; its code is another than at 64 rows."""
    record = record_of(name)
    assert (record.status, record.hazards) == ("ok", compat(name).hazards)
    assert not [row.place for row in record.survivors if row.value]
    assert record.port != compat(name).port


# The other kernels have a barrier of the block in their loop, or all consumers arrive where a stage is full.
JOINED = ["gemm_cluster", "gemm_cooperative_128", "gemm_fused", "gemm_persistent", "gemm_pipelined", "gemm_tf32"]


@pytest.mark.parametrize("name", JOINED)
def test_that_warps_meet_ahead_of_a_batch_is_needed(name: str) -> None:
    """One thread issues for all: who has not seen the last batch complete may be lapped by the next one."""
    joins = [r for r in record_of(name).rows if (r.how, r.opcode) == ("drop", "bar.sync")
             and any("sync_warpgroup" in line for line in r.source)]  # fmt: skip
    assert joins
    assert all({"H33"} & {*row.errors, *row.reviews} for row in joins)


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", [n for n in KERNELS if n.startswith(("gemm_", "attention_"))])
def test_results_are_of_the_ports_of_today(name: str, tmp_path: Path) -> None:
    """A port that has not changed is passed over."""
    case = next(c for c in CASES if c.name == name)
    (tmp_path / "reviewed.yaml").write_bytes((HERE / "reviewed.yaml").read_bytes())
    write_record(tmp_path / f"{name}.json", record_of(name))
    words = ["--format", "json", "mutate", "--trust", "--style", "full-rate", str(case.path), "--record", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, json.loads(result.stdout)["kernels"]) == (0, []), AGAIN
