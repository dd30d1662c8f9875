# SPDX-License-Identifier: Apache-2.0
"""Mistakes that scripts plant in ports: each kind changes an instruction that a run comes to, and no other."""

from __future__ import annotations

import random

import pytest
from scripts_loaded import script

TEXT = """.visible .entry k()
{
setp.eq.s32 %p1, %r1, 4;
@%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r5, %r6}, [%r1];
tcgen05.wait::ld.sync.aligned;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd3];
st.global.v2.b32 [%rd4], {%r5, %r6};
ret;
}
"""
PLACES = {
    "ring": (3, "setp.eq.s32"), "stage": (4, "1024]"), "k step": (4, "add.u32 %planted3, %planted3, 16"),
    "tile row": (5, "{%r2, %planted3}"), "late tile row": (5, "@%plant add.u32"), "block's tile row": (5, "%ctaid"),
    "swizzle": (6, "xor.b64 %planted_wide"), "dtype multiplied": (6, "%planted3, %p1"), "column overlap": (6, "[%r1+"),
    "rows loaded": (7, "[%r1+"), "element loaded": (7, "{%r6, %r5}"), "commit to another": (9, "[%rd3+8]"),
    "element stored": (10, "{%r6, %r5}"), "late product left out": (6, "@!%plant tcgen05.mma"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_an_instruction_that_is_come_to_is_changed(name: str) -> None:
    kinds = script("scripts/plant_kinds.py")
    kind = next(kind for kind in kinds.KINDS if kind.name == name)
    line, now = PLACES[name]
    was, text = kinds.planted(TEXT, "k", kind, {line}, random.Random(1))
    assert was == TEXT.splitlines()[line - 1]
    assert now in text
    assert text.replace(now, "") != TEXT
    with pytest.raises(kinds.NotThereError):
        kinds.planted(TEXT, "k", kind, {2}, random.Random(1))


def test_what_has_a_guard_is_not_planted_in_some_turns_alone() -> None:
    kinds = script("scripts/plant_kinds.py")
    kind = next(kind for kind in kinds.KINDS if kind.name == "late k step")
    with pytest.raises(kinds.NotThereError):
        kinds.planted(TEXT, "k", kind, {4}, random.Random(1))
