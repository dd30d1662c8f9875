# SPDX-License-Identifier: Apache-2.0
"""Programs on the simulator become cases, without a GPU; original and port hold on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kept_sources import kept

from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.diagnostics import PorterError

CORPUS = Path(__file__).parents[2] / "corpus"


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        find_toolkit()
    except PorterError as error:
        pytest.skip(f"no CUDA compiler: {error}")
    folder = CORPUS / "gemm_ws"
    return kept({"gemm.cu": f'#include "{folder}/gemm_ws.cu"\n#include "{folder}/main.cu"\n'}) / "gemm.cu"


@pytest.mark.slow
def test_a_corpus_kernel_in_a_program(program: Path, tmp_path: Path) -> None:
    output = tmp_path / "cases"
    source = CORPUS / "gemm_ws" / "gemm_ws.cu"
    command = ["capture", "--backend", "sim", "-o", str(output), "--source", str(source), "--", str(program)]
    done = CliRunner().invoke(main, ["--format", "json", *command, "128", "128", "128"])
    assert done.exit_code == 0, done.output
    (case,) = json.loads(done.stdout)["cases"]
    assert (case["grid"], case["block"], case["tensor_maps"]) == ([1, 1, 1], [384, 1, 1], 2)
    done = CliRunner().invoke(main, ["--format", "json", "verify", "--full", str(output)])
    (row,) = json.loads(done.stdout)["rows"]
    assert row["verdict"] == "clean"
    assert [c["mismatches"] for c in (*row["original"], *row["port"], *row["between"])] == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("waits", "verdict"), [(True, "clean"), (False, "error")])
def test_a_launch_alone_has_the_verdict_of_its_program(
    waits: bool, verdict: str, program: Path, tmp_path: Path
) -> None:
    """Also where a stage is given back while products read it."""
    kernel, rest = ((CORPUS / "gemm_ws" / name).read_text() for name in ("gemm_ws.cu", "main.cu"))
    wait = "warpgroup_wait<0>();"
    assert kernel.count(wait) == 1
    source = tmp_path / "whole.cu"
    source.write_text((kernel if waits else kernel.replace(wait, "warpgroup_wait<1>();")) + rest)
    (whole,) = _document("hazards", source, "--", 128, 128, 256)["runs"]
    _document("capture", "--backend", "sim", "-o", tmp_path / "cases", "--", source, 128, 128, 256)
    (launch,) = (tmp_path / "cases").glob("*/launch.yaml")
    (alone,) = _document("hazards", "--launch", launch)["runs"]
    assert alone["verdict"] == whole["verdict"] == verdict
    assert [h["id"] for h in alone["hazards"]] == [h["id"] for h in whole["hazards"]]


def _document(*words: object) -> Any:
    done = CliRunner().invoke(main, ["--format", "json", *(str(word) for word in words)])
    assert done.stdout, done.output
    return json.loads(done.stdout)
