# SPDX-License-Identifier: Apache-2.0
"""What the text of a kernel says of its mbarriers, held against a run: as many of each first count, and a run that ends
has met them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from corpus_kernels import CORPUS

from porter.rules.load import load_rules
from porter.scan.pipeline import pipelines
from porter.sim.mbarrier import Mbarriers
from porter.verify.builder import ORIGINAL_ARCH, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.prepare import run_once
from porter.verify.settings import SimOptions

pytestmark = pytest.mark.slow

KERNELS = sorted(p.parent for p in CORPUS.glob("*/case.yaml") if p.parent.name.startswith(("gemm_", "attention_")))


def read(folder: Path) -> tuple[Counter[int], bool]:
    """How many mbarriers have which first count, and whether all that is known."""
    (found,) = pipelines(folder / f"{folder.name}.cu", load_rules())
    counts: Counter[int] = Counter()
    for barrier in found.pipeline.barriers:
        values = {c.value for c in barrier.counts}
        value = values.pop() if len(values) == 1 else None
        if value is None or barrier.extent is None or barrier.extent.value is None:
            return counts, False
        counts[value] += barrier.extent.value
    return counts, True


@pytest.mark.parametrize("folder", KERNELS, ids=lambda p: p.name)
def test_counts_are_those_of_a_run(folder, monkeypatch):
    said, known = read(folder)
    if not said:
        pytest.skip("no mbarriers of which the text says how many there are")
    made: list[Mbarriers] = []
    begin = Mbarriers.__init__

    def kept(self, machine):
        begin(self, machine)
        made.append(self)

    monkeypatch.setattr(Mbarriers, "__init__", kept)
    case = load_case(folder / "case.yaml")
    family = "integers" if case.families is None or "integers" in case.families else "index"
    *_, result = run_once(case, case.mutation_sizes()[0], family, ORIGINAL_ARCH, ToolkitBuilder(), SimOptions())
    assert result.status == "ok"
    seen = Counter(made[0].count[:, 0].tolist())
    if known:
        assert said == seen
    else:
        assert said <= seen
