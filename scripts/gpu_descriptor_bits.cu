// SPDX-License-Identifier: Apache-2.0
// Which bits of a shared-memory descriptor wgmma looks at: each bit outside of start, offsets and swizzle is set in turn,
// in that of A (1) and of B (2), and the result held against that without it.
//
//     nvcc -gencode arch=compute_90a,code=sm_90a -o descriptor_bits scripts/gpu_descriptor_bits.cu && ./descriptor_bits
//
// An H200 looks at none of 14, 15, 30, 31, 46 to 48 and 52 to 61, whatever the swizzle, and at bits of the base offset as
// far as the swizzle has a use for them: three for 128 bytes, two for 64, one for 32.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_fp16.h>

constexpr int kThreads = 128, kResults = 4 * kThreads, kOperand = 16384;

__global__ void multiply(uint64_t of_a, uint64_t of_b, uint64_t layout, float* results) {
    extern __shared__ __align__(1024) unsigned char shared[];
    for (unsigned i = threadIdx.x; i < kOperand; i += kThreads)
        reinterpret_cast<__half*>(shared)[i] = __float2half(float((i * 2654435761u >> 9) % 17) - 8);
    asm volatile("fence.proxy.async;");
    __syncthreads();
    const uint32_t start = uint32_t(__cvta_generic_to_shared(shared));
    const uint64_t a = (layout | start >> 4) ^ of_a, b = (layout | (start + kOperand) >> 4) ^ of_b;
    float d[4] = {};
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.fence.sync.aligned;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n"
        "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    for (int i = 0; i < 4; ++i) results[threadIdx.x * 4 + i] = d[i];
}

int main() {
    float *on_device, right[kResults], found[kResults];
    cudaMalloc(&on_device, sizeof right);
    for (uint64_t swizzle = 0; swizzle < 4; ++swizzle) {
        const uint64_t layout = swizzle << 62 | uint64_t(64) << 32 | 8 << 16;
        auto run = [&](uint64_t of_a, uint64_t of_b, float* results) {
            multiply<<<1, kThreads, 2 * kOperand>>>(of_a, of_b, layout, on_device);
            if (cudaMemcpy(results, on_device, sizeof right, cudaMemcpyDeviceToHost) != cudaSuccess) return false;
            return true;
        };
        if (!run(0, 0, right)) return 1;
        std::printf("swizzle %d:", int(swizzle));
        for (int bit = 14; bit < 62; ++bit) {
            if ((bit >= 16 && bit < 30) || (bit >= 32 && bit < 46)) continue;
            int differs = 0;
            for (int which = 1; which < 3; ++which) {
                if (!run(which == 1 ? 1ull << bit : 0, which == 2 ? 1ull << bit : 0, found)) return 1;
                if (std::memcmp(right, found, sizeof right)) differs |= which;
            }
            std::printf(" %d:%d", bit, differs);
        }
        std::printf("\n");
    }
}
