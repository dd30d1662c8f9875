# SPDX-License-Identifier: Apache-2.0
"""Kernels in strings of Python files: what of the string is compiled, and that a case runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes_verify import CASE, write_case

from porter.build.toolchain import search_toolkits
from porter.cli.building import compilable, make_builder
from porter.diagnostics import Code, PorterError
from porter.lang.embedded import kernel_in_python
from porter.verify.builder import ORIGINAL_ARCH, compile_request
from porter.verify.case import load_case
from porter.verify.problem import bind

MODULE = """import torch
CPP = "torch::Tensor scale(torch::Tensor x);"
CUDA = r'''
#include <torch/extension.h>
  #include "ATen/cuda/CUDAContext.h"
#include <cstdint>
constexpr int half(int n) { return n / 2; }
template <typename T> __device__ T twice(T x) { return x + x; }
struct Pair { float a, b; Pair() : a(0), b(1) {} };
torch::Tensor scale(torch::Tensor x);
__global__ void scale_kernel(float* x) {
    x[threadIdx.x] = twice(x[threadIdx.x]) * half(2);
}
template <typename T> void check(T& x) { TORCH_CHECK(x.is_cuda()); }
torch::Tensor scale(torch::Tensor x) {
    scale_kernel<<<1, 32>>>(x.data_ptr<float>());
    return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
'''
"""
EXPECTED = """#include <cstdint>
constexpr int half(int n) { return n / 2; }
template <typename T> __device__ T twice(T x) { return x + x; }
struct Pair { float a, b; Pair() : a(0), b(1) {} };
__global__ void scale_kernel(float* x) {
    x[threadIdx.x] = twice(x[threadIdx.x]) * half(2);
}"""
STRING_CASE = """
    version: 1
    kernel: scale.py
    entry: scale_kernel
    sizes: {N: 32}
    tensors:
      x: {dtype: f32, shape: [N], role: inout}
    launch: {grid: [1], block: [32]}
    params: [x]
    reference: x * 2
"""


def _module(tmp_path: Path) -> Path:
    path = tmp_path / "scale.py"
    path.write_text(MODULE)
    return path


def test_the_device_part_of_a_string_keeps_its_lines(tmp_path: Path) -> None:
    found = kernel_in_python(_module(tmp_path), "scale_kernel")
    assert found is not None
    text = found.decode()
    assert [line.strip() for line in text.splitlines() if line.strip()] == [
        line.strip() for line in EXPECTED.splitlines()
    ]
    lines = MODULE.splitlines()
    at = next(i for i, line in enumerate(lines) if "twice(x[" in line)
    assert text.splitlines()[at] == lines[at]


def test_a_string_without_the_kernel(tmp_path: Path) -> None:
    assert kernel_in_python(_module(tmp_path), "other_kernel") is None
    path = write_case(tmp_path, CASE.replace("gemm.cu", "scale.py"), "unused.cu")
    with pytest.raises(PorterError) as caught:
        compile_request(bind(load_case(path)), tmp_path / "scale.py", ORIGINAL_ARCH, compilable)
    assert caught.value.diagnostic.code is Code.NO_KERNEL


@pytest.mark.skipif(next(iter(search_toolkits(None)), None) is None, reason="no CUDA compiler")
def test_a_kernel_in_a_string_is_compiled_without_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    _module(tmp_path)
    problem = bind(load_case(write_case(tmp_path, STRING_CASE, "unused.cu")))
    built = make_builder(None).build(problem, tmp_path / "scale.py", ORIGINAL_ARCH)
    assert built.function is not None
