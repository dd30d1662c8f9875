// SPDX-License-Identifier: Apache-2.0
// What a port in SM100's own words of CuTe C++ has among the lines of a kernel. `$c` and `$a` are the namespaces of CuTe
// and of CUTLASS's barriers, as the kernel has to write them.

//@ section qualifier
cute::

//@ section header_of_allocator
cute/arch/tmem_allocator_sm100.hpp

//@ section header_of_loads_of_pairs
cute/arch/copy_sm100_tma.hpp

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
    ${c}SM100_MMA_F8F6F4_${of_pair}SS, $a, $b, $d, ${c}Int<$m>, ${c}Int<$n>,
    ${c}integral_constant<${c}UMMA::Major, ${c}UMMA::Major::K>, ${c}integral_constant<${c}UMMA::Major, ${c}UMMA::Major::K>,
    ${c}integral_constant<${c}UMMA::ScaleIn, ${c}UMMA::ScaleIn::$scale_a>,
    ${c}integral_constant<${c}UMMA::ScaleIn, ${c}UMMA::ScaleIn::$scale_b>>>${braces}
//@ else
${c}SM100_MMA_${kind}_${of_pair}${operands}<$a, $b, $d, $m, $n, $arguments>${braces}
//@ end

//@ section pair_of_ctas
2x1SM_

//@ section shape_of_pair
${c}Shape<${c}_2, ${c}_1, ${c}_1>

//@ section operand_of_pair
${c}tiled_divide($tensor, ${c}make_shape(${c}size<0>($tensor), ${c}tile_size<2>($mma)))

//@ section fragment
$slice.make_fragment_$operand($tensor)

//@ section load_of_pair
SM100_TMA_2SM_LOAD::copy

//@ section rank
int(${c}block_rank_in_cluster())

//@ section half_of_box
$coordinate + $rank * ${c}size<0>($tensor)

//@ section leads
$leads && ${c}block_rank_in_cluster() == 0

//@ section row_of_pair
2 * $row + $rank

//@ section rows_of_pairs
${c}ceil_div($size, 2 * $rows) * $rows

//@ section declared_row
const int $name = $row;

//@ section outside
// A pair may have a tile more than there are.
if ($row * $rows >= ${c}size<$index>($tensor)) $leave;

//@ section outside_of_wide
// A pair may have tiles more than there are.
if ($row * $rows >= ${c}size<$index>($tensor) || $column * $columns >= ${c}size<$other>($tensor)) $leave;

//@ section clusters
 __cluster_dims__($dims)

//@ section allocation
//@ if declares
const int $warp = cutlass::canonical_warp_idx_sync();
//@ end
//@ if rotates
using $Accumulators = cutlass::PipelineUmmaAsync<$buffers$of_pair>;
$Accumulators::Params ${accumulators}_params;
${accumulators}_params.role =
    $warp == $issuer ? $Accumulators::ThreadCategory::Producer : $Accumulators::ThreadCategory::Consumer;
${accumulators}_params.producer_arv_count = 1;
${accumulators}_params.consumer_arv_count = $threads;
$Accumulators $accumulators($storage$accumulators, ${accumulators}_params, $cluster{});
//@ end
//@ if pair
cute::TMEM::Allocator2Sm $tmem;
cute::cluster_sync();
//@ else
cute::TMEM::Allocator1Sm $tmem;
//@ end
//@ if rotates
if ($warp == $first) $tmem.allocate($columns, &$storage$base);
//@ else
if ($warp == $first) {
//@ if several
    if (${c}elect_one_sync()) {
        for (int i = 0; i < $groups; ++i) {
            ${c}initialize_barrier($storage$full[i], 1);
            ${c}initialize_barrier($storage$met[i], 128);
        }
    }
//@ else
//@ if met
    if (${c}elect_one_sync()) {
        ${c}initialize_barrier($storage$full, 1);
        ${c}initialize_barrier($storage$met, 128);
    }
//@ else
    if (${c}elect_one_sync()) ${c}initialize_barrier($storage$full, 1);
//@ end
//@ end
    cutlass::arch::fence_barrier_init();
    $tmem.allocate($columns, &$storage$base);
}
//@ end
//@ if stores
asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
//@ end
//@ if meets and pair
cute::cluster_sync();
//@ end
//@ if meets and not pair
__syncthreads();
//@ end
//@ if meets and stores
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
//@ end

//@ section struct_of_storage
struct alignas(1024) $kind {  // so that dynamic shared memory keeps its alignment
//@ for fields
    $line
//@ end
};

//@ section storage
//@ if rotates
alignas($kind) __shared__ char $bytes[sizeof($kind)];
auto& $name = *reinterpret_cast<$kind*>($bytes);
//@ else
__shared__ $kind $name;
//@ end

//@ section shape_of_one
${c}Shape<${c}_1, ${c}_1, ${c}_1>

//@ section meeting_of_pair
cute::cluster_sync();

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
${c}Tensor $tensor_part = $share_of_rows;
//@ end
//@ if by_columns
const auto $part = ${c}make_coord(${c}_0{}, $index);  // each warpgroup takes its share of the columns
using $Part = ${c}Shape<${c}Int<$m>, ${c}Int<$share>>;
${c}Tensor $tensor_part = $share_of_columns;
//@ end
auto $t2r = ${c}make_tmem_copy(${c}SM100_TMEM_LOAD_${how}${repeat}x$suffix{}, $tensor_part);
auto $thread = $t2r.get_slice(threadIdx.x % 128);

//@ section share_of_columns
${c}local_tile($tensor(${c}make_coord(${c}_, ${c}_), ${c}_0{}, ${c}_0{}), $Part{}, $part)

//@ section share_of_rows
$tensor(${c}make_coord(${c}_, ${c}_), $index, ${c}_0{})

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
//@ if whole
$thread.partition_D($tensor)
//@ end
//@ if shared and not whole
$thread.partition_D(${c}local_tile($tensor, $Part{}, $part))
//@ end
//@ if not shared
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
//@ if pair
cutlass::arch::umma_arrive_multicast_2x1SM(&$storage$full, 3);
//@ else
cutlass::arch::umma_arrive(&$storage$full);
//@ end

//@ section commit_of_warp
if ($warp == $first) cutlass::arch::umma_arrive(&$storage$full);

//@ section release
cutlass::arch::umma_arrive($barrier);

//@ section member_of_accumulators
cutlass::PipelineUmmaAsync<$buffers$of_pair>::SharedStorage $accumulators;

//@ section role
if (cutlass::canonical_warp_idx_sync() == $issuer) $params.role = ${role}Consumer;  // it issues MMAs

//@ section role_of
decltype($params.role)::

//@ section issues
//@ if pair
$warp == $issuer && ${c}block_rank_in_cluster() == 0
//@ else
$warp == $issuer
//@ end

//@ section next_accumulator
auto $next = cutlass::make_producer_start_state<$kind>();

//@ section state_of_accumulators
cutlass::PipelineState<$buffers> $full;

//@ section acquire
//@ if pair
// Threads of both CTAs give it back, so that the wait has the scope of the cluster.
for (uint32_t empty = 0; empty == 0;) {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(empty)
                 : "r"(${c}cast_smem_ptr_to_uint(&$storage$accumulators.empty_barrier_[$next.index()])), "r"($next.phase())
                 : "memory");
}
//@ else
$accumulators.producer_acquire($next);
//@ end
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
//@ if turns
$tensor.data() = $storage$base + $next.index() * $columns;
//@ end

//@ section hand_over
$accumulators.producer_commit($next);
++$next;

//@ section take
$accumulators.consumer_wait($full);
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
//@ if turns
$tensor.data() = $storage$base + $full.index() * $columns;
//@ end

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
//@ if rotates
//@ if pair
asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(${c}set_block_rank(
                 ${c}cast_smem_ptr_to_uint(&$storage$accumulators.empty_barrier_[$full.index()]), 0))
             : "memory");
//@ else
$accumulators.consumer_release($full);
//@ end
++$full;
//@ else
//@ if pair
cute::cluster_sync();
//@ else
//@ if whole
__syncthreads();
//@ else
cutlass::arch::NamedBarrier::sync($threads, cutlass::arch::ReservedNamedBarriers::TmemAllocBarrier);
//@ end
//@ end
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
//@ end

//@ section free
//@ if rotates
//@ if pair
cute::cluster_sync();
//@ else
cutlass::arch::NamedBarrier::sync($threads, cutlass::arch::ReservedNamedBarriers::TmemAllocBarrier);
//@ end
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
//@ end
if ($warp == $first) {
    $tmem.release_allocation_lock();
    $tmem.free($storage$base, $columns);
}


//@ section question_of_fragment
asm volatile("// $mark $index %0 %1 %2 %3 %4 %5 %6 %7 %8 %9 %10 %11" ::"n"(int(decltype(cute::size<1>($sum))::value)), "n"(int(decltype(cute::size<2>($sum))::value)), "n"(int(decltype(cute::tile_size<1>($mma))::value)), "n"(int(decltype(cute::size($mma))::value)), "n"(int(decltype(cute::size<1>(typename cute::remove_cvref_t<decltype($mma)>::ThrLayoutVMNK{}))::value)), "n"(int(decltype(cute::size<2>(typename cute::remove_cvref_t<decltype($mma)>::ThrLayoutVMNK{}))::value)), "n"(int(cute::is_same_v<decltype(cute::coalesce($sum.layout())), decltype(cute::coalesce(cute::make_layout(cute::size($sum))))> && decltype(cute::tile_size<1>($mma))::value == decltype(cute::size<1>(typename cute::remove_cvref_t<decltype($mma)>::AtomShape_MNK{}))::value * decltype(cute::size<2>(typename cute::remove_cvref_t<decltype($mma)>::ThrLayoutVMNK{}))::value)), "n"($type_a), "n"($type_b), "n"($type_d), "n"($from_a), "n"($from_b));

//@ section question_of_number
asm volatile("// $mark $index %0" ::"n"(int($number)));

//@ section code_of_type
int(cute::is_same_v<$type, cute::half_t> * 1 + cute::is_same_v<$type, cute::bfloat16_t> * 2 + cute::is_same_v<$type, cute::tfloat32_t> * 3 + cute::is_same_v<$type, cute::float_e4m3_t> * 4 + cute::is_same_v<$type, cute::float_e5m2_t> * 5 + cute::is_same_v<$type, float> * 6)

//@ section code_of_source
int(cute::is_same_v<$type, cute::GMMA::smem_desc<cute::GMMA::Major::K>> * 1 + cute::is_same_v<$type, cute::GMMA::smem_desc<cute::GMMA::Major::MN>> * 2)

//@ section member_of_mma
typename cute::remove_cvref_t<decltype($mma)>::$member

//@ section question_of_operand
asm volatile("// $mark $index %0 %1 %2 %3 %4" ::"n"(int(decltype(cute::size($operand))::value)), "n"(int(decltype(cute::rank($operand))::value)), "n"(int(decltype(cute::size<1>($operand))::value)), "n"(int(cute::is_same_v<decltype(cute::coalesce($operand.layout())), decltype(cute::coalesce(cute::make_layout(cute::size($operand))))>)), "n"(int($steps)));

//@ section has_steps_of
2 * decltype(cute::size($operand))::value == decltype(cute::tile_size<2>($mma))::value * decltype(cute::size<2>($by))::value

//@ section mma_beside
//@ if described
auto $umma = ${c}make_tiled_mma(
    ${c}MMA_Atom<${c}MMA_Traits<
        ${c}SM100_MMA_F8F6F4_SS, $a, $b, $d, ${c}_64, ${c}Int<$n>,
        ${c}integral_constant<${c}UMMA::Major, ${c}UMMA::Major::$major_a>, ${c}integral_constant<${c}UMMA::Major, ${c}UMMA::Major::$major_b>,
        ${c}integral_constant<${c}UMMA::ScaleIn, ${c}UMMA::ScaleIn::One>,
        ${c}integral_constant<${c}UMMA::ScaleIn, ${c}UMMA::ScaleIn::One>>>{}$layout);
//@ else
auto $umma = ${c}make_tiled_mma(
    ${c}SM100_MMA_${kind}_${operands}<$a, $b, $d, 64, $n, ${c}UMMA::Major::$major_a, ${c}UMMA::Major::$major_b>{}$layout);
//@ end
auto $cta = $umma.get_slice($index);

//@ section layout_of_groups
, ${c}Layout<${c}Shape<$m, $n, ${c}_1>>{}

//@ section index_of_group
cutlass::canonical_warp_group_idx()$first

//@ section type_of_mma
typename decltype($mma)::$member

//@ section width_of_mma
${c}tile_size<1>($mma)

//@ section width_of_tile
${c}size<1>($tile)

//@ section groups_of_mma
decltype(${c}size<$mode>(typename decltype($mma)::ThrLayoutVMNK{}))::value

//@ section size_of_mma
${c}size($mma)

//@ section residence
// Tensor Memory that MMAs add to, and what copies between it and registers in the order of Hopper's MMAs.
//@ if several
const int $group = int(threadIdx.x) / 128$first;
const uint32_t $base = $storage$published$own
//@ end
//@ if declares_warp
const int $warp = cutlass::canonical_warp_idx_sync();
//@ end
//@ if declares_issues
const bool $issues = $warp % 4 == 0;
//@ end
//@ if declares_phases and met
int $met_phase = 0;
//@ end
//@ if declares_phases
int $phase = 0;
//@ end

//@ section phases
//@ if met
int $met_phase = 0, $phase = 0;
//@ else
int $phase = 0;
//@ end

//@ section phase_by_reference
int& $name

//@ section storage_by_reference
$kind& $name

//@ section columns_of_pairs
 + $group / 2 * $columns

//@ section halves_of_lanes
 + ($group % 2 << 20)$pairs;  // two warpgroups share columns: 16 lanes on

//@ section columns_apart
 + $group * $columns;

//@ section tensor_of_sums
${c}Tensor $tensor = ${c}partition_fragment_C($umma, $shape);
$tensor.data() = $base$column;
auto $load = ${c}make_tmem_copy(${c}SM100_TMEM_LOAD_16dp256b${repeat}x{}, $tensor);
auto $t2r = $load.get_slice(threadIdx.x % 128);
//@ if stored
auto $store = ${c}make_tmem_copy(${c}SM100_TMEM_STORE_16dp256b${repeat}x{}, $tensor);
auto $r2t = $store.get_slice(threadIdx.x % 128);
//@ end

//@ section tensor_of_operand
${c}Tensor $tensor = $cta.make_fragment_A(${c}partition_shape_A($umma, $shape));
$tensor.data() = $base + $column;
auto $store = ${c}make_tmem_copy(${c}SM100_TMEM_STORE_16dp128b${repeat}x{}, $tensor);
auto $r2t = $store.get_slice(threadIdx.x % 128);

//@ section shape_of_tile
${c}make_shape(${c}tile_size<0>($umma)$m_tiles, ${c}tile_size<1>($umma)$n_tiles)

//@ section count_of_tiles
 * ${c}size<$mode>($registers)

//@ section shape_by_steps
${c}make_shape(${c}tile_size<0>($umma), ${c}tile_size<2>($umma) * ${c}size<2>($by))

//@ section shape_of_numbers
${c}Shape<${c}Int<$rows>, ${c}Int<$columns>>{}

//@ section load_registers
${c}copy($load, $t2r.partition_S($tensor), ${c}make_tensor($registers.data(), ${c}shape($t2r.partition_D($tensor))));

//@ section loaded
cutlass::arch::fence_view_async_tmem_load();

//@ section store_registers
${c}copy($store, ${c}make_tensor($registers.data(), ${c}shape($r2t.partition_S($tensor))), $r2t.partition_D($tensor));

//@ section stored
cutlass::arch::fence_view_async_tmem_store();

//@ section meet
asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
//@ if whole
__syncthreads();
//@ else
${c}arrive_barrier($storage$met);
${c}wait_barrier($storage$met, $phase);
$phase ^= 1;
//@ end
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

//@ section complete
//@ if commits
if ($issues) cutlass::arch::umma_arrive(&$storage$full);
//@ end
${c}wait_barrier($storage$full, $phase);
$phase ^= 1;
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

//@ section leave
asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
//@ if whole
__syncthreads();
//@ else
cutlass::arch::NamedBarrier::sync($threads, cutlass::arch::ReservedNamedBarriers::TmemAllocBarrier);
//@ end
asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
