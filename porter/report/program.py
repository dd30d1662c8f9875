# SPDX-License-Identifier: Apache-2.0
"""What a whole program did, for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from porter.diagnostics import Code, Diagnostic, ExitCode, Location
from porter.verify.outcome import RunFinding
from porter.verify.program import LaunchRecord


def finding_diagnostic(found: RunFinding, path: Path) -> Diagnostic:
    """A finding as a message block; its own wording stands in for the title's values."""
    where = Location(found.source, found.line) if found.source else Location(str(path), found.ptx_line)
    code = Code.RUN_INCOMPLETE if found.code.value.exit_code is ExitCode.INCONCLUSIVE else Code.RUN_FAILED
    reason = f"{found.code.id}: {found.message}"
    return Diagnostic(code, where, {"program": "kernel", "reason": reason}, found.where)


def finding_body(f: RunFinding) -> dict[str, Any]:
    return {
        "id": f.code.id,
        "message": f.message,
        "kernel": f.kernel,
        "block": list(f.block) if f.block is not None else None,
        "warp": f.warp,
        "lane": f.lane,
        "ptx_line": f.ptx_line or None,
        "source": f.source or None,
        "line": f.line or None,
    }


def launch_body(record: LaunchRecord) -> dict[str, Any]:
    return {
        "kernel": record.kernel,
        "grid": list(record.grid),
        "block": list(record.block),
        "cluster": list(record.cluster),
        "dynamic_smem": record.dynamic_smem,
        "status": record.outcome.status if record.outcome else "error",
        "warp_instructions": record.outcome.stats.warp_instructions if record.outcome else 0,
        "repeated": record.repeated,
    }


def launch_line(record: LaunchRecord, name: str) -> str:
    """`gemm_device grid 4,4,1 block 128,1,1 cluster 4,4,1: ok, 12,345 warp instructions`."""
    body = launch_body(record)
    shape = " ".join(
        f"{what} {','.join(map(str, body[what]))}"
        for what in ("grid", "block", "cluster")
        if what != "cluster" or record.cluster != (1, 1, 1)
    )
    done = "as the one before" if record.repeated else f"{body['warp_instructions']:,} warp instructions"
    return f"{name} {shape}: {body['status']}, {done}"
