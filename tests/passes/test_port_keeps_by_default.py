# SPDX-License-Identifier: Apache-2.0
"""A project that builds for several chips keeps Hopper beside its port without being asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import GEMM

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.passes.build_archs import several_architectures

CORPUS = Path(__file__).parents[2] / "corpus"

SEVERAL = [
    ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 80 90a)\n", 1),
    ("CMakeLists.txt", "project(k)\nset(CMAKE_CUDA_ARCHITECTURES\n  80-real\n  90a-real\n)\n", 2),
    ("CMakeLists.txt", 'set_target_properties(k PROPERTIES CUDA_ARCHITECTURES "86;90a")\n', 1),
    ("CMakeLists.txt", "foreach(arch 80 90a)\n", 1),
    ("CMakePresets.json", '{"CMAKE_CUDA_ARCHITECTURES": "80;89;90a"}\n', 1),
    ("Makefile", "F = -gencode arch=compute_80,code=sm_80\nF += -gencode arch=compute_90a,code=sm_90a\n", 2),
    ("Makefile", "SMS ?= 75 80 90a\n", 1),
    ("setup.py", 'f = ["-gencode=arch=compute_80,code=sm_80",\n     "-gencode=arch=compute_90a,code=sm_90a"]\n', 2),
    ("build.sh", "cmake -DCMAKE_CUDA_ARCHITECTURES='80;90a' ..\n", 1),
    ("Dockerfile", "RUN cmake -DCMAKE_CUDA_ARCHITECTURES=80\\;90a ..\n", 1),
    ("setup.py", 'os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "8.0;9.0a")\n', 1),
    ("setup.py", 'ARCHS = ["80", "90a"]\n', 1),
    ("build.sh", "for arch in 80 90a; do\n", 1),
    ("Dockerfile", 'ENV TORCH_CUDA_ARCH_LIST="8.0 9.0a+PTX"\n', 1),
    (".github/workflows/ci.yml", "matrix:\n  arch: [80, 90a]\n", 2),
    (".bazelrc", 'build --repo_env=HERMETIC_CUDA_COMPUTE_CAPABILITIES="sm_80,sm_90a"\n', 1),
    ("Makefile", "F = -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100a,code=sm_100a\n", 1),
]  # fmt: skip

ONE = [
    ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 90a)\n"),
    ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 90a 90)\nset(CMAKE_CXX_STANDARD 17)\n"),
    ("CMakeLists.txt", "# set(CMAKE_CUDA_ARCHITECTURES 80 90a)\nset(CMAKE_CUDA_ARCHITECTURES 90a)\n"),
    ("CMakeLists.txt", "set(CMAKE_CUDA_ARCHITECTURES 80 86)\n"),
    ("Makefile", "F = -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90a,code=sm_90a -maxrregcount=80\n"),
    ("setup.py", 'f = ["-gencode=arch=compute_90a,code=[sm_90a,compute_90a]", "-O3"]\nversion = "8.0"\n'),
    ("setup.py", 'os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0a+PTX"\n'),
    ("build.sh", "nvcc -arch=sm_90a -std=c++17 --threads 80 k.cu\n"),
    ("Dockerfile", "FROM nvidia/cuda:12.8.0\nENV TORCH_CUDA_ARCH_LIST=9.0a\n"),
    ("Makefile", "all:\n\techo 80 90\n"),
]


@pytest.mark.parametrize(("name", "text", "line"), SEVERAL)
def test_several(name: str, text: str, line: int) -> None:
    found = several_architectures({name: text.encode()})
    assert found is not None
    assert (found.path, found.line) == (name, line)


@pytest.mark.parametrize(("name", "text"), ONE)
def test_one(name: str, text: str) -> None:
    assert several_architectures({name: text.encode()}) is None


def port(*arguments: object, status: ExitCode = ExitCode.OK) -> str:
    outcome = CliRunner().invoke(main, ["port", *map(str, arguments), "--no-compile"])
    assert outcome.exit_code == status, outcome.output
    return outcome.output


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / ".git").mkdir(parents=True)
    (tree / "csrc").mkdir()
    (tree / "csrc" / "kernel.cu").write_text(GEMM)
    (tree / "CMakeLists.txt").write_text("set(CMAKE_CUDA_ARCHITECTURES 80 90a)\n")
    return tree


def test_a_tree(tree: Path, tmp_path: Path) -> None:
    said = port(tree, "-o", tmp_path / "port")
    assert "PT2506" in said
    assert f"{tree}/CMakeLists.txt:1" in said
    assert (tmp_path / "port" / "CMakeLists.txt").read_text() == "set(CMAKE_CUDA_ARCHITECTURES 80 90a 100a)\n"
    assert "#if defined(__CUDA_ARCH_FEAT_SM100_ALL)" in (tmp_path / "port" / "csrc" / "kernel.cu").read_text()


@pytest.mark.parametrize("by", ["option", "configuration"])
def test_not_where_it_is_not_wanted(by: str, tree: Path, tmp_path: Path) -> None:
    if by == "configuration":
        (tree / "porter.toml").write_text("keep-hopper = false\n")
    said = port(tree, "-o", tmp_path / "port", *(["--no-keep-hopper"] if by == "option" else []))
    assert "PT2506" not in said
    assert (tmp_path / "port" / "CMakeLists.txt").read_text() == "set(CMAKE_CUDA_ARCHITECTURES 80 100a)\n"
    assert "wgmma.mma_async" not in (tmp_path / "port" / "csrc" / "kernel.cu").read_text()


def test_a_file_of_a_project(tree: Path, tmp_path: Path) -> None:
    assert "PT2506" in port(tree / "csrc" / "kernel.cu", "-o", tmp_path / "port")
    assert "wgmma.mma_async" in (tmp_path / "port" / "kernel.cu").read_text()
    (tree / "CMakeLists.txt").write_text("set(CMAKE_CUDA_ARCHITECTURES 90a)\n")
    assert "PT2506" not in port(tree / "csrc" / "kernel.cu", "-o", tmp_path / "other")


@pytest.mark.parametrize("name", ["bench.py", "try.sh"])
def test_scripts_above_a_file_are_no_build_of_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "kernel.cu").write_text(GEMM)
    (tmp_path / name).write_text("flags = ['-arch=sm_90a' if hopper else '-arch=sm_100a']\n")
    assert "PT2506" not in port(tmp_path / "kernels" / "kernel.cu", "-o", tmp_path / "port")


def test_a_dsl_kernel_has_one_form(tmp_path: Path) -> None:
    tree = shutil.copytree(CORPUS / "dsl_gemm_plain", tmp_path / "tree")
    (tree / "setup.py").write_text('os.environ["TORCH_CUDA_ARCH_LIST"] = "8.0;9.0a"\n')
    said = port(tree, "-o", tmp_path / "port")
    assert "PT2506" not in said
    assert (tmp_path / "port" / "setup.py").read_text() == 'os.environ["TORCH_CUDA_ARCH_LIST"] = "8.0;10.0a"\n'
