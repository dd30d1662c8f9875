# SPDX-License-Identifier: Apache-2.0
"""Calibrations of the grade's model as text and JSON: predicted beside measured, and the constants that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from porter.grade.calibration import Point, mean_error
from porter.grade.chips import values
from porter.report.tables import plain_table
from porter.verify.kit.record import Held, KitRecord


def text(
    record: KitRecord, constants: Mapping[str, float], before: Sequence[Point], after: Sequence[Point],
    whole: Sequence[Point], left_out: Sequence[Held],
) -> Iterator[RenderableType]:  # fmt: skip
    """Clocks of a stage `before` and `after` fitting, shares of the nominal rate of the `whole` chip, and constants."""
    yield Text(f"{record.name}, driver {record.device.get('driver')}")
    table = plain_table("kernel", "", "measured", "predicted", "before")
    for p, b in sorted(zip(after, before, strict=True), key=lambda pair: not pair[0].fitted):
        table.add_row(p.name, "fitted" if p.fitted else "held out", f"{p.measured:.0f}", f"{p.predicted:.0f}",
                      f"{b.predicted:.0f}")  # fmt: skip
    yield Text("clocks of a stage of K")
    yield table
    for name, some in (("fitted", [p for p in after if p.fitted]), ("held out", [p for p in after if not p.fitted])):
        if some:
            yield Text(f"{name}: {len(some)} points, mean error {100 * mean_error(some):.1f} %")
    rows = plain_table("% of nominal, held out", "measured", "predicted")
    for p in whole:
        rows.add_row(p.name, f"{p.measured:.1f}", f"{p.predicted:.1f}")
    yield rows
    changed = plain_table("constant", "was", "is")
    for name, value in constants.items():
        changed.add_row(name, f"{values()[name]:g}", f"{value:.4g}")
    yield changed
    yield from (Text(f"not used: {h.run.label}: {h.what or h.verdict}") for h in left_out)


def body(
    before: Sequence[Point], after: Sequence[Point], whole: Sequence[Point], left_out: Sequence[Held]
) -> dict[str, Any]:
    """What the JSON document holds of it."""
    return {
        "clocks_per_stage": [_point(p, b) for p, b in zip(after, before, strict=True)],
        "percent_of_nominal": [_point(p) for p in whole],
        "left_out": [{"label": h.run.label, "verdict": h.verdict, "what": h.what} for h in left_out],
    }


def _point(p: Point, before: Point | None = None) -> dict[str, object]:
    found: dict[str, object] = {"kernel": p.name, "fitted": p.fitted, "measured": p.measured, "predicted": p.predicted}
    return found if before is None else found | {"predicted_before": before.predicted}
