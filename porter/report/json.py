# SPDX-License-Identifier: Apache-2.0
"""Results as JSON documents. Each has `schema_version` and `kind`; the schemas stand in `schemas/`.

The version counts changes that break readers; new fields do not.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, Severity

SCHEMA_VERSION = 1
KINDS = (
    "grade", "prove", "equal",
    "review", "case-new", "kit", "kit-record",
    "scan", "check", "plan", "port", "build", "sim", "run", "verify", "hazards", "mutate", "explain", "doctor", "nvcc",
    "record", "selfcheck", "capture", "map", "rules-list", "rules-explain", "rules-test", "rules-new", "report",
    "stats", "clean", "error",
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
    """A document with its body, and the messages in it by their cause."""
    head = {"schema_version": SCHEMA_VERSION, "kind": kind, "exit_code": int(exit_code)}
    return {**head, **body, "causes": causes(body)}


_COUNTED = re.compile(r"\b\d+ of \d+\b")


def same_words(message: str) -> str:
    """A message without how many of how many elements it is about."""
    return _COUNTED.sub("# of #", message)


_GRAVEST = {severity.value: i for i, severity in enumerate((Severity.ERROR, Severity.WARNING, Severity.NOTE))}
_PLACES_SHOWN = 20


def causes(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a body, those with one ID and the same words together, the gravest first: how often each was met,
    and the first places."""
    said = [*body.get("diagnostics", ()), *body.get("findings", ())]
    said += [d for row in body.get("rows", ()) for d in row.get("diagnostics", ())]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    # what a run ended with has a form of its own
    for d in (d for d in said if "severity" in d):
        one = {"id": d["id"], "severity": d["severity"], "message": d["message"], "next_step": d["next_step"]}
        cause = found.setdefault((d["id"], same_words(d["message"])), one | {"count": 0, "locations": []})
        cause["count"] += 1
        if d["location"] is not None and d["location"] not in cause["locations"][:_PLACES_SHOWN]:
            cause["locations"] = [*cause["locations"], d["location"]][:_PLACES_SHOWN]
    return sorted(found.values(), key=lambda cause: _GRAVEST[cause["severity"]])


def checked(path: Path, found: Any) -> dict[str, Any]:
    """A document that was read from a file.

    Raises:
        PorterError: NOT_A_DOCUMENT: it is of no kind that there is, of another version, or does not follow its schema.
    """
    import jsonschema

    kind = found.get("kind") if isinstance(found, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise PorterError(Code.NOT_A_DOCUMENT, Location(str(path)), path=path, problem="it says no kind of result")
    if found.get("schema_version") != SCHEMA_VERSION:
        problem = f"its schema_version is not {SCHEMA_VERSION}"
        raise PorterError(Code.NOT_A_DOCUMENT, Location(str(path)), path=path, problem=problem)
    wrong = next(jsonschema.Draft202012Validator(schema(kind)).iter_errors(found), None)
    if wrong is not None:
        where = "/".join(map(str, wrong.absolute_path)) or "the document"
        problem = f"{where} does not follow the schema of `{kind}`"
        raise PorterError(Code.NOT_A_DOCUMENT, Location(str(path)), path=path, problem=problem)
    return dict(found)


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
    found: dict[str, Any] = {"path": where.path, "line": where.line or None, "column": where.column or None}
    if where.end > where.start:
        found |= {"end_line": where.end_line, "end_column": where.end_column, "start": where.start, "end": where.end}
    return found


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
