// SPDX-License-Identifier: Apache-2.0
// As many blocks as the occupancy functions say, each with 256 columns of Tensor Memory; argument 1 bounds how many an SM.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>

__global__ void __launch_bounds__(128) kernel(unsigned *out, bool meet) {
    __shared__ unsigned slot;
    if (threadIdx.x < 32) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 256;" ::"r"(
                         static_cast<unsigned>(__cvta_generic_to_shared(&slot)))
                     : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }
    __syncthreads();
    if (meet) cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0) out[blockIdx.x] = slot + 1;
    if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;" ::"r"(slot));
}

int main(int argc, char **argv) {
    const int most = std::atoi(argv[1]);
    bool meet = argc > 2;
    unsigned *out;
    cudaMalloc(&out, 4096 * sizeof *out);
    int blocks = 0, sms = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 0);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    std::printf("%d blocks on each of %d\n", blocks, sms);
    void *args[] = {&out, &meet};
    if (blocks > most) blocks = most;
    cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(kernel), blocks * sms, 128, args, 0, nullptr);
    std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
