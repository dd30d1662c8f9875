# SPDX-License-Identifier: Apache-2.0
"""What the model reads from the text of a kernel, against what the simulator counts while the kernel runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from grade.kernels import timed_launch

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import current
from porter.cli.making import Ports
from porter.grade.kernels import DEPTH, Timed
from porter.grade.reading import Launch, read_shape
from porter.grade.shape import Shape
from porter.sim.trace.recorder import Recorder
from porter.verify.backends import SimBackend
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.images import Image
from porter.verify.launched import launched
from porter.verify.prepare import prepare
from porter.verify.problem import LaunchValues, Problem
from porter.verify.settings import SimOptions

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
_MMA = re.compile(r"wgmma m|tcgen05\.mma")
_BYTES = re.compile(r"(\d+) bytes arrive")


def counted(
    kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]
) -> tuple[float, float]:
    """MMAs and bytes that arrive by TMA, of a block on average."""
    recorder = Recorder(limit=10**7)
    done = SimBackend(SimOptions(trace=recorder)).run(kernel, problem, launch, images)
    assert done.status == "ok", done.findings
    assert not recorder.left_out
    blocks = len(recorder.groups)
    operations = [s.name for s in recorder.slices if s.track.kind == "tensor core" and s.category == "operation"]
    mmas = sum(bool(_MMA.match(name)) for name in operations)
    arrived = (_BYTES.match(s.name) for s in recorder.slices if s.track.kind == "mbarrier")
    return mmas / blocks, sum(int(m[1]) for m in arrived if m) / blocks


def stage(shape: Shape) -> tuple[float, float]:
    """The same of a stage, as the text has it; MMAs of a pair are issued by one of its blocks."""
    assert shape.load_bytes is not None
    return sum(count for _, count in shape.mmas) / shape.cta_group, shape.load_bytes


@pytest.mark.parametrize(
    "timed",
    [Timed(64, 2, 192), Timed(128, 1, 192, serial=True), Timed(256, 3, 192), Timed(256, 4, 192, pair=True)],
    ids=lambda t: t.name,
)
def test_kernels_to_time(timed: Timed, tmp_path: Path) -> None:
    one = timed_launch(timed, tmp_path, 1, 1)
    mmas, nbytes = stage(timed.shape)
    steps = timed.k // DEPTH
    assert counted(one.kernel, one.problem, one.launch, one.images) == (mmas * steps, nbytes * steps)


ALIKE = (
    "gemm_tma", "gemm_ws", "gemm_persistent", "gemm_cluster", "gemm_fp8_scaled", "gemm_two_n", "gemm_rs", "gemm_tf32",
    "gemm_mn_major", "gemm_int8", "gemm_struct", "gemm_cooperative_128", "gemm_pipelined", "gemm_fused",
)  # fmt: skip
PARTLY = {
    "attention_fwd": "Q arrives once, and a causal mask leaves out some products",
    "gemm_splitk": "blocks share K",
}
"""Where the text says less than a run, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ALIKE)
def test_kernels_of_the_corpus(name: str) -> None:
    """Originals and ports: MMAs to a byte as in the text, and where each block has one tile, so many stages of them as
    K takes."""
    case = load_case(CORPUS / name / "case.yaml")
    found, _ = prepare(
        case, ["original", "port"], make_builder(find_toolkit()), case.sizes, 0, Ports(current()).of_case
    )
    assert len(found) == 2
    for p in found:
        assert p.kernel.function is not None
        facts = launched(p.kernel, p.problem, p.launch)
        shape = read_shape(p.kernel.module, p.kernel.function, Launch(**facts)).shape
        assert shape is not None
        mmas, nbytes = counted(p.kernel, p.problem, p.launch, p.images)
        per_stage = stage(shape)
        assert mmas / nbytes == pytest.approx(per_stage[0] / per_stage[1]), p.program
        if not shape.persistent:
            assert shape.tile_k is not None
            assert mmas == per_stage[0] * -(-int(case.sizes["K"]) // shape.tile_k)


@pytest.mark.slow
def test_what_is_not_alike() -> None:
    """Split K has the stages of its part; attention has fewer MMAs to a byte than a stage of its loop."""
    for name, smaller in (("gemm_splitk", False), ("attention_fwd", True)):
        assert name in PARTLY
        case = load_case(CORPUS / name / "case.yaml")
        found, _ = prepare(case, ["original"], make_builder(find_toolkit()), case.sizes, 0, Ports(current()).of_case)
        (p,) = found
        assert p.kernel.function is not None
        shape = read_shape(p.kernel.module, p.kernel.function, Launch(**launched(p.kernel, p.problem, p.launch))).shape
        assert shape is not None
        mmas, nbytes = counted(p.kernel, p.problem, p.launch, p.images)
        per_stage = stage(shape)
        ratio = mmas / nbytes / (per_stage[0] / per_stage[1])
        assert 0.5 < ratio < 1 if smaller else ratio == pytest.approx(1)
