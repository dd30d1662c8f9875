# SPDX-License-Identifier: Apache-2.0
"""Messages that say the same of several inputs, as one with a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from porter.diagnostics import Diagnostic
from porter.report.json import same_words
from porter.report.tables import quantity
from porter.verify.results import Row

_SHOWN = 6


def of_rows(rows: Sequence[Row]) -> list[Diagnostic]:
    """The messages of a verification's rows: of those with one ID, one place and the same words the first, and which
    other inputs have it, too."""
    first: dict[Any, Diagnostic] = {}
    others: dict[Any, list[str]] = {}
    for row in rows:
        for d in row.diagnostics:
            key = (d.code, d.where, same_words(d.message))
            if key in first:
                others.setdefault(key, []).append(row.inputs)
            else:
                first[key] = d
    return [_with_others(d, list(dict.fromkeys(others.get(key, ())))) for key, d in first.items()]


def _with_others(d: Diagnostic, others: Sequence[str]) -> Diagnostic:
    if not others:
        return d
    named = ", ".join(others[:_SHOWN]) + (", ..." if len(others) > _SHOWN else "")
    line = f"{quantity(len(others), 'other input')} of this verification, too: {named}"
    return replace(d, detail="\n".join(part for part in (d.detail, line) if part))
