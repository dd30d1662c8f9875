// SPDX-License-Identifier: Apache-2.0
// D = A * B^T on SM100, persistent: loaders, one thread that issues products, and an epilogue, which hand stages of
// shared memory and two accumulators to each other by mbarriers. Inputs are small integers, so that D is exact.
// scripts/gpu_mutants.py plants mistakes in these hand-overs.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

constexpr int kM = 512, kN = 512, kK = 256, kTile = 128, kDepth = 64, kStages = 2, kCtas = 2;
constexpr int kLoaders = 96, kEpilogue = 128, kThreads = kEpilogue + 32 + kLoaders;
constexpr int kTilesN = kN / kTile, kTiles = kM / kTile * kTilesN, kBlocks = kK / kDepth;
constexpr uint32_t kStage = kTile * kDepth * 2;
// f16 times f16 onto f32, 128 x 128.
constexpr uint32_t kInstruction = 1u << 4 | kTile / 8 << 17 | kTile / 16 << 24;

struct Shared {
  uint64_t full[kStages], empty[kStages], accumulator_full[2], accumulator_empty[2];
  uint32_t tensor_memory;
};

__device__ uint32_t address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void init(uint64_t& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&barrier)), "r"(count) : "memory");
}
__device__ void wait(uint64_t& barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra WAIT;\n}"
      ::"r"(address(&barrier)), "r"(parity) : "memory");
}
__device__ void arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&barrier)) : "memory");
}
__device__ void commit(uint64_t& barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
               ::"r"(address(&barrier)) : "memory");
}
// K-major without swizzle: 8 rows of 16 bytes lie together, 128 bytes from the next 8, 2048 from the next 16 bytes of K.
__device__ uint64_t descriptor(uint32_t start) {
  return start >> 4 & 0x3FFF | uint64_t(2048 >> 4) << 16 | uint64_t(128 >> 4) << 32 | 1ull << 46;
}

__device__ void load(const __half* from, char* to, int first_row, int first_k, int thread) {
  for (int i = thread; i < kTile * kDepth / 8; i += kLoaders) {
    int row = i % kTile, chunk = i / kTile;
    const __half* source = from + size_t(first_row + row) * kK + first_k + chunk * 8;
    *reinterpret_cast<uint4*>(to + chunk * 2048 + row * 16) = *reinterpret_cast<const uint4*>(source);
  }
}

__global__ void __launch_bounds__(kThreads) multiply(const __half* a, const __half* b, float* d) {
  extern __shared__ __align__(1024) char stages[];
  __shared__ Shared s;
  int thread = threadIdx.x, warp = thread / 32;
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) init(s.full[i], kLoaders), init(s.empty[i], 1);
    for (int i = 0; i < 2; ++i) init(s.accumulator_full[i], 1), init(s.accumulator_empty[i], kEpilogue);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (warp == 0)
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 256;" ::"r"(address(&s.tensor_memory)) : "memory");
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  uint32_t memory = s.tensor_memory;

  if (thread >= kEpilogue + 32) {
    int block = 0;
    for (int tile = blockIdx.x; tile < kTiles; tile += gridDim.x)
      for (int k = 0; k < kBlocks; ++k, ++block) {
        int stage = block % kStages;
        wait(s.empty[stage], block / kStages % 2 ^ 1);
        load(a, stages + stage * 2 * kStage, tile / kTilesN * kTile, k * kDepth, thread - kEpilogue - 32);
        load(b, stages + stage * 2 * kStage + kStage, tile % kTilesN * kTile, k * kDepth, thread - kEpilogue - 32);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        arrive(s.full[stage]);
      }
  } else if (thread == kEpilogue) {
    int block = 0, number = 0;
    for (int tile = blockIdx.x; tile < kTiles; tile += gridDim.x, ++number) {
      int which = number % 2;
      wait(s.accumulator_empty[which], number / 2 % 2 ^ 1);
      asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
      for (int k = 0; k < kBlocks; ++k, ++block) {
        int stage = block % kStages;
        wait(s.full[stage], block / kStages % 2);
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        uint32_t start = address(stages) + stage * 2 * kStage;
        for (int step = 0; step < kDepth / 16; ++step)
          asm volatile(
              "{\n.reg .pred p;\nsetp.ne.u32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}"
              ::"r"(memory + which * kTile), "l"(descriptor(start + step * 4096)),
              "l"(descriptor(start + kStage + step * 4096)), "r"(kInstruction), "r"(k | step) : "memory");
        commit(s.empty[stage]);
      }
      commit(s.accumulator_full[which]);
    }
  } else if (thread < kEpilogue) {
    int number = 0;
    for (int tile = blockIdx.x; tile < kTiles; tile += gridDim.x, ++number) {
      int which = number % 2;
      wait(s.accumulator_full[which], number / 2 % 2);
      asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
      float* row = d + size_t(tile / kTilesN * kTile + thread) * kN + tile % kTilesN * kTile;
      for (int column = 0; column < kTile; column += 4) {
        uint32_t v[4];
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];\ntcgen05.wait::ld.sync.aligned;"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(memory + (warp << 21) + which * kTile + column) : "memory");
        for (int i = 0; i < 4; ++i) row[column + i] = __uint_as_float(v[i]);
        // An epilogue that takes its time: the tensor core would overtake it.
        __nanosleep(200000);
      }
      asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
      arrive(s.accumulator_empty[which]);
    }
  }
  __syncthreads();
  if (warp == 0) {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;" ::"r"(memory) : "memory");
  }
}

int main() {
  std::vector<__half> a(kM * kK), b(kN * kK);
  std::vector<float> d(kM * kN), fa(kM * kK), fb(kN * kK);
  uint32_t seed = 1;
  auto next = [&] { return float((seed = seed * 1664525u + 1013904223u) >> 29) - 3; };
  for (size_t i = 0; i < a.size(); ++i) fa[i] = next(), a[i] = __float2half(fa[i]);
  for (size_t i = 0; i < b.size(); ++i) fb[i] = next(), b[i] = __float2half(fb[i]);
  __half *da, *db;
  float* dd;
  cudaMalloc(&da, a.size() * 2), cudaMalloc(&db, b.size() * 2), cudaMalloc(&dd, d.size() * 4);
  cudaMemcpy(da, a.data(), a.size() * 2, cudaMemcpyHostToDevice);
  cudaMemcpy(db, b.data(), b.size() * 2, cudaMemcpyHostToDevice);
  cudaMemset(dd, 0xFF, d.size() * 4);
  constexpr int bytes = 2 * kStages * kStage;
  cudaFuncSetAttribute(multiply, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  multiply<<<kCtas, kThreads, bytes>>>(da, db, dd);
  cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) {
    std::printf("stopped: %s\n", cudaGetErrorString(error));
    return 1;
  }
  cudaMemcpy(d.data(), dd, d.size() * 4, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int m = 0; m < kM; ++m)
    for (int n = 0; n < kN; ++n) {
      float sum = 0;
      for (int k = 0; k < kK; ++k) sum += fa[m * kK + k] * fb[n * kK + k];
      wrong += !(sum == d[m * kN + n]);
    }
  std::printf("%d of %d values are wrong\n", wrong, kM * kN);
  return wrong != 0;
}
