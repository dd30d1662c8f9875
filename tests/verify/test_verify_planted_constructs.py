# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what ports do beyond the plain GEMM: operands from registers, f16 accumulators, changed accumulators."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources

CORPUS = Path(__file__).resolve().parents[2] / "corpus"

MISTAKES = [
    pytest.param("gemm_ws", "tile.address + quarter", "(tile.address & ~(1u << 20)) + quarter", id="wrong half-lane"),
    pytest.param("gemm_rs", '"r"(operand + (', '"r"((operand ^ 8) + (', id="A fragment at the wrong K block"),
    pytest.param("gemm_f16acc", ".pack::16b", "", id="f16 accumulator unpacked"),
    pytest.param("attention_fwd", "        tcgen05::load(o, o_tmem);\n", "", id="stale mirror"),
    pytest.param("attention_fwd", "        tcgen05::store(o, o_tmem);\n", "", id="change not written back"),
    pytest.param("gemm_cooperative_128", "first + i * kEach * columns", "first", id="tiles on one another"),
    pytest.param("gemm_two_n", "uint32_t(tc.tmem + ", "uint32_t(tc.tmem + 0 * ", id="accumulators on one another"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_mistake_is_refused(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    kernel = CORPUS / name / f"{name}.cu"
    result = port_sources(load_sources(kernel))
    found = 0
    for path, data in result.files.items():
        text = data.decode()
        # the first place only: some stand twice
        found += text.count(right)
        (tmp_path / Path(path).name).write_text(text.replace(right, wrong, 1))
    assert found >= 1
    family = "normal" if name == "attention_fwd" else "integers"
    arguments = ["verify", str(kernel), "--port", str(tmp_path / kernel.name), "--families", family]
    outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == ExitCode.DIFFERENT, outcome.output
