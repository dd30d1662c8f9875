# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what ports do beyond the plain GEMM: operands from registers, f16 accumulators, changed accumulators."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from kept_sources import kept

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


BARRIER = '    asm volatile("bar.sync %0, 128;" ::"r"(15 - threadIdx.x / 128) : "memory");\n'
FENCE = '    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");\n'
UNORDERED = [
    pytest.param(BARRIER, "H3", "bar.sync", id="no barrier before the next batch"),
    pytest.param(FENCE, "H3", "tcgen05.fence::before_thread_sync", id="no fence before that barrier"),
]


def planted(name: str, right: str, wrong: str) -> Path:
    """A port of a corpus kernel in which the first `right` became `wrong`."""
    kernel = CORPUS / name / f"{name}.cu"
    found, files = 0, {}
    for path, data in port_sources(load_sources(kernel)).files.items():
        text = data.decode()
        # the first place only: some stand twice
        found += text.count(right)
        files[Path(path).name] = text.replace(right, wrong, 1)
    assert found >= 1
    return kept(files) / kernel.name


@pytest.mark.spread(4)
@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_mistake_is_refused(name: str, right: str, wrong: str) -> None:
    kernel = CORPUS / name / f"{name}.cu"
    family = "normal" if name == "attention_fwd" else "integers"
    port = planted(name, right, wrong)
    outcome = CliRunner().invoke(
        main, ["verify", str(kernel), "--port", str(port), "--families", family, "--sizes", "default"]
    )
    assert outcome.exit_code == ExitCode.DIFFERENT, outcome.output


@pytest.mark.parametrize(("right", "hazard", "missing"), UNORDERED)
def test_missing_order_is_a_hazard(right: str, hazard: str, missing: str) -> None:
    """The accumulator is read in each turn; values come out right, so that only the order shows the mistake."""
    kernel = CORPUS / "gemm_fp8_scaled" / "gemm_fp8_scaled.cu"
    port = planted("gemm_fp8_scaled", right, "")
    outcome = CliRunner().invoke(main, ["hazards", str(kernel), "--port", str(port), "--only", "port"])
    assert outcome.exit_code == ExitCode.DIFFERENT, outcome.output
    assert f"hazard {hazard} " in outcome.output
    assert f"add: {missing}" in outcome.output
