// SPDX-License-Identifier: Apache-2.0
#include "gemm/device.cuh"
#include "gemm/split_gemm.h"

namespace gemm {

namespace {

constexpr int kTileM = 64, kTileN = 32, kTileK = 32;

/// Core matrices without swizzle: [row / 8][k / 8][row % 8][k % 8].
struct Tile {
    __nv_bfloat16* data;

    __device__ void load(const __nv_bfloat16* source, int rows, int pitch) const {
        for (int i = threadIdx.x; i < rows * (kTileK / 8); i += blockDim.x) {
            const int row = i / (kTileK / 8), chunk = i % (kTileK / 8);
            const int core = row / 8 * (kTileK / 8) + chunk;
            *reinterpret_cast<uint4*>(data + core * 64 + row % 8 * 8) =
                *reinterpret_cast<const uint4*>(source + static_cast<size_t>(row) * pitch + chunk * 8);
        }
    }

    __device__ uint64_t descriptor(int step) const {
        const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(data + step * 128));
        return (address & 0x3FFFF) >> 4 | uint64_t{128 >> 4} << 16 | uint64_t{kTileK / 8 * 128 >> 4} << 32;
    }
};

}  // namespace

__global__ void __launch_bounds__(128) split_gemm_kernel(const __nv_bfloat16* __restrict__ a,
                                                         const __nv_bfloat16* __restrict__ b,
                                                         float* __restrict__ partial, int m, int n, int k) {
    extern __shared__ __align__(128) __nv_bfloat16 smem[];
    const Tile tile_a{smem}, tile_b{smem + kTileM * kTileK};
    const int row0 = blockIdx.y * kTileM, column0 = blockIdx.x * kTileN;
    const int part = k / static_cast<int>(gridDim.z);
    float d[16] = {};

    for (int at = blockIdx.z * part; at < (static_cast<int>(blockIdx.z) + 1) * part; at += kTileK) {
        tile_a.load(a + static_cast<size_t>(row0) * k + at, kTileM, k);
        tile_b.load(b + static_cast<size_t>(column0) * k + at, kTileN, k);
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        __syncthreads();
        warpgroup::arrive();
        mma(d, tile_a.descriptor(0), tile_b.descriptor(0));
        mma(d, tile_a.descriptor(1), tile_b.descriptor(1));
        warpgroup::commit();
        warpgroup::wait<0>();
        __syncthreads();
    }

    float* const out = partial + static_cast<size_t>(blockIdx.z) * m * n;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const Place place(i);
        out[static_cast<size_t>(row0 + place.row) * n + column0 + place.column] = d[i];
    }
}

void split_gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* partial, int m, int n, int k, int splits,
                cudaStream_t stream) {
    const dim3 grid(ceil_div(n, kTileN), ceil_div(m, kTileM), splits);
    const int bytes = (kTileM + kTileN) * kTileK * sizeof(__nv_bfloat16);
    split_gemm_kernel<<<grid, 128, bytes, stream>>>(a, b, partial, m, n, k);
}

}  // namespace gemm
