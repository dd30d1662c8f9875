// SPDX-License-Identifier: Apache-2.0
// C = A * B^T with f16 operands, both K-major. Two warpgroups copy tiles by cp.async, STAGES - 1 of them ahead of the
// MMAs, and meet on a named barrier of their own.
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>

using namespace cute;

template <int BM, int BN, int BK, int STAGES>
struct GemmTraits {
    using Element = cutlass::half_t;
    using Atom = GMMA::Layout_K_SW128_Atom<Element>;
    using LayoutA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
    using LayoutB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
    using Mma = decltype(make_tiled_mma(SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{},
                                        Layout<Shape<_2, _1, _1>>{}));
    using Copy = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>, Element>{},
                                          Layout<Shape<_32, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
        alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
    };
};

constexpr uint32_t kTileBarrier = 1;

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(256)
    cute_gemm_multistage(cutlass::half_t const* A, cutlass::half_t const* B, float* C, int M, int N, int K) {
    using Traits = GemmTraits<BM, BN, BK, STAGES>;
    Tensor mA = make_tensor(make_gmem_ptr(A), make_shape(M, K), make_stride(K, _1{}));
    Tensor mB = make_tensor(make_gmem_ptr(B), make_shape(N, K), make_stride(K, _1{}));
    Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride(N, _1{}));
    Tensor gA = local_tile(mA, Shape<Int<BM>, Int<BK>>{}, make_coord(blockIdx.y, _));  // (BM, BK, k)
    Tensor gB = local_tile(mB, Shape<Int<BN>, Int<BK>>{}, make_coord(blockIdx.x, _));  // (BN, BK, k)
    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));

    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), typename Traits::LayoutA{});  // (BM, BK, STAGES)
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), typename Traits::LayoutB{});  // (BN, BK, STAGES)

    typename Traits::Copy tiled_copy;
    auto thread_copy = tiled_copy.get_slice(threadIdx.x);
    Tensor tAgA = thread_copy.partition_S(gA);
    Tensor tAsA = thread_copy.partition_D(sA);
    Tensor tBgB = thread_copy.partition_S(gB);
    Tensor tBsB = thread_copy.partition_D(sB);

    typename Traits::Mma tiled_mma;
    auto thread_mma = tiled_mma.get_slice(threadIdx.x);
    Tensor tCgC = thread_mma.partition_C(gC);
    Tensor tCrA = thread_mma.make_fragment_A(thread_mma.partition_A(sA));  // descriptors (1, MMA_M, MMA_K, STAGES)
    Tensor tCrB = thread_mma.make_fragment_B(thread_mma.partition_B(sB));
    Tensor tCrC = thread_mma.make_fragment_C(tCgC);
    clear(tCrC);

    const int tiles = K / BK;
    const auto fetch = [&](int tile) {
        if (tile < tiles) {
            copy(tiled_copy, tAgA(_, _, _, tile), tAsA(_, _, _, tile % STAGES));
            copy(tiled_copy, tBgB(_, _, _, tile), tBsB(_, _, _, tile % STAGES));
        }
        cp_async_fence();
    };
    CUTE_UNROLL
    for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);

    for (int tile = 0; tile < tiles; ++tile) {
        cp_async_wait<STAGES - 2>();
        cutlass::arch::fence_view_async_shared();
        // The tile is there, and nothing reads the one whose place the next takes.
        cutlass::arch::NamedBarrier::sync(256, kTileBarrier);
        fetch(tile + STAGES - 1);

        warpgroup_fence_operand(tCrC);
        warpgroup_arrive();
        cute::gemm(tiled_mma, tCrA(_, _, _, tile % STAGES), tCrB(_, _, _, tile % STAGES), tCrC);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(tCrC);
    }
    cp_async_wait<0>();
    copy(tCrC, tCgC);
}
