// SPDX-License-Identifier: Apache-2.0
// What a port writes among the lines of kernels with tiled MMAs: statements, functions that count columns, and
// expressions. What they call is in the header of `cute_sm100`.

//@ section set_up
// Tensor Memory for the accumulators of each warpgroup.
//@ if named
constexpr int $count = $number;
//@ end
//@ for counted
$line
//@ end
//@ for slots
$line
//@ end
//@ if first
const porter::Tmem<$columns, $count, $ring, $first> $tmem($shared);
//@ else
const porter::Tmem<$columns, $count, $ring> $tmem($shared);
//@ end
auto $state = $tmem.warpgroup($index);
//@ if operand
$state.operand = $state.tmem + $operand;
//@ end

//@ section rank
porter::thread_rank()

//@ section thread_index
porter::thread_index()

//@ section pair_index
porter::pair_index()

//@ section pair_count
porter::pair_count()

//@ section index_of_library
int(porter::$thread$terms)

//@ section columns_function
// $what in Tensor Memory, in each of $warpgroups warpgroups.
template <$head>
//@ if static
__device__ static auto $name() {
//@ else
__device__ auto $name() {
//@ end
//@ for body
    $line
//@ end
    return porter::Int<$result>{};
}

//@ section constant
constexpr int $name = $value;

//@ section columns_if
auto $name = [](auto $parameter) {
    if constexpr ($condition) return porter::Int<$columns>{};
    else return porter::Int<0>{};
};

//@ section call_with_number
$name(porter::Int<$number>{})

//@ section slots_static
__shared__ porter::Shared<$count, $ring> $name;

//@ section slots_type
porter::Slots<$count, $ring>

//@ section slots_member
$kind& $name = reinterpret_cast<$storage*>($array)->$name;

//@ section slots_in_member
auto& $name = reinterpret_cast<$kind&>(reinterpret_cast<$storage*>($array)->$name);

//@ section slots_suffice
static_assert($count <= $most, "more warpgroups multiply than the struct of its shared memory has mbarriers for");

//@ section shared_fits
//@ if beside
static_assert(porter::SharedBytes<sizeof($storage) + sizeof($beside), $most>::kFit);
//@ else
static_assert(porter::SharedBytes<sizeof($storage), $most>::kFit);
//@ end

//@ section raw_pointer
porter::raw_pointer_cast($iterator)

//@ section columns_of
porter::columns_of<$warpgroups, $mma, $fragment>()

//@ section operand_columns
porter::operand_columns_of<$warpgroups, decltype($operand)>()

//@ section no_operand_columns
porter::no_operand_columns<$warpgroups, decltype($mma)>()

//@ section atom_operand_columns
8 * porter::Operand::kSteps

//@ section greater
porter::max($one, $other)

//@ section number_of
decltype($call)::value

//@ section first_column
$state.column($alone, $several)

//@ section declared_type
decltype($expression)

//@ section type_of
porter::remove_cvref_t<decltype($expression)>

//@ section object_of
porter::remove_cvref_t<decltype($expression)>{}

//@ section any_object
porter::declval<$type&>()

//@ section accumulator
//@ if column
porter::accumulator($state, $mma, $value, $column)
//@ else
porter::accumulator($state, $mma, $value)
//@ end

//@ section warpgroup_of
porter::warpgroup($name)

//@ section warpgroup_parameter
porter::Warpgroup& $name

//@ section written
, porter::written()

//@ section commit
//@ if name
porter::commit($name)
//@ else
$warpgroup.commit()
//@ end

//@ section wait
//@ if name
porter::wait<$pending>($name)
//@ else
$warpgroup.wait($pending)
//@ end

//@ section issues
$warpgroup.issues()

//@ section mma_warp
// A warp of its own waits for stages and issues the MMAs of all.
if (porter::is_mma_warp()) {
    porter::Warpgroup $state = $tmem.mma_warp();

//@ section consumer_role
if (porter::is_mma_warp()) $params.role = decltype($params.role)::Consumer;

//@ section begin_sums
porter::begin_sums($state, $names);

//@ section end_sums
$state.end_sums();

//@ section take_sums
porter::take_sums($state, $names);

//@ section return_sums
$state.return_sums();

//@ section release
//@ if name
porter::release($name, $barrier);
//@ else
porter::give_back($warpgroup, $barrier);
//@ end

//@ section release_stage
//@ if name
porter::release($name, $pipeline, $state);
//@ else
porter::give_back($warpgroup, $pipeline, $state);
//@ end

//@ section pipeline_type
//@ if pairs
cutlass::PipelineTmaUmmaAsync<$stages, cute::Shape<cute::_2, cute::_1, cute::_1>, cute::Shape<cute::_2, cute::_1, cute::_1>>
//@ else
cutlass::PipelineTmaUmmaAsync<$stages, cute::Shape<cute::_1, cute::_1, cute::_1>>
//@ end

//@ section cluster_of_pair
cute::Shape<cute::_2, cute::_1, cute::_1>{}

//@ section params_of_pair
porter::of_pair($params)

//@ section load_of_pair
porter::load_of_pair

//@ section of_second_cta
$coordinate + porter::pair_rank() * $half

//@ section pair_stores
// Half of the rows are this CTA's. Columns that the second CTA loaded follow those of the first.
for (int $part = 0; $part < $ctas; ++$part) {
    const auto $own_row = $row + porter::pair_rank() * $row_shift;
    const auto $own_column = $column + $part * $column_shift;
    if ($outside) continue;
    porter::take_part<$width>($state, $part, $sums);

//@ section arrive
//@ if operand and before
porter::arrive<$before>($name, $operand)
//@ else
//@ if operand
porter::arrive($name, $operand)
//@ else
porter::arrive($name)
//@ end
//@ end

//@ section arrive_alone
$warpgroup.arrive()

//@ section one_operand
porter::require_one_operand<$types>()

//@ section own_tiles
porter::require_own_tiles<$types>()

//@ section unrolled
_Pragma("unroll") for

//@ section load
porter::load($name);

//@ section fma
porter::fma<$op>

//@ section array
//@ if half
porter::$class<$element, $extents, true>
//@ else
porter::$class<$element, $extents>
//@ end

//@ section registers
//@ if half
porter::Registers<$element, true>
//@ else
porter::Registers<$element>
//@ end
