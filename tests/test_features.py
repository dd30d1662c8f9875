# SPDX-License-Identifier: Apache-2.0
"""docs/features.yaml: what tools of this kind have. Each command is carried out, and shows what its row says."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from porter.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
ROWS: list[dict[str, Any]] = yaml.safe_load((ROOT / "docs" / "features.yaml").read_text())
QUICK = ("explain", "map", "check", "rules")
RULES = """\
schema: 2
library: house rules
rules:
  - id: HOUSE100
    title: Our trace macro
    recognize: {regex: 'TRACE_SM90\\b'}
    replace: TRACE_SM100
    safety: safe
    reason: The macro has a sister for Blackwell.
    becomes: TRACE_SM100
    examples:
      - {before: "TRACE_SM90(x);", after: "TRACE_SM100(x);"}
"""
UNKNOWN_MACRO = '__global__ void k() { asm volatile(SOME_MACRO("wgmma.fence.sync.aligned;") ::: "memory"); }\n'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    for path in (ROOT / "corpus" / "gemm_ws").iterdir():
        shutil.copy(path, folder)
    kernel = (folder / "gemm_ws.cu").read_text()
    (folder / "broken.cu").write_text(kernel + "\nvoid unfinished( {\n")
    (folder / "macro.cu").write_text(UNKNOWN_MACRO)
    (folder / "kept.cu").write_text("int a;  // porter: keep PT7001\n")
    (folder / "house.cu").write_text(kernel + "\nvoid f() { TRACE_SM90(1); }\n")
    (folder / "house.yaml").write_text(RULES)
    return folder


def quick(row: dict[str, Any]) -> bool:
    return row["run"].split()[0] in QUICK


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row["feature"], marks=[] if quick(row) else [pytest.mark.slow])
        for row in ROWS
        if "run" in row
    ],
)
def test_the_command_shows_the_feature(row: dict[str, Any], project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    result = CliRunner().invoke(main, shlex.split(row["run"]))
    assert result.exit_code == row.get("code", 0), result.output
    assert row["shows"] in result.output


def test_every_row_has_a_command_a_test_or_a_reason() -> None:
    assert len(ROWS) == 44
    assert len({row["feature"] for row in ROWS}) == 44
    for row in ROWS:
        assert set(row) & {"run", "test", "todo", "none"}, row
        assert "test" not in row or (ROOT / row["test"]).exists(), row
