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

//@ section cluster_end
// No block of a cluster ends before all others are done with its shared memory, on whichever way its threads leave.
struct $type {
    __device__ __forceinline__ ~$type() {
        asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
    }
} $name;

//@ section member
// The accumulator in Tensor Memory that $member mirrors.
$tile_type $tile;
//@ for moves
__device__ __forceinline__ void ${move}_$stem() { $call($member, $tile); }
//@ end

//@ section descriptor
constexpr uint32_t idesc = $value;

//@ section mma_thread
// One thread waits for stages and issues the MMAs of all consumers.
if ($elect()) {
    $state_type $state = $tmem.mma_thread();

//@ section begun
// Sums that nothing was added to are not read as zeros there.
if (!$tile.accumulate) __trap();

//@ section tiles
$tiles_type $tiles = $tmem.tiles();
while ($tiles.next()) {

//@ section pair_halves
// A pair of CTAs does what one did, for half the rows and half the columns.
const auto $half_rows = $half_of($rows, $tile_rows);
const auto $half_columns = $half_of($columns, $tile_columns);

//@ section pair_stores
// Half of the rows are this CTA's. Columns that the second CTA loaded follow those of the first.
const $row_type $own_row = $row + $rank() * $row_shift;
const $column_type $first_column = $column;
for (int $part = 0; $part < $ctas; ++$part, $tile.address += $width) {
    const $row_type $row = $own_row;
    const $column_type $column = $first_column + $part * $column_shift;
    if ($row_place >= $rows || $column_place >= $columns) continue;

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
