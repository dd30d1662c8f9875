# SPDX-License-Identifier: Apache-2.0
"""Whole projects from scan to verify, with the commands of docs/projects.md: a PyTorch extension, a CMake library, a
program with a Makefile. Neither PyTorch nor CMake need be installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from click.testing import CliRunner

from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.diagnostics import ExitCode

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Project:
    """A sample: its kernels, and a line of each file as it is ported alone and for both chips.
    `same` are files that have nothing for Hopper alone."""

    name: str
    kernels: tuple[str, ...]
    ported: dict[str, tuple[str, str]]
    same: tuple[str, ...]


PROJECTS = [
    Project(
        "pytorch_extension",
        ("csrc/kernel.cu",),
        {
            "setup.py": (
                '"nvcc": ["-O3", "-std=c++17", "-gencode", "arch=compute_100a,code=sm_100a"],',
                '"nvcc": ["-O3", "-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", '
                '"-gencode", "arch=compute_100a,code=sm_100a"],',
            ),
            "csrc/op.cpp": ("device->major == 10 &&", "(device->major == 9 || device->major == 10) &&"),
        },
        (),
    ),
    Project(
        "cmake_library",
        ("src/gemm.cu",),
        {
            "CMakeLists.txt": (
                "set(CMAKE_CUDA_ARCHITECTURES 100a)",
                "set(CMAKE_CUDA_ARCHITECTURES 90a 100a)",
            ),
            "src/dispatch.cpp": ("return major == 10;", "return (major == 9 || major == 10);"),
            "include/gemm/device.cuh": ("tcgen05", "tcgen05"),
        },
        ("include/gemm/split_gemm.h",),
    ),
    Project(
        "makefile_program",
        ("scores.cu", "values.cu"),
        {
            "Makefile": ("ARCH = sm_100a", "ARCH = sm_90a sm_100a"),
            "main.cu": ("device.major != 10)", "(device.major != 9 && device.major != 10))"),
        },
        ("kernels.h",),
    ),
]


def porter(*arguments: object) -> str:
    outcome = CliRunner().invoke(main, [str(a) for a in arguments])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    return outcome.output


def samples(*slow: str) -> list[ParameterSet]:
    return [pytest.param(p, id=p.name, marks=[pytest.mark.slow] if p.name in slow else []) for p in PROJECTS]


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A sample that lies in the current directory."""
    sample: Project = request.param
    monkeypatch.chdir(shutil.copytree(HERE / sample.name, tmp_path / "project"))
    return sample


@pytest.mark.parametrize("project", samples("cmake_library", "makefile_program"), indirect=True)
def test_into_a_directory(project: Project) -> None:
    original = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    assert all(kernel in porter("scan", ".") for kernel in project.kernels)
    porter("port", "--style", "compat", ".", "-o", "../ported")
    assert original == {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    _holds(project, Path("../ported"), 0)
    for kernel in project.kernels:
        porter("build", "--style", "compat", kernel)
        porter("verify", kernel, "--port", Path("../ported") / kernel)
    _makes(Path("../ported"), ["100a"])


@pytest.mark.slow
@pytest.mark.parametrize("project", samples("pytorch_extension", "cmake_library"), indirect=True)
def test_in_place_for_both_chips(project: Project) -> None:
    """What was ported in place is built for either chip, and Hopper's half is compared with Blackwell's."""
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@example.com commit -q -m original"):
        subprocess.run(["git", *command.split()], check=True)
    originals = {kernel: Path(kernel).read_text() for kernel in project.kernels}
    porter("port", "--style", "compat", ".", "--keep-hopper", "--apply")
    _holds(project, Path(), 1)
    for kernel, text in originals.items():
        assert _without_blackwell(Path(kernel).read_text()) == text
        porter("build", "--style", "compat", kernel)
        porter("verify", "--style", "compat", kernel)
    assert "PT0007" in porter("port", ".", "--keep-hopper", "--check")
    _makes(Path(), ["90a", "100a"])


def _holds(project: Project, directory: Path, form: int) -> None:
    for name, lines in project.ported.items():
        assert lines[form] in (directory / name).read_text(), name
    for name in project.same:
        assert not (directory / name).is_file() or (directory / name).read_bytes() == Path(name).read_bytes()


def _without_blackwell(text: str) -> str:
    """The text with Hopper's side of every choice."""
    chosen = re.sub(r"#if defined\(__CUDA_ARCH_FEAT_SM100_ALL\)\n.*?(?:#else\n(.*?))?#endif\n", r"\1", text, flags=re.S)
    assert "SM100" not in chosen
    return chosen


def _makes(directory: Path, architectures: list[str]) -> None:
    """With a Makefile: a kernel's object is made, and holds code for these architectures alone."""
    if not (directory / "Makefile").is_file():
        return
    for name in ("kernels.h", "wgmma.cuh"):
        assert (directory / name).is_file() or shutil.copy(name, directory)
    toolkit = find_toolkit()
    command = ["make", f"NVCC={toolkit.nvcc}", "values.o"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = re.findall(rb"sm_(\d+\w?)\b", (directory / "values.o").read_bytes())
    assert set(made) == {a.encode() for a in architectures}
