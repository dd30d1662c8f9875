# SPDX-License-Identifier: Apache-2.0
"""Tables for people: resources before and after, verdicts, coverage, what the machine has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from porter.build.table import ResourceRow
from porter.report.tables import Fitted, plain_table
from porter.verify.compare import Comparison
from porter.verify.expr import Number
from porter.verify.hazards import HazardRun
from porter.verify.outcome import Verdict
from porter.verify.results import Row, VerifyResult

_VERDICT_STYLES = {
    Verdict.CLEAN: "green",
    Verdict.REVIEW: "yellow",
    Verdict.INCOMPLETE: "magenta",
    Verdict.ERROR: "bold red",
}


def sizes_text(sizes: Mapping[str, Number]) -> str:
    """`M=128 N=256`."""
    return " ".join(f"{name}={value}" for name, value in sizes.items())


def verdict_text(verdict: Verdict) -> Text:
    return Text(verdict.value, style=_VERDICT_STYLES[verdict])


def verdict_tables(result: VerifyResult) -> Iterator[Text | Table]:
    """A line for each input family, below one with its case and size. A column that no row fills is left out."""
    columns = _verdict_columns(result)
    cells = [[column.cell(row) for column in columns] for row in result.rows]
    widths = [max([len(c.heading), *(cell_len(line) for row in cells for line in str(row[i]).split("\n"))])
              for i, c in enumerate(columns)]  # fmt: skip
    rows = zip(result.rows, cells, strict=True)
    for n, ((case, sizes), same) in enumerate(groupby(rows, lambda r: (r[0].case, sizes_text(r[0].sizes)))):
        yield Text.assemble(("\n" if n else ""), (case, "bold"), f"  {sizes}" if sizes else "")
        table = Fitted(box=None, pad_edge=False, show_edge=False, show_header=not n, header_style="dim",
                       beside=("verdict",))  # fmt: skip
        for column, width in zip(columns, widths, strict=True):
            table.add_column(column.heading, overflow="fold", min_width=min(width, _WIDEST))
        for _, row in same:
            table.add_row(*row)
        yield table


_WIDEST = 32
"""Columns that a cell takes for itself, to stand below those of other tables."""


@dataclass(frozen=True)
class _Column:
    heading: str
    cell: Callable[[Row], str | Text]


def _verdict_columns(result: VerifyResult) -> list[_Column]:
    columns = [_Column("inputs", lambda row: row.inputs)]
    whole = any(row.between and not row.original for row in result.rows)
    has_port = any(row.port for row in result.rows)
    if not whole:
        columns.append(_Column("original / reference", lambda row: comparisons_text(row.original)))
        if has_port:
            columns.append(_Column("port / reference", lambda row: comparisons_text(row.port)))
    if whole or has_port:
        columns.append(_Column("port / original", lambda row: comparisons_text(row.between)))
    if any(row.hazards for row in result.rows):
        columns.append(_Column("hazards", lambda row: hazards_text(row.hazards)))
    return [*columns, _Column("verdict", lambda row: verdict_text(row.verdict))]


def hazards_text(runs: Sequence[HazardRun]) -> Text:
    """`clean`, or what was found in which program; empty where nothing was checked."""
    bad = [r for r in runs if r.verdict is not Verdict.CLEAN]
    if not bad:
        return Text("clean" if runs else "", style="" if runs else "dim")
    lines = [f"{r.program}: {_kinds(r) or r.verdict.value}" for r in bad]
    return Text("\n".join(lines), style="red" if any(r.counted is Verdict.ERROR for r in bad) else "yellow")


def _kinds(run: HazardRun) -> str:
    """`H16, H27 (also in the original)`."""
    names = sorted({h.kind.id for h in run.hazards})
    had = sorted({i.hazard.kind.id for i in run.inherited})
    return ", ".join([*names, *([f"{', '.join(had)} (also in the original)"] if had else [])])


def comparisons_text(comparisons: Sequence[Comparison]) -> Text:
    """The worst of a row's outputs; with several outputs each stands under its name."""
    if not comparisons:
        return Text("not compared", style="dim")
    several = len(comparisons) > 1
    lines = [(f"{c.tensor}: " if several else "") + comparison_text(c) for c in comparisons]
    style = "" if all(c.ok for c in comparisons) else "red"
    return Text("\n".join(lines), style=style)


def comparison_text(c: Comparison) -> str:
    """`same bits`, `equal`, `within bound (3e-08)`, `12 of 4096 differ`. The figure is the largest error
    over the
    sum of the absolute values of the terms: ULPs say little where large terms cancel."""
    if not c.ok:
        what = f"{c.mismatches} of {c.elements} differ"
        if c.unwritten:
            return f"{what}, {c.unwritten} unwritten"
        if c.nans:
            return f"{what}, {c.nans} NaN"
        return f"{what}, up to {c.max_ulps} ulp" if c.max_ulps else what
    if c.kind == "bits":
        return "same bits"
    if c.kind == "exact":
        return "equal"
    return f"within bound ({c.max_scaled:.1e})"


def summary_line(result: VerifyResult) -> Text:
    """What the table comes to, with what is needed to run it again."""
    counts = {v: sum(row.verdict is v for row in result.rows) for v in Verdict}
    parts = [f"{n} {v.value}" for v, n in counts.items() if n]
    if result.errors:
        parts.append(f"{len(result.errors)} not run")
    if result.earlier:
        parts.append(f"{len(result.earlier)} of the earlier run")
    text = Text("verdict: ")
    text.append_text(verdict_text(result.verdict))
    text.append(f" ({', '.join(parts) or 'nothing was run'})")
    text.append(
        f"  backend {result.backend}, schedule {result.schedule}, arithmetic {result.arithmetic}, "
        f"seed {result.seed}, {result.seconds:.1f} s",
        style="dim",
    )
    return text


def resource_table(rows: Iterable[ResourceRow]) -> Table:
    """Registers, spills, stack, shared memory and barriers of each kernel: baseline, port, difference."""
    table = plain_table("kernel", "", overflow="fold")
    rows = list(rows)
    has_port = any(m.after is not None for row in rows for m in row.metrics)
    for heading in ["baseline", "port", "delta"] if has_port else ["baseline"]:
        table.add_column(heading, justify="right")
    for row in rows:
        for i, metric in enumerate(row.metrics):
            cells: list[str | Text] = [_count(metric.before)]
            if has_port:
                cells += [_count(metric.after), _delta(metric.delta)]
            table.add_row(row.kernel if i == 0 else "", metric.heading, *cells)
        if row.room is not None:
            before, after = row.room.before, row.room.after
            by = before.by if before.by == after.by else f"{before.by} → {after.by}"
            change = after.blocks - before.blocks
            delta = Text(f"{change:+d}" if change else "0", style="red" if change < 0 else "" if change else "dim")
            heading = f"CTAs an SM{' at most' if row.room.at_most else ''}, by {by}"
            table.add_row("", heading, str(before.blocks), str(after.blocks), delta)
        table.add_section()
    return table


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _delta(value: int | None) -> Text:
    if value is None:
        return Text("-", style="dim")
    return Text(f"{value:+d}" if value else "0", style="red" if value > 0 else "green" if value < 0 else "dim")


def histogram_text(c: Comparison) -> str:
    """`0: 4090, <=1: 6`: how many elements lie how many ULPs apart."""
    from porter.verify.compare import ULP_BINS

    labels = [f"<={n}" if n else "0" for n in ULP_BINS] + [f">{ULP_BINS[-1]}"]
    return ", ".join(f"{label}: {n}" for label, n in zip(labels, c.histogram, strict=True) if n)


def detail_lines(row: Row) -> list[str]:
    """Figures of a row for `-v`: ULP histograms, largest errors, what ran for how long."""
    lines = [f"{row.case} {sizes_text(row.sizes)} {row.family} (seed {row.seed}, {row.controls} controls)"]
    for name, comparisons in (("original", row.original), ("port", row.port), ("between", row.between)):
        lines += [
            f"  {name} {c.tensor}: ulp {histogram_text(c)}; largest error {c.max_error:.3g}, "
            f"{c.max_scaled:.3g} of the sum of magnitudes, {c.max_ratio:.3g} of the bound"
            for c in comparisons
        ]
    lines += [
        f"  ran {run.program} ({run.arch}) on {run.backend}: {run.status}, "
        f"{run.warp_instructions} warp instructions in {run.seconds:.2f} s"
        for run in row.runs
    ]
    return lines
