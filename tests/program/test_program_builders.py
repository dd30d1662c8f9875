# SPDX-License-Identifier: Apache-2.0
"""GEMMs of CUTLASS's collective builders run whole, on Hopper's simulator and ported: both meet a reference on the
host, and leave the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCE = Path(__file__).with_name("builder_gemm_run.cu")
FLAGS = ("-w", "-std=c++17", "--expt-relaxed-constexpr", "-DNDEBUG")


@pytest.mark.parametrize("configuration", [(), ("-DBIASED",)], ids=["cooperative", "pingpong-cluster-bias"])
def test_a_builder_and_its_port_compute_the_same(configuration: tuple[str, ...], tmp_path: Path) -> None:
    library = pytest.importorskip("cutlass_library", reason="nvidia-cutlass is not installed")
    cutlass = Path(library.__file__).parent / "source"
    # a directory of its own: no build file above it asks for both chips
    source = tmp_path / SOURCE.name
    source.write_bytes(SOURCE.read_bytes())
    command = [
        sys.executable,
        "-m",
        "porter",
        "--format",
        "json",
        "verify",
        "--full",
        "--no-hazards",
        "--no-keep-hopper",
    ]
    command += [str(source), f"-I{cutlass / 'include'}", f"-I{cutlass / 'tools' / 'util' / 'include'}", "-l", "cuda"]
    command += [f"--nvcc-flag={flag}" for flag in (*FLAGS, *configuration)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "no CUDA compiler" in done.stdout + done.stderr:
        pytest.skip("no CUDA compiler")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "clean"), report["diagnostics"]
    (row,) = report["rows"]
    # D of one launch; a program aborts where a value is not the reference's
    assert [c["ok"] for c in row["between"]] == [True]
    assert [r["status"] for r in row["runs"]] == ["ok", "ok"]
