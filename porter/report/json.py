# SPDX-License-Identifier: Apache-2.0
"""Results as JSON documents. Each has `schema_version` and `kind`; the schemas stand in `schemas/`.

The version counts changes that break readers; new fields do not.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from porter.build.table import ResourceRow
from porter.diagnostics import Diagnostic, ExitCode, Location
from porter.lang.text import EditGroup
from porter.verify.compare import ULP_BINS, Comparison
from porter.verify.coverage import Coverage
from porter.verify.results import Row, RunSummary, VerifyResult

SCHEMA_VERSION = 1
KINDS = (
    "scan", "plan", "port", "build", "sim", "run", "verify", "hazards", "mutate", "explain", "doctor", "nvcc", "record",
    "selfcheck", "capture", "error",
)  # fmt: skip


@functools.cache
def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of document. Raises KeyError for an unknown kind."""
    if kind not in KINDS:
        raise KeyError(kind)
    text = resources.files("porter.report").joinpath(f"schemas/{kind}.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document(kind: str, exit_code: int, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "kind": kind, "exit_code": int(exit_code), **body}


def dumps(data: Mapping[str, Any]) -> str:
    """Deterministic text. Numbers that JSON has no word for become strings: NaN, Infinity, -Infinity."""
    return json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def location(where: Location | None) -> dict[str, Any] | None:
    if where is None:
        return None
    return {"path": where.path, "line": where.line or None, "column": where.column or None}


def diagnostic(d: Diagnostic) -> dict[str, Any]:
    info = d.code.value
    return {
        "id": info.id,
        "severity": info.severity.value,
        "message": d.message,
        "detail": d.detail,
        "next_step": info.next_step,
        "location": location(d.where),
    }


def diagnostics(items: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    return [diagnostic(d) for d in items]


def error(items: Sequence[Diagnostic], exit_code: ExitCode) -> dict[str, Any]:
    return document("error", exit_code, {"diagnostics": diagnostics(items)})


def comparison(c: Comparison) -> dict[str, Any]:
    first = None
    if c.first is not None:
        first = {
            "index": list(c.first.index),
            "expected": c.first.expected,
            "actual": c.first.actual,
            "ulps": c.first.ulps,
            "error": c.first.error,
            "bound": c.first.bound,
        }
    return {
        "tensor": c.tensor,
        "kind": c.kind,
        "ok": c.ok,
        "elements": c.elements,
        "mismatches": c.mismatches,
        "nans": c.nans,
        "unwritten": c.unwritten,
        "max_ulps": c.max_ulps,
        "ulp_histogram": {"upper_ends": list(ULP_BINS), "counts": list(c.histogram)},
        "max_error": c.max_error,
        "max_error_over_bound": c.max_ratio,
        "max_error_over_magnitude": c.max_scaled,
        "first": first,
    }


def run(r: RunSummary) -> dict[str, Any]:
    return {
        "program": r.program,
        "arch": r.arch,
        "backend": r.backend,
        "status": r.status,
        "warp_instructions": r.warp_instructions,
        "seconds": r.seconds,
        "findings": [finding(f) for f in r.findings],
    }


def finding(f: Any) -> dict[str, Any]:
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


def _row(row: Row) -> dict[str, Any]:
    from porter.report import hazards

    return {
        "case": row.case,
        "sizes": dict(row.sizes),
        "family": row.family,
        "schedule": row.schedule,
        "schedule_seed": row.schedule_seed,
        "added": row.added or None,
        "seed": row.seed,
        "verdict": row.verdict.value,
        "controls": row.controls,
        "original": [comparison(c) for c in row.original],
        "port": [comparison(c) for c in row.port],
        "between": [comparison(c) for c in row.between],
        "runs": [run(r) for r in row.runs],
        "diagnostics": diagnostics(row.diagnostics),
        "hazards": [hazards.run_body(r) for r in row.hazards],
    }


def _not_run(c: Coverage) -> dict[str, Any]:
    return {
        "case": c.case,
        "sizes": [dict(sizes) for sizes in c.sizes],
        "instantiations": list(c.instantiations),
        "left_out": [{"size": why, "reason": reason} for why, reason in c.left_out],
        "program": c.program,
        "instructions": c.instructions,
        "missed": c.missed,
        "places": [
            {"path": p.path or None, "line": p.line, "missed": p.missed, "instructions": p.count} for p in c.places
        ],
        "hazards": not c.hazards,
        "schedules": not c.schedules,
    }


def verify(result: VerifyResult) -> dict[str, Any]:
    body = {
        "verdict": result.verdict.value,
        "backend": result.backend,
        "schedule": result.schedule,
        "arithmetic": result.arithmetic,
        "seed": result.seed,
        "seconds": result.seconds,
        "rows": [_row(row) for row in result.rows],
        "not_run": [_not_run(c) for c in result.coverage],
        "diagnostics": diagnostics(result.errors),
    }
    return document("verify", result.exit_code, body)


def group(g: EditGroup) -> dict[str, Any]:
    edits = [{"path": e.path, "start": e.span.start, "end": e.span.end,
              "replacement": e.replacement.decode("utf-8", "replace")} for e in g.edits]  # fmt: skip
    return {
        "rule": g.rule,
        "title": g.title,
        "safety": g.safety.value,
        "reason": g.reason,
        "references": list(g.references),
        "notes": list(g.notes),
        "edits": edits,
    }


def resources_document(rows: Iterable[ResourceRow], exit_code: ExitCode) -> dict[str, Any]:
    return document("build", exit_code, {"kernels": [row.as_json() for row in rows], "diagnostics": []})
