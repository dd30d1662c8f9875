// SPDX-License-Identifier: Apache-2.0
// Lines that a port writes among those of a kernel, and the guards around what stays for Hopper.

//@ section tensor_memory
// Tensor Memory for $who.
__shared__ $shared_type<$count> $shared;
const $tmem_type<$columns, $count> $tmem($shared);

//@ section warpgroup
$state_type $state = $tmem.warpgroup($index);

//@ section together
// Lanes that return apart meet behind this, where Tensor Memory is freed.
[&] {

//@ section apart
}();

//@ section member
// The accumulator in Tensor Memory that $member mirrors.
$tile_type $tile;
//@ for moves
__device__ __forceinline__ void ${move}_$stem() { $call($member, $tile); }
//@ end

//@ section descriptor
constexpr uint32_t idesc = $value;

//@ section hopper_only
#if defined($guard)

//@ section elsewhere
//@ if host
#elif defined(__CUDA_ARCH__)
//@ else
#else
//@ end
    __trap();
//@ if value
    __builtin_unreachable();
//@ end
#endif
