# SPDX-License-Identifier: Apache-2.0
"""Steps towards a kernel as it is written for sm_100a, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from porter.passes.planned import NativePlan
from porter.report.tables import bare_table


def text(plan: NativePlan) -> Iterator[RenderableType]:
    """A table of the steps."""
    yield Text.assemble((plan.kernel, "bold"), f"  {plan.where}")
    table = bare_table("step", "rule", "what", "in the port", "because")
    for step in plan.steps:
        table.add_row(step.name, step.rule, step.title, step.port, "; ".join(step.why))
    yield table
    yield Text("  what each brings, and whether it is right: `--steps`")


def body(plan: NativePlan) -> dict[str, Any]:
    """What the JSON document holds."""
    return asdict(plan) | {"steps": [asdict(step) | {"why": list(step.why)} for step in plan.steps]}
