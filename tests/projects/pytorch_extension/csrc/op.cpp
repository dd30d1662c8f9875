// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

torch::Tensor linear_relu_cuda(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

torch::Tensor linear_relu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
    const auto* device = at::cuda::getCurrentDeviceProperties();
    TORCH_CHECK(device->major == 9 && device->minor == 0, "linear_relu needs sm_90");
    TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1), "shapes do not fit");
    TORCH_CHECK(x.scalar_type() == torch::kBFloat16 && weight.scalar_type() == torch::kBFloat16, "bfloat16 only");
    TORCH_CHECK(x.size(0) % 64 == 0 && weight.size(0) % 64 == 0 && x.size(1) % 64 == 0, "multiples of 64 only");
    return linear_relu_cuda(x.contiguous(), weight.contiguous(), bias.to(torch::kFloat32).contiguous());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("linear_relu", &linear_relu, "relu(x @ weight.T + bias) of bfloat16 matrices");
}
