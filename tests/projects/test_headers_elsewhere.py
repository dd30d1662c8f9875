# SPDX-License-Identifier: Apache-2.0
"""Headers outside of a project: the compiler finds those that the build names, and others get a hint."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.build.run import missing_header_hint
from porter.cli.main import main
from porter.project.include_dirs import outside_directories, stated_directories

PLAIN = {
    "plain.cpp": '#include <vector>\n#include "missing/thing.h"\nint add(int a, int b) { return a + b; }\n',
    "plain.py": "import os\nprint(os.getcwd())\n",
    "vector.cu": '#include "missing/thing.h"\n__global__ void add(float* a) { a[threadIdx.x] += 1; }\n',
    "empty.cuh": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "own").mkdir()
    (tmp_path / "elsewhere").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / "src" / "k.cu").write_text("")
    entry = {
        "directory": str(root),
        "file": "src/k.cu",
        "command": f"nvcc -I{tmp_path / 'elsewhere'} -isystem own -I{tmp_path / 'nowhere'} -c src/k.cu",
    }
    (root / "compile_commands.json").write_text(json.dumps([entry]))
    return root


def test_directories_of_the_build_are_the_projects_or_somebody_elses(project: Path) -> None:
    kernel = project / "src" / "k.cu"
    assert outside_directories(kernel) == (project.parent / "elsewhere",)
    assert stated_directories(kernel) == (project / "own",)
    assert outside_directories(project / "src" / "other.cu") == ()


@pytest.mark.parametrize("options", [[], ["--sm100"]], ids=["hopper", "sm100"])
@pytest.mark.parametrize("name", PLAIN)
def test_a_hook_passes_over_files_without_kernels(name: str, options: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(PLAIN[name])
    done = CliRunner().invoke(main, ["check", *options, "--pass-over", str(tmp_path / name)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("log", "header"),
    [
        ("a.cu(2): fatal error: ext/tile.h: No such file or directory", "ext/tile.h"),
        ("a.cu:2:10: fatal error: cute/tensor.hpp: No such file or directory", "cute/tensor.hpp"),
        ("a.cu(2): error: identifier undefined", ""),
    ],
)
def test_a_header_that_is_not_found_gets_a_hint(log: str, header: str) -> None:
    hint = missing_header_hint(log)
    assert hint.startswith(f"{header} was not found: name its directory with `-I DIR`") if header else not hint
