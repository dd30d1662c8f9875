# SPDX-License-Identifier: Apache-2.0
"""How many seconds PTX is looked at for M=128 MMAs that a case runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from corpus_kernels import CORPUS

from porter.build.port_plan import PortPlan
from porter.verify import proof
from porter.verify.budget import Budget
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.proof import Claim, prove


@pytest.mark.parametrize(
    ("budget", "given"),
    [
        (lambda: None, 20.0),
        (lambda: Budget.of_work(None), 20.0),
        (lambda: Budget.of_work(1e6), 20.0),
        (lambda: Budget.of_work(8.0), 8.0),
    ],
    ids=["none", "without an end", "long", "short"],
)
def test_seconds_of_a_budget(
    budget: Callable[[], Budget | None], given: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def refusal(case: object, plan: object, builder: object, sizes: object, seconds: float, joined: bool) -> str:
        asked.append(seconds)
        return "refused"

    monkeypatch.setattr(proof, "refusal", refusal)
    case = load_case(CORPUS / "gemm_ws" / "case.yaml")
    claim = Claim(case.kernel, [case.entry.rpartition("::")[2]], PortPlan(), is_wide=True)
    found = prove(claim, ToolkitBuilder(), budget=budget())
    assert found.missing == "gemm_ws: refused"
    assert asked == [pytest.approx(given, abs=1.0)]
