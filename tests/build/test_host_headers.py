# SPDX-License-Identifier: Apache-2.0
"""Device code behind host libraries that are not installed."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from porter.build.cache import Cache
from porter.build.entry import demangle
from porter.build.host_headers import host_headers, library_text
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.program import build_program
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, PorterError

KERNELS = """
template <int N, typename T> __global__ void scale(T* p, int m) { p[threadIdx.x] = N * m; }
namespace ours { template <typename T> __global__ void copy(const T* p, T* q) { q[threadIdx.x] = p[0]; } }
"""
LIBRARIES = {
    "torch": (
        ["torch/extension.h", "ATen/cuda/CUDAContext.h", "c10/cuda/CUDAGuard.h"],
        """
        template <int N> void launch(const torch::Tensor& a, c10::optional<at::Tensor> b) {
            auto kernel = scale<N, float>;
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1000);
            kernel<<<dim3(a.size(0) / N, (a.size(1) + 3) / 4), 32, 0, at::cuda::getCurrentCUDAStream()>>>(
                a.data_ptr<float>(), a.size(1));
            C10_CUDA_KERNEL_LAUNCH_CHECK();
        }
        torch::Tensor run(torch::Tensor a, at::Tensor b) {
            TORCH_CHECK(a.size(0) % 2 == 0 && a.is_cuda(), "shape ", a.size(0));
            const at::cuda::OptionalCUDAGuard guard(a.device());
            auto out = torch::empty({a.size(0), b.size(1)}, a.options().dtype(torch::kFloat32));
            if (a.scalar_type() == at::ScalarType::Half) launch<3>(a, b);
            else scale<4, half><<<1, 32>>>((half*)a.data_ptr(), 4);
            cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
            AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "copy", [&] {
                ours::copy<float><<<1, 32, 0, stream>>>(a.data_ptr<float>(), static_cast<float*>(out.data_ptr()));
            });
            return out;
        }
        PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, py::arg("a"), py::arg("b") = py::none()); }
        TORCH_LIBRARY(ours, m) { m.def("run(Tensor a, Tensor b) -> Tensor", &run); }
        """,
        {"scale<3, float>", "scale<4, __half>", "ours::copy<float>"},
    ),
    "C libraries": (
        ["cublas_v2.h", "nccl.h", "nvToolsExt.h", "cudnn.h"],
        """
        #define CHECK(call) do { if ((call) != CUBLAS_STATUS_SUCCESS) return; } while (0)
        void run(float* a, int n, ncclComm_t ranks, cudaStream_t stream) {
            nvtxRangePushA("run");
            cublasHandle_t handle;
            CHECK(cublasCreate(&handle));
            CHECK(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
            cudnnHandle_t other = nullptr;
            cudnnSetStream(other, stream);
            scale<9><<<n / 32, 32, 0, stream>>>(a, n);
            ncclAllReduce(a, a, n, ncclFloat32, ncclSum, ranks, stream);
            cublasStatus_t status = cublasDestroy(handle);
            switch (status) { case CUBLAS_STATUS_NOT_INITIALIZED: break; default: nvtxRangePop(); }
        }
        """,
        {"scale<9, float>"},
    ),
    "values in streams": (
        ["nvrtc.h", "cublas_v2.h", "torch/extension.h"],
        """
        #include <iostream>
        #include <sstream>
        void run(float* a, nvrtcProgram program, torch::Tensor t) {
            nvrtcResult result = nvrtcCompileProgram(program, 0, nullptr);
            if (result != NVRTC_SUCCESS) std::cerr << "error: " << nvrtcGetErrorString(result) << std::endl;
            std::ostringstream text;
            text << cublasGetStatusString(cublasCreate(nullptr)) << ' ' << t.size(0) << ' ' << t.dtype() << '\\n';
            throw std::runtime_error((std::stringstream() << t.sizes()).str().c_str());
            scale<7><<<1, 32>>>(a, 1);
        }
        """,
        {"scale<7, float>"},
    ),
    "TVM-FFI": (
        ["tvm/ffi/container/tensor.h", "tvm/ffi/function.h"],
        """
        namespace ffi = tvm::ffi;
        using ffi::TensorView;
        constexpr DLDataType kHalf = DLDataType{kDLFloat, 16, 1};
        void run(TensorView a, ffi::Optional<TensorView> b) {
            TVM_FFI_ICHECK_EQ(a.ndim(), 2) << "two dimensions, not " << a.ndim();
            if (a.device().device_type != kDLCUDA) TVM_FFI_THROW(ValueError) << "not on the GPU";
            const int64_t rows = a.size(0);
            scale<6><<<rows, 32>>>(static_cast<float*>(a.data_ptr()), b.has_value() ? 1 : 0);
        }
        TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
        """,
        {"scale<6, float>"},
    ),
}


def _source(folder: Path, headers: list[str], host: str, tail: str = "") -> Path:
    includes = "".join(f"#include <{name}>\n" for name in headers)
    lines = textwrap.dedent(host)
    path = folder / "unit.cu"
    path.write_text(f"{includes}#include <cuda_fp16.h>\n{KERNELS}{lines}\n{tail}")
    return path


@pytest.mark.parametrize(("headers", "host", "kernels"), LIBRARIES.values(), ids=LIBRARIES)
def test_launches_in_code_that_uses_them_are_read(
    tmp_path: Path, toolkit: Toolkit, cache: Cache, headers: list[str], host: str, kernels: set[str]
) -> None:
    source = _source(tmp_path, headers, host)
    for _ in range(2):
        compiled = compile_ptx(CompileRequest(source, "sm_100a"), toolkit, cache)
        assert {demangle(e).removeprefix("void ").split("(")[0] for e in compiled.entries} == kernels
        assert compiled.stood_in == tuple(sorted(headers))


def test_device_code_is_still_refused(tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    headers, host, _ = LIBRARIES["torch"]
    source = _source(tmp_path, headers, host, "__global__ void wrong(int* p) { p.data_ptr(); }\n")
    with pytest.raises(PorterError) as refused:
        compile_ptx(CompileRequest(source, "sm_100a"), toolkit, cache)
    assert refused.value.diagnostic.code is Code.NVCC_ERROR
    assert refused.value.diagnostic.where is not None
    assert refused.value.diagnostic.where.path == str(source)


def test_an_installed_header_wins(tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "nccl.h").write_text("#pragma once\n#define OURS 7\n")
    source = tmp_path / "unit.cu"
    source.write_text("#include <nccl.h>\n__global__ void k(int* p) { *p = OURS; }\n")
    for options in ({"include_dirs": (tmp_path / "include",)}, {"flags": (f"-isystem={tmp_path / 'include'}",)}):
        compiled = compile_ptx(CompileRequest(source, "sm_90a", **options), toolkit, cache)
        assert compiled.stood_in == ()


@pytest.mark.parametrize("name", ["cutlass/cutlass.h", "ours/tiles.h", "curand_kernel.h", "cub/cub.cuh", "torch.h"])
def test_nothing_else_is_stood_in_for(tmp_path: Path, name: str) -> None:
    source = tmp_path / "unit.cu"
    source.write_text(f'#include <{name}>\n#include "{name}"\n')
    assert host_headers(source).files == {}


def test_what_local_headers_include_counts(tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text('#include "deep/b.cuh"\n')
    (tmp_path / "include" / "deep").mkdir(parents=True)
    (tmp_path / "include" / "deep" / "b.cuh").write_text('#include "a.cuh"\n#include <torch/torch.h>\n')
    (tmp_path / "unit.cu").write_text('#include "a.cuh"\n')
    assert "torch/torch.h" in host_headers(tmp_path / "unit.cu", [tmp_path / "include"]).files


def test_comments_and_own_macros_declare_nothing() -> None:
    text = '#define TORCH_OURS 1\n// at::commented(1)\n/* at::also */ const char* s = "at::quoted";\n'
    declared = library_text([text])
    for word in ("TORCH_OURS", "commented", "also", "quoted"):
        assert word not in declared


OWN = [
    ("cublasHandle_t cublas_handle;", "cublas_handle"),
    ("static cudnnHandle_t cudnnHandle = nullptr;", "cudnnHandle"),
    ("extern ncclComm_t *ncclComms;", "ncclComms"),
    ("std::vector<ncclComm_t> ncclComms;", "ncclComms"),
    ("namespace ours { ncclComm_t ncclWorld{}; }", "ncclWorld"),
    ("struct cublasState { cublasHandle_t handle; int use; };", "cublasState"),
    ("enum class ncclKind : int { sum };", "ncclKind"),
    ("using cublasReal = float;", "cublasReal"),
    ("typedef float cublasReal;", "cublasReal"),
    ("std::string cublasName(cublasStatus_t s) { return {}; }", "cublasName"),
    ("const char* cublasName(cublasStatus_t s) { return {}; }", "cublasName"),
    ("static ncclResult_t (*ncclGo)(ncclComm_t, int);", "ncclGo"),
    ("template <class T> ncclResult_t ncclGo(T* p, int n) { return ncclResult_t(); }", "ncclGo"),
]


@pytest.mark.parametrize(("text", "name"), OWN)
def test_what_a_file_declares_itself_is_no_library_s(text: str, name: str) -> None:
    found = library_text([f"#include <nccl.h>\n{text}\nvoid use() {{ (void)&{name}; {name}; {name}(1); }}"])
    assert not re.search(rf"\b{name}\b", found)


@pytest.mark.parametrize("text", [
    "return cublasGo(&h);", "else cublasGo(&h);", "check(cublasGo(&h));", "x = n * cublasGo(h);", "y and cublasGo(h);",
    "#define GO cublasGo(h)", "case 1: cublasGo(h);", "do cublasGo(h); while (0);", "a = b ? cublasGo(h) : 0;",
    "cublasHandle_t h; cublasGo(h);",
])  # fmt: skip
def test_a_call_declares_nothing(text: str) -> None:
    assert " cublasGo(A&&...)" in library_text([f"void use() {{\n{text}\n}}"])


def test_a_file_with_names_of_its_own_is_read(tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    own = [f"namespace n{i} {{ {text} }}" for i, (text, _) in enumerate(OWN)]
    body = "void run(float* a) { cublasCreate(&cublas_handle); scale<9><<<1, 32>>>(a, 4); }"
    source = _source(tmp_path, ["cublas_v2.h", "nccl.h", "cudnn.h"], "\n".join([*own, OWN[0][0], body]))
    compiled = compile_ptx(CompileRequest(source, "sm_90a"), toolkit, cache)
    assert {demangle(e).removeprefix("void ").split("(")[0] for e in compiled.entries} == {"scale<9, float>"}


def test_a_program_that_calls_such_a_library_does_not_link(tmp_path: Path, toolkit: Toolkit, cache: Cache) -> None:
    source = tmp_path / "main.cu"
    text = "#include <nvToolsExt.h>\n__global__ void k() {}\nint main() { k<<<1, 1>>>(); BODY return 0; }\n"
    source.write_text(text.replace("BODY", ""))
    build_program(source, "sm_90a", tmp_path / "program", toolkit=toolkit, cache=cache)
    source.write_text(text.replace("BODY", 'nvtxRangePushA("x");'))
    with pytest.raises(PorterError) as refused:
        build_program(source, "sm_90a", tmp_path / "program", toolkit=toolkit, cache=cache)
    assert refused.value.diagnostic.code is Code.LINK_ERROR
