// SPDX-License-Identifier: Apache-2.0
// What a port in SM100's own words of CuTe C++ has among the lines of a kernel. `$c` and `$a` are the namespaces of CuTe
// and of CUTLASS's barriers, as the kernel has to write them.

//@ section qualifier
cute::

//@ section header_of_allocator
cute/arch/tmem_allocator_sm100.hpp

//@ section header_of_barriers
cutlass/arch/barrier.h

//@ section header_of_pipelines
cutlass/pipeline/sm100_pipeline.hpp

//@ section header_of_hoppers_pipelines
cutlass/pipeline/sm90_pipeline.hpp

//@ section header_of_all_pipelines
cutlass/pipeline/pipeline.hpp

//@ section type_F16
half_t

//@ section type_BF16
bfloat16_t

//@ section type_TF32
tfloat32_t

//@ section type_E4M3
float_e4m3_t

//@ section type_E5M2
float_e5m2_t

//@ section type_of_sums
typename decltype($tensor)::value_type

//@ section namespace
${c}UMMA

//@ section over_k
CUTE_UNROLL
for (int $index = 0; $index < ${c}size<2>($operand); ++$index) {

//@ section fence_copies
cutlass::arch::fence_view_async_shared();
//@ if meets
__syncthreads();
//@ end

//@ section question
asm volatile("// $mark $index %0 %1 %2 %3 %4 %5" ::"n"(int(decltype(cute::tile_size<0>($mma))::value * decltype(cute::size<1>($accumulator))::value)), "n"(int(decltype(cute::tile_size<1>($mma))::value * decltype(cute::size<2>($accumulator))::value)), "n"(int(decltype(cute::size($mma))::value)), "n"(int(sizeof(typename cute::remove_cvref_t<decltype($accumulator)>::value_type))), "n"(int(cute::sizeof_bits_v<typename cute::remove_cvref_t<decltype($mma)>::ValTypeA>)), "n"(int($depth)));

//@ section depth
decltype(cute::tile_size<2>($mma))::value * decltype(cute::size<2>($operand))::value

//@ section atom
//@ if narrow
${c}MMA_Atom<${c}MMA_Traits<
    ${c}SM100_MMA_F8F6F4_SS, $a, $b, $d, ${c}Int<$m>, ${c}Int<$n>,
    ${c}integral_constant<${c}UMMA::Major, ${c}UMMA::Major::K>, ${c}integral_constant<${c}UMMA::Major, ${c}UMMA::Major::K>,
    ${c}integral_constant<${c}UMMA::ScaleIn, ${c}UMMA::ScaleIn::$scale_a>,
    ${c}integral_constant<${c}UMMA::ScaleIn, ${c}UMMA::ScaleIn::$scale_b>>>${braces}
//@ else
${c}SM100_MMA_${kind}_${operands}<$a, $b, $d, $m, $n, $arguments>${braces}
//@ end

//@ section allocation
//@ if declares
const int $warp = cutlass::canonical_warp_idx_sync();
//@ end
cute::TMEM::Allocator1Sm $tmem;
if ($warp == $first) {
    if (${c}elect_one_sync()) ${c}initialize_barrier($storage$full, 1);
    cutlass::arch::fence_barrier_init();
    $tmem.allocate($columns, &$storage$base);
}
//@ if stores
asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
//@ end
//@ if meets
__syncthreads();
//@ end
//@ if meets and stores
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
//@ end

//@ section meeting
__syncthreads();

//@ section base
$tensor.data() = $storage$base;

//@ section accumulator
//@ if by_rows and named
const auto $part = ${c}make_coord($index, ${c}_0{});  // each warpgroup takes 128 rows
using $Part = ${c}Shape<${c}Int<128>, ${c}Int<$n>>;
//@ end
//@ if by_rows
${c}Tensor $tensor_part = $tensor(${c}make_coord(${c}_, ${c}_), $index, ${c}_0{});
//@ end
//@ if by_columns
const auto $part = ${c}make_coord(${c}_0{}, $index);  // each warpgroup takes its share of the columns
using $Part = ${c}Shape<${c}Int<$m>, ${c}Int<$share>>;
${c}Tensor $tensor_part = ${c}local_tile($tensor(${c}make_coord(${c}_, ${c}_), ${c}_0{}, ${c}_0{}), $Part{}, $part);
//@ end
auto $t2r = ${c}make_tmem_copy(${c}SM100_TMEM_LOAD_${how}${repeat}x$suffix{}, $tensor_part);
auto $thread = $t2r.get_slice(threadIdx.x % 128);

//@ section operand
${c}Tensor $tensor = $slice.make_fragment_A(${c}partition_shape_A($mma, ${c}Shape<${c}Int<$m>, ${c}Int<$k>>{}));
$tensor.data() = $storage$base + $column;
//@ if shared
const auto $share = ${c}make_shape(${c}shape<0>($tensor), ${c}_1{}, ${c}Int<$steps>{});  // what a warpgroup stores
//@ if by_rows
const auto $place = ${c}make_coord(${c}_0{}, $index, ${c}_0{});
//@ else
const auto $place = ${c}make_coord(${c}_0{}, ${c}_0{}, $index);
//@ end
${c}Tensor $tensor_part = ${c}local_tile($tensor, $share, $place);
//@ end
auto $r2t = ${c}make_tmem_copy(${c}SM100_TMEM_STORE_32dp32b${repeat}x{}, $tensor_part);
auto $thread = $r2t.get_slice(threadIdx.x % 128);

//@ section operand_load
//@ if tiles
const auto $part = [&](int $tile) {
    return $loaded;
};
//@ else
$head$loaded;
//@ end

//@ section operand_store
${c}copy($r2t, $registers, $thread.partition_D($tensor_part));
cutlass::arch::fence_view_async_tmem_store();
asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
//@ if whole
__syncthreads();
//@ else
cutlass::arch::NamedBarrier::sync($threads, cutlass::arch::ReservedNamedBarriers::TmemAllocBarrier);
//@ end

//@ section after
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

//@ section registers
${c}make_tensor<$type>(${c}shape($like))

//@ section identity
$thread.partition_D(${c}make_identity_tensor(${c}shape($tensor)))

//@ section part
//@ if shared
$thread.partition_D(${c}local_tile($tensor, $Part{}, $part))
//@ else
$thread.partition_D($slice.partition_C($tensor))
//@ end

//@ section share
//@ if by_rows
${c}local_tile($tensor, ${c}make_shape(${c}Int<128>{}, ${c}size<1>($tensor)), ${c}make_coord($index, ${c}_0{}))
//@ else
${c}local_tile($tensor, ${c}make_shape(${c}size<0>($tensor), ${c}size<1>($tensor) / ${c}Int<$count>{}), ${c}make_coord(${c}_0{}, $index))
//@ end

//@ section phase
int $phase = 0;

//@ section commit
cutlass::arch::umma_arrive(&$storage$full);

//@ section commit_of_warp
if ($warp == $first) cutlass::arch::umma_arrive(&$storage$full);

//@ section release
cutlass::arch::umma_arrive($barrier);

//@ section wait
${c}wait_barrier($storage$full, $phase);
//@ if turns
$phase ^= 1;
//@ end
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

//@ section load
${c}copy($t2r, $thread.partition_S($tensor), $registers);
cutlass::arch::fence_view_async_tmem_load();
asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
//@ if whole
__syncthreads();
//@ else
cutlass::arch::NamedBarrier::sync($threads, cutlass::arch::ReservedNamedBarriers::TmemAllocBarrier);
//@ end
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

//@ section free
if ($warp == $first) {
    $tmem.release_allocation_lock();
    $tmem.free($storage$base, $columns);
}
