# SPDX-License-Identifier: Apache-2.0
"""MMAs on registers in CuTe DSL: which groups they form, what each becomes, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from porter.diagnostics import Code, ExitCode
from porter.lang.cute_dsl import parse_dsl, read_dsl
from porter.model.dsl.groups import GroupedKernel, find_groups, in_groups
from porter.model.dsl.scope import Unrecognized
from porter.passes.dsl.port import DslPortResult, port_python

CORPUS = Path(__file__).parents[2] / "corpus"
ATTENTION = CORPUS / "dsl_attention" / "dsl_attention.py"
PLAIN = CORPUS / "dsl_gemm" / "dsl_gemm.py"

FENCE = "                warpgroup.fence()\n"
COMMIT = "                warpgroup.commit_group()\n"
WAIT = "                warpgroup.wait_group(0)\n"
ADVANCE = "                k_state.advance()\n\n"
MMA = "                        qk_mma,\n                        acc_s,\n"
QUERIES_KEYS = "                qk_mma.set(warpgroup.Field.ACCUMULATE, False)\n"


def edited(*changes: tuple[str, str], path: Path = ATTENTION) -> str:
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def groups(*changes: tuple[str, str]) -> GroupedKernel:
    return find_groups(parse_dsl("kernel.py", edited(*changes).encode()))


@pytest.fixture
def port(tmp_path: Path) -> Callable[..., DslPortResult]:
    def run(*changes: tuple[str, str], path: Path = ATTENTION) -> DslPortResult:
        copy = tmp_path / path.name
        copy.write_text(edited(*changes, path=path))
        return port_python(copy)

    return run


def text_of(result: DslPortResult) -> str:
    assert result.exit_code is ExitCode.OK, [d.message for d in result.diagnostics]
    return next(iter(result.files.values())).decode()


def test_two_groups_with_their_registers() -> None:
    found = groups()
    assert found.parameters == ["qk_mma", "pv_mma"]
    uses = [[(u.mma, u.accumulator, u.operand, u.zeroed) for u in g.uses] for g in found.groups]
    assert uses == [[("qk_mma", "acc_s", None, True)], [("pv_mma", "acc_o", "tOrP", False)]]
    assert found.producer_first
    assert all(g.wait is not None for g in found.groups)


def test_a_gemm_with_one_accumulator_is_no_such_kernel() -> None:
    assert in_groups(read_dsl(ATTENTION))
    assert not in_groups(read_dsl(PLAIN))


def test_the_flag_in_front_of_the_fence_counts() -> None:
    moved = groups((QUERIES_KEYS, ""), (FENCE, QUERIES_KEYS + FENCE))
    assert moved.groups[0].uses[0].zeroed
    accumulating = groups((QUERIES_KEYS, ""))
    assert not accumulating.groups[0].uses[0].zeroed


def test_registers_are_staged_only_where_the_mma_reads_them(port: Callable[..., DslPortResult]) -> None:
    text = text_of(port())
    assert "qk_mma.stage(acc_s)" not in text
    assert text.index("pv_mma.stage(acc_o)") < text.index("tOrP_tmem = pv_mma.stage_operand(tOrP)")
    assert text.index("pv_mma.begin()") < text.index("cute.gemm(\n                            pv_mma.mma")
    assert text.index("pv_mma.finish()") < text.index("pv_mma.fetch(acc_o)")
    assert "qk_mma.stage(acc_s)" in text_of(port((QUERIES_KEYS, "")))


def test_a_wait_that_leaves_groups_in_flight_becomes_one_at_the_commit(port: Callable[..., DslPortResult]) -> None:
    text = text_of(port((WAIT, "                warpgroup.wait_group(1)\n")))
    assert "warpgroup.wait_group" not in text
    assert text.index("qk_mma.finish()") < text.index("k_loads.consumer_release(k_state)")


def test_the_first_warpgroup_may_multiply(port: Callable[..., DslPortResult]) -> None:
    swapped = ("        if warpgroup_idx == 0:\n            cute.arch.setmaxregister_decrease",
               "        if warpgroup_idx == 2:\n            cute.arch.setmaxregister_decrease")  # fmt: skip
    text = text_of(port(swapped))
    assert "cute.arch.make_warp_uniform(cute.arch.warp_idx()) // 4," in text
    assert "self.threads_per_cta // 128,\n" in text


def test_a_return_at_the_end_stays_the_end(port: Callable[..., DslPortResult]) -> None:
    by_rows = "    @staticmethod\n    def by_rows("
    text = text_of(port((by_rows, "        return\n\n" + by_rows)))
    assert text.index("tmem.free(tmem_ptr)") < text.index("        return\n")


def helper(body: str) -> list[tuple[str, str]]:
    """The first group's MMAs in a method."""
    text = ATTENTION.read_text()
    start = text.index(QUERIES_KEYS)
    mmas = text[start : text.index(COMMIT)]
    method = f"    @staticmethod\n    def multiply(mma, acc, a, b):\n{body}\n    @staticmethod\n    def by_rows("
    call = "                self.multiply(qk_mma, acc_s, tSrQ[(None, None, None, part)], tSrK)\n"
    return [(mmas, call), ("    @staticmethod\n    def by_rows(", method)]


LOOP = """\
        for k_block in range(4, unroll_full=True):
            mma.set(warpgroup.Field.ACCUMULATE, k_block != 0)
            cute.gemm(mma, acc, a[(None, None, k_block)], b[(None, None, k_block)], acc)
"""


def test_mmas_of_a_helper_get_tensor_memory_as_arguments(port: Callable[..., DslPortResult]) -> None:
    text = text_of(port(*helper(LOOP)))
    assert "self.multiply(qk_mma.mma, qk_mma.accumulator, tSrQ[" in text
    assert "cute.gemm(mma, acc, a[" in text
    assert "qk_mma.stage(acc_s)" not in text
    assert "qk_mma.stage(acc_s)" in text_of(port(*helper(LOOP.replace("k_block != 0", "True"))))


REFUSED = {
    "warpgroups that share an accumulator": (
        [("            (1, 1, 1),\n", "            (2, 1, 1),\n")],
        "several warpgroups share",
    ),
    "an MMA outside of groups": ([(FENCE, ""), (COMMIT, ""), (WAIT, "")], "stands in no group"),
    "a commit in another block": (
        [(COMMIT, "                if True:\n                    warpgroup.commit_group()\n")],
        "a fence, commit or wait inside",
    ),
    "work of all threads among the MMAs": (
        [(QUERIES_KEYS, QUERIES_KEYS + "                cute.arch.sync_threads()\n")],
        "all threads have to run",
    ),
    "a value made among the MMAs and used later": (
        [
            (QUERIES_KEYS, QUERIES_KEYS + "                done = tile\n"),
            (ADVANCE, ADVANCE + "                first = done\n"),
        ],
        "all threads have to run",
    ),
    "an MMA that the host does not make": ([(MMA, MMA.replace("qk_mma", "self.mma"))], "not one that the host makes"),
    "another result": ([(MMA, MMA.replace("acc_s", "acc_o"))], "not also its result"),
    "two accumulators of one MMA": (
        [(COMMIT, "                cute.gemm(qk_mma, acc_t, tSrQ, tSrK, acc_t)\n" + COMMIT)],
        "two accumulators",
    ),
    "a helper's MMA on something else": (
        helper(LOOP.replace(", acc)", ", other)").replace("(mma, acc,", "(mma, other,")),
        "other than its parameters",
    ),
    "a helper that returns": (helper(LOOP + "        return acc\n"), "returns a value"),
    "threads known on the host only": (
        [("block=[self.threads_per_cta, 1, 1]", "block=[128 * heads, 1, 1]")],
        "not known in the kernel",
    ),
    "use before the storage": (
        [("        smem = utils.SmemAllocator()\n", "        early = qk_mma\n        smem = utils.SmemAllocator()\n")],
        "before the shared storage",
    ),
    "an end before the end": (
        [("        if warp_idx == 0:\n            cpasync.prefetch", "        if block < 0:\n            return\n"
          "        if warp_idx == 0:\n            cpasync.prefetch")],
        "returns before its end",
    ),
    "another setting": ([(QUERIES_KEYS, "                qk_mma.set(warpgroup.Field.OTHER, False)\n")], "a setting"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_by_name_and_changes_nothing(name: str, port: Callable[..., DslPortResult]) -> None:
    changes, why = REFUSED[name]
    result = port(*changes)
    assert result.exit_code is ExitCode.UNPORTED
    assert result.files == result.sources.sources()
    refused = [d for d in result.diagnostics if d.code is Code.DSL_STRUCTURE]
    assert why in refused[0].message
    assert refused[0].where is not None
    assert refused[0].where.line > 0


def test_no_groups_at_all_is_refused() -> None:
    with pytest.raises(Unrecognized, match="no launch of the kernel"):
        groups((").launch(", ").run("))
