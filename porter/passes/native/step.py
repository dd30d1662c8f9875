# SPDX-License-Identifier: Apache-2.0
"""The steps of `--style native`, in their order: each is taken for all kernels of a source set, or left out with the
fact that is missing."""

from __future__ import annotations

from collections.abc import Callable

from porter.diagnostics import Code
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native import release
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Changes, Left

_Take = Callable[[PortContext, list[Pipelined]], Changes]
_STEPS: dict[str, _Take] = {release.NAME: release.take}
STEPS = tuple(_STEPS)
"""Names of the steps that the port has."""


def take(context: PortContext, moves: Moves, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Take the wanted steps; gives the names of those that were."""
    taken = []
    for name in (n for n in STEPS if n in wanted and context.kernels):
        helpers = dict(vars(context.helpers))
        try:
            _STEPS[name](context, [Pipelined(context, k, moves) for k in context.kernels]).make()
        except Left as left:
            vars(context.helpers).update(helpers)
            names = ", ".join(k.function.name for k in context.kernels)
            context.report(Code.NATIVE_LEFT, left.function, left.span, kernel=names, step=name, what=left.what)
        else:
            taken.append(name)
    return tuple(taken)
