# SPDX-License-Identifier: Apache-2.0
"""The kernels of the corpus as tests go over them. Those in CuTe C++ are compiled with CUTLASS' headers, which takes
half a minute each: in tests that compile, one of them is in every run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from porter.verify.case import load_case

CORPUS = Path(__file__).parents[1] / "corpus"
CASES = sorted(CORPUS.glob("*/case.yaml"))
CUDA = [path for path in CASES if load_case(path).kernel.suffix == ".cu"]
QUICK = "cute_gemm_tma"


def is_cute(path: Path) -> bool:
    """Whether a case's kernel is CuTe C++."""
    return path.parent.name.startswith("cute_")


def sampled(cases: Sequence[Path]) -> list[Any]:
    """Parameters of a test that other tests of the same ports cover: one kernel in CuTe C++ stands for all."""
    left = [path for path in cases if is_cute(path) and path.parent.name != QUICK]
    return [pytest.param(path, marks=[pytest.mark.slow] if path in left else [], id=path.parent.name) for path in cases]


def compiled(cases: Iterable[Path], quick: str = "") -> list[Any]:
    """Parameters of a test that compiles the kernels of cases. `quick`: the one in CuTe C++ that is in every run."""
    marks = {path: [pytest.mark.external] if is_cute(path) else [] for path in cases}
    for path, own in marks.items():
        if own and path.parent.name != quick:
            own.append(pytest.mark.slow)
    return [pytest.param(path, marks=own, id=path.parent.name) for path, own in marks.items()]
