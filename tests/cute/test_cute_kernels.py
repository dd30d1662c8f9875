# SPDX-License-Identifier: Apache-2.0
"""Kernels of our own in CuTe C++, with cases: cp.async, TMA, roles, multicast, A from registers, f16 and fp8, attention
forward and backward. Originals and ports are right."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.runner import VerifyOptions, verify

pytestmark = pytest.mark.external

KERNELS = Path(__file__).with_name("kernels")
NAMES = sorted(path.name for path in KERNELS.iterdir())


@pytest.mark.parametrize(
    "name", [n if n == "cute_gemm_tma" else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_original(name: str) -> None:
    case = load_case(KERNELS / name / "case.yaml")
    families = case.families or ("integers",)
    options = VerifyOptions(families=tuple(families[:1]), sizes=({}, *case.other_sizes))
    result = verify(case, None, ToolkitBuilder(), SimBackend(), options)
    assert len(result.rows) == 1 + len(case.other_sizes)
    for row in result.rows:
        assert row.verdict is Verdict.CLEAN, [(d.message, d.detail) for d in row.diagnostics]


@pytest.mark.parametrize("name", NAMES)
def test_second_port_is_empty(name: str, tmp_path: Path) -> None:
    kernel = load_case(KERNELS / name / "case.yaml").kernel
    result = port_sources(load_sources(kernel))
    assert int(result.exit_code) == 0
    target = tmp_path / kernel.name
    for path, text in result.files.items():
        (tmp_path / Path(path).name).write_bytes(text)
    again = port_sources(load_sources(target))
    assert int(again.exit_code) == 0, [str(d) for d in again.diagnostics]
    assert not again.groups


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_port(name: str) -> None:
    outcome = CliRunner().invoke(main, ["verify", str(KERNELS / name)])
    assert outcome.exit_code == ExitCode.OK, outcome.output
