# SPDX-License-Identifier: Apache-2.0
"""Steps of the native style for kernels with a case, each with what the grade says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from porter.cli.context import COMPAT, Session, current, styled
from porter.cli.grading import of_case
from porter.cli.porting import plan_of_case
from porter.diagnostics import PorterError
from porter.grade.calibration_file import Calibration
from porter.grade.shape import Problem, Shape
from porter.grade.stages import best_count
from porter.grade.whatif import apply
from porter.passes.native.ahead import NAME as AHEAD
from porter.passes.native.blocks import NAME as BLOCKS
from porter.passes.native.blocks import SHARED_OUT
from porter.passes.native.bulk_store import NAME as BULK_STORE
from porter.passes.native.registers import NAME as REGISTERS
from porter.passes.native.stages import NAME as STAGES
from porter.passes.native.wide import NAME as WIDE
from porter.passes.plan import KernelPlan
from porter.report.native import Gain, NativePlan
from porter.scan.native import Step, native_steps
from porter.scan.pipeline import KernelPipeline
from porter.tune.candidates import calibration_of, grade_with
from porter.tune.choosing import GAIN
from porter.tune.staging import problem_of
from porter.verify.case import cases_if_any, load_case


class Missing(Protocol):
    """What keeps a port from so many stages; empty if it has them."""

    def __call__(self, count: int) -> str: ...


Refused = Callable[[str], str]
"""What keeps a port from a step of this name, as far as its text says; empty if nothing does."""


def native_plans(
    session: Session,
    path: Path,
    kernels: Sequence[KernelPipeline],
    plans: Sequence[KernelPlan],
    missing: Missing,
    refused: Refused,
) -> list[NativePlan]:
    """The steps of each kernel of a file, and by its plans which of them ports have. Grades need a case beside it and a
    compiler; without them there are none, and nobody knows how many stages are best."""
    by_name = {p.kernel: p for p in plans}
    shapes, reason = _shapes(session, path) if kernels else ({}, "")
    found = []
    for one in kernels:
        known = one.pipeline
        shape, why = shapes.get(known.kernel, (None, reason or "the kernel has no case"))
        ported = by_name.get(known.kernel)
        steps = native_steps(one)
        if ported is not None:
            # whether a port spills, only compiling what a case asks for tells
            later = (REGISTERS,) if known.kernel in shapes else ()
            steps = native_steps(one, (*ported.steps, *later), ported.promotion, ported.scales)
        plan = NativePlan(known.kernel, known.where, tuple(Gain(step) for step in steps), why)
        found.append(plan if shape is None else _graded(session, plan, shape, missing, refused))
    return found


def _shapes(session: Session, path: Path) -> tuple[dict[str, tuple[Shape | None, str]], str]:
    """By kernel, what the grade takes of its port for sm_100a, or what it lacks; else why there is nothing at all."""
    found: dict[str, tuple[Shape | None, str]] = {}
    try:
        for item in cases_if_any(path):
            case = load_case(item)
            name = case.entry.rsplit("::", 1)[-1]
            if name in found:
                continue
            with styled(COMPAT):
                candidates, notes = of_case(current(), case, None, partial(plan_of_case, stages=False))
            port = next((c for c in candidates if c.label == "port"), None)
            if port is None:
                found[name] = None, "; ".join(n.message for n in notes) or "the kernel has no port"
                continue
            shape = port.reading.shape
            found[name] = (None, "; ".join(port.gaps)) if shape is None or port.gaps else (shape, "")
    except PorterError as error:
        return found, error.diagnostic.message
    return found, ""


def _staged(step: Step, shape: Shape, problem: Problem, using: Calibration | None, missing: Missing) -> Step:
    """The step to the number of stages that the grade finds best."""
    most = int(step.what_if.partition("=")[2])
    held = shape.stages or 1
    best = best_count(shape, range(held, most + 1), lambda s: grade_with(s, problem, using, lifts=False).rate)
    if best <= held:
        return replace(step, applies=False, why=(*step.why, f"by the grade {held} are as fast as {most}"))
    what = missing(best)
    why = (*step.why, f"by the grade {best} are as fast as {most}") if best < most else step.why
    return replace(step, what_if=f"stages={best}", taken=not what, why=(*why, f"missing: {what}") if what else why)


_AS_FAST = {
    BLOCKS: "one block on an SM is as fast",
    BULK_STORE: "results leave as fast without",
    AHEAD: "its loops are as fast without",
    WIDE: "tiles as they are are as fast",
}
"""What the grade says where a step brings nothing."""
_SPILLING = (BLOCKS, AHEAD)
"""Steps that take registers."""


def _if_faster(step: Step, before: float, after: float, refused: Refused) -> Step:
    """A step that is taken if the grade finds it faster, and the text allows it."""
    if after <= before * (1 + GAIN):
        return replace(step, applies=False, why=(*step.why, f"by the grade {_AS_FAST[step.name]}"))
    what = refused(step.name)
    said = [f"missing: {what}"] if what else ["if ptxas spills no more than without"] if step.name in _SPILLING else []
    return replace(step, taken=not what, why=(*step.why, *said))


_CHOSEN = dict.fromkeys(_AS_FAST, _if_faster)
"""Steps that are taken only where they are faster."""


def _graded(session: Session, plan: NativePlan, shape: Shape, missing: Missing, refused: Refused) -> NativePlan:
    """The plan with the grade before and after each step that applies, on top of those in front of it that the port
    has. Whether tiles are wider is decided by all steps together, as it is for the port."""
    gains, rate = _on_top(session, plan.gains, shape, missing, refused)
    if any(g.step.name == WIDE and g.step.port for g in gains):
        narrow = tuple(_as_they_are(g) if g.step.name == WIDE else g for g in plan.gains)
        others, without = _on_top(session, narrow, shape, missing, refused)
        if rate <= without * (1 + GAIN):
            gains = others
    return replace(
        plan, gains=gains, graded=f"of {problem_of(session)}, each step on top of those above it that the port has"
    )


def _as_they_are(gain: Gain) -> Gain:
    assert isinstance(gain.step, Step)
    why = (*gain.step.why, f"by the grade {_AS_FAST[WIDE]}, with the other steps")
    return replace(gain, step=replace(gain.step, applies=False, taken=False, why=why))


def _on_top(
    session: Session, plan: Sequence[Gain], shape: Shape, missing: Missing, refused: Refused
) -> tuple[tuple[Gain, ...], float]:
    """Steps with their grades, and the one of a port with all that it can have of them."""
    using, problem = calibration_of(session, None), problem_of(session)
    rate = grade_with(shape, problem, using, lifts=False).rate
    shared = False
    gains = []
    for gain in plan:
        step = gain.step
        if not step.applies:
            gains.append(gain)
            continue
        if isinstance(step, Step) and step.name == REGISTERS and shared:
            gains.append(replace(gain, step=replace(step, applies=False, taken=False, why=(*step.why, SHARED_OUT))))
            continue
        if not step.what_if:
            gains.append(replace(gain, not_graded="the grade's model has no such change"))
            continue
        if isinstance(step, Step) and step.name == STAGES:
            step = _staged(step, shape, problem, using, missing)
            gain = replace(gain, step=step)
            if not step.applies:
                gains.append(gain)
                continue
        try:
            changed, _ = apply(step.what_if, shape, problem)
            after = grade_with(changed, problem, using, lifts=False).rate
        except ValueError as error:
            if isinstance(step, Step) and step.name in _CHOSEN:
                gains.append(replace(gain, step=replace(step, applies=False, why=(*step.why, str(error)))))
            else:
                gains.append(replace(gain, not_graded=str(error)))
            continue
        if isinstance(step, Step) and step.name in _CHOSEN:
            step = _CHOSEN[step.name](step, rate, after, refused)
            gain = replace(gain, step=step)
            if not step.applies:
                gains.append(gain)
                continue
            shared = shared or (step.name == BLOCKS and step.taken)
        gains.append(replace(gain, before=rate, after=after))
        if step.port:
            shape, rate = changed, after
    return tuple(gains), rate
