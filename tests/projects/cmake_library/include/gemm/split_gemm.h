// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace gemm {

/// partial[split, M, N] = a[M, K] * b[N, K]^T over one part of K for each split; M is a multiple of 64, N of 32, K of
/// 32 * splits.
void split_gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* partial, int m, int n, int k, int splits,
                cudaStream_t stream);

/// c[i] = the sum of partial[split][i] over the splits, for `count` elements.
void reduce_splits(const float* partial, float* c, int count, int splits, cudaStream_t stream);

/// Whether the device runs these kernels.
bool is_supported(int device);

}  // namespace gemm
