# SPDX-License-Identifier: Apache-2.0
"""The steps of `--style native` for kernels whose MMAs are tiled MMAs of a library."""

from __future__ import annotations

from collections.abc import Callable

from porter.diagnostics import Code
from porter.passes.moves import Moves
from porter.passes.native import release, tiled_release
from porter.passes.native.sites import Changes, Left
from porter.passes.native.step import STEPS, Taken
from porter.passes.native.tiled_mainloop import TiledPipelined
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.full_rate import as_kernel

Take = Callable[[TiledContext, list[TiledPipelined]], Changes]
_TAKES: dict[str, Take] = {release.NAME: tiled_release.take}

_ISSUED = "a thread of its own that issues the MMAs: calls of the library issue them where they stand"


def take(context: TiledContext, wanted: tuple[str, ...]) -> Taken:
    """Take the wanted steps that there are for such kernels, or say what they lack."""
    port = context.port
    names = ", ".join(k.function.name for k in context.kernels)
    if not context.kernels:
        return Taken()
    taken: list[str] = []
    for name in (n for n in STEPS if n in wanted and n in _TAKES):
        try:
            found = [TiledPipelined(port, as_kernel(context, k.function), Moves(), tiled=context)
                     for k in context.kernels]  # fmt: skip
            _TAKES[name](context, found).make()
        except Left as left:
            port.report(Code.NATIVE_LEFT, left.function, left.span, kernel=names, step=name, what=left.what)
        else:
            taken.append(name)
    _leave(context, wanted, names)
    return Taken(tuple(taken))


def _leave(context: TiledContext, wanted: tuple[str, ...], names: str) -> None:
    """Say of the steps that there are not for such kernels what they would take."""
    others = [n for n in STEPS if n in wanted and n not in _TAKES]
    multiply = next(iter(context.tiled.multiplies), None)
    function = multiply.call.caller if multiply is not None else context.kernels[0].function
    span = function.span(multiply.call.node if multiply is not None else function.body)
    if others:
        context.port.report(Code.NATIVE_LEFT, function, span, kernel=names, step=", ".join(others), what=_ISSUED)
