// SPDX-License-Identifier: Apache-2.0
//
// A kernel in CuTe C++ with the parameters that such kernels have: a struct of types made by templates, with a tensor
// map, a pointer and numbers in it. Each cluster loads a tile once, half by half, with multicast, and stores it scaled.

#include <cstdio>
#include <vector>

#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/cluster_launch.hpp>

using namespace cute;

template <class Load, class Layout>
struct Params {
    Load load;
    float *out;
    int rows, columns;
    float factor;
    Layout layout;
};

template <int Threads, class P>
__global__ __launch_bounds__(Threads) void scale_tiles(__grid_constant__ P const params) {
    extern __shared__ __align__(1024) char memory[];
    auto *tile = reinterpret_cast<half_t *>(memory);
    __shared__ uint64_t full;
    auto stage = make_tensor(make_smem_ptr(tile), typename P::SmemLayout{});
    Tensor whole = params.load.get_tma_tensor(make_shape(params.rows, params.columns));
    const int rank = cute::block_rank_in_cluster();
    // Both blocks of a cluster get the same rows, each issues half of them.
    Tensor block = local_tile(whole, Shape<_64, _64>{}, make_coord(blockIdx.x / 2, 0));
    auto [there, here] = tma_partition(params.load, rank, make_layout(Int<2>{}), group_modes<0, 2>(stage),
                                       group_modes<0, 2>(block));
    if (threadIdx.x == 0) {
        cutlass::arch::ClusterTransactionBarrier::init(&full, 1);
        cutlass::arch::fence_barrier_init();
    }
    cute::cluster_sync();
    if (threadIdx.x == 0) {
        cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(&full, 64 * 64 * sizeof(half_t));
        copy(params.load.with(full, uint16_t(3)), there, here);
    }
    cutlass::arch::ClusterTransactionBarrier::wait(&full, 0);
#ifdef OTHER_FACTOR
    // The same by columns, from the end.
    for (int i = 64 * 64 - 1 - int(threadIdx.x); i >= 0; i -= Threads) {
        const int row = i % 64, column = i / 64;
        if (row / 32 != rank) continue;
        params.out[params.layout(blockIdx.x / 2 * 64 + row, column)] = OTHER_FACTOR * params.factor * float(stage(row, column));
    }
#else
    for (int i = threadIdx.x; i < 32 * 64; i += Threads) {
        const int row = rank * 32 + i / 64, column = i % 64;
        params.out[params.layout(blockIdx.x / 2 * 64 + row, column)] = params.factor * float(stage(row, column));
    }
#endif
    cute::cluster_sync();
}

template <class Load, class Layout, class Smem>
struct Given : Params<Load, Layout> {
    using SmemLayout = Smem;
};

int main() {
    const int rows = 128, columns = 64;
    std::vector<half_t> x(rows * columns);
    for (int i = 0; i < rows * columns; ++i) x[i] = half_t(i % 97 - 48);
    half_t *in = nullptr;
    float *out = nullptr;
    cudaMalloc(&in, x.size() * sizeof(half_t));
    cudaMalloc(&out, x.size() * sizeof(float));
    cudaMemcpy(in, x.data(), x.size() * sizeof(half_t), cudaMemcpyHostToDevice);
    auto smem = tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_64, _64>{});
    Tensor given = make_tensor(make_gmem_ptr(in), make_layout(make_shape(rows, columns), GenRowMajor{}));
    auto load = make_tma_atom(SM90_TMA_LOAD_MULTICAST{}, given, smem, Shape<_64, _64>{}, Int<2>{});
    auto layout = make_layout(make_shape(rows, columns), make_stride(columns, _1{}));
    Given<decltype(load), decltype(layout), decltype(smem)> params{{load, out, rows, columns, 0.25f, layout}};
    auto *kernel = &scale_tiles<128, decltype(params)>;
    const int bytes = 64 * 64 * sizeof(half_t);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cutlass::launch_kernel_on_cluster({dim3(4), dim3(128), dim3(2), bytes}, reinterpret_cast<const void *>(kernel),
                                      params);
    std::vector<float> y(x.size());
    cudaMemcpy(y.data(), out, y.size() * sizeof(float), cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (size_t i = 0; i < y.size(); ++i) wrong += y[i] != 0.25f * float(x[i]);
    std::printf("%d wrong, %s\n", wrong, cudaGetErrorName(cudaGetLastError()));
    return wrong != 0;
}
