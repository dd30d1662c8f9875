# SPDX-License-Identifier: Apache-2.0
"""`--style idiomatic`: without a compiler, or where nothing is compiled, ports are those of the compat style; the slow
test asks the compiler and runs the ports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_cli_full_rate import CORPUS

from porter.cli.main import main

KERNELS = ("f16acc", "fp8_scaled", "multicast", "persistent", "rs", "stsm", "tma", "ws")


def port(*words: str) -> dict[str, list[dict[str, str]]]:
    done = CliRunner().invoke(main, ["--no-config", "--format", "json", "port", "--style", "idiomatic", *words])
    assert done.exit_code == 0, done.output
    found: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
    return found


def test_where_nothing_is_compiled_the_port_is_that_of_the_compat_style() -> None:
    found = port("--no-compile", str(CORPUS / "cute_gemm_tma/cute_gemm_tma.cu"))
    (said,) = (d for d in found["diagnostics"] if d["id"] == "PT2570")
    assert "--no-compile" in said["message"]
    assert len(found["files"]) == 2


def test_sources_for_both_chips_are_left() -> None:
    found = port("--no-compile", "--keep-hopper", str(CORPUS / "cute_gemm_tma/cute_gemm_tma.cu"))
    (said,) = (d for d in found["diagnostics"] if d["id"] == "PT2570")
    assert "sources for one chip" in said["message"]


def test_kernels_of_their_own_mmas_are_as_in_the_compat_style(tmp_path: Path) -> None:
    source = str(CORPUS / "gemm_tma/gemm_tma.cu")
    found = port("--no-compile", source)
    assert not any(d["id"] == "PT2570" for d in found["diagnostics"])
    assert any("tcgen05" in f["diff"] for f in found["files"])


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_the_corpus_is_given_with_nothing_beside_it(name: str, tmp_path: Path) -> None:
    found = port("--trust", "-o", str(tmp_path), str(CORPUS / f"cute_gemm_{name}/cute_gemm_{name}.cu"))
    assert {d["id"] for d in found["diagnostics"]} - {"PT2571"} == {"PT2581"}
    (written,) = tmp_path.iterdir()
    text = written.read_text()
    assert "TMEM::Allocator1Sm" in text
    assert "porter" not in text
