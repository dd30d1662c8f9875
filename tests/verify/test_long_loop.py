# SPDX-License-Identifier: Apache-2.0
"""The size at which a ring of stages comes round again, for ports with other stages."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from fakes_verify import CASE, FakeBuilder, write_case

from porter.build.port_plan import PortPlan, Relaunch
from porter.verify import proof
from porter.verify.case import Case, load_case
from porter.verify.further import ENOUGH, long_loop
from porter.verify.proof import Claim, prove
from porter.verify.results import VerifyResult
from porter.verify.sweep import Wanted

CORPUS = Path(__file__).parents[2] / "corpus"


def case_of(folder: Path, more: str = "") -> Case:
    return load_case(write_case(folder, textwrap.dedent(CASE) + more))


def test_it_is_made_of_the_sizes_of_the_case() -> None:
    found = long_loop(load_case(CORPUS / "gemm_ws/case.yaml"))
    assert found is not None
    assert int(found["K"]) >= ENOUGH * 64
    assert (found["M"], found["N"]) == (128, 128)


def test_a_size_that_the_case_lists_is_taken(tmp_path: Path) -> None:
    text = (CORPUS / "gemm_ws/case.yaml").read_text().replace("K: 192}", "K: 4608}")
    (tmp_path / "gemm_ws.cu").write_text((CORPUS / "gemm_ws/gemm_ws.cu").read_text())
    (tmp_path / "case.yaml").write_text(text)
    assert long_loop(load_case(tmp_path / "case.yaml")) == {"M": 256, "N": 384, "K": 4608}


@pytest.mark.parametrize("long", [None, {"M": 64, "N": 64, "K": 2048}])
@pytest.mark.parametrize("relaunch", [None, Relaunch(4096)])
def test_a_port_with_other_stages_goes_through_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relaunch: Relaunch | None, long: dict[str, int] | None
) -> None:
    case = case_of(tmp_path)
    ran: list[list[dict[str, object]]] = []
    sections: list[object] = []

    def verify(cases: list[Case], wanted: Wanted, *_: object) -> VerifyResult:
        assert wanted.sizes is not None
        assert wanted.port_of is not None
        ran.append([dict(s) for s in wanted.sizes(cases[0])])
        plan, _notes = wanted.port_of(cases[0])
        assert plan is not None
        sections.append(plan.section)
        return VerifyResult((), "sim", "late", "float64", 0, 0.0, (), (), ())

    monkeypatch.setattr(proof, "verify_cases", verify)
    monkeypatch.setattr(proof, "long_loop", lambda case: long)
    monkeypatch.setattr(proof, "_wrong", lambda result: "")
    claim = Claim(case.kernel, [case.entry], PortPlan(relaunch=relaunch))
    found = prove(claim, FakeBuilder())
    if relaunch is None:
        assert found.missing == ""
        assert all(r == [dict(s) for s in case.all_sizes()] for r in ran)
        assert set(sections) == {None}
    elif long is None:
        assert "no size of the case has a loop that goes through all stages" in found.missing
        assert not ran
    else:
        assert found.missing == ""
        assert ran.count([long]) == 3
        assert sections == [{"launch": {"dynamic_smem": 4096}}] * 6
