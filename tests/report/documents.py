# SPDX-License-Identifier: Apache-2.0
"""Documents as commands write them, small ones."""

from __future__ import annotations

from typing import Any

import jsonschema

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.text import Edit, EditGroup, Safety, Span
from porter.report import json as report_json
from porter.report.groups import group_bodies


def site(path: str, line: int, opcode: str) -> dict[str, Any]:
    source = [{"path": path, "line": line, "column": 3}, {"path": path, "line": 90, "column": None}]
    return {"what": "an access", "opcode": opcode, "ptx_line": line + 100, "source": source if path else [],
            "block": [0, 0, 0], "warp": 1, "lane": None}  # fmt: skip


def pair(path: str, first: int, second: int) -> dict[str, Any]:
    return {"id": "PT4101", "hazard": "H16", "severity": "error", "strict_only": False, "ruling": None, "race": "RAW",
            "title": "a title", "where": "shared memory", "first": site(path, first, "st.shared.b32"),
            "second": site(path, second, "tcgen05.mma"), "missing": "fence.proxy.async", "remedy": "fence.proxy.async",
            "rule": "r", "reference": "s", "count": 2, "seed": None}  # fmt: skip


def hazards(path: str, pairs: int = 1, baseline: bool = False, severity: str = "error") -> dict[str, Any]:
    found = [pair(path, 1 + i, 2 + i) for i in range(pairs)]
    cause = {"id": "PT4101", "hazard": "H16", "severity": severity, "kernel": "k", "count": 2 * pairs,
             "hazards": list(range(pairs)), "first": [], "second": []}  # fmt: skip
    run = {"name": "gemm", "program": "port", "kernel": "k", "arch": "sm_100a", "level": "strict", "schedule": "late",
           "seeds": [0], "replay_seed": None, "verdict": "error", "status": "ok", "warp_instructions": 1,
           "seconds": 0.5, "findings": [], "hazards": found, "causes": [cause], "baseline": baseline,
           "inherited": []}  # fmt: skip
    return report_json.document("hazards", 5, {"verdict": "error", "runs": [run], "diagnostics": []})


def checked(*findings: Diagnostic) -> dict[str, Any]:
    body = {"files": 1, "findings": report_json.diagnostics(findings), "diagnostics": []}
    return report_json.document("check", 1, body)


def left(path: str, line: int, column: int = 1, name: str = "wgmma") -> Diagnostic:
    return Diagnostic(Code.HOPPER_LEFT, Location(path, line, column), {"name": name, "times": ""})


def group(old: bytes, before: bytes, after: bytes, safety: Safety = Safety.SAFE) -> dict[str, Any]:
    at = old.index(before)
    one = EditGroup("PTR900", "rename", safety, (Edit("a.cu", Span(at, at + len(before)), after),), "why")
    (body,) = group_bodies([one], {"a.cu": old})
    files = [{"path": "a.cu", "changed": True, "diff": ""}]
    body = {"files": files, "written": [], "left": [], "groups": [body], "compiled": [], "diagnostics": []}
    document = report_json.document("port", 0, body)
    jsonschema.validate(document, report_json.schema("port"))
    return document


def verified(verdict: str, **fields: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "case": "gemm", "sizes": {"M": 1}, "family": "integers", "schedule": None, "schedule_seed": None, "added": None,
        "seed": 0, "verdict": verdict, "controls": 0, "original": [], "port": [], "between": [], "diagnostics": [],
        "hazards": [], "runs": [{"program": "port", "seconds": 0.25, "findings": []}],
    }  # fmt: skip
    body = {"verdict": verdict, "backend": "sim", "schedule": "late", "arithmetic": "float64", "seed": 0,
            "seconds": 1.0, "rows": [row | fields], "not_run": [], "diagnostics": []}  # fmt: skip
    return report_json.document("verify", 0, body)
