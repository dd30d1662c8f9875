# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own tutorials for Hopper and Blackwell run whole, and their results are right.

The inputs are small integers, so every sum is exact in the accumulator and the float64 reference must be met
bit for bit. The programs' own checks are not relied on: NaN passes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from porter.sim import GlobalMemory, Options
from porter.sim.results import Schedule
from porter.verify.program import LaunchRecord, ProgramOptions, run_program

pytestmark = pytest.mark.external

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tutorial:
    """`order` names the program's allocations, `row_major` the matrices whose second index runs fastest."""

    source: str
    arch: str
    args: tuple[str, ...]
    sizes: tuple[int, int, int]
    order: str
    row_major: str
    result: str
    result_type: type[np.floating]


HOPPER = partial(Tutorial, arch="sm_90a", order="ABC", result="C", result_type=np.float16)
BLACKWELL = partial(
    Tutorial, arch="sm_100a", args=(), order="DABC", result="D", result_type=np.float32, row_major="ABCD"
)

TUTORIALS = {
    "wgmma_sm90": HOPPER("hopper/wgmma_sm90.cu", args=("N", "T"), sizes=(256, 128, 256), row_major=""),
    "wgmma_sm90-TN": HOPPER("hopper/wgmma_sm90.cu", args=("T", "N"), sizes=(128, 256, 192), row_major="AB"),
    "wgmma_tma_sm90": HOPPER(
        "hopper/wgmma_tma_sm90.cu", args=("N", "T"), sizes=(256, 128, 256), row_major=""
    ),
    "wgmma_tma_sm90-TN": HOPPER(
        "hopper/wgmma_tma_sm90.cu", args=("T", "N"), sizes=(256, 256, 192), row_major="AB"
    ),
    "01_mma_sm100": BLACKWELL("blackwell/01_mma_sm100.cu", sizes=(256, 512, 128)),
    "02_mma_tma_sm100": BLACKWELL("blackwell/02_mma_tma_sm100.cu", sizes=(256, 256, 192)),
}


def cutlass() -> Path:
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "source"


# Each source takes some 20 s to compile the first time, so of each chip's programs only one always runs.
NAMES = [pytest.param(name, marks=() if "tma" in name else pytest.mark.slow) for name in TUTORIALS]


@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
@pytest.mark.parametrize("name", NAMES)
def test_tutorial(name: str, schedule: Schedule, built: Callable[..., Path]) -> None:
    tutorial = TUTORIALS[name]
    root = cutlass()
    executable = built(
        root / "examples/cute/tutorial" / tutorial.source,
        tutorial.arch,
        (root / "include", root / "tools/util/include"),
    )
    extents = dict(zip("MNK", tutorial.sizes, strict=True))
    shapes = {"A": "MK", "B": "NK", "C": "MN", "D": "MN"}
    types = {"A": np.float16, "B": np.float16, "C": tutorial.result_type, "D": tutorial.result_type}
    seen: list[dict[str, Matrix]] = []

    def look(when: str, record: LaunchRecord, memory: GlobalMemory) -> None:
        if when == "before" or "gemm_device" not in record.kernel or record.repeated:
            return
        matrices = {}
        for letter, (address, size) in zip(tutorial.order, record.allocations, strict=True):
            rows, columns = (extents[axis] for axis in shapes[letter])
            dtype = np.dtype(types[letter])
            assert size == rows * columns * dtype.itemsize
            flat = memory.read(address, size).view(dtype).astype(np.float64)
            row_major = letter in tutorial.row_major
            matrices[letter] = flat.reshape(rows, columns) if row_major else flat.reshape(columns, rows).T
        seen.append(matrices)

    args = [*map(str, tutorial.sizes), *tutorial.args]
    outcome = run_program(executable, args, ProgramOptions(Options(schedule=schedule), on_launch=look))

    assert outcome.status == "ok", [str(f) for r in outcome.launches if r.outcome for f in r.outcome.findings]
    assert outcome.exit_status == 0, outcome.stderr
    assert seen
    for matrices in seen:
        a, b = matrices["A"], matrices["B"]
        assert np.unique(a).size > 1
        assert np.unique(b).size > 1
        expected = a @ b.T
        assert np.abs(expected).max() < 2048  # exact in float16 too
        np.testing.assert_array_equal(matrices[tutorial.result], expected)
    if tutorial.arch == "sm_100a":
        assert "Execution is successful." in outcome.stdout
        assert "? yes" not in outcome.stdout  # "Did we encounter NaN in …?"
