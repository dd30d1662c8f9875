# SPDX-License-Identifier: Apache-2.0
"""Sizes at which blocks of CuTe DSL kernels, whose host code makes the grid, have many tiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.verify.case import load_case
from porter.verify.further import ALONE, many_tiles
from porter.verify.problem import Problem, bind

CORPUS = Path(__file__).parents[2] / "corpus"


def tiles(problem: Problem) -> int:
    """C of a kernel in CuTe DSL is (M, N) or (M, N, L)."""
    assert problem.tile is not None
    shape = problem.outputs[0].shape
    rows, columns = (-(-extent // step) for extent, step in zip(shape[:2], problem.tile, strict=True))
    return rows * columns * (shape[2] if len(shape) > 2 else 1)


@pytest.mark.parametrize("blocks", [1, 2, 3, 7])
@pytest.mark.parametrize("name", ["dsl_gemm_persistent/case.yaml", "dsl_gemm_persistent/wide.case.yaml",
                                  "dsl_gemm_helpers/case.yaml"])  # fmt: skip
def test_a_size_with_many_tiles_for_each_block(name: str, blocks: int) -> None:
    case = load_case(CORPUS / name)
    asked: list[Problem] = []

    def launched(problem: Problem) -> int:
        asked.append(problem)
        return min(blocks, tiles(problem))

    sizes = many_tiles(case, ALONE, launched)
    assert sizes is not None
    assert tiles(bind(case, sizes)) >= ALONE * blocks
    # each of them is compiled
    assert len(asked) <= 3


def test_a_grid_that_grows_with_the_tiles_has_none() -> None:
    case = load_case(CORPUS / "dsl_gemm_persistent" / "case.yaml")
    assert many_tiles(case, ALONE, tiles) is None
