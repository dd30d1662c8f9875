# SPDX-License-Identifier: Apache-2.0
"""Bytes that are no UTF-8, in the code of a kernel and not only in its comments: an answer, and no internal error."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import ExitCode

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
PLACES = [
    ("gemm_ws", b"cuda::barrier<cuda::"),
    ("cute_gemm_multicast", b"typename Traits::"),
    ("cute_gemm_multicast", b"typename Tra"),
    ("cute_gemm_multicast", b"auto thread_mma = tile"),
    ("cute_gemm_multicast", b"partition_fragment_A(s"),
    ("cute_gemm_multicast", b"Shape<Int<BM>, Int<BN>>{});\n        cut"),
]


@pytest.mark.spread(3)
@pytest.mark.parametrize(("kernel", "behind"), PLACES)
def test_other_bytes_are_no_internal_error(kernel: str, behind: bytes, tmp_path: Path) -> None:
    source = (CORPUS / kernel / f"{kernel}.cu").read_bytes()
    assert behind in source
    path = tmp_path / "kernel.cu"
    path.write_bytes(source.replace(behind, behind + b"\xff\xfe", 1))
    for command in (["scan"], ["plan"], ["port", "--no-compile"]):
        result = CliRunner().invoke(main, [*command, str(path)])
        assert "PT0099" not in result.output
        assert result.exit_code in set(ExitCode)
