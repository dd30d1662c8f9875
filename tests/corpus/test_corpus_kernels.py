# SPDX-License-Identifier: Apache-2.0
"""Every corpus kernel is complete: licensed, described by a case that fits, and compiled without losses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from porter.build.nvcc import CompiledPtx, compile_ptx
from porter.ptx.arch import limits
from porter.verify.builder import ORIGINAL_ARCH, compile_request
from porter.verify.case import Case, load_case
from porter.verify.problem import bind

CORPUS = Path(__file__).parents[2] / "corpus"
CASES = sorted(CORPUS.glob("*/case.yaml"))
LICENCE = "SPDX-License-Identifier: Apache-2.0"


@pytest.fixture(params=CASES, ids=lambda path: path.parent.name)
def case(request: pytest.FixtureRequest) -> Case:
    return load_case(request.param)


def compiled(case: Case) -> CompiledPtx:
    request = compile_request(bind(case), case.kernel, ORIGINAL_ARCH)
    return compile_ptx(dataclasses.replace(request, assemble=True))


def test_there_are_enough_kernels_and_each_folder_has_a_case() -> None:
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir()}
    assert folders == {path.parent.name for path in CASES}
    assert len(folders) >= 6


def test_every_file_names_its_licence() -> None:
    files = [p for folder in CASES for p in folder.parent.iterdir() if p.is_file()]
    bare = [p.name for p in files if LICENCE not in p.read_text().split("\n", 1)[0]]
    assert not bare


def test_all_sizes_fit(case: Case) -> None:
    for sizes in ({}, *case.other_sizes):
        problem = bind(case, sizes)
        assert problem.outputs


def test_compiles_without_loss(case: Case) -> None:
    """No warning, no spill, and none of the notes by which ptxas says that it serialized the wgmma of a
    kernel or ignored its setmaxnreg."""
    result = compiled(case)
    assert result.warnings == ()
    assert result.ptxas_warnings == ()
    resources = result.resources
    assert resources is not None
    assert (resources.spill_stores, resources.spill_loads, resources.stack) == (0, 0, 0)


def test_fits_the_machine(case: Case) -> None:
    resources = compiled(case).resources
    assert resources is not None
    machine = limits(ORIGINAL_ARCH)
    for sizes in ({}, *case.other_sizes):
        launch = bind(case, sizes).launch
        x, y, z = launch.block
        assert resources.registers * x * y * z <= machine.registers_per_sm
        assert resources.static_smem + launch.dynamic_smem <= machine.shared_per_block


def test_multiplies_with_wgmma(case: Case) -> None:
    assert "wgmma.mma_async" in compiled(case).ptx
