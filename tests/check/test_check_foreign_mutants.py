# SPDX-License-Identifier: Apache-2.0
"""Mutants of kernels that no port is made of, most of them NVIDIA's: whatever is taken away of their synchronization
is caught, or a run or a review says why nobody could.

With PORTER_RECORD_MUTANTS=FILE the counts are kept there; docs/mutation.md shows them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from foreign import launches

from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.diagnostics import PorterError
from porter.verify.rows import as_rows

pytestmark = pytest.mark.slow

COMMAND = (
    "PORTER_RECORD_MUTANTS=docs/results/foreign-mutants.json python -m pytest tests/check/test_check_foreign_mutants.py"
)
KERNELS: dict[str, tuple[Callable[..., Path], tuple[int, ...]]] = {
    "attention": (launches.attention, (512, 1)),
    "block-scaled GEMM": (launches.block_scaled, (128, 128, 1024)),
    "NVIDIA, CUTLASS tutorials: 01_mma_sm100": (partial(launches.tutorial, "01_mma_sm100"), (128, 256, 320)),
    "NVIDIA, CUTLASS tutorials: 02_mma_tma_sm100": (partial(launches.tutorial, "02_mma_tma_sm100"), (128, 256, 320)),
    "NVIDIA, CUTLASS tutorials: 03_mma_tma_multicast_sm100": (
        partial(launches.tutorial, "03_mma_tma_multicast_sm100"), (512, 1024, 320),
    ),
    "NVIDIA, CUTLASS tutorials: 04_mma_tma_2sm_sm100": (launches.pair, (512, 1024, 320)),
    "NVIDIA, CUTLASS tutorials: 05_mma_tma_epi_sm100": (
        partial(launches.tutorial, "05_mma_tma_epi_sm100"), (512, 1024, 128),
    ),
    "NVIDIA, CuTe DSL: dense-pair": (partial(launches.dsl_gemm, "blackwell-dense-pair"), (256, 256, 576)),
    # One block does all tiles, so that it comes to each stage of its schedule again.
    "quack: dynamic": (partial(launches.dsl_gemm, "quack-sm100-dynamic", resident=1), (256, 384, 192)),
}  # fmt: skip
_GIVE_UP, _GIVE_UP_PAIR = (("drop", f"tcgen05.relinquish_alloc_permit.cta_group::{n}.sync.aligned") for n in (1, 2))
_BARRIER = "drop", "bar.sync"
_BEFORE, _AFTER = (("drop", f"tcgen05.fence::{when}_thread_sync") for when in ("before", "after"))
REVIEWED: dict[str, dict[tuple[str, str], int]] = {
    "attention": {_GIVE_UP: 1, _BEFORE: 1, ("drop", "tcgen05.wait::ld.sync.aligned"): 2},
    "block-scaled GEMM": {_GIVE_UP: 1, _BEFORE: 1, _AFTER: 1},
    "NVIDIA, CUTLASS tutorials: 01_mma_sm100": {_GIVE_UP: 1, _BARRIER: 3},
    "NVIDIA, CUTLASS tutorials: 02_mma_tma_sm100": {_GIVE_UP: 1, _BARRIER: 4},
    "NVIDIA, CUTLASS tutorials: 03_mma_tma_multicast_sm100": {_GIVE_UP: 1, _BARRIER: 4},
    "NVIDIA, CUTLASS tutorials: 04_mma_tma_2sm_sm100": {_GIVE_UP_PAIR: 1, _BARRIER: 4},
    "NVIDIA, CUTLASS tutorials: 05_mma_tma_epi_sm100": {_GIVE_UP_PAIR: 1, _BARRIER: 10},
    "NVIDIA, CuTe DSL: dense-pair": {_GIVE_UP_PAIR: 1, ("pass at once", "mbarrier.try_wait.parity.shared.b64"): 9},
    "quack: dynamic": {
        _GIVE_UP: 1,
        _BARRIER: 1,
        ("drop", "bar.warp.sync"): 2,
        ("drop", "griddepcontrol.wait"): 2,
        ("drop", "griddepcontrol.launch_dependents"): 1,
        ("pass at once", "mbarrier.try_wait.parity.shared.b64"): 10,
    },
}
"""Mutants that nobody notices, by what was done to which instruction; docs/mutation.md says why they are harmless."""


@pytest.mark.parametrize("name", KERNELS)
def test_mutants_are_caught_or_explained(name: str, tmp_path: Path) -> None:
    try:
        find_toolkit()
    except PorterError as error:
        pytest.skip(f"no CUDA compiler: {error}")
    write, sizes = KERNELS[name]
    launch = write(tmp_path, *sizes)
    words = ["--ptx", str(launch.parent / "kernel.ptx"), "--launch", str(launch)]
    done = CliRunner().invoke(main, ["--format", "json", "mutate", *words])
    assert done.exit_code == 0, done.output
    (kernel,) = json.loads(done.stdout)["kernels"]
    rows: list[dict[str, Any]] = kernel["mutants"]
    assert kernel["status"] == "ok"
    left = Counter((row["how"], row["opcode"]) for row in rows if not row["caught"] and row["reason"] is None)
    assert dict(left) == REVIEWED[name]
    _record(name, " x ".join(map(str, sizes)), rows, sum(left.values()))


def _record(name: str, size: str, rows: list[dict[str, Any]], reviewed: int) -> None:
    path = os.environ.get("PORTER_RECORD_MUTANTS")
    if not path:
        return
    file = Path(path)
    kept = {row["kernel"]: row for row in (json.loads(file.read_text("utf-8"))["rows"] if file.exists() else [])}
    kept[name] = {
        "kernel": name,
        "size": size,
        "mutants": len(rows),
        "of_error_level": sum(row["level"] == "error" for row in rows),
        "by_value": sum(row["by_value"] for row in rows),
        "caught": sum(row["caught"] for row in rows),
        "explained": sum(not row["caught"] and row["reason"] is not None for row in rows),
        "reviewed": reviewed,
    }
    file.write_text(as_rows({"command": COMMAND, "rows": [kept[key] for key in sorted(kept)]}), "utf-8")
