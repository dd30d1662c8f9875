# SPDX-License-Identifier: Apache-2.0
"""What a source calls the mbarrier that a statement of it initializes."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.ptx.ast import SourceLoc
from porter.verify.barrier_names import initialized, named

NAMES = {
    "init(&full[i], 1);": "full[]",
    "hopper::mbarrier_init(&loaded, 1);": "loaded",
    "Full::init(&storage.full[stage], 1);": "storage.full[]",
    "mbarrier_init(&smem->empty[s], kConsumers * 128);": "smem->empty[]",
    "storage.loaded[s].init(1);": "storage.loaded[]",
    "for (int s = 0; s < min(a, b); ++s) storage.loaded[s].init(1);": "storage.loaded[]",
    "stages[i].full.init(1);": "stages[].full",
    "sm90::barrier_init(ring.full(s), 1);": "ring.full()",
    "mbarrier_init(smem_u32(ring.full(0)), 1);": "ring.full(0)",
    "init(bars[s][1], 2);": "bars[][1]",
    "init(b + i, 1);": "b[]",
    "init(b + 3, 1);": "b + 3",
    "cute.arch.mbarrier_init(barriers + stage, 1)": "barriers[]",
    "mbarrier_init(reinterpret_cast<uint64_t*>(&full[s]), 1);": "full[]",
    "init_ring(full, 2);": None,
    "Pipeline pipeline(storage.pipeline, params);": None,
    "ClusterBarrier::init(&this->barrier_, arrive_count);": None,
    "mbarrier_init((uint64_t*)(base) + 2, 1);": None,
}


@pytest.mark.parametrize("statement", NAMES)
def test_names(statement: str) -> None:
    assert named(statement) == NAMES[statement]


def test_the_column_says_which_statement(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("void f() {\n  init(&full[i], 1); init(&empty[i],\n    2);\n}\n")
    assert initialized(SourceLoc(str(source), 2, 3)) == "full[]"
    assert initialized(SourceLoc(str(source), 2, 22)) == "empty[]"
    assert initialized(SourceLoc(str(source), 1, 1)) is None
    assert initialized(SourceLoc(str(tmp_path / "nowhere.cu"), 2, 3)) is None
