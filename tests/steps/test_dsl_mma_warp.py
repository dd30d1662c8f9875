# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""A warp of its own for MMAs in CuTe DSL: forms of a persistent kernel that get one, and what keeps others from it.
Traces are stated, so that nothing is compiled. Edits of a kernel are told by its lines, one line each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from porter.lang.text import EditGroup, Safety, apply_groups
from porter.passes.idiom_dsl.port import Idiomatic, idiomatic
from porter.passes.idiom_dsl.stated import stated
from porter.passes.native.dsl_mma_warp import STEP
from porter.rules.load import load_rules

KERNEL = next(r for r in load_rules() if r.id == "PTR589").examples[0].before
PATH = Path("/work/gemm.py")
NEXT = "                turns.advance_to_next_work()\n"
LOADER, STORES = "        if warp == 0:\n", "        # Others multiply and store.\n"
Change = tuple[str, str]


def mostly_slow(forms: Iterable[str]) -> list[object]:
    """A form takes a quarter of a second, most of it libcst's."""
    return [pytest.param(form, marks=pytest.mark.slow if i else ()) for i, form in enumerate(forms)]


def ported(*changes: Change, columns: int = 128) -> tuple[Idiomatic, str]:
    """The port of the kernel with changes, each of which is made once or, of two lines alike, in the consumers."""
    text = KERNEL
    for old, new in changes:
        before, found, after = text.rpartition(old)
        assert found, old
        text = before + new + after
    found = idiomatic(str(PATH), text.encode(), [stated(PATH, text.encode(), 128, columns)], [STEP])
    assert not found.what, found.what
    groups = [EditGroup(rule, "", Safety.REVIEW, (edit,)) for rule, edit in found.edits]
    result = apply_groups({str(PATH): text.encode()}, groups)[str(PATH)].decode()
    compile(result, "gemm.py", "exec")
    return found, result


def branch(text: str) -> str:
    """The lines of the warp that multiplies."""
    return text[text.index(" == 3:\n") : text.index(STORES)]


def test_the_main_loop_is_the_new_branch_s_and_nobody_else_s() -> None:
    found, text = ported()
    assert (found.steps, found.without) == (["mma-warp"], [])
    assert "cute.gemm" in branch(text)
    behind = text[text.index(STORES) :]
    for gone in ("cute.gemm", "read = ", "loads.consumer", "if cute.arch.make_warp_uniform"):
        assert gone not in behind
    assert "acc_full.consumer_wait(acc_state)" in behind
    assert "finish" not in branch(text)
    assert "store" not in branch(text)


CLEARED: tuple[Change, ...] = (
    ("                mma.set(warpgroup.Field.ACCUMULATE, False)\n",
     "                sums.fill(0.0)\n                mma.set(warpgroup.Field.ACCUMULATE, True)\n"),
    ("                        mma.set(warpgroup.Field.ACCUMULATE, True)\n                    warpgroup.commit",
     "                    warpgroup.commit"),
)  # fmt: skip
TAKEN: dict[str, tuple[tuple[Change, ...], str]] = {
    "a loop with a number of tiles": (
        (
            ("            while work.is_valid_tile:\n", "            for n in cutlass.range(self.count):\n"),
            ("self.gC[work.tile_idx]", "self.gC[n]"),
            (NEXT, ""), ("                work = turns.get_current_work()\n", ""),
            ("            work = turns.initial_work_tile_info()\n", ""),
            ("            turns = utils.StaticPersistentTileScheduler.create("
             "order, cute.arch.block_idx(), cute.arch.grid_dim())\n", ""),
        ),
        " == 3:\n            read = ",
    ),
    "a number of k tiles of each tile": (
        (("                mma.set(warpgroup.Field.ACCUMULATE, False)\n                for k in cutlass.range(self.tiles)",
          "                deep = self.depth[work.tile_idx]\n                mma.set(warpgroup.Field.ACCUMULATE, False)\n"
          "                for k in cutlass.range(deep)"),),
        "            while work.is_valid_tile:\n                deep = self.depth[work.tile_idx]\n                acc_full.",
    ),
    "a comment above the main loop": (
        (("                mma.set(warpgroup.Field.ACCUMULATE, False)\n",
          "                # All of K.\n                mma.set(warpgroup.Field.ACCUMULATE, False)\n"),),
        "acc_fill_state.index)]\n                # All of K.\n                mma.set(",
    ),
    "an index of warps without a name": (
        (("        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())\n", ""),
         ("make_warp_uniform(warp // 4)", "make_warp_uniform(thread // 128)"), ("if warp == 0", "if thread // 32 == 0")),
        "if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 3:\n",
    ),
    "cleared sums": (CLEARED, "                multiplies = self.tiles > 0\n                if multiplies:\n                    acc_full.prod"),
    "threads that are counted from a product": (
        (("mma.get_slice(thread - 128)", "mma.get_slice(thread - self.ahead * 32)"),
         ("store.get_slice(thread - 128)", "store.get_slice(thread - self.ahead * 32)"),
         ("        mma = sm90_utils", "        self.ahead = 4\n        mma = sm90_utils")),
        "if warp == 3:\n",
    ),
    "what only the epilogue needs of a tile": (
        ((NEXT, "                self.written(turns.num_tiles_executed)\n" + NEXT),), "turns.advance_to_next_work()"
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", mostly_slow(TAKEN))
def test_forms_with_a_warp_of_their_own(form: str) -> None:
    changes, expected = TAKEN[form]
    found, text = ported(*changes)
    assert list(found.without) == []
    assert expected in text
    assert "cute.gemm" in branch(text)
    assert "written" not in branch(text)


def test_a_warp_that_is_taken_is_left_alone() -> None:
    _, text = ported((LOADER, "        if warp == 3:\n"))
    assert "        if warp == 2:\n" in text


LEFT: dict[str, tuple[tuple[Change, ...], str]] = {
    "all warps of the loading warpgroup load": (
        tuple((LOADER, f"        if warp == {n}:\n            pass\n" + LOADER) for n in (1, 2, 3)), "nothing to do"
    ),
    "consumers that begin at the first warp": ((("mma.get_slice(thread - 128)", "mma.get_slice(thread)"),
                                                ("store.get_slice(thread - 128)", "store.get_slice(thread)")), "nothing to do"),
    "a tile that an exchange of threads says": (
        ((NEXT, "                cute.arch.sync_threads()\n                turns.advance_to_next_work(cute.arch.sync_threads())\n"),),
        "neither waits nor copies",
    ),
    "a tile that is chosen in a branch": (
        ((NEXT, "                if self.again:\n                    work = turns.get_current_work()\n" + NEXT),),
        "single statements",
    ),
    "a branch with another": (
        (("                work = turns.get_current_work()\n",
          "                work = turns.get_current_work()\n        else:\n            self.idle()\n"),), "a branch of the kernel",
    ),
    "an accumulator that is asked for": (((NEXT, "                self.seen(sums.layout)\n" + NEXT),), "sums.layout"),
    "cleared sums, and a number of k tiles that the main loop says": (
        (*CLEARED, ("                for k in cutlass.range(self.tiles):\n                    loads.consumer_wait",
                    "                deep = cute.ceil_div(self.k, 64)\n                for k in cutlass.range(deep):\n"
                    "                    loads.consumer_wait")), "known ahead",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", mostly_slow(LEFT))
def test_what_is_missing_for_it_is_named(form: str) -> None:
    changes, what = LEFT[form]
    found, text = ported(*changes)
    assert list(found.steps) == []
    assert what in found.without[0][2]
    assert "acc_stages" not in text
