# SPDX-License-Identifier: Apache-2.0
"""Which port files get, in the style that is asked for: the one that `porter port` writes is what others show."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from porter.build.port_plan import PortPlan
from porter.cli.context import Session, styled
from porter.cli.judging import judge
from porter.cli.licence import licence
from porter.cli.porting import plan_in
from porter.diagnostics import Code, Diagnostic
from porter.passes.ported import Ported
from porter.tune.automatic import SECONDS, Auto, made, unrun, untried
from porter.tune.styles import AUTO, COMPAT, FULL_RATE, IDIOMATIC, NATIVE
from porter.tune.verifying import verified
from porter.verify.budget import Budget
from porter.verify.case import Case
from porter.verify.gate import GateOptions

UNCOMPILED = "with `--no-compile` nothing is run"


def port_in_style(
    session: Session, make: Callable[..., Ported], held: str, seconds: float | None, options: GateOptions,
    proves: float,
) -> Ported:  # fmt: skip
    """The port in the session's style. `held`: why nothing is run. `seconds`: how long runs prove it, None where nobody
    says. `proves`: for how many seconds PTX is looked at, 0 for not at all. `options`: how originals are compiled.

    Raises:
        PorterError: what porting, compiling and running raise.
    """
    compares = licence(session, options, proves)
    auto = session.style == AUTO
    held = held or (unrun(session) if auto else "")
    compat = auto and bool(held)
    with styled(COMPAT) if compat else nullcontext(), session.counting() as counted:
        first = partial(make, tell=partial(counted, "porting") if counted is not None else None)
        ported = made(session, first) if auto else first()
    if compat:
        halved = any(d.code is Code.HALF_RATE for d in ported.diagnostics) or any(r.dsl for r in ported.changed_roots)
        if halved:
            ported.diagnostics.append(untried("all kernels", held))
        return ported
    if auto:
        return Auto(session, Budget.of_work(SECONDS if seconds is None else seconds), compares=compares).choose(
            ported, make
        )
    if session.style in (FULL_RATE, IDIOMATIC, NATIVE):
        return verified(session, ported, make, Budget.of_work(seconds), compares, judge(session, options, proves))
    return ported


def as_launched(session: Session, ported: Ported, case: Case) -> tuple[PortPlan | None, list[Diagnostic]]:
    """A port as a case launches it, with what is said of it; None if the case's kernel was left."""
    plan = plan_in(session, ported, case)
    if plan is None:
        return None, [Diagnostic(Code.PORT_INCOMPLETE, None, {"path": str(case.to_port)}), *ported.diagnostics]
    return plan, [d for d in ported.diagnostics if d.code is not Code.NOTHING_TO_PORT]
