/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

/* Operands lie in shared memory without swizzle: core matrices of 8 rows by 16 bytes, 128 contiguous bytes each,
 * those along K first. */
static __device__ __forceinline__ uint64_t core_matrices(const void *tile, int depth)
{
    uint64_t address = (uint64_t)__cvta_generic_to_shared(tile);
    uint64_t leading = 128, stride = (uint64_t)(depth / 8) * 128;
    return ((address & 0x3FFFF) >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32;
}

/* Copy `rows` rows of `depth` halves; `pitch` is the distance of rows in the source. */
static __device__ __forceinline__ void load_tile(__half *tile, const __half *source, int rows, int depth, int pitch)
{
    const int chunks = depth / 8;
    for (int i = threadIdx.x; i < rows * chunks; i += blockDim.x) {
        const int row = i / chunks, chunk = i % chunks;
        const int core = (row / 8) * chunks + chunk;
        *(uint4 *)&tile[core * 64 + (row % 8) * 8] = *(const uint4 *)&source[(size_t)row * pitch + chunk * 8];
    }
}

static __device__ __forceinline__ void publish_tiles()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

static __device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void wgmma_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
