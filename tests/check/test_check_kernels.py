# SPDX-License-Identifier: Apache-2.0
"""Correct kernels are clean under every schedule; leaving out any synchronization is found, with both sites."""

from __future__ import annotations

import pytest
from check_ptx import BULK, TENSOR, WGMMA, check, found, names, without

from porter.sim import Options

KERNELS = {"tensor": (TENSOR, "sm_100a"), "bulk": (BULK, "sm_90a"), "wgmma": (WGMMA, "sm_90a")}

# What leaving out each instruction must be reported as.
EXPECTED = {
    "tensor": {
        "alloc_barrier": "H15",
        "proxy_fence": "H16",
        "operand_barrier": "H16",
        "wait": "H1",
        "after_mma": "H1",
        "wait_ld": "H3",
        "before_overwrite": "H3",
        "overwrite_barrier": "H3",
        "after_overwrite": "H3",
        "wait_again": "H2",
        "after_second": "H2",
        "wait_st": "H4",
        "before_use": "H4",
        "use_barrier": "H4",
        "after_use": "H4",
        "wait_third": "H1",
        "after_third": "H1",
        "wait_last_ld": "H14",
        "before_dealloc": "H14",
        "dealloc_barrier": "H14",
        "after_dealloc": "H14",
    },
    "bulk": {
        "init_fence": "H21",
        "init_barrier": "H21",
        "wait": "H17",
        "refill_fence": "H20",
        "refill_barrier": "H20",
        "store_fence": "H27",
        "store_barrier": "H27",
        "store_wait": "H27",
        "reuse_barrier": "H27",
    },
    "wgmma": {
        "proxy_fence": "H16",
        "operand_barrier": "H16",
        "commit": "H29",
        "wait": "H29",
        "reuse_barrier": "H19",
    },
}
# Only the letter of the PTX ISA asks for these.
STRICT_ONLY = {name for name in names(TENSOR) if name.startswith(("before_", "after_"))} | {
    "refill_fence",
    "proxy_fence",
    "init_fence",
}
# Without it the kernel hangs.
STOPS = {"commit"}

REMOVALS = [(kernel, name) for kernel, expected in EXPECTED.items() for name in expected]


@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_correct_kernel_is_clean(kernel: str, schedule: str) -> None:
    body, target = KERNELS[kernel]
    for seed in range(3 if schedule == "random" else 1):
        outcome = check(body, target, schedule=schedule, seed=seed)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        assert not outcome.hazards, [(h.kind.id, h.message) for h in outcome.hazards]


@pytest.mark.parametrize("schedule", ["eager", "late"])
@pytest.mark.parametrize(("kernel", "name"), REMOVALS)
def test_each_removal_is_found(kernel: str, name: str, schedule: str) -> None:
    """Also when every operation lands at once, and the values come out right."""
    body, target = KERNELS[kernel]
    outcome = check(without(body, name), target, schedule=schedule)
    assert EXPECTED[kernel][name] in found(outcome)


def test_every_named_instruction_is_tried() -> None:
    for kernel, (body, _) in KERNELS.items():
        assert set(names(body)) == set(EXPECTED[kernel]) | (STOPS if kernel == "tensor" else set())


def test_a_missing_commit_hangs() -> None:
    outcome = check(without(TENSOR, "commit"))
    assert outcome.status == "error"
    assert outcome.findings[0].code.id == "PT4003"


@pytest.mark.parametrize(("kernel", "name"), [r for r in REMOVALS if r[1] in STRICT_ONLY])
def test_practice_level_asks_to_review_what_only_the_letter_forbids(kernel: str, name: str) -> None:
    body, target = KERNELS[kernel]
    outcome = check(without(body, name), target, level="practice")
    assert not found(outcome)
    assert EXPECTED[kernel][name] in found(outcome, "review")


# At practice level these are not errors for another reason.
LENIENT = {"wait_ld", "wait_last_ld"}


ERRORS = [r for r in REMOVALS if r[1] not in STRICT_ONLY | LENIENT and (r[0] != "wgmma" or r[1] == "wait")]


@pytest.mark.parametrize(("kernel", "name"), ERRORS)
def test_practice_level_keeps_errors(kernel: str, name: str) -> None:
    body, target = KERNELS[kernel]
    assert EXPECTED[kernel][name] in found(check(without(body, name), target, level="practice"))


def test_practice_level_accepts_the_register_dependence_of_a_load() -> None:
    """All registers of the unwaited load are used before the barrier that precedes the overwriting MMA."""
    outcome = check(without(TENSOR, "wait_ld"), level="practice")
    assert "H3" in found(outcome, "review")
    assert "H3" not in found(outcome)


@pytest.mark.parametrize(("kernel", "name"), REMOVALS)
def test_a_hazard_names_both_sites_and_a_remedy(kernel: str, name: str) -> None:
    body, target = KERNELS[kernel]
    outcome = check(without(body, name), target)
    hazard = next(h for h in outcome.hazards if h.kind.id == EXPECTED[kernel][name])
    assert hazard.first is not None
    assert hazard.first.ptx_line
    assert hazard.second.ptx_line
    assert hazard.first.block == hazard.second.block == (0, 0, 0)
    assert hazard.first.warp is not None
    assert hazard.second.warp is not None
    assert hazard.missing
    assert hazard.remedy


def test_the_register_dependence_needs_a_barrier_too() -> None:
    outcome = check(without(TENSOR, "wait_ld", "overwrite_barrier"), level="practice")
    assert "H3" in found(outcome)


def test_at_practice_level_one_warps_wait_stands_for_the_warpgroup() -> None:
    assert not check(without(WGMMA, "reuse_barrier"), "sm_90a", level="practice").hazards


def test_at_practice_level_the_warps_of_a_wgmma_meet_before_it() -> None:
    outcome = check(without(WGMMA, "operand_barrier"), "sm_90a", level="practice")
    assert not found(outcome)
    assert "H16" in found(outcome, "review")


def test_functional_mode_does_not_check() -> None:
    assert Options().mode == "functional"
