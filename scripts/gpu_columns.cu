// SPDX-License-Identifier: Apache-2.0
// CTAs of one SM share its 512 columns of Tensor Memory: how many hold columns at the same time, and whether any two
// hold the same ones.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

constexpr int kSms = 256, kUnits = 16, kBlocksOfAll = 512;

struct Seen {
  int holders[kSms], units[kSms][kUnits];
  int most, twice;
};

template <int kColumns>
__global__ void hold(Seen* seen) {
  __shared__ uint32_t start;
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
               ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(&start))), "n"(kColumns) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicMax(&seen->most, atomicAdd(&seen->holders[sm], 1) + 1);
    for (uint32_t i = 0; i < kColumns / 32; ++i)
      if (atomicAdd(&seen->units[sm][start / 32 + i], 1) != 0) atomicAdd(&seen->twice, 1);
    __nanosleep(20000);
    for (uint32_t i = 0; i < kColumns / 32; ++i) atomicSub(&seen->units[sm][start / 32 + i], 1);
    atomicSub(&seen->holders[sm], 1);
  }
  __syncthreads();
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(start), "n"(kColumns) : "memory");
}

template <int kColumns>
bool right(Seen* device) {
  Seen seen;
  cudaMemset(device, 0, sizeof(Seen));
  hold<kColumns><<<kBlocksOfAll, 32>>>(device);
  cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) {
    std::printf("%d columns: stopped: %s\n", kColumns, cudaGetErrorString(error));
    return false;
  }
  cudaMemcpy(&seen, device, sizeof(Seen), cudaMemcpyDeviceToHost);
  std::printf("%d columns: at most %d CTAs of an SM hold some, %d held twice\n", kColumns, seen.most, seen.twice);
  return seen.most == 512 / kColumns && seen.twice == 0;
}

int main() {
  Seen* device;
  cudaMalloc(&device, sizeof(Seen));
  bool first = right<512>(device), second = right<256>(device);
  return !(first && second);
}
