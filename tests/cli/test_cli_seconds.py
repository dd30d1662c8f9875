# SPDX-License-Identifier: Apache-2.0
"""--seconds of commands that go over cases: what is not begun is named, and has no verdict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import Code, ExitCode

CORPUS = Path(__file__).resolve().parents[2] / "corpus"


@pytest.mark.parametrize("command", ["hazards", "mutate"])
def test_no_case_is_begun_when_the_time_is_over(command: str, tmp_path: Path) -> None:
    for name in ("gemm_tma", "gemm_ws"):
        shutil.copytree(CORPUS / name, tmp_path / name)
    done = CliRunner().invoke(main, ["--format", "json", command, str(tmp_path), "--seconds", "0"])
    assert done.exit_code == int(ExitCode.INCONCLUSIVE), done.output
    assert json.loads(done.output)["exit_code"] == int(ExitCode.INCONCLUSIVE)
    text = CliRunner().invoke(main, [command, str(tmp_path), "--seconds", "0"]).output
    for name in ("gemm_tma", "gemm_ws"):
        assert f"{name}/case.yaml" in text
    assert text.count(Code.TIME_SPENT.id) == 2


@pytest.mark.parametrize("command", ["hazards", "mutate"])
def test_a_single_launch_takes_no_seconds(command: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [command, "--ptx", "k.ptx", "--launch", "l.yaml", "--seconds", "1"])
    assert done.exit_code == int(ExitCode.USAGE)


@pytest.mark.slow
def test_time_enough_is_no_time_at_all(tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "gemm_tma", tmp_path / "gemm_tma")
    done = CliRunner().invoke(main, ["hazards", str(tmp_path), "--seconds", "600"])
    assert done.exit_code == 0, done.output
    assert Code.TIME_SPENT.id not in done.output
