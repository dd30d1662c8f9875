# SPDX-License-Identifier: Apache-2.0
"""Accumulators in objects: each port gives the bits of its original."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from object_kernels import CASE, KERNELS

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources

QUICK = ("passed by reference",)
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in KERNELS]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_port_and_original_agree(tmp_path: Path, name: str) -> None:
    kernel = tmp_path / "kernel.cu"
    kernel.write_text(KERNELS[name])
    (tmp_path / "case.yaml").write_text(CASE)
    outcome = CliRunner().invoke(main, ["verify", "--style", "compat", str(kernel), "--families", "integers"])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert "same bits" in outcome.output


@pytest.mark.parametrize("kind", ["Acc& other = acc", "auto& other = acc", "Acc* p = &acc; Acc& other = *p"])
@pytest.mark.parametrize("name", ["made by a function", "array of objects with methods"])
def test_a_second_name_of_an_accumulator_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    text = KERNELS[name].replace("mma(acc,", "mma(other,").replace("acc[t].mma(", "other.mma(")
    kind = kind.replace("acc", "acc[0]") if "acc[2]" in text else kind
    text = text.replace("        fence();", f"        {kind};\n        fence();")
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    result = port_sources(load_sources(path))
    assert result.exit_code == ExitCode.UNPORTED
    assert any("reference" in str(d) for d in result.diagnostics), [str(d) for d in result.diagnostics]


def test_a_copy_of_an_accumulator_is_refused(tmp_path: Path) -> None:
    text = KERNELS["passed by reference"].replace("void mma(Acc& acc,", "Acc mma(Acc acc,")
    text = text.replace('"r"(int(accumulate)));', '"r"(int(accumulate))); return acc;')
    text = text.replace("mma(acc, d", "acc = mma(acc, d")
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    result = port_sources(load_sources(path))
    assert result.exit_code == ExitCode.UNPORTED
    assert any("by value" in str(d) for d in result.diagnostics), [str(d) for d in result.diagnostics]
