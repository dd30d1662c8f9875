# SPDX-License-Identifier: Apache-2.0
"""Unusual but legal kernels in CuTe DSL whose operand A comes from registers: in Blackwell's own words they are right
in every schedule and bring no hazard, or it is said what keeps them from it."""

from __future__ import annotations

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

import dsl_variant_run
import dsl_variant_template
from dsl_variant_catalog import VARIANTS
from dsl_variant_own_words import InOwnWords, from_registers, head_without_products, in_place, made_one_by_one
from dsl_variant_run import Outcome, Result, run

pytestmark = pytest.mark.external

RIGHT = (
    "a_by_copies", "a_by_element", "a_stays", "a_of_each_k_block", "k_blocks_in_a_loop",
    "k_blocks_in_a_loop_of_a_branch", "next_k_block_while_one_is_in_flight", "a_is_scaled", "a_and_accumulator_scaled",
    "a_by_ldmatrix", "a_only_sometimes", "a_from_an_accumulator", "a_from_an_accumulator_rescaled",
    "scores_recast_to_words",
)  # fmt: skip
LEFT = {
    "a_stays_in_flight": "`t` of the MMAs is used beside them",
    "k_blocks_in_a_loop_in_flight": "a wait with no MMAs ahead of it",
    "a_of_each_k_block_in_the_same_registers": "A from registers",
    "a_made_in_the_loop": "registers `rA` of A that are not made at one place",
    "two_take_turns": "registers `rA` of A that are not made at one place",
    "a_of_two_warpgroups": "A from registers of several warpgroups that share a tile",
    "a_of_two_tiles_of_m": "registers `rA` of A in another order than the operand's",
    "a_of_fp8": "registers `rA` of A in another order than the operand's",
    "a_of_int8": "registers `rA` of A in another order than the operand's",
}
CHANGED = (
    "no_tiles_at_all", "not_added_first", "added_from_the_second_on", "maybe_added_to_values",
    "added_to_values_maybe_never", "zeros_by_element", "filled_every_time", "filled_in_one_turn",
    "filled_by_some_threads", "first_peeled", "last_peeled", "promoted", "promoted_without_fill", "copied_whole",
    "scaled_every_time", "scaled_by_element",
    "changed_by_some_threads", "written_in_part", "masked", "read_by_a_helper", "a_while_loop",
    "carried_through_a_while_loop", "carried_from_tile_to_tile", "sums_of_rows", "as_integers",
)  # fmt: skip
"""Variants with A in shared memory, of which others are made that have it in registers."""
CHANGED_LEFT = {
    "read_in_a_nested_loop": "registers of sums of which one is chosen when the kernel runs",
    "two_by_name": "several accumulators of one tiled MMA beside A from registers",
    "one_wait_after_the_other": "MMAs that are not all waited for",
    "wait_in_a_helper": "MMAs that are not waited for right behind them",
}
QUICK = ("a_from_an_accumulator", "a_by_ldmatrix", "scaled_by_element")


def result_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    variant = in_place(VARIANTS[name])
    if name in CHANGED or name in CHANGED_LEFT:
        variant = from_registers(variant)
    monkeypatch.setattr(dsl_variant_template, "HEAD", head_without_products())
    monkeypatch.setattr(dsl_variant_template, "MADE", made_one_by_one())
    monkeypatch.setattr(dsl_variant_run, "_ported", InOwnWords(variant))
    return run(variant)


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in (*RIGHT, *CHANGED)
])  # fmt: skip
def test_ports_are_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of(name, monkeypatch)
    assert result.outcome is Outcome.RIGHT, f"{result.outcome.value}: {result.detail or result.why}"
    assert "porter" not in result.files["port.py"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LEFT, *CHANGED_LEFT])
def test_others_are_left_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of(name, monkeypatch)
    assert result.outcome is Outcome.REFUSED, result.detail
    assert {**LEFT, **CHANGED_LEFT}[name] in result.detail
