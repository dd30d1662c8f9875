# SPDX-License-Identifier: Apache-2.0
"""Ports of CuTe DSL in Blackwell's own words, as the command gives them: traced, compiled, run, compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from porter.diagnostics import Code

CORPUS = Path(__file__).resolve().parent.parent.parent / "corpus"
IN_OWN_WORDS = ("dsl_gemm", "dsl_gemm_act", "dsl_gemm_bytes", "dsl_gemm_cluster", "dsl_gemm_fp8", "dsl_gemm_grouped",
                "dsl_gemm_narrow", "dsl_gemm_persistent")  # fmt: skip
LEFT = {
    "dsl_gemm_fp8_scaled": "in the main loop",
    "dsl_gemm_gated": "at several places",
    "dsl_gemm_helpers": "names of Hopper in",
    "dsl_gemm_plain": "another name at its MMAs",
}

pytestmark = [pytest.mark.slow, pytest.mark.spread(4)]


def port(kernel: str, out: Path) -> dict[str, object]:
    path = CORPUS / kernel / f"{kernel}.py"
    command = [sys.executable, "-m", "porter", "port", "--style", "idiomatic", "--trust", "--format", "json",
               "-o", str(out), str(path)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def said(document: dict[str, object], code: Code) -> list[str]:
    diagnostics = document["diagnostics"]
    assert isinstance(diagnostics, list)
    return [d["message"] for d in diagnostics if d["id"] == code.id]


@pytest.mark.parametrize("kernel", IN_OWN_WORDS)
def test_ports_have_nothing_beside_them(kernel: str, tmp_path: Path) -> None:
    document = port(kernel, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [f"{kernel}.py"]
    assert "porter" not in (tmp_path / f"{kernel}.py").read_text()
    assert said(document, Code.IDIOM_PROVED)
    assert not said(document, Code.IDIOM_LEFT)


@pytest.mark.parametrize("kernel", LEFT)
def test_others_keep_the_support_module_and_say_why(kernel: str, tmp_path: Path) -> None:
    document = port(kernel, tmp_path)
    assert (tmp_path / "porter_dsl.py").is_file()
    assert LEFT[kernel] in said(document, Code.IDIOM_LEFT)[0]
