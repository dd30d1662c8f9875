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
