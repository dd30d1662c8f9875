# SPDX-License-Identifier: Apache-2.0
"""Steps of the native style for each kernel of a file, as its port is proposed: which the port has, and what keeps it
from others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from porter.diagnostics import Code
from porter.passes.full_rate.step import wide_steps
from porter.passes.native.step import chosen_alone, steps_for
from porter.passes.plan import KernelPlan
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.rules.rule import Rule
from porter.steps.step import Step


@dataclass(frozen=True)
class Planned:
    """A step, with the ID and the title of its rule. `port`: whether the port has it, if it is judged to be right;
    `why` not."""

    name: str
    rule: str
    title: str
    port: Literal["yes", "where it is faster", "on request", "no"]
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class NativePlan:
    """The steps of one kernel."""

    kernel: str
    where: str
    steps: tuple[Planned, ...]


def native_plans(
    result: PortResult, options: PortOptions, room: Mapping[str, int | str], rules: Sequence[Rule]
) -> list[NativePlan]:
    """Steps that are taken only where the grade finds them faster are looked at in a port with all of them. `room`: by
    kernel, as many stages as its ring may have, or what keeps it from more."""
    root, titles = result.sources.root, {rule.id: rule.title for rule in rules}
    counts = frozenset((root, most) for most in room.values() if isinstance(most, int))
    chosen = frozenset((root, name) for name in chosen_alone())
    trial = port_sources(result.sources, replace(options, chosen=chosen, stages=counts)) if result.plans else result
    found = []
    for plan in result.plans:
        why = () if plan.has_full_rate else tuple(_said(result, Code.FULL_RATE_LEFT, plan.kernel))
        rule = wide_steps()["two-tiles" if plan.has_full_rate and not plan.joined else "two-consumers"].rule
        m128 = Planned("m128", rule, titles[rule], "yes" if plan.has_full_rate else "no", why)
        # in SM100's own words MMAs have these rows anyway, and steps of CuTe C++ go on from there alone
        steps = [] if plan.mode or any(_said(result, Code.IDIOM_LEFT, plan.kernel)) else [m128]
        for step in steps_for("cute") if plan.mode else steps_for("cuda") if steps else ():
            steps += _planned(step, titles.get(step.rule, ""), plan, result, trial, room.get(plan.kernel, ""))
        found.append(NativePlan(plan.kernel, f"{plan.path}:{plan.line}", tuple(steps)))
    return found


def _planned(
    step: Step, title: str, plan: KernelPlan, result: PortResult, trial: PortResult, room: int | str
) -> Iterator[Planned]:
    missing = step.lacking(plan)
    if step.name in plan.native:
        yield Planned(step.name, step.rule, title, "yes")
    elif step.on_request:
        if missing is not None:
            asks = f"`{step.on_request}` asks for it"
            yield Planned(step.name, step.rule, title, *(("no", (missing,)) if missing else ("on request", (asks,))))
    else:
        tried = trial if step.chosen or step.asked else result
        has = any(step.name in p.native for p in tried.plans if (p.kernel, p.path) == (plan.kernel, plan.path))
        why = tuple(_said(tried, Code.NATIVE_LEFT, plan.kernel, step.name))
        if step.asked and step.changes.more_stages and isinstance(room, str) and not plan.mode:
            why = (room or "a ring of mbarriers",)
        yield Planned(step.name, step.rule, title, "where it is faster" if has or not why else "no", () if has else why)


def _said(result: PortResult, code: Code, kernel: str, step: str = "") -> Iterator[str]:
    """What is missing of a kernel, or of one of its steps."""
    for one in result.diagnostics:
        about = one.code is code and one.values.get("step", "") == step
        if about and kernel in str(one.values["kernel"]).split(", "):
            yield str(one.values["what"])
