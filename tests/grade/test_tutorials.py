# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's five SM100 tutorials, each a step ahead of the one before: compiled, run for what they launch, graded."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main

pytestmark = [pytest.mark.external, pytest.mark.slow]

STEPS = (
    "01_mma_sm100",
    "02_mma_tma_sm100",
    "03_mma_tma_multicast_sm100",
    "04_mma_tma_2sm_sm100",
    "05_mma_tma_epi_sm100",
)


def rate(name: str) -> float:
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0]) / "source"
    source = root / "examples/cute/tutorial/blackwell" / f"{name}.cu"
    result = CliRunner().invoke(
        main,
        ["--no-config", "--format", "json", "grade", str(source), "--trust", "--arch", "sm_100a",
         "--kernel", "gemm_device", "-I", str(root / "include"), "-I", str(root / "tools/util/include"),
         "--", "512", "1024", "128"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (kernel,) = json.loads(result.output)["kernels"]
    return float(kernel["percent_of_nominal"])


def test_tutorials_are_in_their_order() -> None:
    rates = [rate(name) for name in STEPS]
    assert rates == sorted(set(rates)), rates
