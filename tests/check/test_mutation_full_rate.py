# SPDX-License-Identifier: Apache-2.0
"""The kept results of mutation of ports with MMAs of 128 rows: no survivor that nobody explains."""

from __future__ import annotations

from test_mutation_results import FOLDER, stale

from porter.report.mutation_review import load_explanations, unexplained
from porter.verify.mutation_record import Record, read_record

HERE = FOLDER / "full_rate"
KERNELS = ["dsl_gemm_persistent:wide"]


def records() -> list[Record]:
    return [record for path in sorted(HERE.glob("*.json")) if (record := read_record(path)) is not None]


def test_no_survivor_is_unexplained_and_no_explanation_is_stale() -> None:
    assert [r.case for r in records()] == KERNELS
    explanations = load_explanations(HERE)
    assert not [f"{record.case}: {row.how} {row.place}" for record, row in unexplained(records(), explanations)]
    assert not stale(records(), explanations)


def compat() -> Record:
    found = read_record(FOLDER / "dsl_gemm_persistent.wide.json")
    assert found is not None
    return found


def test_values_and_the_unmutated_ports_are_right() -> None:
    """Notes of the unmutated port are its original's, as at 64 rows."""
    assert [(r.status, r.hazards) for r in records()] == [("ok", compat().hazards)] * len(KERNELS)
    assert not [(r.case, row.place) for r in records() for row in r.survivors if row.value]


def test_the_barrier_that_consumers_meeting_makes_redundant_is_needed_at_64_rows() -> None:
    """A port of 128 rows has all consumers meet ahead of MMAs; one of 64 rows does not, and the checker says so."""
    (full_rate,) = records()

    def last_barrier(record: Record) -> bool:
        rows = [r for r in record.rows if (r.how, r.opcode) == ("drop", "bar.sync") and ":261" in r.place]
        return rows[-1].caught

    assert not last_barrier(full_rate)
    assert last_barrier(compat())
