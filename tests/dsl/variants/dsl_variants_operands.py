# SPDX-License-Identifier: Apache-2.0
"""Operands A in registers, element types, shapes, and ways to store the result."""

import textwrap

from dsl_variant_types import Mma, add
from dsl_variants_accumulators import ADDS, DOUBLED, FRAGMENT, STORE, ZERO, loop, step

RS = {"mma": Mma(registers=True)}
BOTH = {"mma": Mma(), "rs": Mma(registers=True)}
PARTS = """
thr = mma.get_slice(tidx)
tCsA = thr.partition_A(sA)
tCrB = mma.make_fragment_B(thr.partition_B(sB))
rA = mma.make_fragment_A(tCsA[None, None, None, 0])
acc = mma.make_fragment_C(mma.partition_shape_C((M, N)))
acc.fill(0)
"""
COPY = "cute.autovec_copy(tCsA[None, None, None, t], rA)\n"
ELEMENTS = "for i in cutlass.range_constexpr(cute.size(rA)):\n    rA[i] = tCsA[None, None, None, t][i]\n"
GEMM = "cute.gemm(mma, acc, rA, tCrB[None, None, None, t], acc)\n"
FENCE, COMMIT, WAIT = "warpgroup.fence()\n", "warpgroup.commit_group()\n", "warpgroup.wait_group(0)\n"


def rs(name: str, *texts: str, **values: object) -> None:
    add("registers", name, "\n".join(textwrap.dedent(t) for t in texts), **{"mmas": RS, **values})


rs("a_by_element", PARTS, ADDS, loop(ELEMENTS, FENCE, GEMM, COMMIT, WAIT), STORE)
rs("a_by_copies", PARTS, ADDS, loop(COPY, FENCE, GEMM, COMMIT, WAIT), STORE)
rs("a_stays", PARTS, ADDS, "t = 0\n" + COPY, loop(FENCE, GEMM, COMMIT, WAIT), STORE,
   want="c = sum(a[:, :depth] @ b[:, k : k + depth].T for k in range(0, 3 * depth, depth))")  # fmt: skip
rs("a_stays_in_flight", PARTS, ADDS, "t = 0\n" + COPY, loop(FENCE, GEMM, COMMIT), WAIT, STORE,
   want="c = sum(a[:, :depth] @ b[:, k : k + depth].T for k in range(0, 3 * depth, depth))")  # fmt: skip
rs("a_of_each_k_block", PARTS, ADDS, loop("""
    for k in cutlass.range_constexpr(cute.size(rA, mode=[2])):
        cute.autovec_copy(tCsA[None, None, k, t], rA[None, None, k])
        warpgroup.fence()
        cute.gemm(mma, acc, rA[None, None, k], tCrB[None, None, k, t], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
    """), STORE)  # fmt: skip
IN_A_LOOP = """
for k in cutlass.range(cute.size(rA, mode=[2]), unroll_full=True):
    cute.gemm(mma, acc, rA[None, None, k], tCrB[None, None, k, t], acc)
"""
rs("k_blocks_in_a_loop", PARTS, ADDS, loop(COPY, FENCE, IN_A_LOOP, COMMIT, WAIT), STORE)
rs(
    "k_blocks_in_a_loop_in_flight",
    PARTS,
    ADDS,
    "t = 0\n",
    COPY,
    FENCE,
    IN_A_LOOP,
    COMMIT,
    loop(WAIT, COPY, FENCE, IN_A_LOOP, COMMIT, over="t in cutlass.range(1, tiles, unroll=1)"),
    WAIT,
    STORE,
)
rs(
    "k_blocks_in_a_loop_of_a_branch",
    PARTS,
    ADDS,
    loop(
        COPY,
        FENCE,
        "if t % 2 == 0:\n" + textwrap.indent(IN_A_LOOP, "    ") + "else:\n" + textwrap.indent(IN_A_LOOP, "    "),
        COMMIT,
        WAIT,
    ),
    STORE,
)
rs("a_of_each_k_block_in_the_same_registers", PARTS, ADDS, "block = rA[None, None, 0]", loop("""
    for k in cutlass.range_constexpr(cute.size(rA, mode=[2])):
        cute.autovec_copy(tCsA[None, None, k, t], block)
        warpgroup.fence()
        cute.gemm(mma, acc, block, tCrB[None, None, k, t], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
    """), STORE)  # fmt: skip
rs("k_blocks_in_flight", PARTS, ADDS, loop("""
    for k in cutlass.range_constexpr(cute.size(rA, mode=[2])):
        if cutlass.const_expr(k == 0):
            warpgroup.wait_group(0)
        cute.autovec_copy(tCsA[None, None, k, t], rA[None, None, k])
        warpgroup.fence()
        cute.gemm(mma, acc, rA[None, None, k], tCrB[None, None, k, t], acc)
        warpgroup.commit_group()
    """), WAIT, STORE)  # fmt: skip
rs("next_k_block_while_one_is_in_flight", PARTS, ADDS, loop("""
    cute.autovec_copy(tCsA[None, None, 0, t], rA[None, None, 0])
    for k in cutlass.range_constexpr(cute.size(rA, mode=[2])):
        warpgroup.fence()
        cute.gemm(mma, acc, rA[None, None, k], tCrB[None, None, k, t], acc)
        warpgroup.commit_group()
        if cutlass.const_expr(k + 1 < cute.size(rA, mode=[2])):
            cute.autovec_copy(tCsA[None, None, k + 1, t], rA[None, None, k + 1])
        warpgroup.wait_group(0)
    """), STORE)  # fmt: skip
rs("a_made_in_the_loop", PARTS, ADDS, loop("rA = mma.make_fragment_A(tCsA[None, None, None, 0])", COPY, FENCE, GEMM,
   COMMIT, WAIT),
   STORE)  # fmt: skip
rs("two_take_turns", PARTS, ADDS, "rX = mma.make_fragment_A(tCsA[None, None, None, 0])\nt = 0\n", COPY,
   loop(FENCE, GEMM, COMMIT,
        "if cutlass.const_expr(t + 1 < TILES):\n    cute.autovec_copy(tCsA[None, None, None, t + 1], rX)\n",
        "rA, rX = rX, rA\n", WAIT, over="t in cutlass.range_constexpr(TILES)"), STORE)  # fmt: skip
rs("two_take_turns_in_flight", PARTS, ADDS, "rX = mma.make_fragment_A(tCsA[None, None, None, 0])\n",
   loop(COPY, FENCE, GEMM, COMMIT, "warpgroup.wait_group(1)\n", "rA, rX = rX, rA\n",
        over="t in cutlass.range_constexpr(TILES)"), WAIT, STORE)  # fmt: skip
rs("a_is_scaled", PARTS, ADDS, loop(COPY, "rA.store((rA.load() * 2).to(rA.element_type))", FENCE, GEMM, COMMIT, WAIT),
   STORE,
   want="c = 2 * p.sum(0)")  # fmt: skip
rs("a_of_two_warpgroups", PARTS, ADDS, loop(COPY, FENCE, GEMM, COMMIT, WAIT), STORE, m=128, block=(256, 1, 1),
   mmas={"mma": Mma((2, 1), registers=True)})  # fmt: skip
rs("a_of_two_tiles_of_m", PARTS, ADDS, loop(COPY, FENCE, GEMM, COMMIT, WAIT), STORE, m=128)
rs("a_of_fp8", PARTS, ADDS, loop(COPY, FENCE, GEMM, COMMIT, WAIT), STORE, kind="f8")
rs("a_of_int8", PARTS, ADDS, loop(COPY, FENCE, GEMM, COMMIT, WAIT), STORE, kind="s8")
rs("a_and_accumulator_scaled", PARTS, ADDS, loop(COPY, FENCE, GEMM, COMMIT, WAIT, "acc.store(acc.load() * 2)"), STORE,
   want=DOUBLED)  # fmt: skip
rs("a_by_ldmatrix", PARTS, ADDS, """
    atom = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(num_matrices=4), sA.element_type)
    copier = cute.make_tiled_copy_A(atom, mma).get_slice(tidx)
    source, to = copier.partition_S(sA), copier.retile(rA)
    """, loop("cute.copy(atom, source[None, None, None, t], to)", FENCE, GEMM, COMMIT, WAIT), STORE)  # fmt: skip
rs("a_only_sometimes", PARTS, ADDS, loop(f"""
    if t != 1:
        {COPY.strip()}
    """, FENCE, GEMM, COMMIT, WAIT), STORE,
   want="c = p[0] + p[2] + a[:, :depth] @ b[:, depth : 2 * depth].T")  # fmt: skip
rs("from_shared_memory_and_registers", PARTS, ADDS, "tCrA = mma.make_fragment_A(thr.partition_A(sA))", """
    rs.set(warpgroup.Field.ACCUMULATE, True)
    tCsA = rs.get_slice(tidx).partition_A(sA)
    rA = rs.make_fragment_A(tCsA[None, None, None, 0])
    """, loop(COPY, FENCE, "cute.gemm(rs, acc, rA, tCrB[None, None, None, t], acc)",
              "cute.gemm(mma, acc, tCrA[None, None, None, t], tCrB[None, None, None, t], acc)", COMMIT, WAIT), STORE,
   mmas=BOTH, want="c = 2 * p.sum(0)")  # fmt: skip

# The product of the first k block of A and B is an operand: (64, 64) times a k tile of B as (N, 64).
SCORES = """
thr = mma.get_slice(tidx)
tCrA = mma.make_fragment_A(thr.partition_A(sA))
tCrB = mma.make_fragment_B(thr.partition_B(sB))
scores = mma.make_fragment_C(mma.partition_shape_C((M, N)))
acc = rs.make_fragment_C(rs.partition_shape_C((M, N)))
acc.fill(0)
rs.set(warpgroup.Field.ACCUMULATE, True)
atoms = N // 16
as_a = cute.make_layout(((2, 2, 2), 1, atoms), stride=((1, 2, 4), 0, 8))
"""
SCORE = """
mma.set(warpgroup.Field.ACCUMULATE, False)
warpgroup.fence()
cute.gemm(mma, scores, tCrA[None, None, 0, t], tCrB[None, None, 0, t], scores)
warpgroup.commit_group()
"""
WEIGH = """
weights = cute.make_rmem_tensor(as_a, mA.element_type)
weights.store(cute.make_tensor(scores.iterator, as_a).load().to(mA.element_type))
"""
VALUE = """
warpgroup.fence()
cute.gemm(rs, acc, weights, tCrB[None, None, None, t], acc)
warpgroup.commit_group()
"""
ATTENTION = """
c = 0 * p[0]
for k in range(0, 3 * depth, depth):
    s = a[:, k : k + 16] @ b[:, k : k + 16].T
    c = c{} + s @ b[:, k : k + depth].T
"""
rs("a_from_an_accumulator", SCORES, loop(SCORE, WAIT, WEIGH, VALUE, WAIT), STORE, mmas=BOTH, want=ATTENTION.format(""))
rs("a_from_an_accumulator_rescaled", SCORES, loop(SCORE, WAIT, "acc.store(acc.load() * 2)", WEIGH, VALUE, WAIT), STORE,
   mmas=BOTH, want=ATTENTION.format(" * 2"), lax=True)  # fmt: skip
rs("scores_while_values_are_in_flight", SCORES, "t = 0\n", SCORE, WAIT, WEIGH,
   loop(SCORE.replace("0, t]", "0, t + 1]"), VALUE, "warpgroup.wait_group(1)",
        "ready = cute.make_rmem_tensor(as_a, mA.element_type)",
        "ready.store(cute.make_tensor(scores.iterator, as_a).load().to(mA.element_type))", WAIT,
        "weights.store(ready.load())", over="t in cutlass.range(tiles - 1, unroll=1)"),
   "t = tiles - 1", VALUE, WAIT, STORE, mmas=BOTH, want=ATTENTION.format(""))  # fmt: skip
rs("scores_recast_to_words", SCORES, loop(SCORE, WAIT, WEIGH, """
    words = cute.recast_tensor(weights, cutlass.Int32)
    for i in cutlass.range_constexpr(cute.size(words)):
        words[i] = words[i] ^ 0
    """, VALUE, WAIT), STORE, mmas=BOTH, want=ATTENTION.format(""))  # fmt: skip


def shape(name: str, body: str = ZERO + loop(step()) + STORE, **values: object) -> None:
    add("shapes", name, body, **values)


shape("f16")
shape("f16_operands", kind="f16")
shape("f16_accumulators", kind="f16acc")
shape("f16_accumulators_scaled", ZERO + loop(step(), "acc.store(acc.load() * cutlass.Float16(2))\n") + STORE,
      kind="f16acc",
      want=DOUBLED)  # fmt: skip
shape("f16_accumulators_of_two_tiles", kind="f16acc", m=128, mmas={"mma": Mma((1, 1), 32)})
shape("f16_accumulators_narrow", kind="f16acc", n=24, moved=True)
shape("fp8", kind="f8")
shape("fp8_promoted", ZERO + f"total = {FRAGMENT}\ntotal.fill(0)\n"
      + loop(step(), "total.store(total.load() + acc.load())\nacc.fill(0)\n") + "store(mma, total, mC, tidx)\n",
      kind="f8")  # fmt: skip
shape("int8", kind="s8")
shape("int8_added_to_values", ZERO.replace("fill(0)", "fill(3)") + loop(step()) + STORE, kind="s8",
      want="c = 3 + p.sum(0)")  # fmt: skip
shape("n_8", n=8)
shape("n_8_scaled", ZERO + loop(step(), "acc.store(acc.load() * 2)\n") + STORE, n=8,
      want=DOUBLED)  # fmt: skip
shape("n_24", n=24)
shape("n_88_scaled", ZERO + loop(step(), "acc.store(acc.load() * 2)\n") + STORE, n=88,
      want=DOUBLED)  # fmt: skip
shape("n_176", n=176)
shape("n_256", n=256)
shape("n_512_of_two_tiles", n=512, mmas={"mma": Mma((1, 1), 256)})
shape("m_256_of_one_warpgroup", m=256)

SHARED = {"mma": Mma(), "half": Mma((1, 1), 32)}
shape(
    "two_atoms_of_one_accumulator",
    ZERO
    + "half.set(warpgroup.Field.ACCUMULATE, True)\n"
    + """
thr2 = half.get_slice(tidx)
hB = half.make_fragment_B(thr2.partition_B(cute.local_tile(sB, (32, TILE_K), (1, 0, None))))
fragment = half.make_fragment_C(half.partition_shape_C((M, 32)))
right = cute.make_tensor(acc.iterator + cute.size(fragment), fragment.layout)
"""
    + loop(
        step(),
        """
warpgroup.fence()
cute.gemm(half, right, tCrA[None, None, None, t], hB[None, None, None, t], right)
warpgroup.commit_group()
warpgroup.wait_group(0)
""",
    )
    + STORE,
    mmas=SHARED,
    want="c = p.sum(0) * np.where(col >= 32, 2, 1)",
)


def epilogue(name: str, body: str, **values: object) -> None:
    add("epilogue", name, ZERO + loop(step()) + textwrap.dedent(body), **values)


epilogue("predicated_copy", """
    tCgC = thr.partition_C(mC)
    tCcC = thr.partition_C(cute.make_identity_tensor((M, N)))
    for i in cutlass.range_constexpr(cute.size(acc)):
        if cute.elem_less(tCcC[i], (M, N)):
            tCgC[i] = acc[i]
    """)  # fmt: skip
epilogue("copy_atom", """
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32)
    cute.copy(atom, acc, thr.partition_C(mC))
    """)  # fmt: skip
epilogue("copy_with_predicate", """
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32)
    tCgC = thr.partition_C(mC)
    tCcC = thr.partition_C(cute.make_identity_tensor((M, N)))
    for i in cutlass.range_constexpr(cute.size(acc)):
        tCgC[i] = 0.0
    pred = cute.make_rmem_tensor(acc.shape, cutlass.Boolean)
    for i in cutlass.range_constexpr(cute.size(acc)):
        pred[i] = cute.elem_less(tCcC[i], (M - 3, N))
    for i in cutlass.range_constexpr(cute.size(acc)):
        if pred[i]:
            tCgC[i] = acc[i]
    """, want="c = np.where(row < 61, p.sum(0), 0)")  # fmt: skip
STMATRIX = """
sC = cute.make_tensor(cute.recast_ptr(sA.iterator, cute.make_swizzle(0, 4, 3), dtype=cutlass.Float16),
                      cute.make_layout((M, N), stride=(N, 1)))
cute.arch.sync_threads()
atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4), cutlass.Float16)
copier = cute.make_tiled_copy_C(atom, mma).get_slice(tidx)
half = cute.make_rmem_tensor(acc.layout, cutlass.Float16)
half.store(acc.load().to(cutlass.Float16))
cute.copy(atom, copier.retile(half), copier.partition_D(sC))
cute.arch.sync_threads()
for i in cutlass.range(tidx, M * N, THREADS, unroll=1):
    mC[i // N, i % N] = sC[i // N, i % N].to(cutlass.Float32)
"""
epilogue("stmatrix", STMATRIX)
BY_PARTS = """
source, to = copier.retile(acc), copier.partition_D(sC)
for j in cutlass.range_constexpr(cute.size(source, mode=[2])):
    half = cute.make_rmem_tensor(source[None, None, j].shape, cutlass.Float16)
    half.store(source[None, None, j].load().to(cutlass.Float16))
    cute.copy(atom, half, to[None, None, j])
"""
AT_ONCE = STMATRIX[STMATRIX.index("half =") : STMATRIX.rindex("cute.arch.sync_threads")]
epilogue("stmatrix_by_parts", STMATRIX.replace(AT_ONCE, BY_PARTS))
epilogue("pairs", """
    tCgC = thr.partition_C(mC)
    for i in cutlass.range_constexpr(cute.size(acc) // 2):
        x, y = acc[2 * i], acc[2 * i + 1]
        tCgC[2 * i], tCgC[2 * i + 1] = y, x
    """, want="c = p.sum(0)[:, np.arange(64) ^ 1]")  # fmt: skip
epilogue("returns_by_a_constant", """
    store(mma, acc, mC, tidx)
    if cutlass.const_expr(TILES == 3):
        return
    acc.fill(0)
    store(mma, acc, mC, tidx)
    """)  # fmt: skip
RETURN = """
if cutlass.const_expr(TILES == 3):
    for i in cutlass.range(tidx, M * N, THREADS, unroll=1):
        mC[i // N, i % N] = 7.0
    return
"""
add("epilogue", "returns_before_it_multiplies", RETURN + ZERO + loop(step()) + STORE, want="c = 7 + 0 * p[0]")
epilogue("atomic", """
    for i in cutlass.range(tidx, M * N, THREADS, unroll=1):
        mC[i // N, i % N] = 0.0
    cute.arch.sync_threads()
    tCgC = thr.partition_C(mC)
    for i in cutlass.range_constexpr(cute.size(acc)):
        cute.arch.atomic_add(tCgC.iterator + tCgC.layout(i), acc[i])
    """)  # fmt: skip
