# SPDX-License-Identifier: Apache-2.0
"""Corpus kernels: ports are clean at strict level, originals at practice level, and planted bugs are errors."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from corpus_kernels import CORPUS, CUDA, compiled

from porter.cli.context import current
from porter.cli.making import Ports
from porter.sim.check.hazard import Hazard
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.hazards import check_case
from porter.verify.mutant_runs import Setup
from porter.verify.mutants import mutants
from porter.verify.mutation import MutantRow, mutate
from porter.verify.outcome import Verdict
from porter.verify.prepare import Prepared, prepare
from porter.verify.settings import SimOptions

pytestmark = pytest.mark.external


@functools.cache
def built(name: str, program: str) -> Prepared:
    case = load_case(CORPUS / name / "case.yaml")
    (found,), left = prepare(case, [program], ToolkitBuilder(), case.sizes, 0, Ports(current()).of_case)
    assert not left
    return found


def hazards(name: str, program: str, level: str, schedule: str = "late") -> tuple[Verdict, tuple[Hazard, ...]]:
    p = built(name, program)
    run = check_case(p.kernel, p.problem, p.launch, p.images, program, level, SimOptions(schedule=schedule), [0])
    return run.verdict, run.hazards


def assert_clean(path: Path, program: str, level: str) -> None:
    """But for what CUTLASS writes: its mbarrier operations between blocks name no scope (M1)."""
    verdict, found = hazards(path.parent.name, program, level)
    assert {h.kind.id for h in found} <= ({"M1"} if path.parent.name == "cute_gemm_multicast" else set())
    assert level == "strict" or all(h.severity == "review" for h in found)
    assert found or verdict is Verdict.CLEAN


@pytest.mark.spread(9)
@pytest.mark.parametrize("path", compiled(CUDA))
def test_ports_are_clean_at_strict_level(path: Path) -> None:
    assert_clean(path, "port", "strict")


@pytest.mark.spread(2)
@pytest.mark.parametrize("path", compiled(CUDA))
def test_originals_have_no_errors_at_practice_level(path: Path) -> None:
    assert_clean(path, "original", "practice")


@pytest.mark.parametrize("schedule", ["eager", "random"])
def test_the_verdict_does_not_depend_on_the_schedule(schedule: str) -> None:
    for name in ("gemm_tma", "gemm_fp8_scaled"):
        assert hazards(name, "port", "strict", schedule) == (Verdict.CLEAN, ())


def mutated(name: str, how: str, opcode: str) -> tuple[MutantRow, ...]:
    """What becomes of one kind of mutants of a port."""
    p = built(name, "port")
    setup = Setup("", p.kernel, p.problem, p.launch, p.images)
    found = mutants(p.kernel.module, p.kernel.entry)
    only = [n for n, m in enumerate(found) if m.how == how and m.instruction.opcode.startswith(opcode)]
    assert only
    return mutate([setup], SimOptions(), only=only).rows


@pytest.mark.slow
def test_the_barrier_of_the_warpgroup_orders_loads_before_the_next_mma() -> None:
    """gemm_fp8_scaled reads its accumulators after every K block; the next MMA overwrites them."""
    assert any("H3" in row.errors for row in mutated("gemm_fp8_scaled", "drop", "bar.sync"))
    for side in ("before", "after"):
        rows = mutated("gemm_fp8_scaled", "drop", f"tcgen05.fence::{side}_thread_sync")
        assert any("H3" in row.reviews and not row.errors for row in rows)


@pytest.mark.parametrize("how", ["drop", "other memory for"])
def test_the_proxy_fence_of_cooperative_stores(how: str) -> None:
    (row,) = mutated("gemm_coop", how, "fence.proxy.async")
    assert row.reviews == ("H16",)
    assert row.caught
    assert not row.caught_in_practice
