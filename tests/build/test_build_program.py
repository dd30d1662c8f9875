# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from porter.build.cache import Cache
from porter.build.program import build_program
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, ExitCode, PorterError

MAIN = """#include <cstdio>
void launch(int *p);
int main() { launch(nullptr); std::puts("done"); return 3; }
"""
KERNEL = """#include "value.cuh"
__global__ void fill(int *p) { p[threadIdx.x] = VALUE; }
void launch(int *p) { if (p) fill<<<1, 32>>>(p); }
"""


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    (tmp_path / "main.cu").write_text(MAIN)
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "value.cuh").write_text("#define VALUE 12345\n")
    return [tmp_path / "main.cu", tmp_path / "k.cu"]


def test_program_runs_and_carries_plain_ptx(
    sources: list[Path], tmp_path: Path, toolkit: Toolkit, cache: Cache
) -> None:
    program = build_program(sources, "sm_100a", tmp_path / "out" / "p", toolkit=toolkit, cache=cache)
    image = program.executable.read_bytes()
    assert b".target sm_100a" in image
    assert b"_Z4fillPi" in image
    assert b"12345" in image
    # The runtime is a shared library that the loader's path may replace.
    assert b"libcudart.so" in image
    assert str(program.runtime.parent).encode() not in image
    environment = {**os.environ, "LD_LIBRARY_PATH": str(toolkit.lib_dir)}
    done = subprocess.run([program.executable], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (3, "done\n")


def test_program_is_rebuilt_when_a_header_changes(
    sources: list[Path], tmp_path: Path, toolkit: Toolkit, cache: Cache
) -> None:
    def image() -> bytes:
        out = tmp_path / "p"
        return build_program(sources, "sm_90a", out, toolkit=toolkit, cache=cache).executable.read_bytes()

    first = image()
    assert image() == first
    (tmp_path / "value.cuh").write_text("#define VALUE 54321\n")
    assert b"54321" in image()


def test_errors(sources: list[Path], tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    with pytest.raises(PorterError) as error:
        build_program(sources[0], "sm_90a", tmp_path / "p", toolkit=toolkit, cache=cache)
    assert error.value.diagnostic.code is Code.LINK_ERROR
    assert error.value.exit_code is ExitCode.BUILD_FAILED
    assert "launch" in error.value.diagnostic.detail
    (tmp_path / "value.cuh").write_text("#define VALUE nothing\n")
    with pytest.raises(PorterError) as error:
        build_program(sources, "sm_90a", tmp_path / "p", toolkit=toolkit, cache=cache)
    assert error.value.diagnostic.code is Code.NVCC_ERROR
    assert error.value.diagnostic.where is not None
    assert error.value.diagnostic.where.path == str(tmp_path / "k.cu")
    assert not (tmp_path / "p").exists()
