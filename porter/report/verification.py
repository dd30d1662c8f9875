# SPDX-License-Identifier: Apache-2.0
"""What `porter verify` found, as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from porter.diagnostics import Code, Diagnostic
from porter.report import json as report_json
from porter.report import proofs as report_proofs
from porter.report.exits import verification_exit
from porter.report.hazards import run_body as hazard_body
from porter.report.program import finding_body
from porter.verify.compare import ULP_BINS, Comparison
from porter.verify.coverage import Coverage
from porter.verify.outcome import RunSummary, Verdict
from porter.verify.proved import CaseProofs
from porter.verify.results import Row, VerifyResult


def document(result: VerifyResult) -> dict[str, Any]:
    body = {
        "verdict": result.verdict.value,
        "full": True,
        "backend": result.backend,
        "schedule": result.schedule,
        "arithmetic": result.arithmetic,
        "seed": result.seed,
        "seconds": result.seconds,
        "rows": [*result.earlier, *(_row(row) for row in result.rows)],
        "not_run": [_not_run(c) for c in result.coverage],
        "proofs": [report_proofs.case_body(p) for p in result.proofs],
        "diagnostics": report_json.diagnostics([*result.errors, *(d for p in result.proofs for d in _wrong(p))]),
    }
    return report_json.document("verify", verification_exit(result), body)


_FIGURES = ("original", "port", "between", "runs", "hazards")


def summary(document: dict[str, Any]) -> dict[str, Any]:
    """A document without the figures of its runs, where there is nothing to look for in them: all is clean. What
    `--resume` needs stays."""
    if document["verdict"] != Verdict.CLEAN.value:
        return document
    rows = [{**row, **{name: [] for name in _FIGURES}} for row in document["rows"]]
    return {**document, "full": False, "rows": rows}


def _wrong(found: CaseProofs) -> Iterator[Diagnostic]:
    return report_proofs.wrong(found, Code.HAZARD_PROVED, Code.UNEQUAL_PROVED)


def _row(row: Row) -> dict[str, Any]:
    return {
        "case": row.case,
        "sizes": dict(row.sizes),
        "family": row.family,
        "schedule": row.schedule,
        "schedule_seed": row.schedule_seed,
        "added": row.added or None,
        "digest": row.digest or None,
        "seed": row.seed,
        "verdict": row.verdict.value,
        "controls": row.controls,
        "original": [_comparison(c) for c in row.original],
        "port": [_comparison(c) for c in row.port],
        "between": [_comparison(c) for c in row.between],
        "runs": [_run(r) for r in row.runs],
        "diagnostics": report_json.diagnostics(row.diagnostics),
        "hazards": [hazard_body(r) for r in row.hazards],
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


def _comparison(c: Comparison) -> dict[str, Any]:
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


def _run(r: RunSummary) -> dict[str, Any]:
    return {
        "program": r.program,
        "arch": r.arch,
        "backend": r.backend,
        "status": r.status,
        "warp_instructions": r.warp_instructions,
        "seconds": r.seconds,
        "findings": [finding_body(f) for f in r.findings],
    }
