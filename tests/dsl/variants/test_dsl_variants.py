# SPDX-License-Identifier: Apache-2.0
"""Unusual but legal kernels in CuTe DSL: Porter ports them right or says what it does not port.

Those of `QUICK` are in `make test`; the others are slow. `python -m tests.dsl.variants` prints what becomes of each.
"""

from __future__ import annotations

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from dsl_variant_catalog import VARIANTS
from dsl_variant_run import Outcome, run

pytestmark = pytest.mark.external

QUICK = (
    "first_and_third", "ping_pong", "maybe_added_to_values", "changed_by_some_threads", "promoted",
    "twelve_in_flight", "a_from_an_accumulator_rescaled", "f16_accumulators_scaled",
)  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in VARIANTS
])  # fmt: skip
def test_variant(name: str) -> None:
    variant = VARIANTS[name]
    result = run(variant)
    wanted = Outcome.REFUSED if variant.refused else Outcome.RIGHT
    assert result.outcome is wanted, f"{result.outcome.value}: {result.detail or result.why}"
    assert variant.refused in result.detail


def test_the_quick_ones_are_of_every_axis_but_one() -> None:
    assert set(QUICK) <= set(VARIANTS)
    assert {VARIANTS[n].axis for n in QUICK} == {v.axis for v in VARIANTS.values()} - {"epilogue"}
