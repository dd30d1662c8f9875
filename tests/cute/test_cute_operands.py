# SPDX-License-Identifier: Apache-2.0
"""Batches with several A fragments in registers, each of which has columns of its own: ported, compiled and run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cute_run import Array, Unit, assert_clean, compiled, launched

from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.sim.results import Schedule

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCE = Path(__file__).with_name("operands.cu")
# What each kernel writes: tiles of D, and by which factor a tile of A times one of B is added to each.
KERNELS = {
    "two": {(0, 0): {(0, 0): 1}, (1, 1): {(1, 1): 1}},
    "same": {(0, 0): {(0, 0): 1}, (0, 1): {(0, 1): 1}},
    "sum": {(0, 0): {(0, 0): 1, (1, 1): 1}},
    "four": {(0, 0): {(0, 0): 1}, (1, 1): {(1, 1): 1}, (0, 1): {(0, 1): 2}, (1, 0): {(1, 0): 2}},
    "mixed": {(0, 0): {(0, 0): 1}, (0, 1): {(0, 1): 1}, (1, 1): {(1, 1): 1}},
    "changing": {(0, 0): {(0, 0): 7}, (1, 1): {(1, 1): 7}},
    "in_flight": {(0, 0): {(0, 0): 1, (1, 0): 1}, (1, 1): {(1, 1): 1, (0, 1): 1}},
    "tall": {(i, j): {(i, j): j + 1} for i in (0, 1) for j in (0, 1)},
    "pair": {(i, j): {(i, j): j + 1} for i in (0, 1) for j in (0, 1)},
    "function": {(0, 0): {(0, 0): 1}, (1, 1): {(1, 1): 1}},
    "narrow": {(0, 0): {(0, 0): 1}, (1, 1): {(1, 1): 1}},
    "steps": {(i, j): {(i, j): j + 1} for i in (0, 1) for j in (0, 1)},
    "single_tiles": {(0, 0): {(0, 0): 1}, (1, 0): {(1, 0): 1}},
    "stacked": {(0, 0): {(0, 0): 1}, (1, 0): {(1, 0): 1}},
    "in_flight_at_the_end": {(0, 0): {(0, 0): 1}},
    "tall_steps": {(i, 0): {(i, 0): 2} for i in (0, 1)},
    "branches": {(0, 0): {(0, 0): 1}},
    "unrolled": {(0, 0): {(0, 0): 1}, (1, 1): {(1, 1): 1}},
    "_Z13chosen_kernelILb1EEvPKN7cutlass6half_tES3_Pf": {(0, 0): {(0, 0): 1}, (1, 1): {(1, 1): 1}},
    "_Z13chosen_kernelILb0EEvPKN7cutlass6half_tES3_Pf": {(0, 0): {(0, 0): 1}, (1, 1): {}},
}


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Unit:
    folder = tmp_path_factory.mktemp("operands")
    source = folder / "operands.cu"
    source.write_text(SOURCE.read_text())
    result = port_sources(load_sources(source))
    assert not result.diagnostics, [str(d) for d in result.diagnostics]
    return compiled(result.files[str(source)].decode(), "sm_100a")


def wanted(kernel: str, a: Array, b: Array) -> Array:
    a, b = (x.reshape(2, 64, 64).astype(np.float32) for x in (a, b))
    want = np.zeros((128, 128), np.float32)
    for (row, column), products in KERNELS[kernel].items():
        for (i, j), factor in products.items():
            k = {"narrow": 32, "unrolled": 16}.get(kernel, 64) if i == 1 else 64
            want[64 * row :, 64 * column :][:64, :64] += factor * a[i][:, :k] @ b[j][:, :k].T
    return want


@pytest.mark.parametrize("schedule", ["late", "random", "eager"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_operands(kernel: str, schedule: Schedule, unit: Unit) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, (128, 64)).astype(np.float16) for _ in range(2))
    want = wanted(kernel, a, b)
    threads = 256 if kernel == "pair" else 128
    got, outcome = launched(unit, kernel, (a, b), np.zeros_like(want), threads=threads, shared=24576, schedule=schedule)
    assert_clean(outcome, kernel)
    for row, column in KERNELS[kernel]:
        tile = np.s_[64 * row : 64 * row + 64, 64 * column : 64 * column + 64]
        np.testing.assert_array_equal(got[tile], want[tile])


@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_is_in_local_memory(kernel: str, unit: Unit) -> None:
    assert "local_depot" not in unit.body(kernel)
    assert unit.count(kernel, "wgmma") == 0
