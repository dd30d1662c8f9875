# SPDX-License-Identifier: Apache-2.0
"""What launches are known to ask for, and the static shared memory of the port, come out of the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_port_tiled_storage import ARRAY, BODY, BOUNDS, HEAD

from porter.diagnostics import Code, ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import PortResult, port_sources

TILED = f"""{HEAD}template <class A, class B, class C>
__global__ void {BOUNDS} k(A a, B b, C out) {{
{ARRAY}  char* tile = smem + 4096;
{BODY}"""
PLAIN = """#include <cstdint>
__global__ void __launch_bounds__(128) k(float* out) {
  extern __shared__ char smem[];
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(uint64_t(0)), "l"(uint64_t(0)));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  out[threadIdx.x] = d[0];
}
"""
CONSTANTS = "constexpr int kStages = 4, kTile = 128 * 64 * 2;\nconstexpr int kBytes = kStages * kTile + 98304;\n"


def port(tmp_path: Path, text: str) -> PortResult:
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    return port_sources(load_sources(path))


@pytest.mark.parametrize("kernel", [TILED, PLAIN], ids=["tiled", "plain"])
@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("void run(float* p) { k<<<1, 128, 232448>>>(p); }\n", 232448),
        ("void run(float* p) { k<<<1, 128, 227 * 1024 - 1023>>>(p); }\n", 231425),
        ("void run(float* p) { k<<<1, 128, 227 * 1024 - 1024>>>(p); }\n", 0),
        ("void run(float* p) { k<<<1, 128>>>(p); }\n", 0),
        (CONSTANTS + "void run(float* p) { k<<<1, 128, 2 * kBytes>>>(p); }\n", 327680),
        (CONSTANTS + "void run(float* p) { k<<<1, 128, kBytes>>>(p); }\n", 0),
        ("void run(float* p) { const int bytes = 226 * 1024 + 8; k<<<1, 128, bytes>>>(p); }\n", 231432),
        ("void run(float* p, int bytes) { k<<<1, 128, bytes>>>(p); }\n", 0),
        ("void run(float* p) { int bytes = 232448; bytes = 64; k<<<1, 128, bytes>>>(p); }\n", 0),
        (
            "void run() { cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024); }\n",
            232448,
        ),
        (
            "void run() { auto f = k; cudaFuncSetAttribute(\n"
            "    f, cudaFuncAttributeMaxDynamicSharedMemorySize, 232000); }\n",
            232000,
        ),
        ("void run() { cudaFuncSetAttribute(k, cudaFuncAttributePreferredSharedMemoryCarveout, 232448); }\n", 0),
        ("void run() { cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448); }\n", 0),
        ("void run(void** a) { cudaLaunchKernel((void*)k, 1, 128, a, 232448, 0); }\n", 232448),
    ],
)
def test_a_launch_that_asks_for_too_much_is_refused_with_numbers(
    tmp_path: Path, kernel: str, host: str, asked: int
) -> None:
    result = port(tmp_path, kernel + (host.replace("(p)", "(p, p, p)") if kernel is TILED else host))
    found = [d for d in result.diagnostics if d.code is Code.SHARED_MEMORY_OVER]
    assert [d.values["asked"] for d in found] == ([asked] if asked else [])
    if asked:
        assert result.exit_code is ExitCode.UNPORTED
        assert not result.changed
        assert f"{asked} bytes of dynamic shared memory; with the port's 1024 these are {asked + 1024}" in str(found[0])
    else:
        assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
        grows = (Code.SHARED_MEMORY_GROWS, Code.SHARED_MEMORY_NOT_SEEN)
        told = [d.values["bytes"] for d in result.diagnostics if d.code in grows]
        assert told == [1024]


LAUNCH = "void run(float* p, int bytes) { k<<<1, 128, bytes>>>(p); }\n"
NOT_SEEN = {
    "no host code": PLAIN,
    "host code of another kernel": PLAIN
    + "__global__ void l(float* p) { p[0] = 1; }\n"
    + LAUNCH.replace("k<<<", "l<<<"),
    "an array in a function that the kernel calls": PLAIN.replace("  extern __shared__ char smem[];\n", "").replace(
        "__global__", "__device__ char* tile() {\n  extern __shared__ char smem[];\n  return smem;\n}\n__global__"
    ),
    "an array at file scope": PLAIN.replace("  extern __shared__ char smem[];\n", "").replace(
        "__global__", "extern __shared__ __align__(1024) uint8_t smem[];\n__global__"
    ),
    "a template": PLAIN.replace("__global__", "template <int N> __global__"),
}


@pytest.mark.parametrize("name", NOT_SEEN)
def test_a_size_that_nobody_says_is_a_warning_with_what_is_left(tmp_path: Path, name: str) -> None:
    result = port(tmp_path, NOT_SEEN[name])
    assert result.exit_code is ExitCode.OK
    (said,) = [d for d in result.diagnostics if d.code is Code.SHARED_MEMORY_NOT_SEEN]
    assert "more than 231424 bytes of dynamic shared memory fails" in said.message
    assert not [d for d in result.diagnostics if d.code is Code.SHARED_MEMORY_GROWS]


SEEN = {
    "a launch of a size that is not known": PLAIN + LAUNCH,
    "a launch by the runtime": PLAIN + "void run(void** a, int n) { cudaLaunchKernel((void*)k, 1, 128, a, n, 0); }\n",
    "a launch by a variable": PLAIN + "void run(float* p, int n) { auto* f = k; f<<<1, 128, n>>>(p); }\n",
    "a launch of one of its instances by a variable": PLAIN.replace("__global__", "template <int N> __global__")
    + "void run(float* p) { auto* f = k<4>; f<<<1, 128>>>(p); }\n",
    "an attribute of what is launched elsewhere": PLAIN
    + "void set(int n) { cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, n); }  // to launch\n",
    "no dynamic shared memory": PLAIN.replace("  extern __shared__ char smem[];\n", ""),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_launch_that_is_there_or_no_such_memory_is_none(tmp_path: Path, name: str) -> None:
    codes = {d.code for d in port(tmp_path, SEEN[name]).diagnostics}
    assert Code.SHARED_MEMORY_NOT_SEEN not in codes
    assert (Code.SHARED_MEMORY_GROWS in codes) == ("launch" in name)


@pytest.mark.parametrize(
    "text", ["// extern __shared__ char smem[];\n", "/* extern __shared__ */", '"extern __shared__";']
)
def test_memory_that_only_a_comment_or_string_names_is_none(tmp_path: Path, text: str) -> None:
    result = port(tmp_path, PLAIN.replace("extern __shared__ char smem[];", text))
    assert not {Code.SHARED_MEMORY_GROWS, Code.SHARED_MEMORY_NOT_SEEN} & {d.code for d in result.diagnostics}


def test_a_struct_says_itself_what_it_takes(tmp_path: Path) -> None:
    text = TILED.replace("  char* tile = smem + 4096;", "  auto& s = *reinterpret_cast<Storage*>(smem);")
    result = port(tmp_path, "struct Storage { char bytes[4096]; };\n" + text)
    assert result.exit_code is ExitCode.OK
    assert not [d for d in result.diagnostics if d.code is Code.SHARED_MEMORY_GROWS]
