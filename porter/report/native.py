# SPDX-License-Identifier: Apache-2.0
"""Steps towards a kernel as it is written for sm_100a, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from porter.report.grade import TRUST, percent

NOT_REWRITTEN = "not rewritten by Porter"
_SAID = {True: "yes", False: "no", None: "unknown"}


class Step(Protocol):
    """What is said of a step."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def applies(self) -> bool | None: ...
    @property
    def why(self) -> tuple[str, ...]: ...
    @property
    def what_if(self) -> str: ...
    @property
    def reference(self) -> str: ...
    @property
    def port(self) -> str: ...


@dataclass(frozen=True)
class Gain:
    """A step with the share of the nominal rate before and after it, None where it is not graded; `not_graded` says
    why."""

    step: Step
    before: float | None = None
    after: float | None = None
    not_graded: str = ""


@dataclass(frozen=True)
class NativePlan:
    """The steps of one kernel. `graded`: what grades are of, or why there are none."""

    kernel: str
    where: str
    gains: tuple[Gain, ...]
    graded: str


def text(plan: NativePlan) -> Iterator[RenderableType]:
    """A table of the steps."""
    yield Text.assemble((plan.kernel, "bold"), f"  {plan.where}")
    table = Table("step", "what", "applies", "port", "% of nominal", "because", box=None)
    for column in table.columns:
        column.overflow = "fold"
    for gain in plan.gains:
        step = gain.step
        why = "; ".join([*step.why, *([gain.not_graded] if gain.not_graded else [])])
        port = step.port or NOT_REWRITTEN
        table.add_row(step.name, step.title, _SAID[step.applies], port, _rates(gain), why)
    yield table
    rated = any(g.after is not None for g in plan.gains)
    yield Text(f"  grades {plan.graded}; {TRUST}" if rated else f"  no grades: {plan.graded}")


def _rates(gain: Gain) -> str:
    if gain.before is None or gain.after is None:
        return "-"
    return f"{percent(gain.before)} to {percent(gain.after)}"


def body(plan: NativePlan) -> dict[str, Any]:
    """What the JSON document holds."""
    return {
        "kernel": plan.kernel,
        "where": plan.where,
        "graded": plan.graded,
        "steps": [_step(gain) for gain in plan.gains],
    }


def _step(gain: Gain) -> dict[str, Any]:
    step = gain.step
    return {
        "name": step.name,
        "title": step.title,
        "applies": step.applies,
        "why": list(step.why),
        "what_if": step.what_if,
        "reference": step.reference,
        "port": step.port or None,
        "before": None if gain.before is None else round(100 * gain.before, 2),
        "after": None if gain.after is None else round(100 * gain.after, 2),
        "not_graded": gain.not_graded,
    }
