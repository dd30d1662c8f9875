# SPDX-License-Identifier: Apache-2.0
"""What a verification has not run, in one line for each case: the same in every format, from the JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from porter.report.tables import quantity

_MOST_LINES = 6
"""Source lines that are named; JSON has all."""

Document = Mapping[str, Any]


def lines(document: Document) -> list[str]:
    """`not run: 2 sizes of the case (...); a second phase of ...`, or that nothing is left; of `verify` alone."""
    found = document.get("not_run", ())
    several = len(found) > 1
    said = ((one["case"] if several else "", *_line(one)) for one in found)
    return [f"{head}: {f'{case}: ' if case else ''}{text}" for case, head, text in said]


def by_case(document: Document) -> dict[str, str]:
    """The same without the names of cases, by these."""
    return {one["case"]: ": ".join(_line(one)) for one in document.get("not_run", ())}


def _line(one: Document) -> tuple[str, str]:
    parts = list(_parts(one))
    if parts:
        return "not run", "; ".join(parts)
    count = f", all {one['instructions']} instructions of the {one['program']}" if one["instructions"] else ""
    return "run", f"all sizes and instantiations of the case{count}, with hazards and several schedules"


def _parts(one: Document) -> Iterator[str]:
    if one["instantiations"]:
        yield f"{quantity(len(one['instantiations']), 'instantiation')}: {', '.join(one['instantiations'])}"
    if one["sizes"]:
        listed = ", ".join(" ".join(f"{n}={v}" for n, v in sizes.items()) for sizes in one["sizes"])
        yield f"{quantity(len(one['sizes']), 'size')} of the case ({listed}; --sizes all)"
    yield from (f"{left['size']} ({left['reason']})" for left in one["left_out"])
    if one["missed"]:
        where = _places(one["places"])
        yield f"{one['missed']} of {one['instructions']} instructions of the {one['program']} ({where})"
    if one["hazards"]:
        yield "the hazard checker"
    if one["schedules"]:
        yield "other schedules (--backend sim)"


def _places(places: Sequence[Document]) -> str:
    """`gemm.cu:12, 14`: the lines with most of the instructions, in their order."""
    most = sorted(places, key=lambda p: -p["missed"])[:_MOST_LINES]
    text, before = "", None
    for p in sorted(most, key=lambda p: (p["path"] or "", p["line"])):
        name = Path(p["path"]).name if p["path"] else "PTX line"
        same, sign = name == before, ":" if p["path"] else " "
        text += f", {p['line']}" if same else f"{', ' if text else ''}{name}{sign}{p['line']}"
        before = name
    return text + (f", and {len(places) - len(most)} more lines" if len(places) > len(most) else "")
