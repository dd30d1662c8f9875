# SPDX-License-Identifier: Apache-2.0
"""The steps of `--style native`, in their order: each is taken for all kernels of a source set, or left out with the
fact that is missing."""

from __future__ import annotations

from dataclasses import dataclass

from porter.diagnostics import Code
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native import promotion, registers, release, stages
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Left

STEPS = (release.NAME, stages.NAME, registers.NAME)
"""Names of the steps that the port has."""

ON_REQUEST = (promotion.NAME,)
"""Those that are taken only where they are asked for by name, ahead of the others: results differ with them."""


@dataclass(frozen=True)
class Taken:
    """Names of the steps that kernels have; the number of their stages, and the registers that warps which give some
    back keep, where a step changed it, else 0."""

    steps: tuple[str, ...] = ()
    stages: int = 0
    registers: int = 0


def take(context: PortContext, moves: Moves, wanted: tuple[str, ...], count: int = 0, least: int = 0) -> Taken:
    """Take the wanted steps; `count` stages, and `least` registers for warps that give some back, where 0 leaves as
    many as there are."""
    taken: list[str] = []
    made = 0
    numbers = {stages.NAME: count, registers.NAME: least}
    for name in (n for n in (*ON_REQUEST, *STEPS) if n in wanted and context.kernels and numbers.get(n, 1)):
        helpers, loads = dict(vars(context.helpers)), dict(moves.loads)
        try:
            if name == promotion.NAME:
                changes = promotion.take(context, moves)
            elif name == stages.NAME:
                changes, made = stages.take(context, _pipelined(context, moves), count)
            elif name == registers.NAME:
                changes = registers.take(context, least)
            else:
                changes = release.take(context, _pipelined(context, moves))
            changes.make()
        except Left as left:
            vars(context.helpers).update(helpers)
            moves.loads = loads
            names = ", ".join(k.function.name for k in context.kernels)
            context.report(Code.NATIVE_LEFT, left.function, left.span, kernel=names, step=name, what=left.what)
        else:
            taken.append(name)
    return Taken(tuple(taken), made if stages.NAME in taken else 0, least if registers.NAME in taken else 0)


def _pipelined(context: PortContext, moves: Moves) -> list[Pipelined]:
    return [Pipelined(context, k, moves) for k in context.kernels]
