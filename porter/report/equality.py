# SPDX-License-Identifier: Apache-2.0
"""Comparisons of originals with their ports, on PTX, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from porter.diagnostics import Code, Diagnostic, ExitCode, Location, worst_exit
from porter.report import json as report_json
from porter.report.places import instruction, place_of
from porter.verify.equality import Equality, Place, SizeCompared

REMEDY = "`porter verify` holds runs of both against each other"
"""What to do about what PTX alone does not tell."""
_EXIT = {"equal": ExitCode.OK, "differs": ExitCode.DIFFERENT, "unknown": ExitCode.INCONCLUSIVE}


def equality_exit(found: Sequence[Equality], errors: Sequence[Diagnostic]) -> ExitCode:
    """DIFFERENT where one differs, INCONCLUSIVE for what is not understood; nothing at all is no verdict."""
    codes = [*(_EXIT[e.status] for e in found), *(e.code.value.exit_code for e in errors)]
    return worst_exit(codes) if codes else ExitCode.INCONCLUSIVE


def text(found: Sequence[Equality]) -> Iterator[str]:
    """A line for each case, with its places below."""
    for one in found:
        yield f"{one.case}: {_verdict(one)}"
        yield from (f"    {line}" for line in _places(one))
        yield from (f"    {_counted(count)}" for count in one.counts)
        yield from (f"    assumed: {assumed}" for assumed in sorted(one.assumed) if one.status == "equal")


def brief(one: Equality) -> str:
    """One line, beside what else is said of a port; of what is not known, with what to do next."""
    if one.status != "unknown":
        return f"output of {one.case}: {_verdict(one)}"
    where = f" at {_place(one.places[0])}" if one.places else ""
    return f"output of {one.case}: {_verdict(one)}{where}; next: {one.remedy or REMEDY}"


def different(one: Equality, as_code: Code) -> Diagnostic:
    """An error at the place of the port, or of the original where the port has none."""
    *_, last = one.places
    loc = last.flow.code.code[last.at].loc if last.at is not None else None
    detail = "\n".join([f"at {one.at}", *_places(one)])
    return Diagnostic(as_code, None if loc is None else Location(loc.file, loc.line),
                      {"case": one.case, "what": one.why}, detail)  # fmt: skip


def _verdict(one: Equality) -> str:
    if one.status == "equal":
        took = f"{one.bytes} bytes, {one.seconds:.1f} s"
        return f"equal on PTX, with proved synchronization, {extent(one)} ({took})"
    at = f" ({one.at})" if one.at else ""
    return f"{'differs' if one.status == 'differs' else 'not known to be equal'}: {one.why}{at}"


def extent(one: Equality) -> str:
    """For which sizes both are equal."""
    of_all = "".join(f"{count.name} all, " for count in one.counts if count.is_all)
    return f"{of_all}at {'; '.join(one.looked_at)}"


def _counted(count: SizeCompared) -> str:
    if count.is_all and not count.step:
        upto = f", as long as no 32-bit number of the original wraps: {count.upto}" if count.upto else ""
        return f"{count.name}: all up to {count.largest}{upto} (as a symbol, as indices of blocks are)"
    if count.is_all:
        beside = f" with all of {', '.join(count.beside)}" if count.beside else ""
        step = f"multiples of {count.step}"
        return f"{count.name}: all {step}{beside} (what both hold goes on, with a period of {count.period})"
    where = f" ({count.place.program}, {_place(count.place)})" if count.place is not None else ""
    return f"{count.name}: at these sizes, not all: {count.why}{where}"


def _places(one: Equality) -> Iterator[str]:
    for place in one.places:
        yield f"{place.program + ':':9} {_place(place)}"


def _place(place: Place) -> str:
    code = place.flow.code
    return place_of(code, None) if place.at is None else instruction(code, place.at)


def document(found: Sequence[Equality], errors: Sequence[Diagnostic]) -> dict[str, Any]:
    wrong = [different(one, Code.UNEQUAL_PROVED) for one in found if one.status == "differs"]
    body = {"cases": [body_of(one) for one in found], "diagnostics": report_json.diagnostics([*errors, *wrong])}
    return report_json.document("equal", equality_exit(found, errors), body)


def body_of(one: Equality) -> dict[str, Any]:
    return {
        "name": one.case,
        "status": one.status,
        "sizes": list(one.looked_at),
        "bytes": one.bytes,
        "why": one.why,
        "as_original": one.as_original,
        "at": one.at,
        "places": [{"program": place.program, "place": _place(place)} for place in one.places],
        "assumed": sorted(one.assumed),
        "counts": [
            {
                "name": c.name,
                "all": c.is_all,
                "step": c.step,
                "period": c.period,
                "beside": list(c.beside),
                "why": c.why,
            }
            for c in one.counts
        ],
        "seconds": round(one.seconds, 2),
    }
