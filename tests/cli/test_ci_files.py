# SPDX-License-Identifier: Apache-2.0
"""The pre-commit hooks and the GitHub action: what they call is there, and does what they say."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from porter.cli.main import main

ROOT = Path(__file__).parent.parent.parent
HOPPER = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'


def test_hooks_check_and_never_write(tmp_path: Path) -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [h["id"] for h in hooks] == ["porter-check", "porter-check-sm100"]
    for name, text in (("k.cu", HOPPER), ("other.py", "import os\n"), ("plain.cpp", "int a;\n")):
        (tmp_path / name).write_text(text)
    files = sorted(map(str, tmp_path.iterdir()))
    before = {f: Path(f).read_bytes() for f in files}
    for hook, code in zip(hooks, (1, 1), strict=True):
        assert hook["types_or"] == ["c++", "cuda", "python"]
        program, *words = shlex.split(hook["entry"])
        assert program == "porter"
        result = CliRunner().invoke(main, [*words, *files])
        assert result.exit_code == code, result.output
    assert {f: Path(f).read_bytes() for f in files} == before


@pytest.mark.slow
def test_the_action_annotates_sums_up_and_fails(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (script,) = [step["run"] for step in action["runs"]["steps"] if step.get("id") == "check"]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "k.cu").write_text(HOPPER)
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "porter"
    stub.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m porter "$@"\n')
    stub.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PATHS": "src", "OPTIONS": "",
        "SARIF": "out.sarif", "RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }  # fmt: skip
    asked = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "::error title=PT7001" in done.stdout
    assert "file=src/k.cu,line=1" in done.stdout
    assert "## porter check" in (tmp_path / "summary.md").read_text()
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"]
    (tmp_path / "src" / "k.cu").write_text("int a;\n")
    assert subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True).returncode == 0
