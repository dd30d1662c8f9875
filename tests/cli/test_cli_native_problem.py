# SPDX-License-Identifier: Apache-2.0
"""`--problem`: pairs of CTAs are taken where the grade finds them faster for the size that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes_cli import porter

from porter.tune import verifying
from porter.verify.proof import Claim, Proof

KERNEL = Path(__file__).parents[2] / "corpus/gemm_persistent/gemm_persistent.cu"


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "pairs"), [("4096x4096x4096", True), ("1024x1024x1024", False)])
def test_pairs_are_for_products_of_many_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str, pairs: bool
) -> None:
    def prove(claim: Claim, *how: object) -> Proof:
        return Proof(("case.yaml",), 3)

    monkeypatch.setattr(verifying, "prove", prove)

    monkeypatch.setattr(verifying.Proofs, "on_ptx", lambda *asked: "")
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    command = ("port", "--style", "native", "--problem", problem, "--no-compile", KERNEL, "-o", tmp_path)
    said = " ".join(porter(*command).output.split())
    text = (tmp_path / KERNEL.name).read_text()
    assert ("tcgen05::load_of_pair" in text) is pairs
    assert "has the step double-buffer" in said
    assert ("has the step pair" in said) is pairs
    assert ("a gain at 1024 x 1024 x 1024: by the grade pairs reach" in said) is not pairs


@pytest.mark.parametrize("wrong", ["4096", "0x1x1", "axbxc"])
def test_a_problem_that_is_none_is_refused(wrong: str) -> None:
    result = porter("port", "--style", "native", "--problem", wrong, KERNEL, code=2)
    assert "MxNxK" in result.output
