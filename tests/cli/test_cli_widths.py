# SPDX-License-Identifier: Apache-2.0
"""Output in terminals of 80, 120 and 200 columns: no line is wider, and no name is cut in two."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fakes_cli import porter
from rich.console import Console

from porter.report.terminal import verdict_tables
from porter.verify.compare import same_values
from porter.verify.dtypes import DTYPES
from porter.verify.outcome import Verdict
from porter.verify.results import Row, VerifyResult

CORPUS = Path(__file__).parent.parent.parent / "corpus"
NAMES = [
    "wgmma.mma_async",
    "wgmma.commit_group",
    "cutlass.cute.nvgpu.warpgroup.Field.ACCUMULATE",
    "cutlass.utils.hopper_helpers.make_trivial_tiled_mma",
    "dsl_gemm_persistent/dsl_gemm_persistent.py",
    "gemm_ws_kernel",
    "tcgen05.mma.cta_group::1",
    "compute_90a",
]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_scan_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("porter.cli.context._WIDTH_WITHOUT_TERMINAL", width)
    monkeypatch.chdir(CORPUS)
    text = porter("scan", "gemm_ws", "dsl_gemm_persistent", "--no-effort").stdout
    assert max(map(len, text.splitlines())) <= width
    assert not [name for name in NAMES if name not in text]
    # with room there are tables
    assert ("Hopper only" in text) == (width == 200)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_family_is_one_line(width: int) -> None:
    import numpy as np

    same = same_values("C", DTYPES["f32"], np.ones(4), DTYPES["f32"].encode(np.ones(4)))
    rows = [
        Row("gemm_ws_persistent", {"M": 256, "N": 256, "K": k}, family, 0, Verdict.CLEAN, (same,), (same,), (same,))
        for k in (512, 1216)
        for family in ("integers", "index", "normal", "nonfinite")
    ]
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(*verdict_tables(VerifyResult(tuple(rows), "sim", "late", "float64", 0)))
    lines = [line for line in console.export_text().splitlines() if line.strip()]
    assert lines[0].split() == ["gemm_ws_persistent", "M=256", "N=256", "K=512"]
    # two sizes, one heading, a line for each row
    assert len(lines) == 2 + 1 + len(rows)
    verdicts = {line.index("clean") for line in lines if "clean" in line}
    assert len(verdicts) == 1, "columns stand below each other"
