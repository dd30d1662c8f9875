# SPDX-License-Identifier: Apache-2.0
"""Accumulators in objects: each port gives the bits of its original."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from object_kernels import CASE, KERNELS

from porter.cli.main import main
from porter.diagnostics import ExitCode

QUICK = ("passed by reference", "changed by a method")
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in KERNELS]


@pytest.mark.parametrize("name", NAMES)
def test_port_and_original_agree(tmp_path: Path, name: str) -> None:
    kernel = tmp_path / "kernel.cu"
    kernel.write_text(KERNELS[name])
    (tmp_path / "case.yaml").write_text(CASE)
    outcome = CliRunner().invoke(main, ["verify", str(kernel), "--families", "integers"])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert "same bits" in outcome.output
