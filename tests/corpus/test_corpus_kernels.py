# SPDX-License-Identifier: Apache-2.0
"""Every corpus kernel is complete: licensed, described by a case that fits, and compiled without losses."""

from __future__ import annotations

import dataclasses
import re

import pytest
from corpus_kernels import CASES, CORPUS, CUDA, compiled, is_cute

from porter.build.nvcc import CompiledPtx, compile_ptx
from porter.ptx.arch import limits
from porter.verify.builder import ORIGINAL_ARCH, compile_request
from porter.verify.case import Case, load_case
from porter.verify.problem import bind

# Types, and the operands after the accumulator's registers.
WGMMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k\d+\.(\S+)\s+\{[^}]*\},([^;]*);")
LICENCE = "SPDX-License-Identifier: Apache-2.0"


@pytest.fixture(params=CASES, ids=lambda path: path.parent.name)
def case(request: pytest.FixtureRequest) -> Case:
    return load_case(request.param)


@pytest.fixture(params=compiled(CUDA))
def cuda_case(request: pytest.FixtureRequest) -> Case:
    return load_case(request.param)


def made(case: Case) -> CompiledPtx:
    request = compile_request(bind(case), case.kernel, ORIGINAL_ARCH)
    return compile_ptx(dataclasses.replace(request, assemble=True))


def test_there_are_enough_kernels_and_each_folder_has_a_case() -> None:
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir()}
    assert folders == {path.parent.name for path in CASES}
    assert len(folders) >= 31


def test_every_file_names_its_licence() -> None:
    files = [p for folder in CASES for p in folder.parent.iterdir() if p.is_file()]
    bare = [p.name for p in files if LICENCE not in p.read_text().split("\n", 1)[0]]
    assert not bare


def test_all_sizes_fit(case: Case) -> None:
    for sizes in ({}, *case.other_sizes):
        problem = bind(case, sizes)
        assert problem.outputs


@pytest.mark.spread(3)
def test_compiles_without_loss(cuda_case: Case) -> None:
    """No warning, no spill, and none of the notes by which ptxas says that it serialized the wgmma of a
    kernel or ignored its setmaxnreg."""
    result = made(cuda_case)
    assert result.warnings == ()
    assert result.ptxas_warnings == ()
    resources = result.resources
    assert resources is not None
    assert (resources.spill_stores, resources.spill_loads, resources.stack) == (0, 0, 0)


@pytest.mark.spread(2)
def test_fits_the_machine(cuda_case: Case) -> None:
    resources = made(cuda_case).resources
    assert resources is not None
    machine = limits(ORIGINAL_ARCH)
    for sizes in ({}, *cuda_case.other_sizes):
        launch = bind(cuda_case, sizes).launch
        x, y, z = launch.block
        assert resources.registers * x * y * z <= machine.registers_per_sm
        assert resources.static_smem + launch.dynamic_smem <= machine.shared_per_block


def test_multiplies_with_wgmma(cuda_case: Case) -> None:
    assert "wgmma.mma_async" in made(cuda_case).ptx


def test_the_kernels_differ_in_what_they_multiply() -> None:
    """Without those in CuTe C++, they use each operand type, both accumulator widths, both sources of A and both orders
    of B between them."""
    seen: dict[str, set[str]] = {"types": set(), "source": set(), "order of B": set()}
    for path in CUDA:
        if is_cute(path):
            continue
        for types, rest in WGMMA.findall(made(load_case(path)).ptx):
            seen["types"].add(types)
            seen["source"].add("registers" if rest.lstrip().startswith("{") else "shared")
            if rest.count(",") >= 6 or (rest.lstrip().startswith("{") and types.endswith("16")):
                seen["order of B"].add(rest.rstrip()[-1])
    assert seen["types"] >= {
        "f32.bf16.bf16", "f32.f16.f16", "f16.f16.f16", "f32.tf32.tf32", "f32.e4m3.e4m3", "s32.s8.s8"
    }  # fmt: skip
    assert seen["source"] == {"registers", "shared"}
    assert seen["order of B"] == {"0", "1"}
