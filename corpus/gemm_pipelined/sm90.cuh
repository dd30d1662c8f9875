// SPDX-License-Identifier: Apache-2.0
//
// Device-side building blocks of the pipelined GEMM. Shared memory is addressed by 32-bit
// shared-window addresses throughout, so that no generic-to-shared conversion hides in the main loop.

#ifndef GEMM_PIPELINED_SM90_CUH
#define GEMM_PIPELINED_SM90_CUH

#include <cstdint>

#include <cuda.h>

namespace sm90 {

// Which slot of the ring comes next, and the parity its barriers have in this round.
template <int Stages>
struct RingIndex {
    uint32_t slot = 0;
    uint32_t parity;

    __device__ explicit RingIndex(uint32_t first_parity) : parity(first_parity) {}

    __device__ void advance() {
        slot += 1;
        if (slot == Stages) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// Full and empty barriers of a ring, eight bytes each: full[0..Stages), then empty[0..Stages).
template <int Stages>
struct RingBarriers {
    uint32_t base;

    __device__ uint32_t full(uint32_t slot) const { return base + slot * 8; }
    __device__ uint32_t empty(uint32_t slot) const { return base + (Stages + slot) * 8; }
};

__device__ inline void barrier_init(uint32_t bar, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" : : "r"(bar), "r"(arrivals));
}

__device__ inline void barrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];\n" : : "r"(bar) : "memory");
}

__device__ inline void barrier_arrive_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" : : "r"(bar), "r"(bytes) : "memory");
}

__device__ inline bool barrier_try_wait(uint32_t bar, uint32_t parity) {
    uint32_t complete;
    asm volatile(
        "{\n\t"
        ".reg .pred P1;\n\t"
        "mbarrier.try_wait.parity.shared.b64 P1, [%1], %2;\n\t"
        "selp.b32 %0, 1, 0, P1;\n\t"
        "}\n"
        : "=r"(complete)
        : "r"(bar), "r"(parity)
        : "memory");
    return complete != 0;
}

__device__ inline void barrier_wait(uint32_t bar, uint32_t parity) {
    while (!barrier_try_wait(bar, parity)) {
    }
}

// The 64-bit cache hint is an L2 eviction policy made by createpolicy.
__device__ inline uint64_t make_evict_last_policy() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;\n" : "=l"(policy));
    return policy;
}

__device__ inline void tma_load(uint32_t dst, const CUtensorMap& map, uint32_t bar, int32_t c0, int32_t c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n"
        :
        : "r"(dst), "l"(&map), "r"(c0), "r"(c1), "r"(bar)
        : "memory");
}

__device__ inline void tma_load(uint32_t dst, const CUtensorMap& map, uint32_t bar, int32_t c0, int32_t c1,
                                uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3}], [%4], %5;\n"
        :
        : "r"(dst), "l"(&map), "r"(c0), "r"(c1), "r"(bar), "l"(policy)
        : "memory");
}

enum class Swizzle : uint64_t { None = 0, B128 = 1, B64 = 2, B32 = 3 };

// wgmma matrix descriptor; byte offsets as in the PTX description of leading and stride dimension.
__device__ inline uint64_t matrix_desc(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
                                       Swizzle swizzle) {
    auto field = [](uint32_t bytes) { return uint64_t((bytes & 0x3FFFF) >> 4); };
    return field(address) | field(leading_bytes) << 16 | field(stride_bytes) << 32 | uint64_t(swizzle) << 62;
}

__device__ inline void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;\n" : : : "memory"); }

__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" : : : "memory"); }

template <int InFlight>
__device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" : : "n"(InFlight) : "memory");
}

// 64x96 tile, f16 operands, f32 accumulator; the previous value is added only if `accumulate`.
__device__ inline void mma_64x96x16(float (&acc)[48], uint64_t desc_a, uint64_t desc_b, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "setp.ne.b32 p, %50, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        " %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
        " %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "%48, %49, p, 1, 1, 0, 0;\n\t"
        "}\n"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]),
          "+f"(acc[6]), "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]),
          "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]), "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]),
          "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]), "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23]),
          "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]), "+f"(acc[28]), "+f"(acc[29]),
          "+f"(acc[30]), "+f"(acc[31]), "+f"(acc[32]), "+f"(acc[33]), "+f"(acc[34]), "+f"(acc[35]),
          "+f"(acc[36]), "+f"(acc[37]), "+f"(acc[38]), "+f"(acc[39]), "+f"(acc[40]), "+f"(acc[41]),
          "+f"(acc[42]), "+f"(acc[43]), "+f"(acc[44]), "+f"(acc[45]), "+f"(acc[46]), "+f"(acc[47])
        : "l"(desc_a), "l"(desc_b), "r"(static_cast<int32_t>(accumulate)));
}

}  // namespace sm90

#endif  // GEMM_PIPELINED_SM90_CUH
