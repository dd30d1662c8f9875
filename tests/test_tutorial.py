# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md: its commands are carried out, one after the other, and its outputs are theirs.

`PORTER_WRITE_TUTORIAL=1` writes the outputs anew.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_TIMES = re.compile(r"\b\d+\.\d s\b|^(---|\+\+\+) (\S+)\t.*", re.MULTILINE)
QUICK = ("map", "plan")


def blocks() -> list[list[tuple[str, str]]]:
    """The commands of each block, with what they say."""
    found = []
    for block in _BLOCK.findall(PAGE.read_text("utf-8")):
        parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
        found.append(list(zip(parts[::2], parts[1::2], strict=True)))
    return found


def carried_out(command: str) -> str:
    """What a command says, without times and the ends of lines; of one with `| head -N` the first lines."""
    words = shlex.split(command)
    if words[0] == "porter":
        lines = int(words[-1].removeprefix("-")) if "|" in words else None
        said = CliRunner().invoke(main, words[1 : words.index("|") if "|" in words else None]).output
        said = "".join(said.replace(f"{Path.cwd()}/", "").splitlines(keepends=True)[:lines])
    else:
        said = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout
    return re.sub(r"[ \t]+$", "", _TIMES.sub(_plain, said), flags=re.MULTILINE)


def _plain(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2]}" if match[1] else "0.0 s"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "corpus" / "gemm_tma", tmp_path / "gemm_tma")
    (tmp_path / "gemm_tma" / "case.yaml").unlink()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", QUICK)
def test_commands_that_only_read(verb: str, project: Path) -> None:
    found = [pair for block in blocks() for pair in block if pair[0].startswith(f"porter {verb} ")]
    assert found
    for command, said in found:
        assert carried_out(command) == said


@pytest.mark.slow
def test_the_whole_page(project: Path) -> None:
    outputs = [[(command, carried_out(command)) for command, _ in block] for block in blocks()]
    if os.environ.get("PORTER_WRITE_TUTORIAL"):
        texts = iter("".join(f"$ {c}\n{said}" for c, said in block) for block in outputs)
        PAGE.write_text(_BLOCK.sub(lambda match: next(texts), PAGE.read_text("utf-8")), "utf-8")
    assert outputs == blocks()
