# SPDX-License-Identifier: Apache-2.0
"""What `verify`, `port` and `check` say of synchronization that is proved on PTX, and of what both programs leave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from corpus_kernels import CORPUS

from porter.cli.main import main
from porter.passes.ported import Ported
from porter.report.json import schema

PROVED = "2"
"""Seconds: executions at the sizes that are asked for are made whatever they take, and some turns."""
KERNEL = CORPUS / "gemm_tma"
SIZES = ["--sizes", "M=128,N=128,K=128"]
BREAKS = {
    "no commit": ("tcgen05.commit.cta_group", "// tcgen05.commit.cta_group"),
    "no wait of the loads": ("tcgen05.wait::ld", "// tcgen05.wait::ld"),
    "nothing is freed": ("tcgen05.dealloc", "// tcgen05.dealloc"),
}


def porter(*words: object) -> tuple[Result, dict[str, Any]]:
    result = CliRunner(env={"PORTER_PROVE_SECONDS": PROVED}).invoke(main, ["--format", "json", *map(str, words)])
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema(document["kind"]))
    return result, document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KERNEL, tmp_path / "kernel"))


def test_verify_says_what_is_proved(folder: Path) -> None:
    result, document = porter("verify", folder / "gemm_tma.cu", "--families", "integers", *SIZES)
    assert result.exit_code == 0, result.output
    (proofs,) = document["proofs"]
    assert [(p["program"], p["status"]) for p in proofs["programs"]] == [("original", "proved"), ("port", "proved")]
    assert any(c["step"] and c["name"] == "K" for c in proofs["programs"][1]["counts"])
    assert (proofs["equality"]["status"], proofs["equality"]["sizes"]) == ("equal", ["M=128, N=128, K=128"])


def test_without_hazards_nothing_is_proved(folder: Path) -> None:
    words = ["--original-only", "--families", "integers", "--no-hazards", *SIZES]
    result, document = porter("verify", folder / "gemm_tma.cu", *words)
    assert result.exit_code == 0, result.output
    assert document["proofs"] == []


@pytest.mark.parametrize("how", ["no wait of the loads"])
def test_verify_refuses_a_port_by_its_proof(folder: Path, tmp_path: Path, how: str) -> None:
    made, _ = porter("port", folder / "gemm_tma.cu", "-o", tmp_path / "port", "--style", "compat")
    assert made.exit_code == 0, made.output
    for file in (tmp_path / "port").iterdir():
        file.write_text(file.read_text().replace(*BREAKS[how]))
    port = tmp_path / "port" / "gemm_tma.cu"
    result, document = porter("verify", folder / "gemm_tma.cu", "--families", "integers", *SIZES, "--port", port)
    assert result.exit_code == 5, result.output
    (proofs,) = document["proofs"]
    assert proofs["introduced"], how
    said = [d for d in document["diagnostics"] if d["id"] == "PT4114"]
    assert said, document["diagnostics"]


BACKWARDS = "for (int kk = 0; kk < BK; kk += 16)", "for (int kk = BK - 16; kk >= 0; kk -= 16)"
"""Sums of integers are the same."""


@pytest.mark.slow
def test_verify_refuses_a_port_that_runs_call_right(folder: Path, tmp_path: Path) -> None:
    made, _ = porter("port", folder / "gemm_tma.cu", "-o", tmp_path / "port", "--style", "compat", "--no-compile")
    assert made.exit_code == 0, made.output
    port = tmp_path / "port" / "gemm_tma.cu"
    port.write_text(changed(port.read_text(), *BACKWARDS))
    words = ["verify", folder / "gemm_tma.cu", "--families", "integers", *SIZES, "--port", port]
    result, document = porter(*words)
    assert {row["verdict"] for row in document["rows"]} == {"clean"}
    assert (result.exit_code, document["verdict"]) == (5, "error"), result.output
    (said,) = [d for d in document["diagnostics"] if d["severity"] == "error"]
    assert said["id"] == "PT4115"
    assert "original: st.global" in said["detail"]
    assert "port:     st.global" in said["detail"]
    case = folder / "case.yaml"
    case.write_text(case.read_text() + "compare: bound\n")
    result, document = porter(*words)
    assert result.exit_code == 0, result.output
    assert "in another order" in document["proofs"][0]["equality"]["why"]


@pytest.mark.slow
def test_a_port_that_leaves_something_else_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Ported.elsewhere

    def broken(ported: Ported) -> dict[str, bytes]:
        before, after = (text.encode() for text in BACKWARDS)
        return {path: data.replace(before, after) for path, data in elsewhere(ported).items()}

    monkeypatch.setattr(Ported, "elsewhere", broken)
    words = ["port", folder / "gemm_tma.cu", "-o", tmp_path / "port", "--style", "compat"]
    result, document = porter(*words)
    assert result.exit_code == 4, result.output
    assert {"PT3057"} == {d["id"] for d in document["diagnostics"] if d["severity"] == "error"}
    assert document["proofs"][0]["equality"]["status"] == "differs"
    assert not (tmp_path / "port").exists()


@pytest.mark.parametrize("how", ["no commit", pytest.param("nothing is freed", marks=pytest.mark.slow)])
def test_a_port_that_brings_a_hazard_in_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    elsewhere = Ported.elsewhere

    def broken(ported: Ported) -> dict[str, bytes]:
        before, after = (text.encode() for text in BREAKS[how])
        return {path: data.replace(before, after) for path, data in elsewhere(ported).items()}

    monkeypatch.setattr(Ported, "elsewhere", broken)
    result, document = porter("port", folder / "gemm_tma.cu", "-o", tmp_path / "port", "--style", "compat")
    assert result.exit_code == 4, result.output
    told = {d["id"] for d in document["diagnostics"] if d["severity"] == "error"}
    assert told == ({"PT3056", "PT3057"} if how == "no commit" else {"PT3056"})
    assert not (tmp_path / "port").exists()


def test_port_says_what_is_proved(folder: Path, tmp_path: Path) -> None:
    result, document = porter("port", folder / "gemm_tma.cu", "-o", tmp_path / "port", "--style", "compat")
    assert result.exit_code == 0, result.output
    (proofs,) = document["proofs"]
    assert [(p["program"], p["status"]) for p in proofs["programs"]] == [("original", "proved"), ("port", "proved")]
    assert proofs["equality"]["status"] == "equal"


@pytest.mark.slow
def test_what_the_original_has_too_is_no_defect_of_the_port(folder: Path, tmp_path: Path) -> None:
    """An original that expects more bytes than come; the port is written, and both wait for ever."""
    source = folder / "gemm_tma.cu"
    source.write_text(changed(source.read_text(), "kStageBytes);", "kStageBytes + 16);"))
    result, document = porter("port", source, "-o", tmp_path / "port", "--style", "compat")
    assert result.exit_code == 0, result.output
    (proofs,) = document["proofs"]
    assert (proofs["inherited"], proofs["introduced"]) == (["deadlock"], [])
    assert [p["program"] for p in proofs["programs"]] == ["original", "port"]


def changed(text: str, before: str, after: str) -> str:
    assert before in text
    return text.replace(before, after, 1)


@pytest.mark.slow
def test_check_finds_a_hazard_of_a_kernel_with_a_case(folder: Path) -> None:
    source = folder / "gemm_tma.cu"
    words = ["check", "--prove", "--sm100", source]
    made, _ = porter("port", source, "--apply", "--allow-dirty", "--style", "compat")
    assert made.exit_code == 0, made.output
    clean, document = porter(*words)
    assert (clean.exit_code, document["proofs"][0]["status"]) == (0, "proved"), clean.output
    header = folder / "tcgen05.cuh"
    header.write_text(header.read_text().replace(*BREAKS["no commit"]))
    result, document = porter(*words)
    assert result.exit_code == 1, result.output
    assert "PT4114" in {d["id"] for d in document["findings"]}


def test_a_program_is_proved_at_its_launches(tmp_path: Path) -> None:
    source = tmp_path / "prog.cu"
    folder = CORPUS / "gemm_ws"
    source.write_text((folder / "gemm_ws.cu").read_text() + (folder / "main.cu").read_text())
    result, document = porter("hazards", "--prove", source, "--", "128", "128", "128")
    assert result.exit_code == 0, result.output
    (proof,) = document["proofs"]
    assert (proof["program"], proof["status"]) == ("program", "proved")
    assert proof["sizes"] == ["a grid of 1x1x1 blocks of 384x1x1 threads"]


@pytest.mark.slow
def test_a_program_with_a_hazard_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "prog.cu"
    folder = CORPUS / "gemm_ws"
    source.write_text(
        changed((folder / "gemm_ws.cu").read_text(), "__syncthreads();", "") + (folder / "main.cu").read_text()
    )
    result, document = porter("hazards", "--prove", source, "--", "128", "128", "128")
    assert result.exit_code == 5, result.output
    assert document["proofs"][0]["findings"]
