# SPDX-License-Identifier: Apache-2.0
"""Kernels for Blackwell that others wrote and that are known to be good: what the checker says of them.

A test that has found a kernel's results right and no error calls `record`. With PORTER_RECORD_KERNELS=FILE the results
are kept there, beside those of earlier runs, and `docs/known_kernels.md` shows them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from porter.sim.check.hazard import Hazard
from porter.verify.rows import as_rows

COMMAND = (
    "PORTER_RECORD_KERNELS=docs/results/known-kernels.json python -m pytest "
    "tests/dsl/test_dsl_external.py tests/dsl/test_dsl_block_scaled.py tests/dsl/test_dsl_fmha_sm100.py "
    "tests/program/test_program_nvidia.py tests/program/test_program_cutlass.py "
    "-k 'not sm90 and not own and not hopper'"
)


def record(origin: str, kernel: str, size: str, warp_instructions: int, hazards: Iterable[Hazard]) -> None:
    """Keep what a run at practice level reported: `origin` is whose kernel it is, `size` that of its problem."""
    found = list(hazards)
    errors = [h for h in found if h.severity == "error" or h.ruling is None]
    assert not errors
    path = os.environ.get("PORTER_RECORD_KERNELS")
    if not path:
        return
    file = Path(path)
    rows = json.loads(file.read_text("utf-8"))["rows"] if file.exists() else []
    row = {
        "origin": origin,
        "kernel": kernel,
        "size": size,
        "warp_instructions": warp_instructions,
        "errors": len(errors),
        "review": sorted({f"{h.kind.id} {h.ruling.value}" for h in found if h.ruling is not None}),
    }
    kept = {(r["origin"], r["kernel"]): r for r in [*rows, row]}
    file.write_text(as_rows({"command": COMMAND, "rows": [kept[key] for key in sorted(kept)]}), "utf-8")
