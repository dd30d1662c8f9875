# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL GEMMs that nobody here wrote, for both chips, beside our own: right against float64, and no error in
checking mode.

The inputs are small integers, so every sum is exact and the reference must be met bit for bit. Kernels come from
quack-kernels and from NVIDIA's examples in flashinfer-python, where those are installed; neither needs PyTorch for
what is run here (`pip install --no-deps quack-kernels einops apache-tvm-ffi flashinfer-python`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from foreign.dsl_cases import KERNELS, case_of
from known_kernels import record

from porter.build.dsl_absent import AbsentModule
from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

ORIGINS = {"quack": "quack", "blackwell": "NVIDIA, CuTe DSL"}

pytestmark = pytest.mark.external


def arrays(images: Mapping[str, object], names: str) -> list[np.ndarray]:
    return [images[n].elements().astype(np.float64) for n in names]  # type: ignore[attr-defined]


# A pair of blocks, clusters that steal work and a persistent schedule: some 10 s each.
QUICK = ("blackwell-dense-pair", "quack-sm100-dynamic", "blackwell-persistent")
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KERNELS]


@pytest.mark.parametrize("name", NAMES)
def test_gemm(name: str, tmp_path: Path) -> None:
    arch, path = case_of(name, tmp_path)
    case = load_case(path)
    problem = bind(case, case.sizes)
    built = ToolkitBuilder().build(problem, case.kernel, arch)
    inputs = generate(problem, choose(["integers"], problem)[0], 1)
    images = {n: make_image(t, inputs.get(n), 0) for n, t in problem.tensors.items()}
    a, b = arrays(images, "AB")
    batch_first = problem.tensors["C"].shape[0] == 1
    expected = np.einsum("lmk,lnk->lmn" if batch_first else "mkl,nkl->mnl", a, b)
    expected = problem.tensors["C"].dtype.decode(problem.tensors["C"].dtype.encode(expected))
    assert np.unique(expected).size > 16
    for options in (SimOptions("late"), SimOptions("random", seed=2), SimOptions("late", checking="practice")):
        result = SimBackend(options).run(built, problem, built.launch(problem), images)
        assert result.status == "ok", [f.message for f in result.findings]
        (got,) = arrays(result.after, "C")
        np.testing.assert_array_equal(got, expected)
        assert not [(h.kind.id, h.first, h.second) for h in result.hazards if h.severity == "error" or h.ruling is None]
    if arch == "sm_100a":
        origin, _, kernel = name.partition("-")
        size = " x ".join(str(case.sizes[axis]) for axis in "MNK")
        record(ORIGINS[origin], kernel.removeprefix("sm100-"), size, result.warp_instructions, result.hazards)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_there_are_three_of_other_people_for_each_chip(arch: str) -> None:
    assert sum(a == arch and not name.startswith("own-") for name, (a, _, _) in KERNELS.items()) >= 3


def test_absent_pytorch_has_no_gpu() -> None:
    assert not AbsentModule("torch").cuda.is_available()
    assert AbsentModule("torch").cuda.device_count() == 0
