# SPDX-License-Identifier: Apache-2.0
"""The size at which one block does the work of many, for ports whose blocks take tiles of others over."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path

import pytest
from fakes_verify import CASE, FakeBuilder, write_case

from porter.build.port_plan import PortPlan
from porter.verify import proof
from porter.verify.case import Case, load_case
from porter.verify.further import OVER, many_blocks
from porter.verify.problem import bind
from porter.verify.proof import Claim, prove
from porter.verify.results import VerifyResult
from porter.verify.sweep import Wanted

CORPUS = Path(__file__).parents[2] / "corpus"


def test_it_is_made_of_the_sizes_of_the_case() -> None:
    case = load_case(CORPUS / "gemm_ws/case.yaml")
    found = many_blocks(case)
    assert found is not None
    assert math.prod(bind(case, found).launch.grid) >= OVER
    # the fewest that are enough, of the smallest that is listed
    assert found == {"M": 1024, "N": 128, "K": 64}


def test_a_grid_that_no_size_is_in_has_none(tmp_path: Path) -> None:
    text = (CORPUS / "gemm_ws/case.yaml").read_text().replace('["N / BN", "M / BM", 1]', "[2, 2, 1]")
    (tmp_path / "gemm_ws.cu").write_text((CORPUS / "gemm_ws/gemm_ws.cu").read_text())
    (tmp_path / "case.yaml").write_text(text)
    assert many_blocks(load_case(tmp_path / "case.yaml")) is None
    assert many_blocks(load_case(tmp_path / "case.yaml"), 4) is not None


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("many", [None, {"M": 640, "N": 64, "K": 64}])
def test_one_block_does_the_work_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: bool, many: dict[str, int] | None
) -> None:
    case = load_case(write_case(tmp_path, textwrap.dedent(CASE)))
    alone: list[tuple[str, list[dict[str, object]]]] = []

    def verify(cases: list[Case], wanted: Wanted, *_: object) -> VerifyResult:
        assert wanted.sizes is not None
        if wanted.settings.resident is not None:
            assert wanted.settings.resident == 1
            alone.append((wanted.settings.schedule, [dict(s) for s in wanted.sizes(cases[0])]))
        return VerifyResult((), "sim", "late", "float64", 0, 0.0, (), (), ())

    monkeypatch.setattr(proof, "verify_cases", verify)
    monkeypatch.setattr(proof, "many_blocks", lambda case, *over: many)
    monkeypatch.setattr(proof, "_wrong", lambda result: "")
    monkeypatch.setattr(proof, "_left_out", lambda claim, noting: "")
    found = prove(Claim(case.kernel, [case.entry], PortPlan(), takes_over=over), FakeBuilder())
    if not over or many is None:
        assert alone == []
        assert found.missing == (
            "no size with so many blocks that the requests of one come round again" if over else ""
        )
    else:
        assert alone == [("late", [many]), ("random", [many]), ("random", [many])]
        assert found.missing == ""
