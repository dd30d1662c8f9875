// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>
#include <torch/extension.h>

#include <cstdint>

namespace {

constexpr int kTile = 64;
constexpr int kThreads = 128;

__device__ __forceinline__ uint64_t make_descriptor(const __nv_bfloat16* tile) {
    // 128-byte swizzle: rows of 128 bytes, groups of eight rows 1024 bytes apart
    const uint64_t address = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
    return ((address & 0x3FFFF) >> 4) | (uint64_t(1) << 16) | (uint64_t(1024 >> 4) << 32) | (uint64_t(1) << 62);
}

template <int Groups>
__device__ __forceinline__ void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Groups) : "memory");
}

__device__ __forceinline__ void wgmma_m64n64k16(float (&d)[32], uint64_t a, uint64_t b, int scale_d) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(scale_d));
}

__device__ __forceinline__ void load_tile(__nv_bfloat16* tile, const __nv_bfloat16* source, int pitch) {
    for (int i = threadIdx.x; i < kTile * kTile / 8; i += kThreads) {
        const int row = i / (kTile / 8), chunk = i % (kTile / 8);
        auto* to = reinterpret_cast<uint4*>(tile + row * kTile + ((chunk ^ (row % 8)) * 8));
        *to = *reinterpret_cast<const uint4*>(source + int64_t(row) * pitch + chunk * 8);
    }
}

__global__ void __launch_bounds__(kThreads)
linear_relu_kernel(const __nv_bfloat16* x, const __nv_bfloat16* weight, const float* bias, float* y, int n, int k) {
    __shared__ __align__(1024) __nv_bfloat16 tile_x[kTile * kTile];
    __shared__ __align__(1024) __nv_bfloat16 tile_w[kTile * kTile];
    const int row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile;
    float acc[32];

    for (int k0 = 0; k0 < k; k0 += kTile) {
        load_tile(tile_x, x + int64_t(row0) * k + k0, k);
        load_tile(tile_w, weight + int64_t(column0) * k + k0, k);
        asm volatile("fence.proxy.async;\n" ::: "memory");
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
        for (int step = 0; step < kTile / 16; ++step) {
            wgmma_m64n64k16(acc, make_descriptor(tile_x) + 2 * step, make_descriptor(tile_w) + 2 * step,
                            k0 != 0 || step != 0);
        }
        asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
        warpgroup_wait<0>();
        __syncthreads();
    }

    const int lane = threadIdx.x % 32;
    const int row = row0 + (threadIdx.x / 32) * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int column = column0 + (i / 4) * 8 + (lane % 4) * 2 + i % 2;
        y[int64_t(row + (i / 2 % 2) * 8) * n + column] = fmaxf(acc[i] + bias[column], 0.0f);
    }
}

}  // namespace

torch::Tensor linear_relu_cuda(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
    const int m = x.size(0), n = weight.size(0), k = x.size(1);
    auto y = torch::empty({m, n}, x.options().dtype(torch::kFloat32));
    linear_relu_kernel<<<dim3(n / kTile, m / kTile), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const __nv_bfloat16*>(x.data_ptr<at::BFloat16>()),
        reinterpret_cast<const __nv_bfloat16*>(weight.data_ptr<at::BFloat16>()), bias.data_ptr<float>(),
        y.data_ptr<float>(), n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
