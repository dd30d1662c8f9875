// SPDX-License-Identifier: Apache-2.0
//
// Forward attention: O = softmax(scale * Q * K^T) * V for each head, with the log-sum-exp of every row.
//
// A CTA handles 128 queries of one head: a producer warpgroup loads Q once and K and V in blocks of 64 keys,
// two consumer warpgroups own 64 queries each. A consumer multiplies Q with a block of K, turns the scores in
// its registers into probabilities, scales what it has of O to the new row maximum, and multiplies the
// probabilities, as the register operand of wgmma, with the block of V. Two named barriers make the consumers
// take turns with Q * K^T, so that the softmax of one runs beside the products of the other.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "wgmma.cuh"

namespace flash {

constexpr int kBlockM = 128;
constexpr int kBlockN = 64;
constexpr int kStages = 2;
constexpr int kConsumers = 2;
constexpr int kThreads = (kConsumers + 1) * 128;

// Rows of 64 elements fill one swizzle span: a tile with a head dimension of 128 is two slabs.
template <int HeadDim>
struct SharedStorage {
    static constexpr int kSlabs = HeadDim / 64;
    alignas(1024) bf16 q[kSlabs][kBlockM * 64];
    alignas(1024) bf16 k[kStages][kSlabs][kBlockN * 64];
    alignas(1024) bf16 v[kStages][kSlabs][kBlockN * 64];
    alignas(8) uint64_t q_full;
    uint64_t k_full[kStages], k_empty[kStages];
    uint64_t v_full[kStages], v_empty[kStages];
};

// Named barriers: 0 is __syncthreads.
enum NamedBarrier : int { kTurn0 = 1, kTurn1 = 2 };

struct Ring {
    int stage = 0;
    uint32_t phase = 0;

    __device__ void next() {
        if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

template <int HeadDim>
__device__ __forceinline__ void produce(SharedStorage<HeadDim>& smem, const CUtensorMap& map_q,
                                        const CUtensorMap& map_k, const CUtensorMap& map_v, int query0, int head,
                                        int blocks) {
    constexpr uint32_t kBytesQ = sizeof(smem.q);
    constexpr uint32_t kBytesKV = sizeof(smem.k[0]);
    mbarrier_expect(&smem.q_full, kBytesQ);
    for (int s = 0; s < HeadDim / 64; ++s) tma_load_3d(smem.q[s], &map_q, &smem.q_full, s * 64, query0, head);

    Ring ring;
    for (int block = 0; block < blocks; ++block) {
        mbarrier_wait(&smem.k_empty[ring.stage], ring.phase ^ 1);
        mbarrier_expect(&smem.k_full[ring.stage], kBytesKV);
        for (int s = 0; s < HeadDim / 64; ++s) {
            tma_load_3d(smem.k[ring.stage][s], &map_k, &smem.k_full[ring.stage], s * 64, block * kBlockN, head);
        }
        mbarrier_wait(&smem.v_empty[ring.stage], ring.phase ^ 1);
        mbarrier_expect(&smem.v_full[ring.stage], kBytesKV);
        for (int s = 0; s < HeadDim / 64; ++s) {
            tma_load_3d(smem.v[ring.stage][s], &map_v, &smem.v_full[ring.stage], s * 64, block * kBlockN, head);
        }
        ring.next();
    }
}

template <int HeadDim, bool Causal>
__global__ void __launch_bounds__(kThreads, 1)
attention_fwd(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
              const __grid_constant__ CUtensorMap map_v, bf16* __restrict__ out, float* __restrict__ lse,
              float softmax_scale, int seqlen) {
    extern __shared__ __align__(1024) uint8_t smem_raw[];
    auto& smem = *reinterpret_cast<SharedStorage<HeadDim>*>(smem_raw);

    const int query0 = blockIdx.x * kBlockM;
    const int head = blockIdx.y;
    const int warpgroup = threadIdx.x / 128;
    // with the causal mask no query of this CTA sees keys from query0 + kBlockM on
    const int keys = Causal ? min(seqlen, query0 + kBlockM) : seqlen;
    const int blocks = (keys + kBlockN - 1) / kBlockN;

    if (threadIdx.x == 0) {
        mbarrier_init(&smem.q_full, 1);
        for (int s = 0; s < kStages; ++s) {
            mbarrier_init(&smem.k_full[s], 1);
            mbarrier_init(&smem.v_full[s], 1);
            mbarrier_init(&smem.k_empty[s], kConsumers * 128);
            mbarrier_init(&smem.v_empty[s], kConsumers * 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;\n");
        if (threadIdx.x == 0) produce(smem, map_q, map_k, map_v, query0, head, blocks);
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;\n");
    const int consumer = warpgroup - 1;
    const int warp = threadIdx.x / 32 % 4;
    const int lane = threadIdx.x % 32;
    const int row = query0 + consumer * 64 + warp * 16 + lane / 4;  // and row + 8
    const float scale_log2 = softmax_scale * 1.4426950408889634f;

    float o[HeadDim / 2];
#pragma unroll
    for (int i = 0; i < HeadDim / 2; ++i) o[i] = 0.f;
    float row_max[2] = {-INFINITY, -INFINITY};
    float row_sum[2] = {0.f, 0.f};

    if (consumer == 1) named_barrier_arrive(kTurn0, kConsumers * 128);
    mbarrier_wait(&smem.q_full, 0);

    Ring ring;
    for (int block = 0; block < blocks; ++block) {
        float scores[kBlockN / 2];
        mbarrier_wait(&smem.k_full[ring.stage], ring.phase);
        named_barrier_sync(kTurn0 + consumer, kConsumers * 128);
        warpgroup_arrive();
#pragma unroll
        for (int k = 0; k < HeadDim / 16; ++k) {
            const uint64_t desc_q = k_major_desc(smem.q[k / 4] + consumer * 64 * 64 + k % 4 * 16);
            const uint64_t desc_k = k_major_desc(smem.k[ring.stage][k / 4] + k % 4 * 16);
            wgmma_ss_m64n64k16(scores, desc_q, desc_k, k != 0);
        }
        warpgroup_commit();
        // the last turn of the second consumer has nobody to wake
        if (consumer == 0 || block + 1 < blocks) named_barrier_arrive(kTurn1 - consumer, kConsumers * 128);
        warpgroup_wait<0>();
        mbarrier_arrive(&smem.k_empty[ring.stage]);

        const int key0 = block * kBlockN + lane % 4 * 2;
        if (block * kBlockN + kBlockN > (Causal ? min(seqlen, query0 + consumer * 64) : seqlen)) {
#pragma unroll
            for (int i = 0; i < kBlockN / 2; ++i) {
                const int key = key0 + i / 4 * 8 + i % 2;
                const int query = row + (i & 2) * 4;
                if (key >= seqlen || (Causal && key > query)) scores[i] = -INFINITY;
            }
        }

        float keep[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float largest = row_max[h];
#pragma unroll
            for (int i = 0; i < kBlockN / 2; i += 4) {
                largest = fmaxf(largest, fmaxf(scores[i + 2 * h], scores[i + 2 * h + 1]));
            }
            largest = quad_max(largest);
            keep[h] = exp2f((row_max[h] - largest) * scale_log2);
            row_max[h] = largest;
            float sum = 0.f;
#pragma unroll
            for (int i = 0; i < kBlockN / 2; i += 4) {
                scores[i + 2 * h] = exp2f((scores[i + 2 * h] - largest) * scale_log2);
                scores[i + 2 * h + 1] = exp2f((scores[i + 2 * h + 1] - largest) * scale_log2);
                sum += scores[i + 2 * h] + scores[i + 2 * h + 1];
            }
            // each thread keeps the sum over its own columns; the quad adds up at the end
            row_sum[h] = row_sum[h] * keep[h] + sum;
        }
#pragma unroll
        for (int i = 0; i < HeadDim / 2; ++i) o[i] *= keep[(i >> 1) & 1];

        // The accumulator's layout is that of the A operand: eight values of one are four packed registers.
        uint32_t p[kBlockN / 16][4];
#pragma unroll
        for (int i = 0; i < kBlockN / 2; i += 2) p[i / 8][i / 2 % 4] = pack_bf16(scores[i], scores[i + 1]);

        mbarrier_wait(&smem.v_full[ring.stage], ring.phase);
        warpgroup_arrive();
#pragma unroll
        for (int k = 0; k < kBlockN / 16; ++k) {
            wgmma_rs<HeadDim>(o, p[k], mn_major_desc(smem.v[ring.stage][0] + k * 16 * 64, sizeof(smem.v[0][0])));
        }
        warpgroup_commit();
        warpgroup_wait<0>();
        mbarrier_arrive(&smem.v_empty[ring.stage]);
        ring.next();
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int query = row + h * 8;
        const float sum = quad_sum(row_sum[h]);
        const float inverse = 1.f / sum;
        if (query < seqlen) {
            const size_t at = static_cast<size_t>(head) * seqlen + query;
#pragma unroll
            for (int i = 0; i < HeadDim / 2; i += 4) {
                const __nv_bfloat162 pair =
                    __floats2bfloat162_rn(o[i + 2 * h] * inverse, o[i + 2 * h + 1] * inverse);
                *reinterpret_cast<__nv_bfloat162*>(out + at * HeadDim + i * 2 + lane % 4 * 2) = pair;
            }
            if (lane % 4 == 0) lse[at] = row_max[h] * softmax_scale + logf(sum);
        }
    }
}

}  // namespace flash

// ---- host ---------------------------------------------------------------------------------------

#define CUDA_CHECK(call)                                                                          \
    do {                                                                                          \
        const cudaError_t status_ = (call);                                                       \
        if (status_ != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(EXIT_FAILURE);                                                              \
        }                                                                                         \
    } while (0)

// heads x seqlen x head_dim, loaded in boxes of box_rows x 64 of one head.
static CUtensorMap head_map(const flash::bf16* data, int heads, int seqlen, int head_dim, int box_rows) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) std::exit(EXIT_FAILURE);
    const cuuint64_t size[3] = {cuuint64_t(head_dim), cuuint64_t(seqlen), cuuint64_t(heads)};
    const cuuint64_t stride[2] = {cuuint64_t(head_dim) * 2, cuuint64_t(seqlen) * head_dim * 2};
    const cuuint32_t box[3] = {64, cuuint32_t(box_rows), 1};
    const cuuint32_t step[3] = {1, 1, 1};
    CUtensorMap map;
    const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<flash::bf16*>(data), size, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(result));
        std::exit(EXIT_FAILURE);
    }
    return map;
}

template <int HeadDim, bool Causal>
static void launch(const flash::bf16* q, const flash::bf16* k, const flash::bf16* v, flash::bf16* out, float* lse,
                   int heads, int seqlen, cudaStream_t stream) {
    using namespace flash;
    const CUtensorMap map_q = head_map(q, heads, seqlen, HeadDim, kBlockM);
    const CUtensorMap map_k = head_map(k, heads, seqlen, HeadDim, kBlockN);
    const CUtensorMap map_v = head_map(v, heads, seqlen, HeadDim, kBlockN);
    const size_t smem = sizeof(SharedStorage<HeadDim>);
    const auto kernel = attention_fwd<HeadDim, Causal>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    kernel<<<dim3((seqlen + kBlockM - 1) / kBlockM, heads), kThreads, smem, stream>>>(
        map_q, map_k, map_v, out, lse, 1.f / std::sqrt(float(HeadDim)), seqlen);
    CUDA_CHECK(cudaGetLastError());
}

void flash_attention_forward(const flash::bf16* q, const flash::bf16* k, const flash::bf16* v, flash::bf16* out,
                             float* lse, int heads, int seqlen, int head_dim, bool causal, cudaStream_t stream) {
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "attention needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (head_dim == 64) {
        causal ? launch<64, true>(q, k, v, out, lse, heads, seqlen, stream)
               : launch<64, false>(q, k, v, out, lse, heads, seqlen, stream);
    } else if (head_dim == 128) {
        causal ? launch<128, true>(q, k, v, out, lse, heads, seqlen, stream)
               : launch<128, false>(q, k, v, out, lse, heads, seqlen, stream);
    } else {
        std::fprintf(stderr, "flash_attention_forward: no kernel for head dimension %d\n", head_dim);
        std::exit(EXIT_FAILURE);
    }
}
