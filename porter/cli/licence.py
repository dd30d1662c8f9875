# SPDX-License-Identifier: Apache-2.0
"""The licence of M=128 MMAs without a run: a port that is equal to its original on PTX, with proved synchronization of
both, at several sizes of each launch that is known."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from porter.cli.context import Session
from porter.cli.judging import judged
from porter.diagnostics import Diagnostic
from porter.passes.ported import Ported, PortedRoot
from porter.tune.full_rate import equal, own_words
from porter.tune.staging import port_plan
from porter.tune.verifying import Compares, unsaid
from porter.verify.gate import GateOptions
from porter.verify.refusals import told_by_launches


def licence(session: Session, options: GateOptions, seconds: float) -> Compares | None:
    """What says that ports may have M=128 MMAs where no run can; nothing where no time is given."""
    return partial(licensed, session, options=options, seconds=seconds) if seconds else None


def licensed(
    session: Session, ported: Ported, root: PortedRoot, left: float | None, options: GateOptions, seconds: float
) -> Diagnostic | str:
    """What says that the port of a root may have M=128 MMAs, or why nothing does. All kernels that the compiler makes
    of the file are looked at, and all sizes that turns follow in the time that is left."""
    plan = port_plan(session, ported, root)
    if what := unsaid(session, plan, root):
        return what
    found = judged(session, Path(root.path), plan, (), left, options, seconds, for_all=True, alike=root.alike,
                   as_original=root.idiomatic)  # fmt: skip
    if found.status == "equal" and root.joined and (what := told_by_launches(Path(root.path), options)):
        return what
    if found.status != "equal":
        return found.what
    return equal(root.path, found.what, own_words(root)) if root.idiomatic else equal(root.path, found.what)
