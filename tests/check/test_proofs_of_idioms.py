# SPDX-License-Identifier: Apache-2.0
"""Kernels in the idioms of different authors, which the checking simulator runs: what is right there is no error of a
proof, and what is an error there is not proved."""

from __future__ import annotations

import dataclasses

import pytest
import sm100_idiom_kernels
import sm100_idiom_loads
import sm100_reported
from beside_runs import put_beside
from sm100_idioms import Mistake, checked

from porter.sim import Outcome
from porter.sync.checked import Checked, Verdict

KERNELS = {**sm100_idiom_kernels.KERNELS, **sm100_idiom_loads.KERNELS, **sm100_reported.KERNELS}
WRONG = [(name, mistake) for name, kernel in KERNELS.items() for mistake in kernel.wrong]
GLOBAL = frozenset(f"G{n}" for n in range(2, 11))
"""Hazards of global memory, which proofs do not look at."""


def proved(name: str, monkeypatch: pytest.MonkeyPatch, mistake: Mistake | None = None) -> tuple[Checked, Outcome]:
    """The worst proof of what is run, and the last outcome."""
    found: list[tuple[Checked, Outcome]] = []
    put_beside(monkeypatch, lambda checked, outcome, _: found.append((checked, outcome)))
    checked(KERNELS[name], mistake)
    order = list(Verdict)
    return max(found, key=lambda f: order.index(f[0].verdict))


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_right_is_no_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = proved(name, monkeypatch)
    assert found.verdict in (Verdict.CLEAN, Verdict.REVIEW) or found.unknown, found
    assert not [f for f in found.findings if f.level == "error"]


@pytest.mark.parametrize(("name", "mistake"), WRONG, ids=[f"{n}-{m}" for n, m in WRONG])
def test_what_runs_refuse_is_not_proved(name: str, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what, kind = KERNELS[name].wrong[mistake]
    if kind in GLOBAL:
        pytest.skip("a hazard of global memory")
    found, _ = proved(name, monkeypatch, what)
    assert found.verdict not in (Verdict.CLEAN, Verdict.REVIEW), kind


@pytest.mark.parametrize("name", ["specialized", "double buffered", "block-scaled"])
def test_columns_of_another_warp_need_a_fence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the letter of the ISA asks for it behind an allocation."""
    body = KERNELS[name].body.replace("tcgen05.fence::after_thread_sync;", "")
    monkeypatch.setitem(KERNELS, name, dataclasses.replace(KERNELS[name], body=body))
    found, _ = proved(name, monkeypatch)
    assert found.verdict is Verdict.STRICT
    assert "H15" in {f.kind for f in found.findings}
