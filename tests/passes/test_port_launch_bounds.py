# SPDX-License-Identifier: Apache-2.0
"""Kernels whose Tensor Memory has no room for a third CTA say that one is enough: ptxas does not spill for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import kernel, ported


def _body(n: int) -> str:
    registers = n // 2
    loop = "    for (int k = 0; k < steps; ++k) { arrive(); mma(acc, a + k, b + k); commit(); wait<0>(); }\n"
    store = f"    for (int i = 0; i < {registers}; ++i) out[threadIdx.x * {registers} + i] = acc[i];\n"
    return f"    float acc[{registers}] = {{0}};\n{loop}{store}"


@pytest.mark.parametrize(
    ("n", "bounds", "expected"),
    [
        (256, "__launch_bounds__(128)", "__launch_bounds__(128, 1)"),
        (136, "__launch_bounds__(kThreads)", "__launch_bounds__(kThreads, 1)"),
        (128, "__launch_bounds__(128)", "__launch_bounds__(128)"),
        (256, "__launch_bounds__(256)", "__launch_bounds__(256)"),
        (256, "__launch_bounds__(128, 2)", "__launch_bounds__(128, 2)"),
    ],
    ids=["256 columns", "a constant", "room for four CTAs", "more threads", "the source says it"],
)
def test_one_cta_where_no_third_one_fits(tmp_path: Path, n: int, bounds: str, expected: str) -> None:
    text = kernel(_body(n), n=n, bounds=bounds, head="constexpr int kThreads = 128;\n")
    assert f"void {expected} kernel(" in ported(tmp_path, text)
