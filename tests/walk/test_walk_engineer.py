# SPDX-License-Identifier: Apache-2.0
"""The walk of a kernel engineer: three commands, no edited file, from a kernel that nobody has seen to a clean verdict
at full rate, a report and a kit."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main

KERNEL = Path(__file__).parent / "linear_gelu.cu"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "walk.md"
LONGEST = 170
COMMANDS = (
    ("case", "new", "linear_gelu.cu"),
    ("report", "linear_gelu.cu", "--style", "auto", "--html", "report.html"),
    ("kit", "linear_gelu.cu", "--style", "full-rate", "-o", "kit.tar"),
)


def shown(command: str) -> str:
    """What the page of the walk says of a command, without where lines end and what a kit is called."""
    found = re.search(rf"^\$ {re.escape(command)}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return plain(found[1])


def plain(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{32}\b", "ID", " ".join(text.split()))


def test_the_kernel_is_one_that_somebody_writes() -> None:
    text = KERNEL.read_text("utf-8")
    assert len(text.splitlines()) <= LONGEST
    assert not list(Path(__file__).resolve().parents[2].glob("corpus/**/linear_gelu.cu"))


def test_its_draft_needs_no_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(KERNEL, tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, COMMANDS[0])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "case.yaml").read_text("utf-8")
    assert plain(done.output) == shown("porter case new linear_gelu.cu")
    lines = [line for line in text.splitlines() if "reference" in line]
    assert plain("\n".join(lines)) == shown("grep reference case.yaml")
    assert text.count("# guess") == 1
    assert 'reference: "gelu_tanh(x @ w.T + bias)"' in text


@pytest.mark.slow
@pytest.mark.external
def test_three_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(KERNEL, tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    said = []
    for words in COMMANDS:
        done = CliRunner().invoke(main, list(words))
        assert done.exit_code == 0, done.output
        said.append(done.output)
        assert plain(done.output) == shown(f"porter {' '.join(words)}")
    assert "verdict: clean" in said[1]
    assert "not run: " in said[1]
    assert "% of B200's nominal rate" in said[1]
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "PTR180" in page, "M=128 MMAs"
    with tarfile.open(tmp_path / "kit.tar") as kit:
        assert any(name.endswith("run.sh") for name in kit.getnames())
    assert (tmp_path / "linear_gelu.cu").read_text("utf-8") == KERNEL.read_text("utf-8")
