# SPDX-License-Identifier: Apache-2.0
"""Which warpgroups multiply, and how the kernel says so."""

from dsl_variant_types import Mma, add

WORK = "product(mma, sA, sB, mC, tiles, {})\n"
HALVES = {"mma": Mma((1, 1), 64)}
TWO = (256, 1, 1)
THREE = (384, 1, 1)


def issuing(name: str, condition: str, thread: str, block: tuple[int, int, int] = TWO, **values: object) -> None:
    """A kernel where one condition lets those in that multiply."""
    body = f"if {condition}:\n    product(mma, sA, sB, mC, tiles, {thread})\n"
    add("warpgroups", name, body, block=block, **values)


add("warpgroups", "all_of_one", WORK.format("tidx"))
add("warpgroups", "all_of_two", WORK.format("tidx"), block=TWO, m=128, mmas={"mma": Mma((2, 1))})
add("warpgroups", "all_of_three", WORK.format("tidx"), block=THREE, m=192, mmas={"mma": Mma((3, 1))})
add("warpgroups", "five", WORK.format("tidx"), block=(640, 1, 1), m=320, n=32, mmas={"mma": Mma((5, 1))})
add("warpgroups", "beside_each_other", WORK.format("tidx"), block=TWO, n=128, mmas={"mma": Mma((1, 2), 64)})
add("warpgroups", "two_by_two", WORK.format("tidx"), block=(512, 1, 1), m=128, n=128, mmas={"mma": Mma((2, 2), 64)})
issuing("first_of_two", "warp_idx < 4", "tidx")
issuing("second_of_two", "warp_idx >= 4", "tidx - 128")
issuing("greater_than", "warp_idx > 3", "tidx - 128")
issuing("threads_quotient", "tidx // 128 == 1", "tidx % 128")
issuing("threads_shift", "(tidx >> 7) == 1", "tidx & 127")
issuing("bit_of_the_warp", "(warp_idx >> 2) & 1 == 1", "tidx - 128")
issuing("remainder", "warp_idx // 4 % 2 == 1", "tidx - 128")
issuing("negated", "not (warp_idx < 4)", "tidx - 128")
issuing("not_equal", "warp_idx // 4 != 0", "tidx - 128")
issuing("range_with_and", "warp_idx >= 4 and warp_idx < 8", "tidx - 128", THREE)
issuing("range_with_or", "warp_idx < 4 or warp_idx >= 12", "tidx", (384, 1, 1))
issuing("first_and_third", "warp_idx // 4 != 1", "tidx % 256 if tidx < 128 else tidx - 128", THREE, m=128,
        mmas={"mma": Mma((2, 1))})  # fmt: skip
issuing("two_in_the_middle", "warp_idx >= 4 and warp_idx < 12", "tidx - 128", (512, 1, 1), m=128,
        mmas={"mma": Mma((2, 1))})  # fmt: skip
issuing("a_warp_more", "warp_idx < 4", "tidx", (160, 1, 1))
issuing("rows_of_threads", "tidy >= 4", "thread - 128", (32, 8, 1))
issuing("second_row", "tidy == 1", "tidx", (128, 2, 1))
issuing("three_dimensions", "tidz == 1", "tidx + 64 * tidy", (64, 2, 2))
issuing("known_at_run_time", "warp_idx // 4 == tiles - 2", "tidx - 128")

add(
    "warpgroups", "named_role", """
    group = cute.arch.make_warp_uniform(tidx // 128)
    consumer = group == 2
    if consumer:
        product(mma, sA, sB, mC, tiles, tidx - 256)
    """, block=THREE,
)  # fmt: skip
add(
    "warpgroups", "nested_conditions", """
    if warp_idx < 8:
        if warp_idx >= 4:
            product(mma, sA, sB, mC, tiles, tidx - 128)
    """, block=THREE,
)  # fmt: skip
add(
    "warpgroups", "else_branch", """
    if warp_idx < 4:
        cute.arch.setmaxregister_decrease(40)
    else:
        cute.arch.setmaxregister_increase(232)
        product(mma, sA, sB, mC, tiles, tidx - 128)
    """, block=TWO,
)  # fmt: skip
CHAIN = """
if warp_idx < 4:
    pass
elif warp_idx < 8:
    product(mma, cute.local_tile(sA, (64, TILE_K), (0, 0, None)), sB, cute.local_tile(mC, (64, N), (0, 0)), tiles,
            tidx - 128)
elif warp_idx < 12:
    product(other, cute.local_tile(sA, (64, TILE_K), (1, 0, None)), sB, cute.local_tile(mC, (64, N), (1, 0)), tiles,
            tidx - 256)
"""
TWO_MMAS = {"mma": Mma(), "other": Mma()}
add("warpgroups", "elif_chain", CHAIN, block=(512, 1, 1), m=128, mmas=TWO_MMAS)
add(
    "warpgroups", "both_branches", """
    if warp_idx < 4:
        product(mma, cute.local_tile(sA, (64, TILE_K), (0, 0, None)), sB, cute.local_tile(mC, (64, N), (0, 0)), tiles,
                tidx)
    else:
        product(other, cute.local_tile(sA, (64, TILE_K), (1, 0, None)), sB, cute.local_tile(mC, (64, N), (1, 0)),
                tiles, tidx - 128)
    """, block=TWO, m=128, mmas=TWO_MMAS,
)  # fmt: skip
add(
    "warpgroups", "different_tiles", """
    if warp_idx < 4:
        product(narrow, sA, cute.local_tile(sB, (32, TILE_K), (0, 0, None)), cute.local_tile(mC, (64, 32), (0, 0)),
                tiles, tidx)
    else:
        product(wide, sA, cute.local_tile(sB, (64, TILE_K), (1, 0, None)), cute.local_tile(mC, (64, 64), (0, 1)),
                tiles, tidx - 128)
        product(other, sA, cute.local_tile(sB, (32, TILE_K), (1, 0, None)), cute.local_tile(mC, (64, 32), (0, 1)),
                tiles, tidx - 128)
    """, block=TWO, n=128, mmas={"narrow": Mma((1, 1), 32), "wide": Mma((1, 1), 64), "other": Mma((1, 1), 32)},
)  # fmt: skip
add(
    "warpgroups", "one_after_the_other", """
    group = warp_idx // 4
    for turn in cutlass.range(2, unroll=1):
        if group == turn:
            product(mma, cute.local_tile(sA, (64, TILE_K), (group, 0, None)), sB,
                    cute.local_tile(mC, (64, N), (group, 0)), tiles, tidx % 128)
        cute.arch.sync_threads()
    """, block=TWO, m=128,
)  # fmt: skip
add(
    "warpgroups", "ping_pong", """
    group = warp_idx // 4
    mine = cute.local_tile(sA, (64, TILE_K), (group, 0, None))
    if group == 1:
        cute.arch.barrier(barrier_id=2, number_of_threads=256)
    product(mma, mine, sB, cute.local_tile(mC, (64, N), (group, 0)), tiles, tidx % 128)
    if group == 0:
        cute.arch.barrier_arrive(barrier_id=2, number_of_threads=256)
    """, block=TWO, m=128,
)  # fmt: skip
add(
    "warpgroups", "tiles_by_turns_of_a_loop", """
    place = cutlass.Int32(0)
    for i in cutlass.range(warp_idx // 4, unroll=1):
        place += 1
    mine = cute.local_tile(sA, (64, TILE_K), (place, 0, None))
    product(mma, mine, sB, cute.local_tile(mC, (64, N), (place, 0)), tiles, tidx % 128)
    """, block=TWO, m=128,
)  # fmt: skip
IN_TURN = """
group = warp_idx // 4
order = smem.allocate_array(cutlass.Int64, 2)
if tidx == 0:
    for i in cutlass.range_constexpr(2):
        cute.arch.mbarrier_init(order + i, 128)
cute.arch.mbarrier_init_fence()
cute.arch.sync_threads()
thr = mma.get_slice(tidx % 128)
tCrA = mma.make_fragment_A(thr.partition_A(cute.local_tile(sA, (64, TILE_K), (group, 0, None))))
tCrB = mma.make_fragment_B(thr.partition_B(sB))
acc = mma.make_fragment_C(mma.partition_shape_C((64, N)))
phase = 1 - group
for t in cutlass.range(tiles, unroll=1):
    cute.arch.mbarrier_wait(order + group, phase)
    {ahead}
    mma.set(warpgroup.Field.ACCUMULATE, t > 0)
    warpgroup.fence()
    cute.gemm(mma, acc, tCrA[None, None, None, t], tCrB[None, None, None, t], acc)
    warpgroup.commit_group()
    {behind}
    cute.arch.mbarrier_arrive(order + 1 - group)
    warpgroup.wait_group(0)
    phase ^= 1
store(mma, acc, cute.local_tile(mC, (64, N), (group, 0)), tidx % 128)
"""
add("warpgroups", "turns_at_mbarriers", IN_TURN.format(ahead="", behind=""), block=TWO, m=128)
add(
    "warpgroups", "refills_by_a_producer", """
    thr = mma.get_slice(tidx % 128)
    if warp_idx < 4:
        for t in cutlass.range(tiles, unroll=1):
            cute.arch.barrier(barrier_id=2, number_of_threads=256)
            for i in cutlass.range(tidx, N * TILE_K, 128, unroll=1):
                sB[i // TILE_K, i % TILE_K, 0] = mB[i // TILE_K, t * TILE_K + i % TILE_K]
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=1, number_of_threads=256)
    else:
        tCrA = mma.make_fragment_A(thr.partition_A(sA))
        tCrB = mma.make_fragment_B(thr.partition_B(sB))
        acc = mma.make_fragment_C(mma.partition_shape_C((M, N)))
        for t in cutlass.range(tiles, unroll=1):
            cute.arch.barrier(barrier_id=2, number_of_threads=256)
            cute.arch.barrier(barrier_id=1, number_of_threads=256)
            mma.set(warpgroup.Field.ACCUMULATE, t > 0)
            warpgroup.fence()
            for k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                cute.gemm(mma, acc, tCrA[None, None, k, t], tCrB[None, None, k, 0], acc)
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
        store(mma, acc, mC, tidx - 128)
    """, block=TWO,
)  # fmt: skip
