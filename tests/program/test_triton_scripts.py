# SPDX-License-Identifier: Apache-2.0
"""Scripts that launch Triton's kernels: compiled for SM100, run on the simulator, proved, captured."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.build.trust import VARIABLE
from porter.cli import programs
from porter.cli.main import main
from porter.verify.program.fatbin import KIND_PTX, FatbinError, images, packed

SCRIPT = Path(__file__).resolve().parent.parent / "foreign" / "triton_script.py"
KERNELS = (
    "pointers", "descriptors", "persistent", "specialized", "pair", "dependent launch", "described on the device",
    "attention", "scaled", "softmax", "split k",
)  # fmt: skip
PTX = ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n"
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


def ran(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.external
@needs_triton
@pytest.mark.parametrize("kernel", KERNELS)
def test_values_and_hazards(kernel: str) -> None:
    """The script compares values, and fails where they differ."""
    ran("hazards", "--trust", "--triton", str(SCRIPT), "--", kernel)


@pytest.mark.external
@needs_triton
def test_all_are_proved() -> None:
    text = ran("hazards", "--trust", "--prove", "--triton", str(SCRIPT))
    assert len(re.findall(r": proved", text)) == len(KERNELS) - 2, "launches that are alike are told as one"


@pytest.mark.external
@needs_triton
@pytest.mark.parametrize(
    ("kernel", "planted", "hazard"),
    [
        ("descriptors", r"(@%p\d+ )?tcgen05\.commit[^;]*;", "deadlock"),
        ("specialized", r"barrier\.sync \t1;", "U1"),
        ("specialized", r"(@%p\d+ )?tcgen05\.commit[^;]*;", "deadlock"),
        ("attention", r"(@%p\d+ )?tcgen05\.wait::st[^;]*;", "H"),
    ],
)
def test_planted_in_what_is_captured(tmp_path: Path, kernel: str, planted: str, hazard: str) -> None:
    """A launch file stands for each launch, with the module that it was of."""
    ran("capture", "--trust", "--backend", "sim", "-o", str(tmp_path), str(SCRIPT), kernel)
    (launch,) = tmp_path.glob("*/launch.yaml")
    assert "proved" in ran("hazards", "--prove", "--launch", str(launch))
    ptx = launch.with_name("kernel.ptx")
    text, count = re.subn(planted, "", ptx.read_text("utf-8"))
    assert count
    ptx.write_text(text, "utf-8")
    assert hazard in ran("hazards", "--prove", "--launch", str(launch), code=5)


@pytest.mark.external
@needs_triton
def test_kernels_of_one_name_keep_their_modules(tmp_path: Path) -> None:
    words = ["capture", "--trust", "--backend", "sim", "-o", str(tmp_path), str(SCRIPT), "descriptors", "pair"]
    ran(*words)
    found = sorted(tmp_path.glob("*/launch.yaml"))
    texts = [path.with_name("kernel.ptx").read_text("utf-8") for path in found]
    assert [".reqnctapercluster" in text for text in texts] == [False, True]


def test_a_script_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    assert "PT0005" in ran("hazards", "--trust", "--triton", str(tmp_path / "k.cu"), code=2)
    ran("hazards", "--trust", "--triton", str(tmp_path / "none.py"), code=2)


def test_triton_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k.py").write_text("import triton\n")
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    for words in (("hazards", "--triton"), ("capture", "--backend", "sim")):
        text = ran(words[0], "--trust", *words[1:], str(tmp_path / "k.py"), code=2)
        assert "needs the package triton" in text


def test_nobody_runs_a_script_that_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k.py").write_text("import triton\n")
    monkeypatch.setattr(programs, "find_spec", lambda name: object())
    monkeypatch.delenv(VARIABLE, raising=False)
    for words in (("hazards", "--triton"), ("capture", "--backend", "sim")):
        assert "--trust" in ran(*words, str(tmp_path / "k.py"), code=2)


def test_a_fat_binary_of_ptx() -> None:
    (image,) = images(packed(PTX))
    assert (image.kind, image.arch, image.ptx, image.target) == (KIND_PTX, 100, PTX, "sm_100a")
    with pytest.raises(FatbinError):
        packed(PTX.replace(".target sm_100a", ""))
