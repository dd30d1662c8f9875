# SPDX-License-Identifier: Apache-2.0
"""One GEMM as many people write it: ported, compiled and run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cute_run import Array, Unit, assert_clean, compiled, launched

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.sim.results import Schedule

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCE = Path(__file__).with_name("writings.cu")
TEMPLATES = {
    "traits_kernel": "_Z13traits_kernelI12KernelTraitsIN7cutlass6half_tELi128ELi128EEEvPKS2_S5_Pf",
    "mine::kernels::run": "_ZN4mine7kernels3runINS0_4GemmEEEvNT_6ParamsE",
}
"""Names in PTX of kernels that are templates."""
PLAIN = re.findall(r'extern "C" __global__ void __launch_bounds__\(\d+\) (\w+)\(', SOURCE.read_text())
KERNELS = [*PLAIN, *TEMPLATES]


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Unit:
    folder = tmp_path_factory.mktemp("writings")
    source = folder / "writings.cu"
    source.write_text(SOURCE.read_text())
    result = port_sources(load_sources(source))
    # a class that is handed its bytes counts them by hand
    known = {Code.SHARED_MEMORY_GROWS, Code.SHARED_MEMORY_NOT_SEEN}
    assert {d.code for d in result.diagnostics} <= known, [str(d) for d in result.diagnostics]
    return compiled(result.files[str(source)].decode(), "sm_100a")


def wanted(kernel: str, a: Array, b: Array) -> Array:
    product = a.astype(np.float32) @ b.astype(np.float32).T
    return np.asarray({"axpby_": 2, "in_place": 1.5, "numbers": 2, "two_widths": 1001}.get(kernel, 1) * product)


@pytest.mark.parametrize("schedule", ["late", "random", "eager"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_writing(kernel: str, schedule: Schedule, unit: Unit) -> None:
    rng = np.random.default_rng(11)
    a, b = (rng.integers(-3, 4, (128, 64)).astype(np.float16) for _ in range(2))
    want = wanted(kernel, a, b)
    got, outcome = launched(
        unit,
        TEMPLATES.get(kernel, kernel),
        (a, b),
        np.zeros_like(want),
        threads=256 if kernel == "early" else 128,
        shared=33792,
        schedule=schedule,
    )
    assert_clean(outcome, kernel)
    region = np.s_[:100, :90] if kernel == "predicated" else np.s_[:, :]
    np.testing.assert_array_equal(got[region], want[region])


def test_nothing_is_in_local_memory(unit: Unit) -> None:
    assert not {k for k in KERNELS if "local_depot" in unit.body(TEMPLATES.get(k, k))}
