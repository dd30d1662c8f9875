# SPDX-License-Identifier: Apache-2.0
"""`porter port` with rules of one's own, and diffs that git takes from where the user stands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode

RULE = """
schema: 2
library: house rules
rules:
  - id: ACME001
    title: Our trace macro
    recognize: {regex: 'TRACE_SM90\\b'}
    replace: TRACE_SM100
    safety: safe
    reason: The macro has a sister for Blackwell.
    becomes: TRACE_SM100
    examples:
      - {before: "TRACE_SM90(x);", after: "TRACE_SM100(x);"}
"""


def test_rules_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "mine.yaml").write_text(RULE)
    source = tmp_path / "x.cu"
    source.write_text("void f() { TRACE_SM90(1); }\n")
    result = CliRunner().invoke(main, ["port", str(source), "--rules", str(tmp_path / "rules")])
    assert result.exit_code == ExitCode.OK
    assert "+void f() { TRACE_SM100(1); }" in result.stdout
    # no example of it is verified
    assert "# rule ACME001 review: Our trace macro" in result.stdout


def test_broken_rules(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RULE.replace("safety: safe", "safety: sure"))
    source = tmp_path / "x.cu"
    source.write_text("void f() {}\n")
    result = CliRunner().invoke(main, ["port", str(source), "--rules", str(tmp_path)])
    assert result.exit_code == ExitCode.USAGE
    assert "PT6001" in result.output


@pytest.mark.parametrize("inside", [True, False], ids=["inside the tree", "outside"])
def test_git_takes_the_diff(tmp_path: Path, inside: bool) -> None:
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "mine.yaml").write_text(RULE)
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    source = tree / "sub" / "x.cu"
    source.write_text("void f() { TRACE_SM90(1); }\n")
    before = Path.cwd()
    os.chdir(tree if inside else tmp_path.parent)
    try:
        result = CliRunner().invoke(main, ["port", str(source), "--rules", str(tmp_path / "rules.d")])
    finally:
        os.chdir(before)
    subprocess.run(["git", "apply"], input=result.stdout.encode(), cwd=tree, check=True)
    assert "SM100" in source.read_text()
