// SPDX-License-Identifier: Apache-2.0
#include "gemm/device.cuh"
#include "gemm/split_gemm.h"

namespace gemm {

__global__ void reduce_splits_kernel(const float* partial, float* c, int count, int splits) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float sum = 0.0f;
    for (int split = 0; split < splits; ++split) sum += partial[static_cast<size_t>(split) * count + i];
    c[i] = sum;
}

void reduce_splits(const float* partial, float* c, int count, int splits, cudaStream_t stream) {
    reduce_splits_kernel<<<ceil_div(count, 256), 256, 0, stream>>>(partial, c, count, splits);
}

}  // namespace gemm
