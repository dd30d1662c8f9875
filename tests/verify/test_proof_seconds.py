# SPDX-License-Identifier: Apache-2.0
"""How long, and how often, what proves a port looks at PTX and runs it."""

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
from porter.verify.results import VerifyResult
from porter.verify.sweep import Wanted, other_schedules


@pytest.mark.parametrize(
    ("budget", "given"),
    [
        (lambda: None, 60.0),
        (lambda: Budget.of_work(None), 60.0),
        (lambda: Budget.of_work(1e6), 60.0),
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


@pytest.mark.parametrize("name", ["dsl_gemm_persistent", "gemm_persistent"])
def test_a_proof_runs_the_first_size_once_under_each_schedule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Wanted] = []

    def noted(items: object, wanted: Wanted, *_: object) -> VerifyResult:
        asked.append(wanted)
        return VerifyResult((), "sim", wanted.settings.schedule, "float64", 0, 0.0)

    monkeypatch.setattr(proof, "verify_cases", noted)
    case = load_case(CORPUS / name / "case.yaml")
    dsl = case.dsl is not None
    claim = Claim(case.kernel, [case.entry], PortPlan(), dsl=dsl, takes_turns=True)
    monkeypatch.setattr(proof, "cases_that_run", lambda *_: ([case], ""))
    for ruling in ("_left_out", "_wrong"):
        monkeypatch.setattr(proof, ruling, lambda *_: "")
    assert not prove(claim, ToolkitBuilder()).missing
    for turning in (False, True):
        runs = list[tuple[str, int | None]]()
        for wanted in asked[turning::2]:
            usual = wanted.settings
            runs.append((usual.schedule, usual.seed if usual.schedule == "random" else None))
            runs += [(a.schedule, a.seed) for a in other_schedules(dsl, usual)] if wanted.again else []
        assert len(runs) == len(set(runs))
        assert {schedule for schedule, _ in runs} == ({"late", "eager", "random"} if dsl else {"late", "random"})
        assert len(runs) == (6 if dsl else 4)
