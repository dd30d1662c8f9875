# SPDX-License-Identifier: Apache-2.0
"""The kept results of mutation are those of today's ports, all survivors are explained, and runs give the same."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from porter.cli.context import current
from porter.cli.making import Ports
from porter.report.mutation_review import Explanation, explained, load_explanations, open_survivors, unexplained
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import Case, cases_of, load_case
from porter.verify.mutant_runs import Setup
from porter.verify.mutation import mutate
from porter.verify.mutation_record import (
    Record,
    Row,
    code_digest,
    port_digest,
    ptx_digest,
    read_record,
    record_path,
    record_row,
    write_record,
)
from porter.verify.prepare import mutation_setups
from porter.verify.settings import SimOptions

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results" / "mutation"
CASES = [load_case(path) for path in cases_of(ROOT / "corpus")]
SAMPLED = ["gemm_ws", "gemm_persistent", "gemm_rs"]
SAMPLE = 8
OF_CUTE = {case.name for case in CASES if case.name.startswith("cute_")} - {"cute_gemm_ws"}
AGAIN = "sweep again: porter mutate --trust --style compat corpus --record docs/results/mutation"


def stale(records: Sequence[Record], explanations: Sequence[Explanation]) -> list[str]:
    """Explanations, or kernels and ordinals in them, that explain no survivor."""
    rows = [(rec, row) for rec, row in open_survivors(records)]
    used: set[tuple[int, str, object]] = set()
    for rec, row in rows:
        found = explained(explanations, rec, row)
        if found is None:
            continue
        n = explanations.index(found)
        name = f"{row.how} {row.opcode}"
        used |= {(n, "kernel", rec.case), (n, "nth", row.nth)}
        used |= {(n, "mutant", m) for m in found.mutants if name.startswith(m)}
    left = []
    for n, e in enumerate(explanations):
        wanted: list[tuple[str, object]] = [("mutant", m) for m in e.mutants]
        wanted += [("kernel", k) for k in e.kernels] + [("nth", i) for i in e.nth]
        unused = [(kind, value) for kind, value in wanted if (n, kind, value) not in used]
        left += [f"entry {n} ({e.mutants[0]}): {kind} {value}" for kind, value in unused]
    return left


def record_of(case: Case) -> Record:
    record = read_record(record_path(FOLDER, case))
    assert record is not None, f"{case.name} has no result; {AGAIN}"
    return record


def records() -> list[Record]:
    return [record_of(case) for case in CASES]


def test_there_is_a_result_of_every_case_and_of_nothing_else() -> None:
    assert {r.case for r in records()} == {case.name for case in CASES}
    assert {p.name for p in FOLDER.glob("*.json")} == {record_path(FOLDER, case).name for case in CASES}


TODAY = [
    # CuTe C++ compiles for long
    pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.name in OF_CUTE else [])
    for case in CASES
]


@pytest.mark.spread(5)
@pytest.mark.parametrize("case", TODAY)
def test_the_result_is_of_the_port_of_today(case: Case) -> None:
    plan, notes = Ports(current()).of_file(case.kernel)
    assert plan is not None, notes
    assert record_of(case).port == port_digest(case, plan), AGAIN


def test_unmutated_ports_are_clean() -> None:
    """At strict level, but for what originals have: all lanes of a warp make the same bulk store in CuTe DSL (G5), of
    which one waits ahead of a change of the tensor map (G6), and mbarrier operations of the library between blocks name
    no scope (M1)."""
    for case, record in zip(CASES, records(), strict=True):
        assert record.status == "ok"
        of_original = {"cute_gemm_multicast": {"M1"}, "dsl_gemm_grouped": {"G6"}}.get(case.name, set())
        of_original |= {"G5", "M1"} if case.dsl is not None else set()
        assert set(record.hazards) <= of_original, record.case
    # A kernel without MMAs, which only its file shares with others, synchronizes nothing.
    assert [r.case for r in records() if len(r.rows) <= 20] == ["dsl_gemm_plain:scale"]


def test_no_survivor_is_unexplained_and_no_explanation_is_stale() -> None:
    explanations = load_explanations(FOLDER)
    left = unexplained(records(), explanations)
    assert not left, [f"{record.case}: {row.how} {row.opcode} {row.place}" for record, row in left]
    assert not stale(records(), explanations)


def test_survivors_have_the_right_values() -> None:
    assert not [(r.case, row.place) for r in records() for row in r.survivors if row.value]


def rows_again(case: Case, only: list[int] | None, jobs: int = 1) -> tuple[list[Row], Record]:
    """Rows as runs give them now, and the kept record."""
    record = record_of(case)
    setups, left = mutation_setups(
        case, "port", ToolkitBuilder(), case.mutation_sizes(), record.seed, Ports(current()).of_case
    )
    assert not left
    if code_digest(setups[0].kernel.module) != record.code:
        pytest.skip("another compiler: its instructions are not those of the kept result")
    options = SimOptions(seed=record.seed, schedule="late", arithmetic="float64")
    result = mutate(setups, options, jobs=jobs, only=only)
    return [record_row(row) for row in result.rows], record


@pytest.mark.external
def test_results_know_a_program_wherever_it_lies(tmp_path: Path) -> None:
    """Line information names the directory, in strings and in bytes for debuggers."""
    found = set()
    for place in (ROOT / "corpus", shutil.copytree(ROOT / "corpus", tmp_path / "elsewhere" / "corpus")):
        case = next(c for c in map(load_case, cases_of(place)) if c.name == "gemm_two_n")
        setups, _ = mutation_setups(case, "port", ToolkitBuilder(), case.mutation_sizes(), 0, Ports(current()).of_case)
        assert ".debug_str" in setups[0].kernel.ptx
        found.add(ptx_digest(case, setups))
        changed = [setup.kernel.ptx.replace("add.s32", "sub.s32", 1) for setup in setups]
        others = [replaced(setup, text) for setup, text in zip(setups, changed, strict=True)]
        assert ptx_digest(case, others) not in found
    assert len(found) == 1


def replaced(setup: Setup, ptx: str) -> Setup:
    return dataclasses.replace(setup, kernel=dataclasses.replace(setup.kernel, ptx=ptx))


@pytest.mark.spread(3)
@pytest.mark.external
@pytest.mark.parametrize("name", SAMPLED)
def test_some_mutants_give_what_is_kept(name: str) -> None:
    case = next(c for c in CASES if c.name == name)
    kept = record_of(case).rows
    reached = [n for n, row in enumerate(kept) if not row.at and row.reason != "unreached"]
    only = sorted(random.Random(name).sample(reached, SAMPLE))
    rows, record = rows_again(case, only)
    assert rows == [dataclasses.replace(record.rows[n], reason=None, by=(), then=()) for n in only], AGAIN


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_whole_sweep_gives_what_is_kept(case: Case) -> None:
    rows, record = rows_again(case, None, jobs=2)
    assert rows == list(record.rows), AGAIN


# How results are kept --------------------------------------------------------------------------------------

ROW = Row("drop", "bar.sync", 2, "error", "a.cu:7", ("__syncthreads();",), "", False, "", (), ())
FINE = dataclasses.replace(ROW, nth=1, ended="PT4003", value=True, errors=("H1",), reviews=("H3",), at="M=1")
COVERED = dataclasses.replace(ROW, nth=3, reason="covered", by=(0,), then=("G1",))
RECORD = Record("a", "p", "c", "M=1", 0, "late", "float64", "ok", ("H1",), (FINE, ROW, COVERED))


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_record(path, RECORD)
    assert read_record(path) == RECORD
    assert read_record(tmp_path / "b.json") is None
    path.write_text(path.read_text().replace('"version": 1', '"version": 0'))
    assert read_record(path) is None
    path.write_text("{")
    assert read_record(path) is None


def test_explanations_fit_by_kernel_line_and_ordinal() -> None:
    def left(*explanations: Explanation) -> tuple[int, list[str]]:
        return len(unexplained([RECORD], explanations)), stale([RECORD], explanations)

    assert left() == (1, [])
    assert left(Explanation(("drop bar.",), "why")) == (0, [])
    assert left(Explanation(("drop bar.",), "why", ("a",), "syncthreads", (2,))) == (0, [])
    assert left(Explanation(("drop bar.",), "why", ("b",)))[0] == 1
    assert left(Explanation(("drop bar.",), "why", source="arrive"))[0] == 1
    assert left(Explanation(("drop bar.",), "why", nth=(2, 3))) == (0, ["entry 0 (drop bar.): nth 3"])
    assert left(Explanation(("drop bar.", "drop fence."), "why"))[1] == ["entry 0 (drop bar.): mutant drop fence."]


def test_a_changed_port_or_case_has_another_digest(tmp_path: Path) -> None:
    case = CASES[0]
    plan, _ = Ports(current()).of_file(case.kernel)
    assert plan is not None
    before = port_digest(case, plan)
    path = next(iter(plan.files))
    changed = dataclasses.replace(plan, files={**plan.files, path: plan.files[path] + b" "})
    assert port_digest(case, changed) != before
    other = tmp_path / case.path.name
    other.write_bytes(case.path.read_bytes() + b"\n")
    assert port_digest(dataclasses.replace(case, path=other), plan) != before
