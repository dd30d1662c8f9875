# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from porter.build.cache import Cache
from porter.build.program import build_program
from porter.build.run import instructions_of_another_chip
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


def refused(*texts: str, kind: str = "error   ") -> str:
    """What ptxas writes, one line a message."""
    return "".join(f"ptxas /tmp/a.ptx, line {i}; {kind}: {text}\n" for i, text in enumerate(texts, 1))


LOADS = "Instruction 'tcgen05.ld' not supported on .target 'sm_90a'"
SHAPES = "Feature '.16x256b' not supported on .target 'sm_90a'"
WAITS = "Instruction 'wgmma.fence' not supported on .target 'sm_100a'"
FENCES = "Instruction 'wgmma.fence' cannot be compiled for architecture 'sm_100a'"
ENDS = "ptxas fatal   : Ptx assembly aborted due to errors\n"


@pytest.mark.parametrize(
    ("log", "names"),
    [
        (refused(LOADS) + ENDS, ["tcgen05.ld"]),
        (refused(LOADS, SHAPES, LOADS, SHAPES) + ENDS, ["tcgen05.ld"]),
        (refused(SHAPES, LOADS) + ENDS, ["tcgen05.ld"]),
        (refused(WAITS, FENCES) + ENDS, ["wgmma.fence"]),
        (refused(LOADS, FENCES) + ENDS, ["tcgen05.ld", "wgmma.fence"]),
        (refused("Double is not supported", kind="warning ") + refused(LOADS) + ENDS, ["tcgen05.ld"]),
        (refused(LOADS, "Parsing error near ';': syntax error") + ENDS, []),
        (refused("Arguments mismatch for instruction 'tcgen05.ld'", LOADS) + ENDS, []),
        ('a.cu(3): error: expected a ";"\n' + refused(LOADS), []),
        (refused(SHAPES) + ENDS, []),
        (ENDS, []),
        ("", []),
    ],
)
def test_instructions_of_another_chip_are_told_from_other_errors(log: str, names: list[str]) -> None:
    assert instructions_of_another_chip(log) == names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instruction", "arch"), [("tcgen05.wait::ld.sync.aligned", "sm_90a"), ("wgmma.fence.sync.aligned", "sm_100a")]
)
def test_a_program_of_another_chip_is_named_in_one_message(
    instruction: str, arch: str, tmp_path: Path, toolkit: Toolkit, cache: Cache
) -> None:
    source = tmp_path / "port.cu"
    source.write_text(f'__global__ void kernel() {{ asm volatile("{instruction};"); }}\nint main() {{}}\n')
    with pytest.raises(PorterError) as error:
        build_program(source, arch, tmp_path / "p", toolkit=toolkit, cache=cache)
    found = error.value.diagnostic
    assert str(found).startswith(f"{source}: error[PT3020]: {source} is written for another chip than {arch}")
    assert found.message.endswith(("has no tcgen05.wait", "has no wgmma.fence"))
    assert not found.detail
