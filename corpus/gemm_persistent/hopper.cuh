// SPDX-License-Identifier: Apache-2.0
//
// Instruction wrappers for gemm_persistent.cu: barriers, TMA, stmatrix, wgmma, register reallocation.

#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

using bf16 = __nv_bfloat16;

#define DEVICE_INLINE __device__ __forceinline__

DEVICE_INLINE uint32_t to_shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

DEVICE_INLINE bool elect_one_sync() {
    uint32_t pred = 0;
    asm volatile(
        "{\n"
        ".reg .pred %%px;\n"
        "elect.sync _|%%px, %1;\n"
        "@%%px mov.s32 %0, 1;\n"
        "}\n"
        : "+r"(pred)
        : "r"(0xFFFFFFFF));
    return pred != 0;
}

/* ---------------------------------------------------------------- barriers */

DEVICE_INLINE void init_barrier(uint64_t *bar, int thread_count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(to_shared(bar)), "r"(thread_count));
}

DEVICE_INLINE void expect_bytes(uint64_t *bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;\n" ::"r"(to_shared(bar)),
                 "r"(bytes));
}

DEVICE_INLINE void arrive(uint64_t *bar, uint32_t count = 1) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;\n" ::"r"(to_shared(bar)), "r"(count)
                 : "memory");
}

DEVICE_INLINE void wait(uint64_t *bar, int phase) {
    uint32_t mbar_ptr = to_shared(bar);
    asm volatile(
        "{\n"
        ".reg .pred                P1;\n"
        "LAB_WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
        "@P1                       bra.uni DONE;\n"
        "bra.uni                   LAB_WAIT;\n"
        "DONE:\n"
        "}\n" ::"r"(mbar_ptr),
        "r"(phase)
        : "memory");
}

// Barrier 0 belongs to __syncthreads.
template <int Threads>
DEVICE_INLINE void named_barrier_sync(int id) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(id), "n"(Threads) : "memory");
}

DEVICE_INLINE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

/* --------------------------------------------------------------------- TMA */

DEVICE_INLINE void load_async(bf16 *dst, void const *const src_tma_map, uint64_t *bar, int col, int row) {
    uint64_t tma_ptr = reinterpret_cast<uint64_t>(src_tma_map);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];" ::"r"(to_shared(dst)),
        "l"(tma_ptr), "r"(to_shared(bar)), "r"(col), "r"(row)
        : "memory");
}

DEVICE_INLINE void store_async(void const *dst_tma_map, const bf16 *src, int col, int row) {
    uint64_t tma_ptr = reinterpret_cast<uint64_t>(dst_tma_map);
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(tma_ptr),
                 "r"(to_shared(src)), "r"(col), "r"(row)
                 : "memory");
}

DEVICE_INLINE void store_commit() { asm volatile("cp.async.bulk.commit_group;\n" ::: "memory"); }

// Waits until at most N groups still read shared memory.
template <int N>
DEVICE_INLINE void store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(N) : "memory");
}

template <int N>
DEVICE_INLINE void store_wait() {
    asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(N) : "memory");
}

/* ---------------------------------------------------------------- stmatrix */

DEVICE_INLINE void stmatrix_x4(bf16 *row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(to_shared(row)),
                 "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}

DEVICE_INLINE uint32_t pack_bf16(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&both);
}

/* ------------------------------------------------------------------- wgmma */

DEVICE_INLINE void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
DEVICE_INLINE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N>
DEVICE_INLINE void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

DEVICE_INLINE uint64_t descriptor(const bf16 *ptr) {
    uint64_t d = (to_shared(ptr) & 0x3FFFF) >> 4;
    d |= 0x4000004000010000ull;  // 128-byte swizzle, 1024 bytes between groups of eight rows
    return d;
}

// acc(64x128) = sA(64x16) * sB(128x16)^T, plus the old acc if Accumulate
template <int Accumulate>
DEVICE_INLINE void wgmma_64x128x16(float (&acc)[8][8], const bf16 *sA, const bf16 *sB) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16\n"
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, "
        " %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, "
        " %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, %66, 1, 1, 0, 0;\n"
        : "+f"(acc[0][0]), "+f"(acc[0][1]), "+f"(acc[0][2]), "+f"(acc[0][3]),
          "+f"(acc[0][4]), "+f"(acc[0][5]), "+f"(acc[0][6]), "+f"(acc[0][7]),
          "+f"(acc[1][0]), "+f"(acc[1][1]), "+f"(acc[1][2]), "+f"(acc[1][3]),
          "+f"(acc[1][4]), "+f"(acc[1][5]), "+f"(acc[1][6]), "+f"(acc[1][7]),
          "+f"(acc[2][0]), "+f"(acc[2][1]), "+f"(acc[2][2]), "+f"(acc[2][3]),
          "+f"(acc[2][4]), "+f"(acc[2][5]), "+f"(acc[2][6]), "+f"(acc[2][7]),
          "+f"(acc[3][0]), "+f"(acc[3][1]), "+f"(acc[3][2]), "+f"(acc[3][3]),
          "+f"(acc[3][4]), "+f"(acc[3][5]), "+f"(acc[3][6]), "+f"(acc[3][7]),
          "+f"(acc[4][0]), "+f"(acc[4][1]), "+f"(acc[4][2]), "+f"(acc[4][3]),
          "+f"(acc[4][4]), "+f"(acc[4][5]), "+f"(acc[4][6]), "+f"(acc[4][7]),
          "+f"(acc[5][0]), "+f"(acc[5][1]), "+f"(acc[5][2]), "+f"(acc[5][3]),
          "+f"(acc[5][4]), "+f"(acc[5][5]), "+f"(acc[5][6]), "+f"(acc[5][7]),
          "+f"(acc[6][0]), "+f"(acc[6][1]), "+f"(acc[6][2]), "+f"(acc[6][3]),
          "+f"(acc[6][4]), "+f"(acc[6][5]), "+f"(acc[6][6]), "+f"(acc[6][7]),
          "+f"(acc[7][0]), "+f"(acc[7][1]), "+f"(acc[7][2]), "+f"(acc[7][3]),
          "+f"(acc[7][4]), "+f"(acc[7][5]), "+f"(acc[7][6]), "+f"(acc[7][7])
        : "l"(descriptor(sA)), "l"(descriptor(sB)), "n"(Accumulate));
}

/* --------------------------------------------------- register reallocation */

template <int N>
DEVICE_INLINE void registers_increase() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(N));
}
template <int N>
DEVICE_INLINE void registers_decrease() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(N));
}
