# SPDX-License-Identifier: Apache-2.0
"""Programs that size their grid by how many blocks fit: CUDA's answer leaves Tensor Memory out, which blocks on one
multiprocessor share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from porter.verify.program import ProgramOptions, run_program

HERE = Path(__file__).parent


@pytest.mark.slow
def test_a_grid_as_large_as_cuda_says(built: Callable[..., Path]) -> None:
    program = built(HERE / "grid_of_blocks.cu", "sm_100a")

    def run(*args: str) -> tuple[list[str], list[str]]:
        outcome = run_program(program, args, ProgramOptions(multiprocessors=3))
        found = [f.code.id for record in outcome.launches if record.outcome for f in record.outcome.findings]
        return outcome.stdout.splitlines(), found

    assert run("2", "meet") == (["16 blocks on each of 3", "no error"], [])
    said, found = run("3", "meet")
    assert found == ["PT4020"]
    assert said[0] == "16 blocks on each of 3"
    assert run("99", "meet")[1] == ["PT4020"]
    # Who meets nobody gets columns in turn.
    assert run("99")[1] == []
