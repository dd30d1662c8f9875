# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Tiles that are handed out: forms of a persistent kernel that get them, and what keeps others from it; and mistakes in
such a port, which runs tell in which one block does the work of all. Traces of the forms are stated."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from corpus_kernels import CORPUS
from test_dsl_pair import Change, mostly_slow

from porter.build.port_plan import PortPlan
from porter.cli.context import Session, install
from porter.cli.porting import port_paths
from porter.lang.text import EditGroup, Safety, apply_groups
from porter.passes.idiom_dsl.port import Idiomatic, idiomatic
from porter.passes.idiom_dsl.stated import stated
from porter.passes.native import dsl_mma_warp, dsl_next_tiles
from porter.rules.load import load_rules
from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.checked import Checking
from porter.verify.runner import VerifyOptions, verify
from porter.verify.settings import SimOptions

KERNEL = next(r for r in load_rules() if r.id == dsl_next_tiles.RULE).examples[0].before
PATH = Path("/work/gemm.py")
CREATE = "utils.StaticPersistentTileScheduler.create(order, cute.arch.block_idx(), cute.arch.grid_dim())"
NEXT = "turns.advance_to_next_work()"
TAKE = "work = turns.get_current_work()"
ORDER = "order = utils.PersistentTileSchedulerParams(self.count(c), (1, 1, 1))"
LOADER = "        if warp == 0:\n"


def ported(*changes: Change) -> tuple[Idiomatic, str]:
    """The port of the kernel with changes, each of which is made everywhere."""
    text = KERNEL
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    steps = [dsl_mma_warp.STEP, dsl_next_tiles.STEP]
    found = idiomatic(str(PATH), text.encode(), [stated(PATH, text.encode(), 128, 128)], steps)
    assert not found.what, found.what
    groups = [EditGroup(rule, "", Safety.REVIEW, (edit,)) for rule, edit in found.edits]
    result = apply_groups({str(PATH): text.encode()}, groups)[str(PATH)].decode()
    compile(result, "gemm.py", "exec")
    return found, result


TAKEN: dict[str, tuple[tuple[Change, ...], str]] = {
    "as it is": ((), "if warp == 2:\n"),
    "names of its own": ((("turns", "scheduler"),), "work = scheduler.get_current_work()\n"),
    "parameters by a name": ((("(order, cute.arch.block_idx()", "(params=order, block_idx=cute.arch.block_idx()"), (", cute.arch.grid_dim())", ", grid_dim=cute.arch.grid_dim())")), "create(\n"),
    "a parameter with its type": (((" order, tma_c, mC):", " order: utils.PersistentTileSchedulerParams, tma_c, mC):"),), "order: utils.ClcDynamicPersistentTileSchedulerParams,"),
    "a shape of clusters by its name": (((ORDER, ORDER.replace("(1, 1, 1)", "cluster_shape_mnk=(1, 1, 1)")),), "ClcDynamicPersistentTileSchedulerParams("),
    "names of the library that the file brings": ((("import cutlass.utils as utils\n", "import cutlass.utils as utils\nfrom cutlass.utils import PersistentTileSchedulerParams\n"), (ORDER, ORDER.replace("utils.", ""))), "order = utils.ClcDynamicPersistentTileSchedulerParams("),
    "how many tiles there were": ((("self.finish(tile, store, t)", "self.finish(tile, store, turns.num_tiles_executed + t)"),), "self.finish(tile, store, tile_state.count + t)"),
    "a warp with a number of the class": ((("        self.tile = (*tile, 64)\n", "        self.tile = (*tile, 64)\n        self.loads_by = 0\n"), (LOADER, "        if warp == self.loads_by:\n")), "if warp == 2:\n"),
    "another loading warp": (((LOADER, "        if warp == 2:\n"),), "if warp == 1:\n"),
    "the first thread's warp by its call": ((("warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())", "warp = cute.arch.warp_idx()"),), "if warp == 2:\n"),
}  # fmt: skip
LEFT: dict[str, tuple[tuple[Change, ...], str]] = {
    "clusters": (((ORDER, ORDER.replace("(1, 1, 1)", "(2, 1, 1)")),), "single blocks"),
    "an order of its own": (((ORDER, ORDER.replace("(1, 1, 1)", "(1, 1, 1), 4")),), "single blocks"),
    "a scheduler that is handed on": ((("self.finish(tile, store, t)", "self.finish(tile, store, turns)"),), "asked for tiles alone"),
    "a scheduler of another kind of answer": ((("self.finish(tile, store, t)", "self.finish(tile, store, turns.params)"),), "asked for tiles alone"),
    "a tile that is taken later": (((f"                {NEXT}\n", f"                {NEXT}\n                self.note()\n"),), "right where the scheduler goes on"),
    "two tiles at a time": (((f"                {NEXT}\n", f"                {NEXT}\n                {NEXT}\n"),), "one place where the next tile is taken"),
    "several warps that load": (((LOADER, "        if warp < 2:\n"),), "one warp takes"),
    "a thread that loads": (((LOADER, "        if thread == 0:\n"),), "one warp takes"),
    "a block's place for more": ((("        one = cute.make_layout(1)\n", "        one = cute.make_layout(1)\n        self.note(cute.arch.block_idx())\n"),), "the scheduler of tiles alone"),
    "no warp that is free": (((LOADER, "        if warp == 1:\n            self.note()\n        if warp == 2:\n            self.note()\n" + LOADER),), "two warps ahead"),
}  # fmt: skip


@pytest.mark.parametrize("form", mostly_slow(TAKEN))
def test_tiles_are_handed_out(form: str) -> None:
    changes, expected = TAKEN[form]
    found, text = ported(*changes)
    assert (found.steps, found.without) == (["mma-warp", "next-tiles"], [])
    assert expected in text
    assert "StaticPersistentTileScheduler" not in text
    assert text.count("ClcDynamicPersistentTileScheduler.create(") == 4
    assert text.count(".consumer_release(tile_state)") == text.count("tile_state.advance()") == 4
    assert text.count(".advance_to_next_work(next_tiles.producer_get_barrier(ask_state))") == 1


@pytest.mark.parametrize("form", mostly_slow(LEFT))
def test_what_keeps_them(form: str) -> None:
    changes, what = LEFT[form]
    found, text = ported(*changes)
    assert "next-tiles" not in found.steps
    assert what in next(why for _, step, why, _ in found.without if step == "next-tiles")
    assert "ClcDynamic" not in text
    assert "next_tiles" not in text


MISTAKES = {
    "nobody waits for the answer": ("                next_tiles.consumer_wait(tile_state)\n                work = load_tiles.", "                work = load_tiles."),
    "the answer is not given back": ("                work = load_tiles.get_current_work()\n                next_tiles.consumer_release(tile_state)\n", "                work = load_tiles.get_current_work()\n"),
    "one asks who got no answer": ("                next_tiles.producer_acquire(ask_state)\n", ""),
    "too few give it back": ("Agent.Thread, 3 * 32 + 128)", "Agent.Thread, 2 * 32 + 128)"),
    "too many are waited for": ("Agent.Thread, 3 * 32 + 128)", "Agent.Thread, 4 * 32 + 128)"),
    "fewer bytes": ("tx_count=16", "tx_count=8"),
    "two warps ask": ("if warp_idx == 2:", "if warp_idx == 2 or warp_idx == 1:"),
    "the first tile again": ("work = load_tiles.get_current_work()", "work = load_tiles.initial_work_tile_info()"),
}  # fmt: skip


@pytest.fixture(scope="module")
def handed_out() -> str:
    kernel = CORPUS / "dsl_gemm_persistent" / "dsl_gemm_persistent.py"
    with click.Context(click.Command("port")):
        install(Session(style="native", tiles="handed-out", verbosity=-2))
        found = port_paths([kernel])
    (root,) = found.changed_roots
    assert root.native == ("mma-warp", "next-tiles")
    return next(iter(found.of_root(root).values())).decode()


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["", *MISTAKES])
def test_runs_in_which_one_block_does_all(handed_out: str, mistake: str, tmp_path: Path) -> None:
    text = handed_out
    if mistake:
        before, after = MISTAKES[mistake]
        assert before in text
        text = text.replace(before, after)
    port = tmp_path / "dsl_gemm_persistent.py"
    port.write_text(text)
    case = load_case(CORPUS / "dsl_gemm_persistent" / "case.yaml")
    settings = SimOptions(resident=1, budget=4_000_000, checking="practice")
    options = VerifyOptions(
        families=("integers",), sizes=({"M": 256, "N": 512, "K": 128, "L": 1},),
        checking=lambda program: Checking(SimBackend(settings), "practice", "late"),
    )  # fmt: skip
    rows = verify(case, PortPlan(source=port), ToolkitBuilder(), SimBackend(SimOptions()), options).rows
    right = all(row.verdict.value in ("clean", "review") for row in rows)
    assert rows
    assert right is not bool(mistake), [d.message for row in rows for d in row.diagnostics]
