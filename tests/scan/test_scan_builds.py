# SPDX-License-Identifier: Apache-2.0
"""Build files in the inventory: those that a port reads, with what it leaves of them; CUDA in strings of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_scan_projects import KERNEL, OPS

from porter.cli.porting import look, port_paths
from porter.passes.port import PortOptions
from porter.scan.check import hopper_left
from porter.scan.constructs import FileInventory
from porter.scan.inventory import take_inventory

GEMM = OPS.replace("#pragma once\n", "") + KERNEL.replace("NAME", "k")
REWRITTEN = {
    ".github/workflows/ci.yml": "env:\n  TORCH_CUDA_ARCH_LIST: '9.0a'\n",
    ".bazelrc": "build --action_env=TF_CUDA_COMPUTE_CAPABILITIES=9.0a\n",
    "docker/Dockerfile": "ENV TORCH_CUDA_ARCH_LIST=9.0a\n",
    "meson.build": "args = ['-gencode=arch=compute_90a,code=sm_90a']\n",
    "tox.ini": "[testenv]\nsetenv =\n    TORCH_CUDA_ARCH_LIST = 9.0a\n",
    "build.sh": "nvcc -arch=sm_90a k.cu\n",
    "Makefile": "F = -arch=sm_90a\n",
    "pyproject.toml": '[tool.scikit-build.cmake.define]\nCMAKE_CUDA_ARCHITECTURES = "90a"\n',
}
LEFT = {
    ".github/workflows/ci.yml": "runs-on: [self-hosted, h100]\n",
    "CMakeLists.txt": 'if(CUDA_ARCHS MATCHES "9.0")\n  set(A sm_90a)\nendif()\n',
    "build.sh": 'if [ "$arch" -eq 90 ]; then nvcc -arch=sm_90a k.cu; fi\n',
    "jit_ops.py": "flags = {(9, 0): '-gencode=arch=compute_90a,code=sm_90a'}[torch.cuda.get_device_capability()]\n",
}


def inventory(tree: Path, name: str, text: str, kernel: str = GEMM) -> dict[str, FileInventory]:
    (tree / "k.cu").write_text(kernel)
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)
    return {f.path.removeprefix(f"{tree.as_posix()}/"): f for f in take_inventory([tree]).files}


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", REWRITTEN)
def test_build_files_that_a_port_changes_are_there(tmp_path: Path, name: str) -> None:
    found = inventory(tmp_path, name, REWRITTEN[name])[name]
    assert (found.kind, found.effort.level) == ("build", "medium")
    assert str(tmp_path / name) in port_paths([tmp_path]).new


@pytest.mark.parametrize("name", LEFT)
def test_lines_that_a_port_leaves_are_effort_with_their_text(tmp_path: Path, name: str) -> None:
    found = inventory(tmp_path, name, LEFT[name])[name]
    assert found.effort.level == "high"
    left = [d for d in port_paths([tmp_path]).left_over if d.where is not None and d.where.path == str(tmp_path / name)]
    assert left
    assert {f"{d.code.id} {d.message}" for d in left} == set(found.effort.why)


def test_build_files_beside_sources_that_stay_are_none(tmp_path: Path) -> None:
    kernel = "__global__ void k(float* p) { p[0] = 1; }\n"
    assert inventory(tmp_path, "Makefile", "F = -arch=sm_90a\n", kernel)["Makefile"].effort.level == "none"


def test_a_python_file_with_cuda_in_strings_is_one_file(tmp_path: Path) -> None:
    text = f"SRC = r'''\n{GEMM}'''\nimport cupy\nk = cupy.RawModule(code=SRC, options=('-arch=sm_90a',))\n"
    text += "if torch.cuda.get_device_capability() < (9, 0) or torch.cuda.get_device_capability() >= (10, 0): exit()\n"
    (tmp_path / "jit.py").write_text(text)
    found = take_inventory([tmp_path]).files
    assert [f.path for f in found] == [(tmp_path / "jit.py").as_posix()]
    # what a port of the file leaves over is not forgotten
    assert found[0].effort.level == "high", found[0].effort
    assert any("PT2058" in why for why in found[0].effort.why)
    names = [c.name for c in found[0].constructs if c.status == "hopper"]
    assert len(names) == len(set(names)) == 4, names
    checked = hopper_left([tmp_path], (), PortOptions(), look)
    assert len([d for d in checked.findings if d.code.id == "PT7001"]) == 4
