# SPDX-License-Identifier: Apache-2.0
"""The kept results of mutation of native ports: of those of today, with no survivor that nobody explains."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_mutation_results import CASES, FOLDER, stale

from porter.cli.main import main
from porter.report.mutation_review import load_explanations, unexplained
from porter.verify.mutation_record import Record, read_record, write_record

HERE = FOLDER / "native"
KERNELS = [
    "attention_fwd", "cute_gemm_persistent", "cute_gemm_stsm", "cute_gemm_ws", "dsl_gemm_persistent", "gemm_cluster",
    "gemm_fp8_ue8m0",
    "gemm_persistent", "gemm_pipelined", "gemm_tf32", "gemm_tma", "gemm_ws",
]  # fmt: skip
ASKED = {
    "gemm_fp8_ue8m0": ["--block-scale"],
    "cute_gemm_persistent": ["--sizes", "M=512,N=512,K=320"],
    "dsl_gemm_persistent": ["--sizes", "M=256,N=768,K=192"],
}
"""Options of ports with a step that is taken on request; sizes at which a pair comes back to each accumulator."""
AGAIN = "porter mutate --trust --style native corpus/NAME --record docs/results/mutation/native"


def records() -> list[Record]:
    found = [read_record(path) for path in sorted(HERE.glob("*.json"))]
    return [record for record in found if record is not None]


def test_no_survivor_is_unexplained_and_no_explanation_is_stale() -> None:
    assert [r.case for r in records()] == KERNELS
    explanations = load_explanations(HERE)
    left = unexplained(records(), explanations)
    assert not left, [f"{record.case}: {row.how} {row.opcode} {row.place}" for record, row in left]
    assert not stale(records(), explanations)


def test_values_and_the_unmutated_ports_are_right() -> None:
    """Notes of the unmutated port are its original's, as at 64 rows."""
    assert [(r.case, r.status, r.hazards) for r in records()] == [(r.case, "ok", r.hazards) for r in compat()]
    assert not [(r.case, row.place) for r in records() for row in r.survivors if row.value]


# The last pass of an unrolled loop: it gives back a stage that is filled no more.
NOT_NEEDED = {("gemm_tf32", 3)}


def test_what_a_step_adds_is_noticed() -> None:
    """Commits that give stages back, and in a cluster the wait for those of others."""
    missed = set()
    for record in records():
        commits = [row for row in record.rows if row.opcode.startswith("tcgen05.commit") and row.how == "drop"]
        # of gemm_tma results alone leave otherwise
        assert len(commits) > (record.case != "gemm_tma"), record.case
        missed |= {(record.case, row.nth) for row in commits if not row.caught}
        assert record.port != next(r for r in compat() if r.case == record.case).port
    assert missed == NOT_NEEDED


def test_pieces_of_a_sum_are_waited_for() -> None:
    """Each of the loads that a sum's pieces have, of an accumulator of two pieces at the largest size."""
    (record,) = (r for r in records() if r.case == "attention_fwd")
    waits = [row for row in record.rows if row.opcode.startswith("tcgen05.wait::ld") and row.how == "drop"]
    pieces = [row for row in waits if any("update(" in line or "change_piece" in line for line in row.source)]
    assert pieces
    assert all(row.caught for row in waits)


def compat() -> list[Record]:
    found = [read_record(FOLDER / f"{name.replace(':', '.')}.json") for name in KERNELS]
    return [record for record in found if record is not None]


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", KERNELS)
def test_results_are_of_the_ports_of_today_and_runs_give_the_same(name: str, tmp_path: Path) -> None:
    """A port that has not changed is passed over; a record of another text is mutated anew."""
    case = next(c for c in CASES if c.name == name)
    kept = next(r for r in records() if r.case == name)
    record, reviewed = tmp_path / f"{name}.json", tmp_path / "reviewed.yaml"
    reviewed.write_bytes((HERE / "reviewed.yaml").read_bytes())
    write_record(record, kept)
    words = ["--format", "json", "mutate", "--trust", "--style", "native", *ASKED.get(name, ()), str(case.path)]
    words += ["--record", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, json.loads(result.stdout)["kernels"]) == (0, []), AGAIN
    write_record(record, dataclasses.replace(kept, port="another", code="another", ptx="another", rows=()))
    assert CliRunner().invoke(main, words).exit_code == 0
    assert read_record(record) == kept, AGAIN
