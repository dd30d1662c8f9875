# SPDX-License-Identifier: Apache-2.0
"""Python that sources bring along runs only for whoever said so."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakes_cli import CASE, FakeBackend, FakeBuilder, fake_port_sources, porter, porter_json, project

from porter.cli.context import Session

DSL = Path(__file__).parents[2] / "corpus" / "dsl_gemm_plain"


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PORTER_TRUST", raising=False)
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A case whose reference is a function; importing it leaves a file behind."""
    monkeypatch.setattr("porter.passes.embedded.port_sources", fake_port_sources)
    monkeypatch.setattr("porter.verify.sweep.make_backend", lambda name, options: FakeBackend())
    monkeypatch.setattr("porter.cli.verify.make_builder", FakeBuilder)
    path = project(tmp_path / "kernel", CASE.replace('"A @ B.T"', "{python: 'reference.py:gemm'}"))
    (tmp_path / "kernel" / "reference.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
        "def gemm(arrays, names):\n    return arrays['A'] @ arrays['B'].T\n"
    )
    return path


def test_a_reference_function_needs_trust(kernel: Path, tmp_path: Path) -> None:
    output = porter("verify", kernel, code=2).output
    assert "PT0017" in output
    assert "--trust" in output
    assert porter_json("verify", kernel, code=2)["diagnostics"][0]["id"] == "PT0017"
    assert not (tmp_path / "ran").exists()


def test_the_option_and_the_variable_give_it(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    porter("verify", "--trust", kernel)
    assert (tmp_path / "ran").exists()
    porter("verify", kernel, code=2)  # for that one command only
    monkeypatch.setenv("PORTER_TRUST", "1")
    porter("verify", kernel)


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 2)])
def test_whoever_sits_there_is_asked_once(
    answer: bool, code: int, kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Session, "ask", lambda self, question: asked.append(question) or answer)
    porter("verify", kernel, code=code)
    assert len(asked) == 1
    assert "reference.py" in asked[0]
    assert (tmp_path / "ran").exists() is answer


@pytest.mark.parametrize("command", ["verify", "build", "hazards", "mutate"])
def test_a_dsl_file_is_not_imported(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "dsl"
    shutil.copytree(DSL, folder, ignore=shutil.ignore_patterns("halves*", "scale*", "__pycache__"))
    source = next(folder.glob("dsl_*.py"))
    source.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n" + source.read_text())
    assert "PT0017" in porter(command, source, code=2).output
    assert not (tmp_path / "ran").exists()


def test_without_trust_a_dsl_port_is_written_and_not_compiled(tmp_path: Path) -> None:
    source = next(shutil.copytree(DSL, tmp_path / "dsl").glob("dsl_*.py"))
    source.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n" + source.read_text())
    output = " ".join(porter("port", source, "-o", tmp_path / "out").output.split())
    assert "not compiled" in output
    assert "is not run" in output
    assert "--trust" in output
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / "out" / source.name).exists()


@pytest.mark.parametrize("command", [["scan"], ["plan"], ["port", "--no-compile"]])
def test_reading_and_porting_import_nothing(command: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "dsl"
    shutil.copytree(DSL, folder)
    source = next(folder.glob("dsl_*.py"))
    source.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n" + source.read_text())
    assert "PT0017" not in porter(*command, source, code=None).output
    assert not (tmp_path / "ran").exists()


def test_flags_of_a_found_configuration_need_trust(tmp_path: Path) -> None:
    project(tmp_path / "kernel")
    (tmp_path / "kernel" / "porter.toml").write_text('nvcc-flags = ["-ccbin=./evil"]\n')
    source = tmp_path / "kernel" / "gemm.cu"
    assert "PT0017" in porter("port", source, code=2).output
    assert "PT0017" not in porter("--config", tmp_path / "kernel" / "porter.toml", "port", source, code=None).output


def test_a_terminal_is_asked(kernel: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "porter", "verify", str(kernel)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True) as process:
        os.close(theirs)
        os.write(ours, b"n\n")
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            seen += piece
        assert process.wait(60) == 2
    assert b"reference.py" in seen
    assert b"[y/N]" in seen
    assert not (tmp_path / "ran").exists()
