# SPDX-License-Identifier: Apache-2.0
"""A warp of its own that issues MMAs of CuTe C++ kernels, compiled and run: ports are verified, and mistakes that are
planted in them are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from cute_native_kernels import IN_FLIGHT, OBJECTS, STATES, source
from test_cute_native import CASE, errors, failure, planted

from porter.cli.porting import look
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths

pytestmark = [pytest.mark.external, pytest.mark.slow]

CORPUS = Path(__file__).parents[2] / "corpus"
WRITINGS = {"mbarriers": {}, "objects": OBJECTS, "a pipeline": {**STATES, "DONE": IN_FLIGHT}}


def made(name: str, steps: tuple[str, ...] = STEPS) -> Ported:
    found = port_paths([CORPUS / name / f"{name}.cu"], PortOptions(full_rate=True, native=steps), (), look)
    assert "mma-thread" in found.roots[0].native
    return found


@pytest.mark.parametrize("name", WRITINGS)
def test_a_way_of_writing_is_verified(tmp_path: Path, name: str) -> None:
    (tmp_path / "kernel.cu").write_text(source(**WRITINGS[name]))
    (tmp_path / "case.yaml").write_text(CASE.format(threads="384"))
    options = PortOptions(full_rate=True, native=("release", "mma-thread"))
    found = port_paths([tmp_path / "kernel.cu"], options, (), look)
    assert found.roots[0].native == ("release", "mma-thread")
    assert failure(found) == ""


@pytest.mark.parametrize("steps", [("release", "mma-thread"), ("release", "mma-thread", "double-buffer")])
def test_tiles_that_follow_each_other_are_verified(steps: tuple[str, ...]) -> None:
    found = made("cute_gemm_persistent", steps)
    assert found.roots[0].native == steps
    assert failure(found) == ""


@pytest.mark.parametrize("name", ["cute_gemm_ws", "cute_gemm_stsm"])
def test_the_gate_takes_a_corpus_kernel(name: str) -> None:
    assert failure(made(name)) == ""


_COMMIT = r'tcgen05\.commit[^;]*;(?=[^;]*"r"\(\s*cast_smem_ptr_to_uint\(sums)'
PLANTED = {
    "no wait until the accumulator has been read": (r"wait_barrier\(sums\.read\[[^;]*;", "", "hazard H3"),
    "no wait for the sums": (r"wait_barrier\(sums\.there\[[^;]*;", "", ""),
    "sums that are complete too early": (_COMMIT, "mbarrier.arrive.shared::cta.b64 _, [%0];", ""),
    "no fence ahead of what is read": (
        r"(wait_barrier\(sums\.there\[[^;]*;\s*)fence_after_sync\(\);", r"\1", "hazard H1",
    ),
    "no fence behind what was read": (r"(return_sums\(\) \{\s*)fence_before_sync\(\);", r"\1", "hazard H3"),
    "stages that go back at once": (
        r"if \(tc\.issuing_warp\(\)\) pipeline\.consumer_release\(state\);",
        "if (tc.issuing_warp() && elect_one_sync()) cutlass::arch::ClusterBarrier::arrive("
        "reinterpret_cast<uint64_t*>(pipeline.producer_get_barrier(state)) + kStages);",
        "hazard H18",
    ),
    "one accumulator for both turns": (r"turn % kBuffers \* sums\.columns;\s*\}\s*// Its", "0; }  // Its", "differs"),
    "a phase of one accumulator": (r"turn / kBuffers % 2\);", "turn % 2);", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, instead, says = PLANTED[name]
    what, said = errors(planted(made("cute_gemm_persistent"), ".hpp", pattern, instead), monkeypatch)
    assert what
    assert "nvcc" not in what
    assert any(says in one for one in said), said
