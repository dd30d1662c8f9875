# SPDX-License-Identifier: Apache-2.0
"""`--style full-rate`: the cases beside a kernel verify its M=128 MMAs, in the run that gives them."""

from __future__ import annotations

from pathlib import Path

from porter.build.port_plan import PortPlan
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session
from porter.diagnostics import Diagnostic
from porter.passes.full_rate.given import Make, given, proved, unproved
from porter.passes.ported import Ported, PortedRoot
from porter.verify.builder import Builder
from porter.verify.proof import Claim, prove
from porter.verify.runner import ProgressCall


def verified(session: Session, ported: Ported, make: Make) -> Ported:
    """The port with M=128 MMAs where cases verify them."""
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)

    def verify(ported: Ported, root: PortedRoot) -> Diagnostic:
        with session.progress() as tell:
            return run(ported, root, builder, tell)

    return given(ported, make, verify)


def run(ported: Ported, root: PortedRoot, builder: Builder, tell: ProgressCall | None = None) -> Diagnostic:
    """What verified the M=128 MMAs of a root, or why nothing did."""
    plan = PortPlan(files=ported.of_root(root), keeps_hopper=ported.keeps_hopper)
    proof = prove(Claim(Path(root.path), root.full_rate, plan, root.include_dirs), builder, tell)
    if proof.missing:
        return unproved(root.path, proof.missing)
    return proved(root.path, ", ".join(proof.cases), proof.sizes)
