# SPDX-License-Identifier: Apache-2.0
"""Mistakes that people make in a port by hand, planted one by one: each must make `porter verify` fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources

CASE = Path(__file__).parents[2] / "corpus" / "gemm_ws"

MISTAKES = [
    pytest.param("(uint64_t)1024) << 32", "(uint64_t)512) << 32", id="SBO halved"),
    pytest.param("&wgmma_sA[k_it * WGMMA_K]", "&wgmma_sA[0]", id="K advance missing"),
    pytest.param("bool accumulate = false;", "bool accumulate = true;", id="first MMA accumulates"),
    pytest.param("kOperandBF16, 128,", "kOperandBF16, 64,", id="wrong N in idesc"),
    pytest.param("kOperandBF16 = 1;", "kOperandBF16 = 0;", id="wrong type in idesc"),
    pytest.param(
        "(threadIdx.x / 32 % 4 << 21)", "((threadIdx.x / 32 + 1) % 4 << 21)", id="wrong lane quarter"
    ),
    pytest.param(
        '        if (elect_issuer()) {\n            asm volatile("tcgen05.commit',
        '        if (false) {\n            asm volatile("tcgen05.commit',
        id="commit missing",
    ),
    pytest.param("    tc.wait(N);\n", "", id="wait missing"),
    pytest.param('"r"(batch % 2)', '"r"(0)', id="constant parity"),
    pytest.param(
        '        if (threadIdx.x / 32 == 0) {\n            asm volatile("tcgen05.alloc',
        '        if (false) {\n            asm volatile("tcgen05.alloc',
        id="alloc missing",
    ),
]


@pytest.fixture(scope="module")
def port() -> str:
    result = port_sources(load_sources(CASE / "gemm_ws.cu"))
    return result.files[result.sources.root].decode()


def verify(tmp_path: Path, text: str) -> tuple[int, str]:
    path = tmp_path / "gemm_ws.cu"
    path.write_text(text)
    arguments = ["verify", str(CASE / "gemm_ws.cu"), "--port", str(path), "--families", "integers"]
    outcome = CliRunner().invoke(main, arguments)
    return outcome.exit_code, outcome.output


def test_the_port_itself_passes(tmp_path: Path, port: str) -> None:
    code, output = verify(tmp_path, port)
    assert code == ExitCode.OK, output


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_mistake_is_caught(tmp_path: Path, port: str, right: str, wrong: str) -> None:
    assert port.count(right) == 1
    code, output = verify(tmp_path, port.replace(right, wrong))
    assert code == ExitCode.DIFFERENT, output
