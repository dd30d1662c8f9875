// SPDX-License-Identifier: Apache-2.0
// A tile of 128 x 256 floats from Tensor Memory to global memory by CuTe's copy, with loads of one column or of 32.
#include <cute/arch/tmem_allocator_sm100.hpp>
#include <cute/tensor.hpp>

using namespace cute;

template <class Atom>
CUTE_DEVICE void drain(float* out) {
    __shared__ uint32_t base;
    TMEM::Allocator1Sm allocator{};
    if (threadIdx.x < 32) allocator.allocate(TMEM::Allocator1Sm::Sm100TmemCapacityColumns, &base);
    __syncthreads();
    Tensor accumulator = make_tensor(make_tmem_ptr<float>(base),
                                     make_layout(make_shape(make_shape(_128{}, _256{}), _1{}, _1{}),
                                                 make_stride(make_stride(Int<65536>{}, _1{}), _0{}, _0{})));
    Tensor tile = make_tensor(make_gmem_ptr(out), make_layout(make_shape(make_shape(_128{}, _256{}), _1{}, _1{}),
                                                              make_stride(make_stride(_256{}, _1{}), _0{}, _0{})));
    auto load = make_tmem_copy(Atom{}, accumulator);
    auto thread = load.get_slice(threadIdx.x);
    Tensor values = make_tensor<float>(shape(thread.partition_D(tile)));
    copy(load, thread.partition_S(accumulator), values);
    copy(values, thread.partition_D(tile));
    __syncthreads();
    if (threadIdx.x < 32) {
        allocator.release_allocation_lock();
        allocator.free(base, TMEM::Allocator1Sm::Sm100TmemCapacityColumns);
    }
}

extern "C" __global__ void __launch_bounds__(128) t2r_x1(float* out) { drain<SM100_TMEM_LOAD_32dp32b1x>(out); }
extern "C" __global__ void __launch_bounds__(128) t2r_x32(float* out) { drain<SM100_TMEM_LOAD_32dp32b32x>(out); }
