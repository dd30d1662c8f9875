# SPDX-License-Identifier: Apache-2.0
"""Unusual but legal kernels: Porter ports them right or says what it does not port, and nothing else.

A tenth of them, chosen by a hash of the name, is in `make test`; the others are slow. `python -m tests.variants` prints
what becomes of each, and writes `ported.txt` anew.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from variant_catalog import VARIANTS
from variant_run import Outcome, run

PORTED = Path(__file__).parent.joinpath("ported.txt").read_text(encoding="utf-8").split()
"""The variants that port right."""


def in_the_tenth(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[5] < 25


@pytest.mark.spread(10)
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if in_the_tenth(name) else [pytest.mark.slow]) for name in VARIANTS
])  # fmt: skip
def test_variant(name: str) -> None:
    result = run(VARIANTS[name])
    assert result.outcome in (Outcome.RIGHT, Outcome.REFUSED), f"{result.outcome.value}: {result.detail or result.why}"
    if name in PORTED:
        assert result.outcome is Outcome.RIGHT, f"ported right before: {result.detail}"


def test_most_variants_port() -> None:
    assert set(PORTED) <= set(VARIANTS)
    assert len(PORTED) >= 0.9 * len(VARIANTS)
    assert len(VARIANTS) >= 800


def test_a_tenth_is_in_every_run() -> None:
    chosen = [VARIANTS[name] for name in VARIANTS if in_the_tenth(name)]
    assert 0.07 < len(chosen) / len(VARIANTS) < 0.13
    assert {v.axis for v in chosen} == {v.axis for v in VARIANTS.values()}
