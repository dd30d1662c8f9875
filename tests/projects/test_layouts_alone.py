# SPDX-License-Identifier: Apache-2.0
"""Layouts that Hopper's MMAs read, in kernels without such an MMA: scan and port say the same, that nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main

ALONE = {
    "a K-major layout": "using L = GMMA::Layout_K_SW128_Atom<half_t>;",
    "an MN-major layout": "using L = cute::GMMA::Layout_MN_SW64_Atom<half_t>;",
    "a layout of a tile": "using L = decltype(tile_to_shape(GMMA::Layout_K_INTER_Atom<float>{}, Shape<_64, _64>{}));",
    "a layout beside MMAs of warps": "using L = GMMA::Layout_K_SW32_Atom<half_t>;\n"
    "using M = TiledMMA<MMA_Atom<SM80_16x8x16_F32F16F16F32_TN>>;",
    "a majorness": "constexpr auto major = GMMA::Major::K;",
}
WITH_MMAS = {
    "an atom": "using M = SM90_64x64x16_F16F16F16_SS<A, B>;",
    "a wait": "__device__ void f() { warpgroup_wait<0>(); }",
    "a tag": "using M = cutlass::arch::Sm90;",
}
KERNEL = "__global__ void k(float* out) { out[threadIdx.x] = 1.f; }\n"


def run(command: str, folder: Path, *options: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(main, [command, str(folder / "k.cu"), *options])
    return outcome.exit_code, outcome.output


@pytest.mark.parametrize("name", ALONE)
def test_layouts_alone_are_nothing_to_port(tmp_path: Path, name: str) -> None:
    (tmp_path / "k.cu").write_text(f"using namespace cute;\n{ALONE[name]}\n{KERNEL}")
    assert "0 Hopper-only constructs; effort: 1 none" in run("scan", tmp_path)[1]
    code, output = run("port", tmp_path, "--no-compile")
    assert code == 0, output
    assert "PT2003" not in output


@pytest.mark.parametrize("other", WITH_MMAS)
def test_layouts_beside_an_mma_are_refused_with_it(tmp_path: Path, other: str) -> None:
    (tmp_path / "k.cu").write_text(f"using namespace cute;\n{ALONE['a K-major layout']}\n{WITH_MMAS[other]}\n{KERNEL}")
    assert "effort: 1 high" in run("scan", tmp_path)[1]
    code, output = run("port", tmp_path, "--no-compile")
    assert code == 3
    assert "PT2003" in output
    assert "GMMA::Layout_K_SW128_Atom" in output
