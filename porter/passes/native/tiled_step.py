# SPDX-License-Identifier: Apache-2.0
"""The steps of `--style native` for kernels whose MMAs are tiled MMAs of a library."""

from __future__ import annotations

from collections.abc import Callable

from porter.diagnostics import Code
from porter.passes.moves import Moves
from porter.passes.native import (
    double_buffer,
    mma_thread,
    pair,
    release,
    stages,
    tiled_mma_thread,
    tiled_release,
    tiled_stages,
)
from porter.passes.native.sites import Left
from porter.passes.native.step import STEPS, Taken
from porter.passes.native.tiled_mainloop import TiledPipelined
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.full_rate import as_kernel

Take = Callable[[TiledContext, list[TiledPipelined]], None]
_TAKES: dict[str, Take] = {
    release.NAME: tiled_release.take,
    mma_thread.NAME: tiled_mma_thread.take,
    double_buffer.NAME: tiled_mma_thread.double,
}

_PAIRS = "MMAs of two CTAs: types of the library say what one CTA loads and multiplies"


def take(context: TiledContext, wanted: tuple[str, ...], count: int = 0) -> Taken:
    """Take the wanted steps that there are for such kernels, or say what they lack; `count` stages are asked for, 0
    for those that there are."""
    port = context.port
    names = ", ".join(k.function.name for k in context.kernels)
    if not context.kernels:
        return Taken()
    taken: list[str] = []
    made = 0
    for name in (n for n in STEPS if n in wanted and (n in _TAKES or (n == stages.NAME and count))):
        before = {rule: list(edits) for rule, edits in port.edits.items()}
        helpers = dict(vars(port.helpers))
        try:
            found = [TiledPipelined(port, as_kernel(context, k.function), Moves(), tiled=context)
                     for k in context.kernels]  # fmt: skip
            _all_seen(context, found)
            if name == stages.NAME:
                made = tiled_stages.take(context, found, count)
            else:
                _TAKES[name](context, found)
        except Left as left:
            port.edits, _ = before, vars(port.helpers).update(helpers)
            port.report(Code.NATIVE_LEFT, left.function, left.span, kernel=names, step=name, what=left.what)
        else:
            taken.append(name)
    _leave(context, [n for n in (pair.NAME,) if n in wanted], names, _PAIRS)
    return Taken(tuple(taken), made)


def _all_seen(context: TiledContext, found: list[TiledPipelined]) -> None:
    """That whatever issues MMAs is seen to be run by a kernel.

    Raises:
        Left: something is not.
    """
    seen = {(id(s.frame.function.file), s.node.id) for k in found for o in k.multiplies for s in o.sites}
    for multiply in context.tiled.multiplies:
        caller, node = multiply.call.caller, multiply.call.node
        if (id(caller.file), node.id) not in seen:
            raise Left(caller, caller.span(node), "who comes to these MMAs, and when")


def _leave(context: TiledContext, steps: list[str], names: str, what: str) -> None:
    """Say of steps that there are not for such kernels what they would take, at the first MMAs."""
    multiply = next(iter(context.tiled.multiplies), None)
    function = multiply.call.caller if multiply is not None else context.kernels[0].function
    span = function.span(multiply.call.node if multiply is not None else function.body)
    if steps:
        context.port.report(Code.NATIVE_LEFT, function, span, kernel=names, step=", ".join(steps), what=what)
