# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Operands as SM100's helpers lay them out: how a kernel may make, fill and multiply them, and what keeps its own
layouts. Traces are stated, so that nothing is compiled."""

from __future__ import annotations

import pytest
from test_dsl_pair import Change, mostly_slow, ported

SLICED = "cute.slice_(smem_b, (None, None, 0)), (self.tile[1], 64))"
LOAD_B = "        tma_b, b_tma = "
LAYOUT_B = "sm90_utils.make_smem_layout_b(self.layout_b, self.tile, cutlass.Float16, 3)"
PARTS_B = "cpasync.tma_partition(tma_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))"
FRAGMENT_B = "mma.make_fragment_B(part.partition_B(sB))"
MMA = "        mma = sm90_utils.make_trivial_tiled_mma("
TAKEN: dict[str, tuple[tuple[Change, ...], str]] = {
    "as it is": ((), "make_tiled_tma_atom_B(load, b, cute.slice_(smem_b, (None, None, None, 0)), self.tile, mma)"),
    "a stage with a name": (
        (
            (LOAD_B, "        box = cute.slice_(smem_b, (None, None, 0))\n" + LOAD_B),
            (SLICED, "box, (self.tile[1], 64))"),
        ),
        "        box = cute.slice_(smem_b, (None, None, None, 0))\n        tma_b, b_tma = cute.nvgpu.make_tiled_tma_atom_B(load, b, box, self.tile, mma)",
    ),
    "a stage by a coordinate with a name": (
        (
            (LOAD_B, "        one = (None, None, 0)\n" + LOAD_B),
            (SLICED, "cute.slice_(smem_b, one), (self.tile[1], 64))"),
        ),
        "        tma_b, b_tma = cute.nvgpu.make_tiled_tma_atom_B(load, b, cute.slice_(smem_b, (None, None, None, 0)), self.tile, mma)",
    ),
    "multicast": (
        (
            (SLICED, SLICED[:-1] + ", num_multicast=2)"),
            ("            block=[", "            cluster=[2, 1, 1],\n            block=["),
        ),
        "self.tile, mma, (1, *[2, 1, 1]))",
    ),
    "bytes of a stage in the kernel": (
        (
            (
                "tx_count=self.bytes",
                "tx_count=cute.size_in_bytes(cutlass.Float16, cute.slice_(smem_b, (None, None, 0)))",
            ),
        ),
        "tx_count=cute.size_in_bytes(cutlass.Float16, cute.slice_(smem_b, (None, None, None, 0)))",
    ),
    "both stages of a list": (
        (
            (LOAD_B, "        box_a, box_b = [cute.slice_(x, (None, None, 0)) for x in (smem_a, smem_b)]\n" + LOAD_B),
            ("cute.slice_(smem_a, (None, None, 0)), (self.tile[0], 64))", "box_a, (self.tile[0], 64))"),
            (SLICED, "box_b, (self.tile[1], 64))"),
        ),
        "make_tiled_tma_atom_B(load, b, box_b, self.tile, mma)",
    ),
    "an allocated tensor": (
        (
            (
                "storage.b.get_tensor(smem_b.outer, swizzle=smem_b.inner)",
                "self.smem.allocate_tensor(cutlass.Float16, smem_b.outer, 128, smem_b.inner)",
            ),
        ),
        "rB = mma.make_fragment_B(sB)",
    ),
    "a slice with a name": (
        ((", cute.group_modes(gB, 0, 2)", ", cute.group_modes(gB[(None, None, 0, None, 0)], 0, 2)"),),
        "tCgB = mma.get_slice(0).partition_B(gB[(None, None, 0, None, 0)])\n",
    ),
}
LEFT: dict[str, tuple[tuple[Change, ...], str]] = {
    "asked for its rows": (((LOAD_B, "        self.rows = cute.size(smem_b)\n" + LOAD_B),), "a layout that is used apart from its stages"),
    "arguments with names": (((LAYOUT_B, LAYOUT_B.replace("3)", "num_stages=3)")),), "a layout whose arguments are not named"),
    "another stage": (((SLICED, SLICED.replace("0)", "1)", 1)),), "a stage of a layout"),
    "stages of a list without names": (
        (((LOAD_B, "        boxes = [cute.slice_(x, (None, None, 0)) for x in (smem_a, smem_b)]\n" + LOAD_B)),), "a layout that is used apart from its stages"),
    "a stage that is asked for its rows": (
        ((LOAD_B, "        box = cute.slice_(smem_b, (None, None, 0))\n        self.rows = cute.size(box, mode=[0])\n" + LOAD_B),), "a stage of a layout that is used apart from loads"),
    "a list of stages of others": (
        ((("        tma_c, c_tma", "        b_one, c_one = [cute.slice_(x, (None, None, 0)) for x in (smem_b, smem_c)]\n        tma_c, c_tma")),), "a layout that is used apart from its stages"),
    "layouts ahead of the MMA": (
        ((f"        smem_b = {LAYOUT_B}\n", ""), (MMA, f"        smem_b = {LAYOUT_B}\n{MMA}")), "the tiled MMA ahead of layouts"),
    "a tensor that is handed on": (((FRAGMENT_B, "self.fragment(part, sB)"),), "an operand that is used apart from loads and MMAs"),
    "a tensor that is also copied": ((("        rB = ", "        self.look(sB)\n        rB = "),), "an operand that is used apart from loads and MMAs"),
    "a tensor that is made elsewhere": ((("storage.b.get_tensor(smem_b.outer, swizzle=smem_b.inner)", "self.tensor(storage.b, smem_b)"),), "a layout that is used apart from its stages"),
    "boxes of more modes": (((PARTS_B, PARTS_B.replace("sB, 0, 2", "sB, 0, 3")),), "boxes of rows and columns"),
    "boxes by another function": (((", cute.group_modes(gB, 0, 2)", ", self.boxes(gB)"),), "boxes of a tensor"),
    "a partition in a list": ((("toB, ofB = " + PARTS_B, f"toB, ofB = [x for x in {PARTS_B}]"),), "a partition by a statement"),
    "boxes that are brought otherwise": (((SLICED, "self.box, (self.tile[1], 64))"),), "a load with each layout"),
    "a multicast of unknown clusters": (((SLICED, SLICED[:-1] + ", num_multicast=2)"),), "the shape of clusters"),
}  # fmt: skip


@pytest.mark.parametrize("form", mostly_slow(TAKEN))
def test_operands_are_laid_out_for_the_mma(form: str) -> None:
    changes, expected = TAKEN[form]
    found, text = ported(*changes, on_request=True)
    assert list(found.steps) == ["mma-warp", "sm100-layouts"]
    assert expected in text
    assert "sm90_utils.make_smem_layout_a" not in text
    assert [what for _, step, what, _ in found.without if step == "cta-pair"] == [
        "operands in the layouts of the original, which CTAs can share"]  # fmt: skip


@pytest.mark.parametrize("form", mostly_slow(LEFT))
def test_what_keeps_the_layouts(form: str) -> None:
    changes, what = LEFT[form]
    found, text = ported(*changes, on_request=True)
    assert "sm100-layouts" not in found.steps
    assert what in next(why for _, step, why, _ in found.without if step == "sm100-layouts")
    assert "sm90_utils.make_smem_layout_a" in text
    assert "tCg" not in text
