// SPDX-License-Identifier: Apache-2.0

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

void launch_gemm_tma(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int M, int N, int K,
                     cudaStream_t stream);

static torch::Tensor gemm(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && b.is_cuda() && a.is_contiguous() && b.is_contiguous(), "contiguous CUDA tensors only");
    TORCH_CHECK(a.scalar_type() == torch::kBFloat16 && b.scalar_type() == torch::kBFloat16, "bfloat16 only");
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(1), "expected [M, K] and [N, K]");
    auto c = torch::empty({a.size(0), b.size(0)}, a.options().dtype(torch::kFloat32));
    launch_gemm_tma(reinterpret_cast<const __nv_bfloat16*>(a.data_ptr()),
                    reinterpret_cast<const __nv_bfloat16*>(b.data_ptr()), c.data_ptr<float>(), a.size(0), b.size(0),
                    a.size(1), at::cuda::getCurrentCUDAStream());
    return c;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("gemm", &gemm, "A @ B.T"); }
