# SPDX-License-Identifier: Apache-2.0
"""How long proofs of synchronization take (docs/benchmarks.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import pytest
from corpus_kernels import CORPUS

from porter.cli.porting import plan_of_case
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.case_program import Program

Record = Callable[[str, float, float, str], None]

pytestmark = [pytest.mark.target, pytest.mark.slow]

CUTE = sorted(p.parent.name for p in CORPUS.glob("cute_*/case.yaml"))
RAW = sorted(p.parent.name for p in CORPUS.glob("gemm_*/case.yaml"))
ATTENTION = ["attention_fwd"]
LONGEST = 60.0


def seconds(names: Sequence[str]) -> list[float]:
    """Processor time for the proof of each original and each port; the compiler's is not counted."""
    found = []
    for name in names:
        case = load_case(CORPUS / name / "case.yaml")
        builder = ToolkitBuilder()
        for plan in (None, plan_of_case(case, None)[0]):
            program = Program(case, builder, plan)
            program.at(case.sizes)
            began = time.process_time()
            program.prove([case.sizes, *case.other_sizes], LONGEST)
            found.append(time.process_time() - began)
    return found


@pytest.mark.parametrize(("what", "names", "most"), [
    ("proof of raw CUDA, median", RAW, 3.0),
    ("proof of CuTe C++ and attention, median", [*CUTE, *ATTENTION], 15.0),
])  # fmt: skip
def test_proofs(what: str, names: list[str], most: float, benchmark: Any, figure: Record) -> None:
    taken: list[float] = []

    def run() -> None:
        taken.append(median(seconds(names)))

    benchmark.pedantic(run, rounds=1)
    if benchmark.stats is not None:
        figure(what, 60 / min(taken), 60 / most, "a minute")
