// SPDX-License-Identifier: Apache-2.0
#include "gemm/split_gemm.h"

namespace gemm {

bool is_supported(int device) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) return false;
    return major == 9;
}

}  // namespace gemm
