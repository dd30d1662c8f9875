# SPDX-License-Identifier: Apache-2.0
"""From M=64 to M=128, for all kernels of a source set: what steps propose, or the facts that are missing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from porter.diagnostics import Code
from porter.passes.context import PortContext
from porter.passes.full_rate.permuting import permute
from porter.passes.full_rate.proposing import HostSide, Proposal
from porter.passes.full_rate.two_consumers import two_consumers
from porter.passes.full_rate.two_tiles import two_tiles
from porter.passes.needs import Common
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.steps.step import Step, discovered


@cache
def wide_steps() -> dict[str, Step]:
    """The steps to M=128 MMAs by their names, in their order."""
    return {s.name: s for s in discovered("porter.steps") if s.style == "full-rate"}


def wide_rules() -> set[str]:
    return {step.rule for step in wide_steps().values()}


@dataclass(eq=False)
class Proposing:
    """What a step looks at, and the `proposal` that it makes, or goes on from."""

    context: PortContext
    common: Common
    host: HostSide
    proposal: Proposal | None = None

    def two_tiles(self) -> None:
        self.proposal = two_tiles(self.context, self.common)

    def two_consumers(self) -> None:
        """Where the tiles are not those of a warpgroup."""
        self.proposal = self.proposal or two_consumers(self.context, self.common)

    def rows_of_a(self) -> None:
        if self.proposal is not None:
            permute(self.context, self.proposal, self.host)


def take(context: PortContext, common: Common, host: HostSide | None = None) -> bool:
    """Whether the kernels run M=128 MMAs; what a fact is missing for stays as it is, and is named."""
    if not context.kernels:
        return False
    wide = Proposing(context, common, host or HostSide())
    for step in wide_steps().values():
        assert step.write is not None
        step.write(wide)
    found = wide.proposal
    names = ", ".join(k.function.name for k in context.kernels)
    missing = [*found.missing, *found.rows] if found is not None else []
    if found is None or (missing and not found.permuted):
        for one in {(m.function.file.path, m.span, m.what): m for m in missing}.values():
            context.report(Code.FULL_RATE_LEFT, one.function, one.span, kernel=names, what=one.what)
        return False
    if found.permuted:
        why = found.rows[0]
        context.report(Code.FULL_RATE_PERMUTED, why.function, why.span, kernel=names, what=why.what)
        context.edits.setdefault(wide_steps()["rows-of-a"].rule, []).extend(found.permuted)
        context.helpers.permuted = True
    edits = [*found.edits, *(() if found.permuted else found.row_edits)]
    if edits or not found.permuted:
        rule = wide_steps()["two-tiles" if found.stacked else "two-consumers"].rule
        context.edits.setdefault(rule, []).extend(edits)
    context.helpers.stacked, context.helpers.joined = found.stacked, not found.stacked
    if not found.stacked:
        context.helpers.issuer = context.kernels[0].roles.first * (WARPGROUP // WARP)
    return True
