# SPDX-License-Identifier: Apache-2.0
"""Grades: the table, one line of it, JSON, and a timeline for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import RenderableType
from rich.text import Text

from porter.grade import clocks
from porter.grade.chips import chip_of
from porter.grade.model import Grade, percent, timeline
from porter.grade.shape import Mma
from porter.report import trace as report_trace
from porter.report.tables import plain_table
from porter.sim.trace.recorder import Kind, Launched, Recorder, Track
from porter.verify.builder import PORT_ARCH

TRUST = "order and limiting part can be trusted, rates cannot: docs/grade.md"
UNPROVED = "the port was not proved by a run: it is graded as it is made; `porter port --style {style}` proves it"
_SHOWN = 3
_KINDS_SHOWN = 6


class Graded(Protocol):
    """What was graded."""

    @property
    def label(self) -> str: ...
    @property
    def kernel(self) -> str: ...


Row = tuple[str, Graded, Grade]
"""The change that was asked for (empty: the kernel as it is), the kernel, its grade."""


def line(found: Grade) -> str:
    """One line: `54.4 % of a B200's nominal rate, limited by TMA fill`."""
    capped = f" (power allows {percent(found.capped)})" if found.capped < found.rate else ""
    return f"{percent(found.rate)} of {found.chip.name}'s nominal rate{capped}, limited by {found.limit}"


@dataclass(frozen=True)
class Brief:
    """Grades of one case in other commands' results; `unknown` says what is not graded, and why."""

    case: str
    rows: Sequence[Row]
    unknown: Sequence[str] = ()

    @property
    def line(self) -> str:
        """`grade of gemm_ws at 4096 x 4096 x 4096: original 48.2 % of H100's nominal rate, limited by ...; port ...`"""
        problem = next((f" at {one.problem}" for _, _, one in self.rows if one.problem is not None), "")
        several = len({what.kernel for _, what, _ in self.rows}) > 1
        said = [f"{what.label}{f' {what.kernel}' if several else ''} {line(one)}" for _, what, one in self.rows]
        return f"grade of {self.case}{problem}: {'; '.join([*said, *self.unknown])}"

    def body(self) -> dict[str, Any]:
        return {"case": self.case, "line": self.line, **body(self.rows), "unknown": list(self.unknown)}


def ceiling(widths: Sequence[int], rows: int) -> float | None:
    """The share of a B200's nominal rate that a port's MMAs of some rows allow, with accumulators of these numbers of
    columns."""
    chip = chip_of(PORT_ARCH)
    return None if chip is None else max(clocks.ceiling(Mma(rows, n), chip) for n in widths)


def ceiling_line(share: float, rows: int) -> str:
    """What `porter plan` says of it."""
    return f"MMAs of M = {rows} allow {percent(share)} of a B200's nominal rate; `porter grade` says what else counts"


def text(rows: Sequence[Row], unproved: str = "") -> Iterator[RenderableType]:
    """A table of all, and below it what holds and lifts each. `unproved`: what is said of a port that was not run."""
    if not rows:
        return
    table = plain_table("kernel", "on", "% of nominal", "capped", "clocks a tile", "a stage", "waves", "blocks an SM",
                        "limited by",
                        overflow="fold", beside=("on", "% of nominal", "limited by"))  # fmt: skip
    for change, what, one in rows:
        name = f"{what.label}: {what.kernel}" if not change else f"  if {change}"
        waves = f"{one.waves:.2f}" if one.problem is not None else "-"
        table.add_row(name, one.chip.name, f"{100 * one.rate:.1f}", f"{100 * one.capped:.1f}", f"{one.tile_clocks:.0f}",
                      f"{one.stage_clocks:.0f}", waves, str(one.blocks), one.limit)  # fmt: skip
    yield table
    for change, what, one in rows:
        if change:
            continue
        yield Text(f"{what.label}: {what.kernel}: {_structure(one)}")
        if one.terms:
            yield Text("  costs        " + ", ".join(f"{t} {100 * g:.0f} %" for t, g in one.terms[:_SHOWN]))
        if work := one.shape.work.instructions:
            kinds = ", ".join(f"{100 * n / work:.0f} % {kind}" for kind, n in one.shape.work.kinds[:_KINDS_SHOWN])
            yield Text(f"  issues       {work} instructions a stage{': ' if kinds else ''}{kinds}")
        if one.lifts:
            yield Text("  would lift   " + ", ".join(f"{t} {100 * g:+.0f} %" for t, g in one.lifts[:_SHOWN]))
        for assumed in one.shape.assumed:
            yield Text(f"  assumed      {assumed}")
    if unproved:
        yield Text(unproved)
    yield Text(TRUST)


def _structure(one: Grade) -> str:
    shape = one.shape
    mmas = ", ".join(f"{count} MMAs of {m.m} x {m.n}" for m, count in shape.mmas)
    tile = f"tile {shape.tile_m} x {shape.tile_n} x {shape.tile_k}, " if shape.is_product else ""
    of = f" of {one.problem}" if one.problem is not None else ", one long loop"
    pair = " by pairs of blocks" if shape.cta_group == 2 else ""
    pair += f", {sum(count for _, count in shape.ahead)} of these ahead of it" if shape.ahead else ""
    return f"{tile}{mmas} a stage{pair}, {shape.stages} stages of {shape.load_bytes} bytes, {shape.roles}{of}"


def body(rows: Sequence[Row], unproved: str = "") -> dict[str, Any]:
    """What the JSON document holds."""
    said = {"unproved": unproved} if unproved else {}
    return {"trust": TRUST, **said, "kernels": [_kernel(*row) for row in rows]}


def _kernel(change: str, what: Graded, one: Grade) -> dict[str, Any]:
    shape = one.shape
    return {
        "program": what.label,
        "kernel": what.kernel,
        "what_if": change,
        "chip": one.chip.name,
        "arch": shape.arch,
        "problem": None if one.problem is None else [one.problem.m, one.problem.n, one.problem.k],
        "percent_of_nominal": round(100 * one.rate, 2),
        "capped_percent": round(100 * one.capped, 2),
        "clocks_per_tile": round(one.tile_clocks, 1),
        "clocks_per_stage": round(one.stage_clocks, 1),
        "waves": round(one.waves, 3),
        "blocks_per_sm": one.blocks,
        "limit": one.limit,
        "terms": [{"term": t, "gain_percent": round(100 * g, 2)} for t, g in one.terms],
        "lifts": [{"change": t, "gain_percent": round(100 * g, 2)} for t, g in one.lifts],
        "shape": {
            "mmas": [
                {"m": m.m, "n": m.n, "kind": str(m.kind), "cta_group": m.cta_group, "a": m.a, "count": count}
                for m, count in shape.mmas
            ],
            "tile": [shape.tile_m, shape.tile_n, shape.tile_k] if shape.is_product else None,
            "load_bytes": shape.load_bytes,
            "stages": shape.stages,
            "roles": shape.roles,
            "waits_each": shape.waits_each,
            "issuers": shape.issuers,
            "persistent": shape.persistent,
            "store": shape.epilogue.store,
            "overlapped": shape.epilogue.overlapped,
            "batches": shape.batches,
            "ahead": sum(count for _, count in shape.ahead),
            "late": round(shape.late, 3),
        },
        "work": {
            "instructions": shape.work.instructions,
            "mufu": shape.work.mufu,
            "kinds": dict(shape.work.kinds),
        },
        "assumed": list(shape.assumed),
    }


_KINDS: dict[str, Kind] = {
    "TMA": "TMA", "tensor core": "tensor core", "epilogue": "store", "issue": "warp", "MUFU": "copy",
}  # fmt: skip


def write_timeline(rows: Sequence[Row], path: Path) -> int:
    """Write what happens on one SM to a file for Perfetto; a microsecond of it is a clock. The number of events.

    Raises:
        PorterError: WRITE_FAILED.
    """
    recorder = Recorder(limit=10**9)
    for change, what, one in rows:
        name = f"{what.label} {what.kernel}" + (f" if {change}" if change else "")
        recorder.launches.append(Launched(name, one.blocks))
        found = timeline(one)
        for block in sorted({a.block for a in found.activities}):
            group = recorder.add_group((block, 0, 0))
            free: dict[str, list[float]] = {}
            tracks: dict[tuple[str, int], Track] = {}
            for at in sorted((a for a in found.activities if a.block == block), key=lambda a: a.start):
                # Loads overlap: each gets the first row that is free.
                ends = free.setdefault(at.lane, [])
                row = next((i for i, end in enumerate(ends) if end <= at.start), len(ends))
                ends[row:] = [at.end, *ends[row + 1 :]]
                if (at.lane, row) not in tracks:
                    tracks[at.lane, row] = recorder.add_track(group, _KINDS[at.lane], at.lane, 0, row)
                taken = {"clocks": round(at.end - at.start)}
                recorder.open(tracks[at.lane, row], "operation", at.name, round(at.start), round(at.end), taken)
    return report_trace.write(recorder, path, "clocks of one SM", "porter grade", "1 us is one clock, as predicted")
