# SPDX-License-Identifier: Apache-2.0
"""Which formats results have, and results in them. All are made from the JSON documents of commands."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from porter.report import json as report_json

ANY = frozenset(report_json.KINDS)
LISTED = ANY - {"explain", "doctor", "map", "rules-list", "rules-new", "nvcc", "record", "mutate"}
"""Kinds of documents with something that formats of findings show."""
KINDS_OF: Mapping[str, frozenset[str]] = {
    "json": ANY | {"rules-schema"},
    "sarif": LISTED,
    "github": LISTED,
    "markdown": LISTED,
    "junit": frozenset({"verify", "hazards", "error"}),
}
"""Formats beside text, and the kinds of documents that have them."""
FORMATS = ("text", *KINDS_OF)


def render(form: str, documents: Sequence[Mapping[str, Any]], root: Path | None = None) -> str:
    """Documents in one format, as text with its last newline; `json` takes one only. Paths lead from `root`, which
    is the working directory's checkout if nothing else is said."""
    if form == "json":
        (one,) = documents
        return report_json.dumps(one) + "\n"
    module = importlib.import_module(f"porter.report.{_MODULES[form]}")
    if form == "sarif":
        return json.dumps(module.document(documents, root or checkout()), indent=2, ensure_ascii=False) + "\n"
    if form == "github":
        return "".join(f"{line}\n" for line in module.lines(documents, root or checkout()))
    return str(module.text(documents))


_MODULES = {"sarif": "sarif", "github": "annotations", "junit": "junit", "markdown": "markdown"}


def checkout() -> Path:
    """The root of the repository that the working directory is in, else the working directory."""
    here = Path.cwd()
    return next((d for d in (here, *here.parents) if (d / ".git").exists()), here)
