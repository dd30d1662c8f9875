# SPDX-License-Identifier: Apache-2.0
"""Corpus kernels: ports are clean at strict level, originals at practice level, and planted bugs are errors."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from porter.cli.checking import Prepared, prepare
from porter.sim.check.hazard import Hazard
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.hazards import check_case
from porter.verify.mutation import MutationResult, mutate
from porter.verify.results import Verdict
from porter.verify.settings import SimOptions

pytestmark = pytest.mark.external

CORPUS = Path(__file__).parents[2] / "corpus"
CUDA = sorted(path.parent.name for path in CORPUS.glob("*/case.yaml") if load_case(path).kernel.suffix == ".cu")
# Threads read buffers that bulk copies refill, without the proxy fence that only the letter of the ISA asks for.
UNFENCED_REFILL: set[str] = set()


@functools.cache
def built(name: str, program: str) -> Prepared:
    case = load_case(CORPUS / name / "case.yaml")
    (found,), left = prepare(case, [program], ToolkitBuilder(), case.sizes, 0)
    assert not left
    return found


def hazards(name: str, program: str, level: str, schedule: str = "late") -> tuple[Verdict, tuple[Hazard, ...]]:
    p = built(name, program)
    run = check_case(p.kernel, p.problem, p.launch, p.images, program, level, SimOptions(schedule=schedule), [0])
    return run.verdict, run.hazards


@pytest.mark.parametrize("name", CUDA)
def test_ports_are_clean_at_strict_level(name: str) -> None:
    _, found = hazards(name, "port", "strict")
    assert {h.kind.id for h in found} <= ({"H20"} if name in UNFENCED_REFILL else set())


@pytest.mark.parametrize("name", CUDA)
def test_originals_have_no_errors_at_practice_level(name: str) -> None:
    verdict, found = hazards(name, "original", "practice")
    assert verdict in (Verdict.CLEAN, Verdict.REVIEW)
    assert name in UNFENCED_REFILL or not found


@pytest.mark.parametrize("schedule", ["eager", "random"])
def test_the_verdict_does_not_depend_on_the_schedule(schedule: str) -> None:
    for name in ("gemm_tma", "gemm_fp8_scaled"):
        assert hazards(name, "port", "strict", schedule) == (Verdict.CLEAN, ())


@functools.cache
def mutated(name: str) -> MutationResult:
    p = built(name, "port")
    return mutate(p.kernel, p.problem, p.launch, p.images, SimOptions())


# What may be left out of a port without harm: nothing in these kernels' runs depends on it.
HARMLESS = ("relinquish", "mbarrier.init", "fence.mbarrier_init", "fence::", "bar", "fence.proxy", "mbarrier.try_wait",
            "wait::ld", "dealloc")  # fmt: skip


@pytest.mark.parametrize("name", ["gemm_coop", "gemm_fp8_scaled"])
def test_mutants_are_caught_or_explained(name: str) -> None:
    result = mutated(name)
    assert result.baseline.status == "ok"
    assert not result.baseline.hazards
    for row in result.survivors:
        assert not row.by_value, row.mutant.name
        assert row.reason
        assert any(text in row.mutant.name for text in HARMLESS), row.mutant.name
    caught = [(row.mutant.instruction, row) for row in result.rows if row.caught]
    opcodes = {ins.opcode for ins, _ in caught}
    for needed in ("tcgen05.commit", "tcgen05.wait::ld", "tcgen05.fence::after_thread_sync", "barrier.cta.sync",
                   "tcgen05.fence::before_thread_sync", "tcgen05.dealloc", "tcgen05.alloc"):  # fmt: skip
        assert any(opcode.startswith(needed) for opcode in opcodes), needed


def test_the_barrier_of_the_warpgroup_orders_loads_before_the_next_mma() -> None:
    """gemm_fp8_scaled reads its accumulators after every K block; the next MMA overwrites them."""
    result = mutated("gemm_fp8_scaled")
    by_h3 = {row.mutant.instruction.opcode for row in result.rows if "H3" in row.by_hazard}
    assert {"bar.sync", "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"} <= by_h3


def test_the_proxy_fence_of_cooperative_stores() -> None:
    result = mutated("gemm_coop")
    (row,) = [r for r in result.rows if r.mutant.instruction.opcode.startswith("fence.proxy.async")]
    assert row.by_hazard == ("H16",)
