# SPDX-License-Identifier: Apache-2.0
"""The kept results of mutation of ports in SM100's own words of CuTe: no survivor that nobody explains."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_mutation_results import CASES, FOLDER, stale

from porter.cli.main import main
from porter.report.mutation_review import load_explanations, unexplained
from porter.verify.mutation_record import Record, read_record

HERE = FOLDER / "idiomatic"
KERNELS = [
    "cute_attention", "cute_attention_bwd", "cute_gemm_f16acc", "cute_gemm_fp8_scaled", "cute_gemm_multicast",
    "cute_gemm_multistage", "cute_gemm_persistent", "cute_gemm_rs", "cute_gemm_stsm", "cute_gemm_tma", "cute_gemm_ws",
    "dsl_attention:causal", "dsl_attention", "dsl_gemm:dynamic", "dsl_gemm", "dsl_gemm_act", "dsl_gemm_bytes:fp8",
    "dsl_gemm_bytes", "dsl_gemm_cluster", "dsl_gemm_cluster:square", "dsl_gemm_fp8", "dsl_gemm_fp8_scaled",
    "dsl_gemm_gated:half", "dsl_gemm_gated", "dsl_gemm_grouped", "dsl_gemm_narrow",
    "dsl_gemm_persistent", "dsl_gemm_persistent:wide", "dsl_gemm_plain:halves", "dsl_gemm_plain",
]  # fmt: skip
NOT_NEEDED = {("cute_gemm_tma", 3)}
"""The last pass of an unrolled loop: it gives back a stage that is filled no more."""

WAITED_FOR = {"cute_gemm_multistage", "dsl_gemm_plain", "dsl_gemm_plain:halves"}
"""All MMAs of a stage are waited for ahead of the next one: threads give it back."""

BEFORE, AFTER = "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"
GIVES_BACK = {
    "dsl_gemm_bytes:fp8", "dsl_gemm_bytes", "dsl_gemm_fp8_scaled", "dsl_gemm_grouped", "dsl_gemm_persistent",
    "dsl_gemm_persistent:wide",
}  # fmt: skip
"""Behind a fence, so that the one at the end is not needed."""
NEEDLESS = {
    "cute_attention": {(BEFORE, 1), (BEFORE, 2), (AFTER, 1), (AFTER, 2)},
    "cute_attention_bwd": {(BEFORE, 1), (BEFORE, 2), (AFTER, 2)},
    "cute_gemm_f16acc": {(AFTER, 1), (AFTER, 2)},
    "cute_gemm_rs": {(BEFORE, 1)},
    "dsl_attention": {(AFTER, 1), (BEFORE, 1), (AFTER, 2)},
    "dsl_attention:causal": {(AFTER, 1), (BEFORE, 1), (AFTER, 2)},
    "dsl_gemm_plain": {(AFTER, 1), (AFTER, 2)},
    "dsl_gemm_plain:halves": {(AFTER, 1), (AFTER, 2)},
    **{name: {(AFTER, 1), (BEFORE, 2)} for name in GIVES_BACK},
}
"""Fences around the allocation, those that the next one stands for, and those behind waits ahead of which nobody else
has issued an MMA and behind which nobody reads sums."""
ALLOCATED = {(AFTER, 1)}
"""Of other kernels of CuTe DSL: behind the allocation. The warp that multiplies allocates."""

STORES_BY_TMA = [
    "dsl_attention", "dsl_attention:causal",
    "dsl_gemm:dynamic", "dsl_gemm", "dsl_gemm_act", "dsl_gemm_cluster", "dsl_gemm_cluster:square", "dsl_gemm_fp8",
    "dsl_gemm_fp8_scaled", "dsl_gemm_narrow", "dsl_gemm_persistent", "dsl_gemm_persistent:wide",
]  # fmt: skip
OF_ORIGINALS = {**dict.fromkeys(STORES_BY_TMA, ("G5",)), "dsl_gemm_grouped": ("G5", "G6")}
"""What the originals have, too."""


def records() -> list[Record]:
    return [record for path in sorted(HERE.glob("*.json")) if (record := read_record(path)) is not None]


def test_no_survivor_is_unexplained_and_no_explanation_is_stale() -> None:
    assert [r.case for r in records()] == KERNELS
    explanations = load_explanations(HERE)
    left = unexplained(records(), explanations)
    assert not left, [f"{record.case}: {row.how} {row.opcode} {row.place}" for record, row in left]
    assert not stale(records(), explanations)


def test_values_and_the_unmutated_ports_are_right() -> None:
    assert {r.status for r in records()} == {"ok"}
    assert {r.case: r.hazards for r in records() if r.hazards} == OF_ORIGINALS
    assert not [(r.case, row.place) for r in records() for row in r.survivors if row.value]


def test_commits_and_what_orders_the_copy_of_sums_are_noticed() -> None:
    """Commits give stages back and say that sums are complete; a wait, fences and a barrier stand around their copy."""
    missed = set()
    for record in records():
        drops = [row for row in record.rows if row.how == "drop"]
        commits = [row for row in drops if row.opcode.startswith("tcgen05.commit")]
        assert (len(commits) == 1) is (record.case in WAITED_FOR), record.case
        missed |= {(record.case, row.nth) for row in commits if not row.caught}
        copy = [row for row in drops if row.opcode.startswith(("tcgen05.wait::ld", "tcgen05.fence"))]
        assert len(copy) >= 4
        needless = {(row.opcode, row.nth) for row in copy if not row.caught}
        of_others = ALLOCATED if record.case.startswith("dsl_") else set()
        assert needless == NEEDLESS.get(record.case, of_others), record.case
    assert missed == NOT_NEEDED


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", KERNELS)
def test_results_are_of_the_ports_of_today(name: str, tmp_path: Path) -> None:
    """A port that has not changed is passed over."""
    case = next(c for c in CASES if c.name == name)
    kept = shutil.copytree(HERE, tmp_path / "kept")
    words = ["--format", "json", "mutate", "--trust", "--style", "idiomatic", str(case.path), "--record", str(kept)]
    result = CliRunner().invoke(main, words)
    again = "python scripts/mutation_again.py"
    assert (result.exit_code, json.loads(result.stdout)["kernels"]) == (0, []), again
