# SPDX-License-Identifier: Apache-2.0
"""The steps of `--style native`, in their order: each is taken for all kernels of a source set, or left out with the
fact that is missing."""

from __future__ import annotations

from dataclasses import dataclass

from porter.diagnostics import Code
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native import double_buffer, mma_thread, release, stages
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Left

_TAKES = {release.NAME: release.take, mma_thread.NAME: mma_thread.take, double_buffer.NAME: double_buffer.take}
STEPS = (release.NAME, mma_thread.NAME, double_buffer.NAME, stages.NAME)
"""Names of the steps that the port has."""


@dataclass(frozen=True)
class Taken:
    """Names of the steps that kernels have, and the number of their stages where one of them changed it, else 0."""

    steps: tuple[str, ...] = ()
    stages: int = 0


def take(context: PortContext, moves: Moves, wanted: tuple[str, ...], count: int = 0) -> Taken:
    """Take the wanted steps; `count` stages, where 0 leaves them as many as they are."""
    taken: list[str] = []
    made = 0
    for name in (n for n in STEPS if n in wanted and context.kernels and (count or n != stages.NAME)):
        helpers, edits = dict(vars(context.helpers)), {rule: list(found) for rule, found in context.edits.items()}
        try:
            found = [Pipelined(context, k, moves) for k in context.kernels]
            if name == stages.NAME:
                changes, made = stages.take(context, found, count)
            else:
                changes = _TAKES[name](context, found)
            changes.make()
        except Left as left:
            vars(context.helpers).update(helpers)
            context.edits = edits
            names = ", ".join(k.function.name for k in context.kernels)
            context.report(Code.NATIVE_LEFT, left.function, left.span, kernel=names, step=name, what=left.what)
        else:
            taken.append(name)
    return Taken(tuple(taken), made if stages.NAME in taken else 0)
