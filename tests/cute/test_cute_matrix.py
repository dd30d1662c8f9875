# SPDX-License-Identifier: Apache-2.0
"""The header of CuTe C++ ports over types, shapes, majors and places of A: right, free of hazards, nothing in local
memory, and no read of Tensor Memory but where a load stands."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from cute_matrix import BLACKWELL, CENTRAL, HOPPER, LEVELS, Case, covering, every_case, inputs, source
from cute_run import Unit, assert_clean, compiled, launched

pytestmark = pytest.mark.external

_UNIT = 16
"""Kernels in a translation unit: CuTe's headers take longer to compile than a kernel."""
_UNITS = 2


@cache
def units(all_levels: bool) -> list[list[Case]]:
    cases = sorted(covering(every_case(LEVELS if all_levels else CENTRAL), 2), key=lambda case: case.entry)
    count = -(-len(cases) // _UNIT)
    return [cases[i::count] for i in range(count)]


def check(unit: Unit, case: Case) -> None:
    """Runs a kernel and compares each bit with the reference, which is exact."""
    a, b, want = inputs(case)
    got, outcome = launched(unit, case.entry, (a, b), np.zeros_like(want), threads=case.threads, shared=case.shared)
    assert_clean(outcome, case.entry)
    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8), err_msg=case.entry)


def check_ports(cases: list[Case]) -> None:
    unit = compiled(source(cases, BLACKWELL), "sm_100a")
    for case in cases:
        check(unit, case)
        assert "local_depot" not in unit.body(case.entry), case.entry
        assert unit.count(case.entry, "tcgen05.ld") == 2 * case.loads(), case.entry


def test_ports_of_each_level() -> None:
    check_ports(covering(every_case(CENTRAL), 1))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(_UNITS))
def test_ports(number: int) -> None:
    check_ports(units(False)[number])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(-(-96 // _UNIT)))
def test_ports_of_all_levels(number: int) -> None:
    check_ports(units(True)[number])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(_UNITS))
def test_originals(number: int) -> None:
    """The same kernels for Hopper: the reference is what they compute."""
    cases = units(False)[number]
    unit = compiled(source(cases, HOPPER), "sm_90a")
    for case in cases:
        check(unit, case)


def test_levels_are_paired() -> None:
    every = list(every_case(CENTRAL))
    chosen = covering(every, 2)
    assert {(c.types, c.size) for c in every} == {(c.types, c.size) for c in chosen}
    assert len(units(False)) == _UNITS
    assert len(units(True)) == -(-96 // _UNIT)
    assert {(c.swizzle, c.major_b, c.size) for c in chosen} < {(c.swizzle, c.major_b, c.size) for c in every}
