# SPDX-License-Identifier: Apache-2.0
"""How long it takes to judge a port with steps of the native style, on PTX and by runs (docs/benchmarks.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from corpus_kernels import CORPUS

from porter.cli.building import make_builder
from porter.cli.context import current
from porter.cli.judging import judge
from porter.cli.porting import launches_of, look
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune.verifying import Proofs
from porter.verify import originals
from porter.verify.gate import GateOptions
from porter.verify.proved import SECONDS

Record = Callable[[str, float, float, str], None]

pytestmark = pytest.mark.slow

KERNEL = CORPUS / "gemm_ws" / "gemm_ws.cu"
LESS = 30.0, 12.0
"""Seconds for the first candidate, and for one with fewer steps behind it."""


def candidate(steps: Sequence[str]) -> Ported:
    options = PortOptions(full_rate=True, native=tuple(steps), launches=partial(launches_of, ()))
    return port_paths([KERNEL], options, (), look)


@pytest.mark.target
def test_candidates(benchmark: Any, figure: Record) -> None:
    ports, taken = [candidate(STEPS), candidate(("release", "raster"))], list[float]()
    proofs = Proofs(make_builder(None), current(), judge=judge(current(), GateOptions(jobs=1), SECONDS))

    def run() -> None:
        originals.forget()
        for ported in ports:
            began = time.process_time()
            assert proofs.missing(ported, ported.roots[0]) == ""
            taken.append(time.process_time() - began)

    benchmark.pedantic(run, rounds=1)
    if benchmark.stats is not None:
        for what, seconds, most in zip(("the first", "another one"), taken, LESS, strict=True):
            figure(f"a port with steps is judged, {what}", 60 / seconds, 60 / most, "a minute")
