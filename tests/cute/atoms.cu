// SPDX-License-Identifier: Apache-2.0
// Kernels that issue MMAs by their atoms: each computes A * B^T of 128x64 f16 operands, or what its comment says, into
// D of 128x128.
#include <utility>

#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>

using namespace cute;
using T = half_t;
using SmemLayout = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_128, _64>{}));

namespace own {
__device__ void open_batch() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void close_batch() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ void wait_for() {
    static_assert(N < 8, "");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
__device__ void pin(float& r) { asm volatile("" : "+f"(r)::"memory"); }
}  // namespace own

template <int kN_, class Atom>
struct Mma {
    static constexpr int M = 64, N = kN_, K = 16, kNumAccum = M * N / 128;

    template <size_t... I>
    __device__ static void call(uint64_t a, uint64_t b, float* d, bool scale, std::index_sequence<I...>) {
        Atom::fma(a, b, d[I]..., scale ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero);
    }
    __device__ static void wgmma(uint64_t const& a, uint64_t const& b, float* d, bool scale) {
        call(a, b, d, scale, std::make_index_sequence<N / 2>{});
    }
};

template <int N>
struct Selector {
    static constexpr auto select() {
        if constexpr (N == 64) return SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{};
        if constexpr (N == 128) return SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{};
    }
    using type = Mma<N, decltype(select())>;
};

template <class Atom>
struct FromRegisters {
    template <size_t... I>
    __device__ static void call(uint32_t* a, uint64_t b, float* d, bool scale, std::index_sequence<I...>) {
        Atom::fma(a[0], a[1], a[2], a[3], b, d[I]..., scale ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero);
    }
};

struct Operands {
    alignas(1024) T a[128 * 64], b[128 * 64];
};

__device__ Operands& fetch(T const* a, T const* b) {
    extern __shared__ char storage[];
    auto& operands = *reinterpret_cast<Operands*>(storage);
    for (int i = threadIdx.x; i < 128 * 64; i += blockDim.x) {
        make_tensor(make_smem_ptr(operands.a), SmemLayout{})(i / 64, i % 64) = a[i];
        make_tensor(make_smem_ptr(operands.b), SmemLayout{})(i / 64, i % 64) = b[i];
    }
    cutlass::arch::fence_view_async_shared();
    __syncthreads();
    return operands;
}

// Of rows from `row` on, k-step k.
__device__ uint64_t descriptor(T const* data, int row, int k) {
    GmmaDescriptor desc;
    desc.bitfield.start_address_ = (cast_smem_ptr_to_uint(data) + row * 128 + k * 32) >> 4;
    desc.bitfield.layout_type_ = 1;
    desc.bitfield.leading_byte_offset_ = 0;
    desc.bitfield.stride_byte_offset_ = 64;
    desc.bitfield.base_offset_ = 0;
    return desc;
}

// Registers of an m64nN tile whose first row and column are given.
template <class R>
__device__ void store(R const& registers, int count, float* d, int row, int column) {
    const int thread = threadIdx.x % 128, r = row + thread / 32 * 16 + thread % 32 / 4, c = column + thread % 4 * 2;
    for (int i = 0; i < count; ++i) {
        d[(r + i % 4 / 2 * 8) * 128 + c + i / 4 * 8 + i % 2] = registers[i];
    }
}

// A selector's wrapper with an index sequence; tiles in a loop, each a batch.
extern "C" __global__ void __launch_bounds__(128) wrapped(T const* a, T const* b, float* d) {
    using WGMMA = typename Selector<128>::type;
    auto& s = fetch(a, b);
    float accum[WGMMA::kNumAccum];
    for (int m = 0; m < 2; ++m) {
        own::open_batch();
#pragma unroll
        for (int k = 0; k < 4; ++k) WGMMA::wgmma(descriptor(s.a, m * 64, k), descriptor(s.b, 0, k), accum, k);
        own::close_batch();
        own::wait_for<0>();
        store(accum, WGMMA::kNumAccum, d, m * 64, 0);
    }
}

// Two tiles in one array, by a pointer into it; it begins with zeros.
extern "C" __global__ void __launch_bounds__(128) waves(T const* a, T const* b, float* d) {
    using WGMMA = typename Selector<64>::type;
    constexpr int kWaves = 2;
    auto& s = fetch(a, b);
    for (int n = 0; n < 2; ++n) {
        float accum[WGMMA::kNumAccum * kWaves] = {0};
#pragma unroll
        for (int i = 0; i < WGMMA::kNumAccum * kWaves; ++i) own::pin(accum[i]);
        own::open_batch();
#pragma unroll
        for (int m = 0; m < kWaves; ++m) {
            auto shifted = accum + WGMMA::kNumAccum * m;
#pragma unroll
            for (int k = 0; k < 4; ++k) WGMMA::wgmma(descriptor(s.a, m * 64, k), descriptor(s.b, n * 64, k), shifted, 1);
        }
        own::close_batch();
#pragma unroll
        for (int i = 0; i < WGMMA::kNumAccum * kWaves; ++i) own::pin(accum[i]);
        own::wait_for<0>();
        for (int m = 0; m < kWaves; ++m) store(accum + WGMMA::kNumAccum * m, WGMMA::kNumAccum, d, m * 64, n * 64);
    }
}

// Rows of an array, two warpgroups; scaled by 2 between two halves of K: D = 2 * A0 * B0^T + A1 * B1^T.
extern "C" __global__ void __launch_bounds__(256) scaled(T const* a, T const* b, float* d) {
    using Atom = SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;
    auto& s = fetch(a, b);
    const int row = threadIdx.x / 128 * 64;
    float acc[2][32];
    for (int half = 0; half < 2; ++half) {
        if (half == 1) {
            for (int n = 0; n < 2; ++n) {
                for (int i = 0; i < 32; ++i) acc[n][i] *= 2;
            }
        }
        warpgroup_arrive();
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                Mma<64, Atom>::wgmma(descriptor(s.a, row, half * 2 + k), descriptor(s.b, n * 64, half * 2 + k), &acc[n][0],
                                     half || k);
            }
        }
        warpgroup_commit_batch();
        warpgroup_wait<0>();
    }
    store(acc[0], 32, d, row, 0);
    store(acc[1], 32, d, row, 64);
}

// A from registers, twelve k-steps in one batch: D = 3 * A * B^T.
extern "C" __global__ void __launch_bounds__(128) registers(T const* a, T const* b, float* d) {
    using Atom = SM90_64x128x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>;
    auto& s = fetch(a, b);
    float accum[64] = {0.f};
    const int thread = threadIdx.x, r = thread / 32 * 16 + thread % 32 / 4, c = thread % 4 * 2;
    for (int m = 0; m < 2; ++m) {
        uint32_t words[4][4];
        for (int k = 0; k < 4; ++k) {
            for (int i = 0; i < 4; ++i) {
                T const* from = a + (m * 64 + r + i % 2 * 8) * 64 + k * 16 + i / 2 * 8 + c;
                words[k][i] = *reinterpret_cast<uint32_t const*>(from);
            }
        }
        cute::warpgroup_arrive();
#pragma unroll
        for (int k = 0; k < 12; ++k) {
            FromRegisters<Atom>::call(words[k % 4], descriptor(s.b, 0, k % 4), accum, k > 0, std::make_index_sequence<64>{});
        }
        cute::warpgroup_commit_batch();
        cute::warpgroup_wait<0>();
        store(accum, 64, d, m * 64, 0);
    }
}

// All arguments written out, and asm statements in the kernel: columns 0 to 7 of each tile of 64.
extern "C" __global__ void __launch_bounds__(128) written_out(T const* a, T const* b, float* d) {
    using Atom = SM90_64x8x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;
    auto& s = fetch(a, b);
    float acc[2][4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        Atom::fma(descriptor(s.a, 0, k), descriptor(s.b, 0, k), acc[0][0], acc[0][1], acc[0][2], acc[0][3]);
        Atom::fma(descriptor(s.a, 64, k), descriptor(s.b, 0, k), acc[1][0], acc[1][1], acc[1][2], acc[1][3],
                  GMMA::ScaleOut::One);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int m = 0; m < 2; ++m) {
        float4 v = *reinterpret_cast<float4*>(acc[m]);
        float values[4] = {v.x, v.y, v.z, v.w};
        store(values, 4, d, m * 64, 0);
    }
}
