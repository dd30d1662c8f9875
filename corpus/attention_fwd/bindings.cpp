// SPDX-License-Identifier: Apache-2.0

#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <torch/extension.h>

#include <vector>

void flash_attention_forward(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v,
                             __nv_bfloat16* out, float* lse, int heads, int seqlen, int head_dim, bool causal,
                             cudaStream_t stream);

namespace {

__nv_bfloat16* data(const torch::Tensor& t) { return reinterpret_cast<__nv_bfloat16*>(t.data_ptr<at::BFloat16>()); }

// q, k, v: heads x seqlen x head_dim, contiguous bf16. Returns the output and the log-sum-exp.
std::vector<torch::Tensor> forward(torch::Tensor q, torch::Tensor k, torch::Tensor v, bool causal) {
    TORCH_CHECK(q.is_cuda() && q.dim() == 3 && q.scalar_type() == at::kBFloat16, "q must be a 3-d bf16 CUDA tensor");
    TORCH_CHECK(q.is_contiguous() && k.is_contiguous() && v.is_contiguous(), "q, k, v must be contiguous");
    TORCH_CHECK(k.sizes() == q.sizes() && v.sizes() == q.sizes(), "q, k, v must have the same shape");
    torch::Tensor out = torch::empty_like(q);
    torch::Tensor lse = torch::empty({q.size(0), q.size(1)}, q.options().dtype(torch::kFloat32));
    flash_attention_forward(data(q), data(k), data(v), data(out), lse.data_ptr<float>(), q.size(0), q.size(1),
                            q.size(2), causal, at::cuda::getCurrentCUDAStream());
    return {out, lse};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "attention forward"); }
