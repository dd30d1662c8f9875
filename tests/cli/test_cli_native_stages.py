# SPDX-License-Identifier: Apache-2.0
"""`porter port --style native`: the ring of a port has as many stages as the grade finds best, and a case runs it with
the shared memory that its host code asks for. The slow tests plant mistakes in the port and run it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from fakes_cli import porter
from test_cli_native_port import CORPUS, failure, planted

from porter.build import trust
from porter.build.port_plan import Relaunch
from porter.cli.porting import look
from porter.diagnostics import Code, PorterError
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune import search, staging, verifying
from porter.tune.choosing import Chosen
from porter.verify.proof import Claim, Proof


class Run(NamedTuple):
    text: str
    said: str
    claims: list[Claim]


def ported(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    best: int | PorterError,
    wrong: str = "is never there",
    name: str = "gemm_ws",
) -> Run:
    """A port for which the grade finds `best` stages best, or fails; texts with `wrong` in them fail."""
    claims: list[Claim] = []

    def prove(claim: Claim, *how: object) -> Proof:
        claims.append(claim)
        text = b"".join(claim.plan.files.values()).decode()
        return Proof(missing="results differ") if wrong in text else Proof(("case.yaml",), 3)

    def best_count(shape: object, counts: object, rate: object) -> int:
        if isinstance(best, PorterError):
            raise best
        return best

    monkeypatch.setattr(verifying, "prove", prove)

    monkeypatch.setattr(verifying.Proofs, "on_ptx", lambda *asked: "")
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    monkeypatch.setattr(search, "widened", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr(search, "shared", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr(search, "stored", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr(staging, "best_count", best_count)
    monkeypatch.setattr(staging, "shape_of", lambda session, ported, root: None)
    monkeypatch.setattr(staging, "_slower", lambda *_: frozenset())
    monkeypatch.setattr(staging, "no_order", lambda *_: "an order that is a gain")
    kernel = CORPUS / name / f"{name}.cu"
    result = porter("port", "--style", "native", "--no-compile", kernel, "-o", folder)
    return Run((folder / kernel.name).read_text(), " ".join(result.output.split()), claims)


def test_a_port_has_the_stages_that_the_grade_finds_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ported(tmp_path, monkeypatch, 5)
    assert "constexpr int STAGES = 5;" in found.text
    assert "has the step stages; case.yaml verified it at 3 sizes" in found.said
    assert (
        "has 5 stages; a case that runs the port as a file says `port: {launch: {dynamic_smem: 163840}," in found.said
    )
    assert found.claims[-1].plan.relaunch == Relaunch(163840, ((4, "5"),))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "relaunch"),
    [
        ("cute_gemm_ws", "STAGES", Relaunch(164864, ((3, "5"),), pairs=True, halved=0, axis=1)),
        ("cute_gemm_persistent", "kStages", Relaunch(164864, pairs=True)),
    ],
)
def test_stages_in_types_of_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: str, relaunch: Relaunch
) -> None:
    found = ported(tmp_path, monkeypatch, 5, name=name)
    assert f"{count} = 5;" in found.text
    assert "has the step stages; case.yaml verified it at 3 sizes" in found.said
    assert found.claims[-1].plan.relaunch == relaunch


@pytest.mark.slow
def test_without_a_gain_a_library_has_the_stages_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ported(tmp_path, monkeypatch, 3, name="cute_gemm_persistent")
    assert "kStages = 3;" in found.text
    assert "missing: a gain: by the grade 3 stages are as fast as 7" in found.said


@pytest.mark.slow
def test_a_step_that_fails_is_left_out_and_its_launch_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ported(tmp_path, monkeypatch, 5, "STAGES = 5")
    assert "constexpr int STAGES = 3;" in found.text
    assert "tcgen05::release(" in found.text
    assert "is without the step stages: results differ" in found.said
    assert "5 stages" not in found.said
    assert found.claims[-1].plan.relaunch is None


@pytest.mark.slow
def test_what_keeps_the_stages_is_said_where_other_steps_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ported(tmp_path, monkeypatch, 3, "tcgen05::release(")
    assert "is without the step release: results differ" in found.said
    assert "is without the step stages; missing: a gain: by the grade 3 stages are as fast as 7" in found.said


@pytest.mark.slow
def test_without_a_gain_a_port_has_the_stages_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ported(tmp_path, monkeypatch, 3)
    assert "constexpr int STAGES = 3;" in found.text
    assert "is without the step stages; missing: a gain: by the grade 3 stages are as fast as 7" in found.said


def test_the_launch_of_the_ported_host_code_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ported(tmp_path, monkeypatch, 6, name="gemm_tf32")
    assert found.claims[-1].plan.relaunch == Relaunch(149504)


def test_what_the_text_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ported(tmp_path, monkeypatch, 6, name="gemm_pipelined")
    assert "is without the step stages; missing: the stages of ring.full()" in found.said
    assert "constexpr int kStages = 4;" in found.text


@pytest.mark.slow
def test_a_launch_that_does_not_grow_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_grows", lambda before, after, least: False)
    found = ported(tmp_path, monkeypatch, 5)
    assert "missing: shared memory of the launch that grows with the stages" in found.said
    assert "constexpr int STAGES = 3;" in found.text


@pytest.mark.slow
def test_what_cannot_be_graded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ported(tmp_path, monkeypatch, PorterError(Code.BAD_OPTION, option="x", problem="y"))
    assert "missing: what is graded:" in found.said
    assert "constexpr int STAGES = 3;" in found.text


def test_a_relaunch_is_a_section_of_a_case() -> None:
    relaunch = Relaunch(4096, ((1, "6"),))
    assert relaunch.section(["BM", "STAGES"]) == {"launch": {"dynamic_smem": 4096}, "template": ["BM", "6"]}
    assert Relaunch(4096).section(["BM"]) == {"launch": {"dynamic_smem": 4096}}
    of_pairs = Relaunch(None, pairs=True, halved=0, axis=1).section([], ["N / BN", "M / BM", 1])
    assert of_pairs["launch"] == {"grid": ["(N / BN + 1) // 2", "(M / BM + 1) // 2 * 2", 1], "cluster": [1, 2, 1]}


# --- the gate itself, on a simulator


def made(name: str, count: int) -> Ported:
    path = CORPUS / name / f"{name}.cu"
    options = PortOptions(full_rate=True, native=STEPS, stages=frozenset({(str(path), count)}))
    return port_paths([path], options, (), look)


PLANTED = {
    "the host's shared memory left as it was": (
        "gemm_persistent", 6, r"THREADS, sizeof\(SharedStorage\)", "THREADS, 131200",
    ),
    "an array of mbarriers left as it was": (
        "gemm_persistent", 6, r"uint64_t full\[config::STAGES\]", "uint64_t full[3]",
    ),
    "a phase that turns after as many as before": (
        "gemm_tf32", 8, r"&smem->full\[s\], \(t / Tile::Stages\) & 1", "&smem->full[s], (t / 4) & 1",
    ),
    "a turn after as many as before": (
        "gemm_ws", 6, r"full\[qidx\]\.wait", "if (qidx == 3) qidx = 0; full[qidx].wait",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_mistake_fails_the_gate(what: str) -> None:
    name, count, pattern, instead = PLANTED[what]
    found = failure(planted(made(name, count), pattern, instead))
    assert found
    assert "nvcc" not in found


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(
    ("name", "count"),
    [("gemm_ws", 4), ("gemm_ws", 6), ("gemm_persistent", 5), ("gemm_persistent", 6), ("gemm_tf32", 8),
     ("gemm_fp8_scaled", 6), ("gemm_cluster", 6)],
)  # fmt: skip
def test_the_gate_takes_a_corpus_kernel(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # references of some cases are functions
    monkeypatch.setattr(trust, "_said", True)
    found = made(name, count)
    assert found.roots[0].stages == count
    assert failure(found) == ""
