# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Two CTAs that multiply together in CuTe DSL: forms of a persistent kernel that get a pair, and what keeps others from
it. Traces are stated, so that nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from porter.lang.text import EditGroup, Safety, apply_groups
from porter.passes.idiom_dsl.names import OPTIONAL
from porter.passes.idiom_dsl.port import Idiomatic, idiomatic
from porter.passes.idiom_dsl.stated import stated
from porter.passes.native.dsl_layouts import NAME as LAYOUTS
from porter.passes.native.step import steps_for
from porter.rules.load import load_rules
from porter.steps.step import Step

KERNEL = next(r for r in load_rules() if r.id == "PTR590").examples[0].before
PATH = Path("/work/gemm.py")
Change = tuple[str, str]


def mostly_slow(forms: Iterable[str]) -> list[object]:
    """A form takes a quarter of a second, most of it libcst's."""
    return [pytest.param(form, marks=pytest.mark.slow if i else ()) for i, form in enumerate(forms)]


def _steps(on_request: bool) -> list[Step]:
    return [step for step in steps_for("dsl") if not step.on_request or (on_request and step.name == LAYOUTS)]


def ported(
    *changes: Change, rows: int = 128, columns: int = 128, cluster: int = 1, absent: Iterable[str] = (),
    on_request: bool = False,
) -> tuple[Idiomatic, str]:  # fmt: skip
    text = KERNEL
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    traces = [replace(stated(PATH, text.encode(), rows, columns, cluster=cluster), absent=frozenset(absent))]
    found = idiomatic(str(PATH), text.encode(), traces, _steps(on_request))
    assert not found.what, found.what
    groups = [EditGroup(rule, "", Safety.REVIEW, (edit,)) for rule, edit in found.edits]
    result = apply_groups({str(PATH): text.encode()}, groups)[str(PATH)].decode()
    compile(result, "gemm.py", "exec")
    return found, result


TILE = "                m, n, batch = work.tile_idx\n"
LOADS = "ofB[(None, n, k, batch)]"
ATOM = "        load = cpasync.CopyBulkTensorTileG2SOp()\n"
TAKEN: dict[str, tuple[tuple[Change, ...], str]] = {
    "coordinates without a tuple of their own": (((LOADS, "ofB[None, n, k, batch]"),), "ofB[None, 2 * n + cta_rank, k, batch]"),
    "coordinates of a tile one by one": (
        ((TILE, "                m, batch = work.tile_idx[0], work.tile_idx[2]\n                n = work.tile_idx[1]\n"),
         ("ofA[(None, m,", "ofA[(None, work.tile_idx[0],")),
        "2 * n + cta_rank",
    ),
    "coordinates where they are needed": (
        (("ofA[(None, m,", "ofA[(None, work.tile_idx[0],"), (LOADS, "ofB[(None, work.tile_idx[1], k, batch)]")),
        "ofB[(None, 2 * work.tile_idx[1] + cta_rank, k, batch)]",
    ),
    "loads that are named beside stores": (
        ((ATOM, "        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()\n"),
         ("        store = cpasync.CopyBulkTensorTileS2GOp()\n", "")),
        "load, store = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.TWO), cpasync.CopyBulkTensorTileS2GOp()",
    ),
    "loads that are named where they are made": (
        ((ATOM, ""), ("atom(load, a", "atom(cpasync.CopyBulkTensorTileG2SOp(), a"), ("atom(load, b", "atom(cpasync.CopyBulkTensorTileG2SOp(), b")),
        "atom(cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.TWO), b",
    ),
    "rows of a box that are a sum": ((("(self.tile[1], 64)", "(self.n + 8, 64)"),), "((self.n + 8) // 2, 64)"),
    "a launch that says that there are no clusters": (
        (("block=[self.threads, 1, 1],", "block=[self.threads, 1, 1],\n            cluster=(1, 1, 1),"),), "            cluster=[2, 1, 1],\n"
    ),
    "a launch in one line": (
        (("            block=[self.threads, 1, 1],\n            stream=stream,\n", "            block=[self.threads, 1, 1], stream=stream,\n"),),
        "            cluster=[2, 1, 1],\n            block=",
    ),
    "arguments by keywords": (
        (("(mma, tma_a, a_tma, tma_b, b_tma, smem_a, smem_b, smem_c, order, tma_c, c_tma)", "(mma, tma_a, a_tma, smem_a=smem_a, smem_b=smem_b, smem_c=smem_c, order=order, mB=b_tma, tma_b=tma_b, mC=c_tma, tma_c=tma_c)"),),
        "2 * n + cta_rank",
    ),
    "a constant that the kernel is called with": (
        (("b: cute.Tensor, c: cute.Tensor, stream)", "b: cute.Tensor, c: cute.Tensor, act: cutlass.Constexpr, stream)"),
         ("tma_c, c_tma).launch", "tma_c, c_tma, act).launch"), ("tma_c, mC):", "tma_c, mC, act):")),
        "cluster=[2, 1, 1]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", mostly_slow(TAKEN))
def test_forms_with_pairs(form: str) -> None:
    changes, expected = TAKEN[form]
    found, text = ported(*changes)
    assert list(found.without) == []
    assert expected in text
    for once in (
        "CtaGroup.TWO, (2 * ",
        ", (2, 1, 1))\n",
        "tx_count=2 * (",
        "cta_rank == 0:",
        "max(self.blocks // 2, 1)",
    ):
        assert text.count(once) == 1, once
    assert "TmemAllocator" not in text
    assert "sync_threads" not in text
    # what the other CTA commits is waited for with the scope of the cluster
    assert text.count("scope=MBarrierScope.CLUSTER):") == 4
    assert text.count("loads.producer_acquire(filling, True)") == 1
    for wait in ("producer_tail", "acc_full.consumer_wait", "acc_full.producer_acquire"):
        assert wait not in text


STORE = (
    "                    if warp == 4:\n                        cute.copy(tma_c, self.sC[(None, t)], gC[(None, t)])\n"
)
NEXT = "                        cute.copy(tma_c, self.sC[(None, t)], gC[(None, t)])\n                turns.advance_to_next_work()\n"
BLOCK = "        thread, _, _ = cute.arch.thread_idx()\n"
LEFT: dict[str, tuple[tuple[Change, ...], str]] = {
    "a tile of B that is chosen otherwise": (((TILE, TILE + "                n = self.order(n)\n"),), "as the scheduler of tiles says"),
    "rows of A that are those of B": (((TILE, "                n, m, batch = work.tile_idx\n"),), "as the scheduler of tiles says"),
    "tiles that are counted from one": (((LOADS, "ofB[(None, n - 1, k, batch)]"),), "as the scheduler of tiles says"),
    "boxes that are sliced first": (((LOADS, "ofB_k[(None, k)]"), (TILE, TILE + "                ofB_k = ofB[(None, n, None, batch)]\n")), "boxes by their coordinates"),
    "a block that knows its place": (((BLOCK, BLOCK + "        first, _, _ = cute.arch.block_idx()\n"),), "place in the grid"),
    "a tensor that the kernel stores to": (
        (("tma_c, c_tma).launch", "tma_c, c_tma, c).launch"), ("tma_c, mC):", "tma_c, mC, plain):")), "by TMA alone: `c`"
    ),
    "a cluster that the scheduler has": ((("self.count(c), (1, 1, 1)", "self.count(c), (*self.cluster, 1)"),), "for single blocks"),
    "a cluster that is launched": ((("block=[self.threads, 1, 1],", "block=[self.threads, 1, 1],\n            cluster=self.cluster,"),), "no clusters"),
    "loads that nobody waits for at the end": ((("            loads.producer_tail(filling)\n", ""),), "where loads end"),
    "no bytes of a buffer": ((("            tx_count=self.bytes,\n", ""),), "bytes of a buffer"),
    "a box whose rows have a name": ((("(None, None, 0)), (self.tile[1], 64))", "(None, None, 0)), self.box)"),), "rows of a box"),
    "loads for several blocks": (((ATOM, "        load = cpasync.CopyBulkTensorTileG2SMulticastOp()\n"),), "one load that brings A"),
    "results that threads store": (((STORE, ""),), "leave by TMA"),
    "a tile by two names": (((NEXT, NEXT + "                more = turns.get_current_work()\n                self.see(more.tile_idx)\n"),), "by one name"),
    "a layout with a name": ((("cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),", "cta_layout_vmnk=layout,"), (BLOCK, BLOCK + "        layout = cute.make_layout((1, 1, 1, 1))\n")), "written where the pipeline"),
}  # fmt: skip


@pytest.mark.parametrize("form", mostly_slow(LEFT))
def test_what_is_missing_for_pairs_is_named(form: str) -> None:
    changes, what = LEFT[form]
    found, text = ported(*changes)
    assert list(found.steps) == ["mma-warp"]
    assert what in found.without[0][2]
    for gone in ("cta_rank", "CtaGroup.TWO", "cluster=[2"):
        assert gone not in text


@pytest.mark.parametrize(
    ("shape", "what"),
    [({"columns": 144}, "128 x 144"), ({"rows": 64}, "64 x 128"), ({"cluster": 2}, "without clusters")],
)
def test_tiles_and_clusters_without_pairs(shape: dict[str, int], what: str) -> None:
    found, _ = ported(**shape)
    assert what in found.without[0][2]


def test_no_pair_without_a_warp_for_mmas() -> None:
    found, text = ported(
        (
            "        if warp == 0:\n            filling",
            "        if warp == 0 or warp == 1 or warp == 2 or warp == 3:\n            filling",
        )
    )
    assert [step for _, step, _, _ in found.without] == ["mma-warp", "cta-pair", "wide-tile"]
    assert "CtaGroup.ONE" in text


def test_no_pair_where_the_dsl_has_no_scope_of_mbarriers() -> None:
    """What the pipelines' own methods do there has the scope of a CTA, which runs refuse (M1)."""
    found, text = ported(absent=OPTIONAL.values())
    assert found.steps == ["mma-warp"]
    assert "scope of a cluster" in next(what for _, step, what, _ in found.without if step == "cta-pair")
    assert "CtaGroup.TWO" not in text
