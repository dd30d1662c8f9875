// SPDX-License-Identifier: Apache-2.0
//
// C[M,N] = relu(A[M,K] * B[N,K]^T + bias[N]), bf16 in and out, f32 bias and accumulation.
//
// Two warpgroups split the rows of a 128xN tile; everything they share is a small class. There is no
// producer warp: thread 0 refills the stage that the batch before the last one has finished with.

#include <cstdint>
#include <cstdio>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "mma.cuh"

class TransactionBarrier {
  public:
    __device__ void init(uint32_t arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals));
    }

    __device__ void arrive_and_expect(uint32_t bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
    }

    __device__ void wait(uint32_t parity) {
        asm volatile(
            "{\n"
            ".reg .pred ready;\n"
            "again_%=:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 ready, [%0], %1;\n"
            "@ready bra.uni over_%=;\n"
            "bra.uni again_%=;\n"
            "over_%=:\n"
            "}\n" ::"r"(address()),
            "r"(parity)
            : "memory");
    }

    __device__ uint32_t address() { return static_cast<uint32_t>(__cvta_generic_to_shared(&state_)); }

  private:
    uint64_t state_;
};

template <int TileN_, int Stages_>
struct KernelTraits {
    static constexpr int TileM = 128;
    static constexpr int TileN = TileN_;
    static constexpr int TileK = 64;
    static constexpr int Stages = Stages_;
    static constexpr int Threads = 256;

    using Element = __nv_bfloat16;
    using Atom = mma::MmaAtom<TileN>;
    using Accumulator = typename Atom::Accumulator;

    struct Storage {
        alignas(1024) Element a[Stages][TileM * TileK];
        alignas(1024) Element b[Stages][TileN * TileK];
        TransactionBarrier loaded[Stages];
    };

    static constexpr uint32_t StageBytes = (TileM + TileN) * TileK * sizeof(Element);
};

template <class Traits>
class Loader {
  public:
    __device__ Loader(typename Traits::Storage& storage, const CUtensorMap& a, const CUtensorMap& b, int row, int col)
        : storage_(storage), a_(&a), b_(&b), row_(row), col_(col) {}

    __device__ void load(int stage, int k_tile) {
        TransactionBarrier& bar = storage_.loaded[stage];
        bar.arrive_and_expect(Traits::StageBytes);
        copy(storage_.a[stage], a_, bar, k_tile * Traits::TileK, row_);
        copy(storage_.b[stage], b_, bar, k_tile * Traits::TileK, col_);
    }

  private:
    static __device__ void copy(void* dst, const CUtensorMap* map, TransactionBarrier& bar, int x, int y) {
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
            :
            : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(dst))), "l"(reinterpret_cast<uint64_t>(map)), "r"(x),
              "r"(y), "r"(bar.address())
            : "memory");
    }

    typename Traits::Storage& storage_;
    const CUtensorMap* a_;
    const CUtensorMap* b_;
    int row_;
    int col_;
};

template <class Traits>
struct BiasRelu {
    // Bias and activation on the warpgroup's 64xTileN part, two columns of a row at a time.
    static __device__ void store(typename Traits::Accumulator& acc, const float* bias, __nv_bfloat16* C, int N, int row,
                                 int col) {
#pragma unroll
        for (int i = 0; i < Traits::Atom::kRegisters; i += 2) {
            const int r = row + ((i >> 1) & 1) * 8;
            const int c = col + (i >> 2) * 8;
            const float low = fmaxf(acc[i] + bias[c], 0.0f);
            const float high = fmaxf(acc[i + 1] + bias[c + 1], 0.0f);
            *reinterpret_cast<__nv_bfloat162*>(&C[static_cast<size_t>(r) * N + c]) = __floats2bfloat162_rn(low, high);
        }
    }
};

template <class Traits>
__global__ void __launch_bounds__(Traits::Threads, 1)
gemm_bias_relu(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const float* bias,
               __nv_bfloat16* C, int N, int K) {
    using Batch = mma::Batch;
    using Atom = typename Traits::Atom;
    static_assert(std::is_same<typename Traits::Element, __nv_bfloat16>::value, "the atoms multiply bf16");

    extern __shared__ __align__(1024) char shared[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared);

    const int row0 = blockIdx.y * Traits::TileM;
    const int col0 = blockIdx.x * Traits::TileN;
    const int k_tiles = K / Traits::TileK;
    const bool leader = threadIdx.x == 0;
    Loader<Traits> loader(storage, map_a, map_b, row0, col0);

    if (leader) {
        for (int s = 0; s < Traits::Stages; ++s) storage.loaded[s].init(1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (leader) {
        for (int s = 0; s < Traits::Stages && s < k_tiles; ++s) loader.load(s, s);
    }

    const int warpgroup = threadIdx.x / 128;
    typename Traits::Accumulator acc;
    mma::ScaleOut scale = mma::ScaleOut::Zero;

    for (int kt = 0; kt < k_tiles; ++kt) {
        const int stage = kt % Traits::Stages;
        storage.loaded[stage].wait((kt / Traits::Stages) & 1);

        const mma::MatrixDescriptor desc_a(&storage.a[stage][warpgroup * 64 * Traits::TileK], 1024,
                                           mma::LayoutType::B128);
        const mma::MatrixDescriptor desc_b(storage.b[stage], 1024, mma::LayoutType::B128);
        Batch::begin();
#pragma unroll
        for (int k = 0; k < Traits::TileK; k += 16) {
            Atom::fma(acc, desc_a.along_k(k * 2), desc_b.along_k(k * 2), scale);
            scale = mma::ScaleOut::One;
        }
        Batch::commit();

        // Batch kt keeps running; batch kt - 1 is complete in this warp, and after the barrier in all.
        Batch::template wait<1>();
        __syncthreads();
        const int refill = kt - 1 + Traits::Stages;
        if (leader && kt > 0 && refill < k_tiles) loader.load(refill % Traits::Stages, refill);
    }
    Batch::template wait<0>();

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    BiasRelu<Traits>::store(acc, bias, C, N, row0 + warp * 16 + lane / 4, col0 + (lane % 4) * 2);
}

// ---------------------------------------------------------------------------------------- host

namespace host {

inline bool ok(cudaError_t status, const char* expression) {
    if (status == cudaSuccess) return true;
    std::fprintf(stderr, "%s: %s\n", expression, cudaGetErrorString(status));
    return false;
}
#define HOST_TRY(expression) \
    if (!host::ok((expression), #expression)) return false

inline bool make_tensor_map(CUtensorMap& map, const __nv_bfloat16* data, int rows, int cols, int box_rows) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult query;
    HOST_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &query));
    if (query != cudaDriverEntryPointSuccess) return false;
    const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(address);
    const cuuint64_t size[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
    const cuuint64_t stride[1] = {size[0] * sizeof(*data)};
    const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
    const cuuint32_t ones[2] = {1, 1};
    return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(data), size, stride, box, ones,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace host

template <class Traits>
bool run(const __nv_bfloat16* A, const __nv_bfloat16* B, const float* bias, __nv_bfloat16* C, int M, int N, int K,
         cudaStream_t stream) {
    if (M % Traits::TileM || N % Traits::TileN || K % Traits::TileK) return false;
    CUtensorMap map_a, map_b;
    if (!host::make_tensor_map(map_a, A, M, K, Traits::TileM)) return false;
    if (!host::make_tensor_map(map_b, B, N, K, Traits::TileN)) return false;
    const size_t bytes = sizeof(typename Traits::Storage);
    HOST_TRY(cudaFuncSetAttribute(gemm_bias_relu<Traits>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    gemm_bias_relu<Traits><<<dim3(N / Traits::TileN, M / Traits::TileM), Traits::Threads, bytes, stream>>>(
        map_a, map_b, bias, C, N, K);
    HOST_TRY(cudaGetLastError());
    return true;
}

// Picks the widest tile that divides N.
bool gemm_struct(const __nv_bfloat16* A, const __nv_bfloat16* B, const float* bias, __nv_bfloat16* C, int M, int N,
                 int K, cudaStream_t stream) {
    int device = 0;
    cudaDeviceProp prop;
    HOST_TRY(cudaGetDevice(&device));
    HOST_TRY(cudaGetDeviceProperties(&prop, device));
    if (prop.major != 9) {
        std::fprintf(stderr, "gemm_struct requires sm_90a\n");
        return false;
    }
    if (N % 192 == 0) return run<KernelTraits<192, 4>>(A, B, bias, C, M, N, K, stream);
    if (N % 96 == 0) return run<KernelTraits<96, 4>>(A, B, bias, C, M, N, K, stream);
    return run<KernelTraits<64, 4>>(A, B, bias, C, M, N, K, stream);
}
