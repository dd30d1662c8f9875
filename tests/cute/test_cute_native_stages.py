# SPDX-License-Identifier: Apache-2.0
"""More stages of CuTe C++ kernels, compiled and run: ports are verified with the shared memory that their own host code
asks for, and mistakes that are planted in them are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from cute_native_kernels import IN_FLIGHT, STATES, source
from test_cute_native import CASE, failure, planted

from porter.cli.porting import look
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths

pytestmark = [pytest.mark.external, pytest.mark.slow]

CORPUS = Path(__file__).parents[2] / "corpus"
HOST = """
void run(CUtensorMap* map, float* out, int n, int k) {
    constexpr int bytes = sizeof(Storage);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<n / 64, 384, bytes>>>(*map, *map, out, n, k);
}
"""
PIPELINE = {**STATES, "DONE": IN_FLIGHT, "AHEAD": "cutlass::PipelineState<Pipeline::Stages> read, done;"}


def made(folder: Path, count: int, **parts: str) -> Ported:
    (folder / "kernel.cu").write_text(source(**parts) + HOST)
    (folder / "case.yaml").write_text(CASE.format(threads="384"))
    path = folder / "kernel.cu"
    options = PortOptions(full_rate=True, native=("release", "stages"), stages=frozenset({(str(path), count)}))
    found = port_paths([path], options, (), look)
    assert [r.native for r in found.roots] == [("release", "stages")]
    return found


@pytest.mark.parametrize("parts", [{}, PIPELINE], ids=["mbarriers", "a pipeline"])
def test_more_stages_are_verified(tmp_path: Path, parts: dict[str, str]) -> None:
    assert failure(made(tmp_path, 5, **parts)) == ""


def test_the_gate_takes_a_corpus_kernel() -> None:
    path = CORPUS / "cute_gemm_ws" / "cute_gemm_ws.cu"
    options = PortOptions(full_rate=True, native=("stages",), stages=frozenset({(str(path), 6)}))
    found = port_paths([path], options, (), look)
    assert found.roots[0].stages == 6
    assert failure(found) == ""


PLANTED = {
    "shared memory left as it was": ({}, r"constexpr int bytes = sizeof\(Storage\)", "constexpr int bytes = 74752"),
    "an array of mbarriers left as it was": ({}, r"full\[kStages\], empty\[kStages\]", "full[3], empty[kStages]"),
    "a phase that turns after as many as before": (
        {}, r"Full::wait\(&storage\.full\[stage\], tile / kStages % 2\)",
        "Full::wait(&storage.full[stage], tile / 3 % 2)",
    ),
    "a state that turns after as many as before": (
        PIPELINE, r", \+\+read\)",
        ", read.index() == 2 ? (void)(read = {0, read.phase() ^ 1, read.count() + 1}) : (void)++read)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(tmp_path: Path, name: str) -> None:
    parts, pattern, instead = PLANTED[name]
    what = failure(planted(made(tmp_path, 5, **parts), ".cu", pattern, instead))
    assert what
    assert "nvcc" not in what
