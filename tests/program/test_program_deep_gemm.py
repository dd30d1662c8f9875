# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's kernels for Hopper from a local clone of its repository, ported without an edit by hand: each is called by
a program of the manifest of public sources, and gives its original's bits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clones import ECOSYSTEM, check_bits

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources

pytestmark = [pytest.mark.external, pytest.mark.slow]

REPOSITORY = "deepseek-ai/DeepGEMM"


ENTRIES = {Path(e["path"]).stem: e for e in ECOSYSTEM.manifest() if e["repository"] == REPOSITORY}


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    path = os.environ.get("PORTER_DEEP_GEMM")
    if not path or not (Path(path) / "deep_gemm" / "include").is_dir():
        pytest.skip("PORTER_DEEP_GEMM names no clone of DeepGEMM with deep_gemm/include in it")
    (tmp_path / REPOSITORY.replace("/", "+")).symlink_to(Path(path).resolve())
    return tmp_path


def test_all_kernels_for_hopper_have_a_program() -> None:
    assert len(ENTRIES) == 7
    assert all("int main()" in e["unit"] for e in ENTRIES.values())


@pytest.mark.parametrize("name", ENTRIES)
def test_a_kernel_is_ported(name: str, clones: Path, tmp_path: Path) -> None:
    unit = tmp_path / "unit.cu"
    unit.write_text(ENTRIES[name]["unit"])
    include = clones / REPOSITORY.replace("/", "+") / "deep_gemm" / "include"
    result = port_sources(load_sources(unit, [include, *ECOSYSTEM.PROGRAMS]))
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    assert len(result.kernels) == 1
    kernel = next(t.decode() for p, t in result.files.items() if Path(p).stem == name)
    assert "porter::Tmem<" in kernel
    assert "porter::wait<" in kernel


@pytest.mark.parametrize("name", ENTRIES)
def test_a_port_gives_the_bits_of_its_original(name: str, clones: Path) -> None:
    check_bits(ENTRIES[name], clones)
