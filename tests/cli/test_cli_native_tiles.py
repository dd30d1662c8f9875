# SPDX-License-Identifier: Apache-2.0
"""`porter port --style native`: blocks take tiles over where the grade finds that faster, and have another order where
L2 does not hold what they load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes_cli import porter

from porter.tune import search, verifying
from porter.tune.choosing import Chosen
from porter.verify.proof import Claim, Proof

KERNEL = Path(__file__).parents[2] / "corpus/gemm_ws/gemm_ws.cu"
KEPT = "blocks that take tiles over reach"


@pytest.mark.parametrize(
    ("problem", "tiles", "order"),
    [
        pytest.param("4096x4096x4096", True, False, marks=pytest.mark.slow),
        pytest.param("1024x1024x1024", False, False, marks=pytest.mark.slow),
        pytest.param("8192x8192x8192", True, True, marks=pytest.mark.slow),
    ],
)
def test_the_problem_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str, tiles: bool, order: bool
) -> None:
    claims: list[Claim] = []

    def prove(claim: Claim, *how: object) -> Proof:
        claims.append(claim)
        return Proof(("case.yaml",), 3)

    monkeypatch.setattr(verifying, "prove", prove)

    monkeypatch.setattr(verifying.Proofs, "on_ptx", lambda *asked: "")
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    monkeypatch.setattr(search, "widened", lambda session, ported, make: Chosen(ported))
    command = ("port", "--style", "native", "--problem", problem, "--no-compile", KERNEL, "-o", tmp_path)
    said = " ".join(porter(*command).output.split())
    text, header = ((tmp_path / name).read_text() for name in (KERNEL.name, "tcgen05.cuh"))
    assert ("while (tiles.next())" in text) is tiles
    assert ("kBuffers = 2;" in header) is tiles
    assert ("uint3 raster(uint3 index)" in header) is order
    assert ("has the step tiles" in said, "has the step double-buffer" in said) == (tiles, tiles)
    assert (f"a gain at {problem.replace('x', ' x ')}: by the grade {KEPT}" in said) is not tiles
    assert ("has the step raster" in said) is order
    assert ("and L2 holds 60 MB" in said) is not order
    # one block does the work of all in some of the runs
    assert all(c.takes_over is tiles and not c.takes_turns for c in claims if "Tmem" in str(c.plan.files))
    assert claims


@pytest.mark.slow
@pytest.mark.external
def test_the_port_of_the_corpus_kernel_is_verified_and_above_sixty_percent(tmp_path: Path) -> None:
    result = porter("port", "--style", "native", "--trust", KERNEL, "-o", tmp_path)
    said = " ".join(result.output.split())
    for step in ("release", "mma-thread", "tiles", "double-buffer", "stages"):
        assert f"has the step {step}; case.yaml verified it at 3 sizes" in said
    graded = porter("--format", "json", "grade", "--style", "native", KERNEL.parent / "case.yaml")
    rates = [k["percent_of_nominal"] for k in json.loads(graded.output)["kernels"] if k["program"] == "port"]
    assert rates
    assert max(rates) > 60
