# SPDX-License-Identifier: Apache-2.0
"""Groups of MMAs: how they are committed and waited for."""

import textwrap

from dsl_variant_types import add
from dsl_variants_accumulators import ADDS, DOUBLED, FRAGMENT, ONE, PARTS, STORE, ZERO, block, loop, step

MULTIPLY = "cute.gemm(mma, acc, tCrA[None, None, None, {t}], tCrB[None, None, None, {t}], acc)\n"
GEMM = MULTIPLY.format(t="t")
FENCE, COMMIT = "warpgroup.fence()\n", "warpgroup.commit_group()\n"


def wait(count: int) -> str:
    return f"warpgroup.wait_group({count})\n"


def group(name: str, *texts: str, **values: object) -> None:
    add("groups", name, "\n".join(textwrap.dedent(t) for t in texts), **values)


MANY = "s in cutlass.range(12, unroll=1)"
AGAIN = "t = s % 3\n"
FOUR = "c = 4 * p.sum(0)"
group("waited_for_after_the_loop", ZERO, loop(FENCE, GEMM, COMMIT), wait(0), STORE)
group("one_in_flight", ZERO, loop(FENCE, GEMM, COMMIT, wait(1)), wait(0), STORE)
group("two_in_flight", ZERO, loop(AGAIN, FENCE, GEMM, COMMIT, wait(2), over=MANY), wait(0), STORE, want=FOUR)
group("waited_for_at_the_top", ZERO, loop(wait(0), FENCE, GEMM, COMMIT), wait(0), STORE)
group("one_wait_after_the_other", ZERO, loop(FENCE, GEMM, COMMIT, wait(1), wait(0)), STORE)
group("no_fence_in_the_loop", ZERO, FENCE, loop(GEMM, COMMIT, wait(0)), STORE, lax=True)
group("no_fence_after_a_change", ZERO, FENCE, loop(GEMM, COMMIT, wait(0), "acc.store(acc.load() * 2)"), STORE, lax=True,
      want=DOUBLED)  # fmt: skip
group("no_fence_at_all", ZERO, loop(GEMM, COMMIT, wait(0)), STORE, lax=True)
group("fence_twice", ZERO, loop(FENCE, FENCE, GEMM, FENCE, COMMIT, wait(0)), STORE)
group("commit_of_nothing", ZERO, loop(COMMIT, FENCE, GEMM, COMMIT, COMMIT, wait(1), COMMIT), wait(0), STORE)
group("commit_of_nothing_waited_past", ZERO, loop(FENCE, GEMM, COMMIT, COMMIT, wait(1), "acc.store(acc.load() * 2)"),
      wait(0),
      STORE, want=DOUBLED)  # fmt: skip
group("wait_before_any", wait(0), ZERO, wait(3), loop(FENCE, GEMM, COMMIT, wait(0)), STORE)
group("twelve_in_flight", ZERO, loop(AGAIN, FENCE, GEMM, COMMIT, over=MANY), wait(0), STORE, want=FOUR)
group("twelve_unrolled", ZERO, FENCE,
      loop(AGAIN, GEMM, COMMIT, over="s in cutlass.range_constexpr(12)"), wait(0), STORE, want=FOUR)  # fmt: skip
group("twenty_unrolled_waited_for_in_between", ZERO, FENCE,
      loop(AGAIN, GEMM, COMMIT, wait(9), over="s in cutlass.range_constexpr(21)"), wait(0), STORE,
      want="c = 7 * p.sum(0)")  # fmt: skip
group("waits_of_every_number", ZERO, loop(*[x for n in range(6) for x in (FENCE, GEMM, COMMIT, wait(n))]), wait(0),
      STORE,
      want="c = 6 * p.sum(0)")  # fmt: skip
group("wait_in_a_helper", ZERO, loop(FENCE, GEMM, "end_of_group(0)"), STORE, helpers="""
@cute.jit
def end_of_group(count: cutlass.Constexpr[int]):
    warpgroup.commit_group()
    warpgroup.wait_group(count)

""")  # fmt: skip
group("wait_for_a_constant", ZERO, loop(FENCE, GEMM, COMMIT, """
    if cutlass.const_expr(TILES > 2):
        warpgroup.wait_group(0)
    else:
        warpgroup.wait_group(1)
    """), STORE)  # fmt: skip
group("wait_in_a_condition", ZERO, loop(FENCE, GEMM, COMMIT, "if t > 0:\n    warpgroup.wait_group(1)\n"), wait(0),
      STORE)  # fmt: skip
group("commit_in_a_condition", ZERO, loop(FENCE, GEMM, "if t != 1:\n    warpgroup.commit_group()\n"), COMMIT, wait(0),
      STORE)  # fmt: skip
group("more_in_one_turn", ZERO, loop(FENCE, block("if t == 1", GEMM, COMMIT), GEMM, COMMIT), wait(0), STORE,
      want="c = p.sum(0) + p[1]")  # fmt: skip
group("different_in_branches", ZERO, loop(FENCE, f"""
    if t == 1:
        {GEMM.strip()}
        {COMMIT.strip()}
        warpgroup.wait_group(0)
    else:
        for k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            cute.gemm(mma, acc, tCrA[None, None, k, t], tCrB[None, None, k, t], acc)
            {COMMIT.strip()}
        warpgroup.wait_group(1)
    """), wait(0), STORE)  # fmt: skip
group("a_group_over_turns", ZERO, loop(FENCE, GEMM), COMMIT, wait(0), STORE)
group("one_group_each_k_block", ZERO, loop(FENCE, """
    for k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
        cute.gemm(mma, acc, tCrA[None, None, k, t], tCrB[None, None, k, t], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
    """), STORE)  # fmt: skip

TWO = PARTS + f"acc = {FRAGMENT}\nother = {FRAGMENT}\nacc.fill(0)\nother.fill(0)\n" + ADDS
OTHER = GEMM.replace("acc", "other")
group("the_other_is_in_flight", TWO, loop(FENCE, GEMM, COMMIT, OTHER, COMMIT, wait(1), "acc.store(acc.load() * 2)",
      wait(0)),
      "acc.store(acc.load() + other.load())", STORE, want="c = 9 * p[0] + 5 * p[1] + 3 * p[2]")  # fmt: skip
group("each_waits_for_the_other", TWO, FENCE, "t = 0\n", GEMM, COMMIT,
      loop(FENCE, OTHER, COMMIT, wait(1), "acc.store(acc.load() * 2)", FENCE, GEMM, COMMIT, wait(1),
           "other.store(other.load() * 2)"), wait(0), "acc.store(acc.load() + other.load())", STORE,
      want="""
      x, y = p[0], 0 * p[0]
      for q in p:
          y, x = 2 * (y + q), 2 * x + q
      c = x + y
      """, lax=True)  # fmt: skip
group("maybe_waited_for_long_ago", TWO, "t = 0\n", FENCE, GEMM, COMMIT, block("if tiles > 2", wait(0)),
      loop(AGAIN, FENCE, OTHER, COMMIT, over="s in cutlass.range(8, unroll=1)"),
      "seen = acc[0]", wait(0),
      "acc.store(other.load())\nacc[0] = seen", STORE,
      want="c = np.where(i == 0, p[0], 3 * p[0] + 3 * p[1] + 2 * p[2])")  # fmt: skip
group("used_in_the_next_turn", TWO, "other.fill(0)", loop("""
    if t > 0:
        warpgroup.wait_group(0)
        other.store(other.load() + acc.load())
        acc.fill(0)
    """, FENCE, GEMM, COMMIT), wait(0), "acc.store(acc.load() + other.load())", STORE, moved=True)  # fmt: skip
group("two_products_of_one_accumulator", ONE, "mma.set(warpgroup.Field.ACCUMULATE, False)",
      loop("mma.set(warpgroup.Field.ACCUMULATE, False)", """
      warpgroup.fence()
      for k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
          cute.gemm(mma, acc, tCrA[None, None, k, t], tCrB[None, None, k, t], acc)
          mma.set(warpgroup.Field.ACCUMULATE, True)
      warpgroup.commit_group()
      warpgroup.wait_group(0)
      """, STORE), step(t=0), STORE, want="c = p[2] + p[0]")  # fmt: skip
