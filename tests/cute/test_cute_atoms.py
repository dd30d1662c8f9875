# SPDX-License-Identifier: Apache-2.0
"""Kernels that issue MMAs by their atoms: ported, compiled and run, held to a reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cute_run import Array, Unit, assert_clean, compiled, launched

from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.sim.results import Schedule

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCE = Path(__file__).with_name("atoms.cu")
THREADS = {"wrapped": 128, "waves": 128, "scaled": 256, "registers": 128, "written_out": 128}


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Unit:
    folder = tmp_path_factory.mktemp("atoms")
    source = folder / "atoms.cu"
    source.write_text(SOURCE.read_text())
    result = port_sources(load_sources(source))
    assert not result.diagnostics, [str(d) for d in result.diagnostics]
    return compiled(result.files[str(source)].decode(), "sm_100a")


def operands() -> tuple[Array, Array]:
    rng = np.random.default_rng(11)
    a, b = (rng.integers(-3, 4, (128, 64)) for _ in range(2))
    return a.astype(np.float16), b.astype(np.float16)


def wanted(kernel: str, a: Array, b: Array) -> Array:
    a, b = a.astype(np.float32), b.astype(np.float32)
    if kernel == "scaled":
        return np.asarray(2 * a[:, :32] @ b[:, :32].T + a[:, 32:] @ b[:, 32:].T)
    product = a @ b.T
    return np.asarray(3 * product if kernel == "registers" else product)


@pytest.mark.parametrize("schedule", ["late", "random", "eager"])
@pytest.mark.parametrize("kernel", THREADS)
def test_atoms(kernel: str, schedule: Schedule, unit: Unit) -> None:
    a, b = operands()
    want = wanted(kernel, a, b)
    got, outcome = launched(
        unit, kernel, (a, b), np.zeros_like(want), threads=THREADS[kernel], shared=33792, schedule=schedule
    )
    assert_clean(outcome, kernel)
    columns = 8 if kernel == "written_out" else 128
    np.testing.assert_array_equal(got[:, :columns], want[:, :columns])


@pytest.mark.parametrize("kernel", THREADS)
def test_nothing_is_in_local_memory(kernel: str, unit: Unit) -> None:
    assert "local_depot" not in unit.body(kernel)
    assert unit.count(kernel, "wgmma") == 0
