# SPDX-License-Identifier: Apache-2.0
"""`porter nvcc`: nvcc's own steps with lowered PTX in between."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from porter.build.toolchain import Toolkit, find_host_compiler, find_toolkit
from porter.diagnostics import Code, PorterError
from porter.hopper import Site
from porter.ptx.ast import SourceLoc
from porter.verify.gpu.nvcc import _explicit, _for_hopper, _texts, build_program

PROGRAM = r"""
#include <cstdio>
__global__ void kernel(unsigned* out) {
  __shared__ unsigned address;
  unsigned at = (unsigned)__cvta_generic_to_shared(&address);
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at) : "memory");
  __syncthreads();
  SECOND
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(address));
  out[threadIdx.x] = address;
}
int main() {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) { std::puts("no GPU"); return 0; }
  unsigned* out;
  cudaMalloc(&out, 128);
  kernel<<<1, 32>>>(out);
  std::puts(cudaDeviceSynchronize() == cudaSuccess ? "ran" : "failed");
}
"""


@pytest.fixture(scope="module")
def toolkit() -> Toolkit:
    try:
        find_host_compiler()
        found = find_toolkit()
    except PorterError as error:
        pytest.skip(error.diagnostic.message)
    if not any(found.lib_dir.glob("libcudart_static.a")):
        pytest.skip("the toolkit has no static runtime to link programs with")
    return found


def test_an_unmodified_program_becomes_one_for_hopper(toolkit: Toolkit, tmp_path: Path) -> None:
    source, program = tmp_path / "program.cu", tmp_path / "program"
    source.write_text(PROGRAM.replace("SECOND", ""))
    built = build_program(["-arch=sm_100a", "-lineinfo", str(source), "-o", str(program)], toolkit)
    assert built.lowered == 1
    assert [s.opcode.split(".")[1] for s in built.sites] == ["alloc", "dealloc"]
    data = program.read_bytes()
    assert b"porter_host" in data
    assert b"site 0 " in data
    assert b"tcgen05.mma" not in data.replace(b"site", b"")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == ("ran" if shutil.which("nvidia-smi") else "no GPU")


def test_what_cannot_be_emulated_stops_the_build_by_name(toolkit: Toolkit, tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    narrow = "{ .reg .b8 b; .reg .f32 a; mov.b32 a, %0; cvt.rn.satfinite.e2m1x2.f32 b, a, a; }"
    source.write_text(PROGRAM.replace("SECOND", f'asm volatile("{narrow}" ::"r"(address));'))
    with pytest.raises(PorterError) as raised:
        build_program(["-arch=sm_100a", "-lineinfo", str(source), "-o", str(tmp_path / "program")], toolkit)
    assert raised.value.diagnostic.code is Code.CANNOT_EMULATE
    assert "cvt.rn.satfinite.e2m1x2.f32" in raised.value.diagnostic.message
    assert not (tmp_path / "program").exists()


def test_compiler_errors_are_nvcc_errors(toolkit: Toolkit, tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    source.write_text("int main() { return nonsense; }\n")
    with pytest.raises(PorterError) as raised:
        build_program(["-arch=sm_100a", str(source), "-o", str(tmp_path / "program")], toolkit)
    assert raised.value.diagnostic.code is Code.NVCC_ERROR
    assert "nonsense" in raised.value.diagnostic.message


@pytest.mark.parametrize("words", [["-arch=sm_100a"], ["-arch", "sm_100a"], ["--gpu-architecture=sm_100a"]])
def test_the_short_form_is_spelt_out(words: list[str]) -> None:
    assert _explicit(["-O3", *words, "x.cu"]) == ["-O3", "-gencode=arch=compute_100a,code=sm_100a", "x.cu"]


def test_other_architectures_stay() -> None:
    assert _explicit(["-arch=sm_90a", "x.cu"]) == ["-arch=sm_90a", "x.cu"]


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("--image3=kind=elf,sm=100a,file=/tmp/sm_100a.cubin", "--image3=kind=elf,sm=90a,file=/tmp/sm_100a.cubin"),
        ("--arch=sm_100a", "--arch=sm_90a"),
        ("/tmp/compute_100a.ptx", "/tmp/compute_100a.ptx"),
    ],
)
def test_only_the_architecture_changes(word: str, wanted: str) -> None:
    assert _for_hopper(word) == wanted


def test_the_table_names_code_and_site() -> None:
    text = _texts([Site(3, "kernel", "tcgen05.mma", 10, SourceLoc("a.cu", 7))])
    assert "\ncode 6 " in text
    assert "\nsite 3 kernel: tcgen05.mma (a.cu:7)" in text
