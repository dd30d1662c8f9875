# SPDX-License-Identifier: Apache-2.0
"""Barriers that a warp comes to in parts, proved: as in runs, the parts of one that is not aligned are together, and
those of one that is are B1."""

from __future__ import annotations

import pytest
from beside_runs import put_beside
from test_check_barrier_parts import RIGHT, TWO, branches, run

from porter.sync.checked import Checked, Verdict


def proved(body: str, monkeypatch: pytest.MonkeyPatch) -> Checked:
    found: list[Checked] = []
    put_beside(monkeypatch, lambda checked, outcome, options: found.append(checked))
    run(body)
    (one,) = found
    return one


@pytest.mark.parametrize("name", RIGHT)
def test_parts_that_come_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proved(RIGHT[name], monkeypatch).verdict is Verdict.CLEAN


@pytest.mark.parametrize("name", TWO)
def test_parts_at_two_instructions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = proved(TWO[name], monkeypatch)
    assert {(f.kind, f.level) for f in found.findings} == {("B1", "strict")}
    assert not found.unknown


def test_a_part_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes at another barrier do not stand for it."""
    found = proved(branches("%p3", "barrier.sync 1;", "barrier.sync 2;"), monkeypatch)
    assert found.verdict is Verdict.UNKNOWN
