// SPDX-License-Identifier: Apache-2.0
//
// Questions that the PTX ISA leaves open, asked of a Blackwell GPU. Operands are one word everywhere, so that no layout
// matters; every cell of the accumulator holds a known word before the product.

#include <cstdint>

constexpr int kColumns = 32;
enum Kind { F16 = 0, TF32 = 1, F8 = 2 };

__device__ __forceinline__ uint32_t shared(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// K-major without swizzle: core matrices of 128 bytes, the next along K behind it, the next along M or N 256 bytes on.
__device__ __forceinline__ uint64_t descriptor(uint32_t at) {
    return uint64_t(at >> 4 & 0x3fff) | uint64_t(8) << 16 | uint64_t(16) << 32 | uint64_t(1) << 46;
}

// out[lane][column] is the accumulator after one product of an M x N tile with 32 bytes of K; `add`: D is read first.
template <int kKind>
__global__ void __launch_bounds__(128) probe_mma(uint32_t* out, uint32_t idesc, uint32_t a, uint32_t b, uint32_t d, int add) {
#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
    __shared__ alignas(1024) uint32_t tile_a[1024], tile_b[1024];
    __shared__ alignas(8) uint64_t done;
    __shared__ uint32_t base;
    const int warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < 1024; i += 128) tile_a[i] = a, tile_b[i] = b;
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared(&done)) : "memory");
    if (warp == 0) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(shared(&base)) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const uint32_t tmem = base, mine = tmem + (uint32_t(32 * warp) << 16);
    for (int c = 0; c < kColumns; ++c) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(mine + c), "r"(d) : "memory");
    }
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    if (threadIdx.x == 0) {
        const uint64_t da = descriptor(shared(tile_a)), db = descriptor(shared(tile_b));
#define PROBE_MMA(KIND)                                                                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"                                                   \
                 "tcgen05.mma.cta_group::1.kind::" KIND " [%0], %1, %2, %3, p;\n}" ::"r"(tmem), "l"(da), "l"(db), \
                 "r"(idesc), "r"(add)                                                                          \
                 : "memory")
        if constexpr (kKind == F16) PROBE_MMA("f16");
        if constexpr (kKind == TF32) PROBE_MMA("tf32");
        if constexpr (kKind == F8) PROBE_MMA("f8f6f4");
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(&done))
                     : "memory");
    }
    asm volatile("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra WAIT;\n}" ::"r"(
                     shared(&done))
                 : "memory");
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    for (int c = 0; c < kColumns; ++c) {
        uint32_t word;
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(word) : "r"(mine + c) : "memory");
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
        out[threadIdx.x * kColumns + c] = word;
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (warp == 0) {
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(tmem));
    }
#endif
}
