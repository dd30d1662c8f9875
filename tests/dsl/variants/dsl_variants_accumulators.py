# SPDX-License-Identifier: Apache-2.0
"""What a kernel does with its accumulators, and how it holds them."""

import textwrap

from dsl_variant_types import Mma, add

PARTS = """
thr = mma.get_slice(tidx)
tCrA = mma.make_fragment_A(thr.partition_A(sA))
tCrB = mma.make_fragment_B(thr.partition_B(sB))
"""
FRAGMENT = "mma.make_fragment_C(mma.partition_shape_C((M, N)))"
ONE = PARTS + f"acc = {FRAGMENT}\n"
ADDS = "mma.set(warpgroup.Field.ACCUMULATE, True)\n"
ZERO = ONE + "acc.fill(0)\n" + ADDS
STEP = """
warpgroup.fence()
cute.gemm(mma, {acc}, tCrA[None, None, None, {t}], tCrB[None, None, None, {t}], {acc})
warpgroup.commit_group()
warpgroup.wait_group(0)
"""
DOUBLED = "c = 8 * p[0] + 4 * p[1] + 2 * p[2]"
STORE = "store(mma, acc, mC, tidx)\n"


def step(acc: str = "acc", t: object = "t") -> str:
    return STEP.format(acc=acc, t=t)


def block(head: str, *body: str) -> str:
    return f"{head}:\n" + textwrap.indent("\n".join(textwrap.dedent(b) for b in body), "    ") + "\n"


def loop(*body: str, over: str = "t in cutlass.range(tiles, unroll=1)") -> str:
    return block(f"for {over}", *body)


def acc(name: str, *texts: str, **values: object) -> None:
    add("accumulators", name, "\n".join(textwrap.dedent(t) for t in texts), **values)


KBLOCKS = """
warpgroup.fence()
for k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
    cute.gemm(mma, acc, tCrA[None, None, k, t], tCrB[None, None, k, t], acc)
    mma.set(warpgroup.Field.ACCUMULATE, True)
warpgroup.commit_group()
warpgroup.wait_group(0)
"""
acc("no_tiles_at_all", ZERO, loop(step()), STORE, tiles=0, want="c = 0 * p[0]")
acc("not_added_first", ONE, "mma.set(warpgroup.Field.ACCUMULATE, False)", loop(KBLOCKS), STORE)
acc("added_from_the_second_on", ONE, loop("mma.set(warpgroup.Field.ACCUMULATE, t > 0)", KBLOCKS), STORE)
acc("added_by_a_number", ONE, "flag = cutlass.Boolean(False)",
    loop("mma.set(warpgroup.Field.ACCUMULATE, flag)", KBLOCKS, "flag = cutlass.Boolean(True)"), STORE)  # fmt: skip
acc("maybe_added_to_values", ONE, "acc.fill(5)", loop("mma.set(warpgroup.Field.ACCUMULATE, t != 1)", KBLOCKS), STORE,
    want="c = p[1] + p[2]")  # fmt: skip
acc("added_to_values", ONE, "acc.fill(3)", ADDS, loop(step()), STORE, want="c = 3 + p.sum(0)")
acc("added_to_values_maybe_never", ONE, "acc.fill(3)", ADDS, loop(step()), STORE, tiles=0, want="c = 3 + 0 * p[0]")
acc("added_to_each_value", ONE, "for i in cutlass.range_constexpr(cute.size(acc)):\n    acc[i] = ACC(i)", ADDS,
    loop(step()), STORE, want="c = i + p.sum(0)")  # fmt: skip
acc("zeros_by_element", ONE, "for i in cutlass.range_constexpr(cute.size(acc)):\n    acc[i] = ACC(0)", ADDS,
    loop(step()), STORE)  # fmt: skip
acc("zeros_in_a_loop", ONE, "for i in cutlass.range(cute.size(acc), unroll_full=True):\n    acc[i] = ACC(0)", ADDS,
    loop(step()), STORE)  # fmt: skip
acc("filled_every_time", ONE, ADDS, loop("acc.fill(0)", step()), STORE, want="c = p[-1]")
acc("filled_in_one_turn", ZERO, loop("if t == 1:\n    acc.fill(0)\n", step()), STORE, want="c = p[1] + p[2]")
acc("filled_by_some_threads", ZERO, loop("if tidx % 2 == 0:\n    acc.fill(0)\n", step()), STORE,
    want="c = np.where(thread % 2 == 0, p[2], p.sum(0))")  # fmt: skip
acc("first_peeled", ONE, "mma.set(warpgroup.Field.ACCUMULATE, False)",
    "t = 0", KBLOCKS, loop(step(), over="t in cutlass.range(1, tiles, unroll=1)"), STORE)  # fmt: skip
acc("last_peeled", ZERO, loop(step(), over="t in cutlass.range(0, tiles - 1, unroll=1)"), step(t="tiles - 1"), STORE)
acc("unrolled", ZERO, loop(step(), over="t in cutlass.range_constexpr(TILES)"), STORE)

SECOND = "total = cute.make_rmem_tensor(acc.shape, ACC)\ntotal.fill(0)\n"
ALIKE = f"total = {FRAGMENT}\ntotal.fill(0)\n"
OUT = "store(mma, total, mC, tidx)\n"
acc("promoted", ONE, ALIKE, ADDS, loop("acc.fill(0)", step(), "total.store(total.load() + acc.load())"), OUT)
acc("promoted_by_element", ONE, ALIKE, ADDS,
    loop("acc.fill(0)", step(), "for i in cutlass.range_constexpr(cute.size(acc)):\n    total[i] = total[i] + acc[i]"),
    OUT)  # fmt: skip
acc("promoted_without_fill", ONE, ALIKE,
    loop("mma.set(warpgroup.Field.ACCUMULATE, False)", KBLOCKS, "total.store(total.load() + acc.load() * 2)"), OUT,
    want="c = 2 * p.sum(0)")  # fmt: skip
acc("promoted_every_second_time", ZERO, ALIKE,
    loop(step(), "if t % 2 == 1:\n    total.store(total.load() + acc.load())\n    acc.fill(0)\n"),
    "total.store(total.load() + acc.load())", OUT)  # fmt: skip
acc("copied_whole", ZERO, ALIKE, loop(step(), "total.store(acc.load())"), OUT)
acc("copied_by_the_library", ZERO, ALIKE, loop(step()), "cute.autovec_copy(acc, total)", OUT)
acc("narrowed", ZERO, "kept = cute.make_rmem_tensor(acc.shape, cutlass.BFloat16)", loop(step()),
    "kept.store(acc.load().to(cutlass.BFloat16))", "store(mma, kept, mC, tidx)",
    want="""
    bits = p.sum(0).astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    c = bits.view(np.float32)
    """)  # fmt: skip
acc("scaled_every_time", ZERO, loop(step(), "acc.store(acc.load() * 2)"), STORE, want=DOUBLED)
acc("scaled_before", ZERO, loop("acc.store(acc.load() * 2)", step()), STORE, want="c = 4 * p[0] + 2 * p[1] + p[2]",
    lax=True)  # fmt: skip
acc("scaled_by_element", ZERO, loop(step(), "for i in cutlass.range_constexpr(cute.size(acc)):\n    acc[i] *= 2.0"),
    STORE,
    want=DOUBLED)  # fmt: skip
acc("scaled_at_run_time_index", ZERO, loop(step(),
    "for i in cutlass.range(cute.size(acc)):\n    acc[i] = acc[i] * 2.0"),
    STORE, want=DOUBLED)  # fmt: skip
acc("changed_by_some_threads", ZERO, loop(step(), "if tidx % 3 == 0:\n    acc[0] = acc[0] + 1.0\n"), STORE,
    want="c = p.sum(0) + 3 * ((thread % 3 == 0) & (i == 0))")  # fmt: skip
acc("read_by_some_threads", ZERO, "seen = cutlass.Float32(0)",
    loop(step(), "if tidx % 3 == 0:\n    seen = seen + acc[0]\n"), "acc[0] = seen", STORE,
    want="c = np.where(i == 0, (thread % 3 == 0) * (3 * p[0] + 2 * p[1] + p[2]), p.sum(0))")  # fmt: skip
acc("read_in_a_nested_loop", ZERO, "seen = cutlass.Float32(0)",
    loop(step(), "for j in cutlass.range(t, unroll=1):\n    seen = seen + acc[j]\n"), "acc[0] = seen", STORE,
    moved=True, want="""
    s = [p[:1].sum(0), p[:2].sum(0), p.sum(0)]
    after = [np.roll(x, -1, axis=1) for x in s]
    c = np.where(i == 0, s[1] + s[2] + after[2], s[2])
    """)  # fmt: skip
acc("written_in_part", ZERO, loop("acc[3] = ACC(7)", step()), STORE, want="c = np.where(i == 3, 7 + p[2], p.sum(0))")
acc("masked", ZERO, loop(step(), """
    tCcC = thr.partition_C(cute.make_identity_tensor((M, N)))
    for i in cutlass.range_constexpr(cute.size(acc)):
        if tCcC[i][1] > tCcC[i][0]:
            acc[i] = ACC(0)
    """), STORE, want="c = np.where(col > row, 0, p.sum(0))")  # fmt: skip
acc("masked_at_the_end", ZERO, loop(step()), """
    tCcC = thr.partition_C(cute.make_identity_tensor((M, N)))
    for i in cutlass.range_constexpr(cute.size(acc)):
        if not cute.elem_less(tCcC[i], (M - 5, N - 3)):
            acc[i] = ACC(0)
    """, STORE, want="c = np.where((row < 59) & (col < 61), p.sum(0), 0)")  # fmt: skip
acc("largest_element", ZERO, loop(step()), "top = acc.load().reduce(cute.ReductionOp.MAX, ACC(-1e9), 0)",
    "acc.fill(0)", "acc[0] = top", STORE,
    want="""
    full = p.sum(0)
    c = 0 * full
    for t in range(128):
        c[(thread == t) & (i == 0)] = full[thread == t].max()
    """)  # fmt: skip

acc("two_by_name", PARTS, f"acc = {FRAGMENT}\nother = {FRAGMENT}", "acc.fill(0)\nother.fill(0)", ADDS,
    loop(step(), "acc, other = other, acc", over="t in cutlass.range_constexpr(TILES)"),
    "acc.store(acc.load() + other.load() * 4)", STORE, want="c = p[1] + 4 * (p[0] + p[2])")  # fmt: skip
acc("two_in_a_list", PARTS, f"accs = [{FRAGMENT} for _ in range(2)]", "for x in accs:\n    x.fill(0)", ADDS,
    loop(step("accs[0]"), step("accs[1]", "tiles - 1 - t"), "accs[0].store(accs[0].load() * 2)"),
    "acc = accs[0]\nacc.store(acc.load() - accs[1].load())", STORE, want="c = 7 * p[0] + 3 * p[1] + p[2]")  # fmt: skip
acc("in_a_dictionary", PARTS, f"held = {{'x': {FRAGMENT}, 'y': {FRAGMENT}}}",
    "held['x'].fill(0)\nheld['y'].fill(1)", ADDS, loop(step("held['x']"), step("held['y']")), "acc = held['y']\n"
    "acc.store(acc.load() + held['x'].load())", STORE, want="c = 1 + 2 * p.sum(0)")  # fmt: skip
acc("in_a_dataclass", PARTS, f"held = Held({FRAGMENT}, 1)", "held.acc.fill(held.start)", ADDS,
    loop(step("held.acc"), over="t in cutlass.range_constexpr(TILES)"), "store(mma, held.acc, mC, tidx)",
    helpers="@dataclass\nclass Held:\n    acc: cute.Tensor\n    start: int\n\n", want="c = 1 + p.sum(0)")  # fmt: skip
acc("made_by_a_helper", PARTS, "acc = zeros(mma)", ADDS, loop("one_tile(mma, acc, tCrA, tCrB, t)"), STORE, helpers=f"""
@cute.jit
def zeros(mma: cute.TiledMma):
    acc = {FRAGMENT}
    acc.fill(0)
    return acc


@cute.jit
def one_tile(mma: cute.TiledMma, acc: cute.Tensor, tCrA: cute.Tensor, tCrB: cute.Tensor, t: cutlass.Int32):
{textwrap.indent(STEP.format(acc="acc", t="t"), "    ")}
""")  # fmt: skip
acc("read_by_a_helper", ZERO, loop(step(), "scale(acc, 2.0)"), STORE, want=DOUBLED, helpers="""
@cute.jit
def scale(acc: cute.Tensor, factor: cutlass.Constexpr[float]):
    acc.store(acc.load() * factor)

""")  # fmt: skip
acc("made_in_the_loop", PARTS, f"total = {FRAGMENT}\ntotal.fill(0)", ADDS,
    loop(f"acc = {FRAGMENT}\nacc.fill(0)\n", step(), "total.store(total.load() + acc.load())"), OUT)  # fmt: skip
acc("made_in_the_loop_not_added", PARTS, f"total = {FRAGMENT}\ntotal.fill(0)",
    loop(f"acc = {FRAGMENT}\nmma.set(warpgroup.Field.ACCUMULATE, False)\n", KBLOCKS,
         "total.store(total.load() + acc.load())"), OUT)  # fmt: skip
acc("a_while_loop", ZERO, "t = cutlass.Int32(0)\n" + block("while t < tiles", step(), "t += 1"), STORE)
acc("carried_through_a_while_loop", ZERO,
    "t = cutlass.Int32(0)\n" + block("while t < tiles", step(), "acc.store(acc.load() * 2)", "t += 1"), STORE,
    want=DOUBLED)  # fmt: skip
acc("tiles_one_after_the_other", PARTS, f"acc = {FRAGMENT}",
    loop("acc.fill(0)\n" + ADDS, loop(step(), over="t in cutlass.range(w, tiles, unroll=1)"),
         "store(mma, acc, cute.local_tile(mC, (M, N), (0, 0)), tidx)\n", over="w in cutlass.range(2, unroll=1)"),
    want="c = p[1] + p[2]")  # fmt: skip
acc("carried_from_tile_to_tile", ZERO,
    loop(loop(step(), over="t in cutlass.range(tiles, unroll=1)"), STORE, "acc.store(acc.load() + 1)\n",
         over="w in cutlass.range(2, unroll=1)"), want="c = 2 * p.sum(0) + 1")  # fmt: skip

HALF = Mma((1, 1), 32)
acc("slices_of_n", ZERO, "warpgroup.fence()", loop(block("for j in cutlass.range_constexpr(2)", """
    layout = cute.append_ones(cute.select(acc.layout, [0, 1]), up_to_rank=3)
    part = cute.make_tensor(acc[None, None, j].iterator, layout)
    half = mma.make_fragment_B(thr.partition_B(cute.local_tile(sB, (32, TILE_K), (j, 0, None))))
    warpgroup.fence()
    cute.gemm(mma, part, tCrA[None, None, None, t], half[None, None, None, t], part)
    warpgroup.commit_group()
    """), "warpgroup.wait_group(0)"), STORE, mmas={"mma": HALF})  # fmt: skip
acc("one_slice_scaled", ZERO, loop(step(), "acc[None, None, 1].store(acc[None, None, 1].load() * 2)"), STORE,
    mmas={"mma": HALF}, want="c = np.where(col >= 32, 8 * p[0] + 4 * p[1] + 2 * p[2], p.sum(0))")  # fmt: skip
acc("tiles_of_n", ZERO, loop(step()), STORE, mmas={"mma": HALF})
acc("tiles_of_m", ZERO, loop(step()), STORE, m=128)
acc("tiles_of_m_scaled_apart", ZERO, loop(step(), "acc[None, 1, None].store(acc[None, 1, None].load() * 2)"), STORE,
    m=128,
    want="c = np.where(row >= 64, 8 * p[0] + 4 * p[1] + 2 * p[2], p.sum(0))")  # fmt: skip
acc("tiles_of_m_one_multiplied", ZERO, loop(step(), """
    tCrA0 = mma.make_fragment_A(thr.partition_A(cute.local_tile(sA, (64, TILE_K), (0, 0, None))))
    part = cute.make_tensor(acc.iterator, mma.make_fragment_C(mma.partition_shape_C((64, N))).layout)
    warpgroup.fence()
    cute.gemm(mma, part, tCrA0[None, None, None, t], tCrB[None, None, None, t], part)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    """), STORE, m=128, want="c = p.sum(0) * np.where(row < 64, 2, 1)")  # fmt: skip
ROWS = """
rows = cute.make_tensor(acc.iterator, cute.make_layout(((2, 1), (2, N // 8)), stride=((2, 0), (1, 4))))
"""
acc("rows_of_another_view", ZERO, ROWS, loop(step(), """
    for r in cutlass.range_constexpr(2):
        rows[r, None].store(rows[r, None].load() * (r + 1))
    """), STORE, want="c = np.where(row // 8 % 2 == 1, 8 * p[0] + 4 * p[1] + 2 * p[2], p.sum(0))")  # fmt: skip
acc("sums_of_rows", ZERO, ROWS, loop(step()), """
    for r in cutlass.range_constexpr(2):
        s = rows[r, None].load().reduce(cute.ReductionOp.ADD, ACC(0), 0)
        s = s + cute.arch.shuffle_sync_bfly(s, offset=1)
        s = s + cute.arch.shuffle_sync_bfly(s, offset=2)
        for j in cutlass.range_constexpr(cute.size(rows, mode=[1])):
            rows[r, j] = s
    """, STORE, want="c = p.sum(0).sum(1, keepdims=True) + 0 * p[0]")  # fmt: skip
acc("as_integers", ZERO, loop(step()), "bits = cute.recast_tensor(acc, cutlass.Int32)", """
    for i in cutlass.range_constexpr(cute.size(bits)):
        bits[i] = bits[i] & 0x7FFFFFFF
    """, STORE, want="c = np.abs(p.sum(0))")  # fmt: skip
acc("halves_of_larger_registers", PARTS, """
    space = cute.make_rmem_tensor(2 * M * N // 128, ACC)
    shape = mma.make_fragment_C(mma.partition_shape_C((M, N))).layout
    acc = cute.make_tensor(space.iterator, shape)
    other = cute.make_tensor(space.iterator + M * N // 128, shape)
    space.fill(0)
    """, ADDS, loop(step(), step("other", "tiles - 1 - t"), "acc.store(acc.load() * 2)"),
    "acc.store(acc.load() + other.load())", STORE, want="c = 9 * p[0] + 5 * p[1] + 3 * p[2]")  # fmt: skip
acc("not_the_operand", PARTS, f"acc = {FRAGMENT}\nother = {FRAGMENT}", "acc.fill(0)\nother.fill(1)", ADDS,
    loop("warpgroup.fence()", "cute.gemm(mma, acc, tCrA[None, None, None, t], tCrB[None, None, None, t], other)",
         "warpgroup.commit_group()\nwarpgroup.wait_group(0)"), STORE, want="c = p[2] + 1", moved=True,
    refused="goes to other registers")  # fmt: skip
acc("too_many", PARTS, f"accs = [{FRAGMENT} for _ in range(9)]", "for x in accs:\n    x.fill(0)", ADDS,
    loop(*[step(f"accs[{i}]") for i in range(9)]), """
    acc = accs[0]
    for x in accs[1:]:
        acc.store(acc.load() + x.load())
    """, STORE, want="c = 9 * p.sum(0)", refused="columns of Tensor Memory")  # fmt: skip
acc("eight_fill_tensor_memory", PARTS, f"accs = [{FRAGMENT} for _ in range(8)]", "for x in accs:\n    x.fill(0)", ADDS,
    loop(*[step(f"accs[{i}]") for i in range(8)]), """
    acc = accs[0]
    for x in accs[1:]:
        acc.store(acc.load() + x.load())
    """, STORE, want="c = 8 * p.sum(0)")  # fmt: skip
