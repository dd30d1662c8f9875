# SPDX-License-Identifier: Apache-2.0
"""The steps of `--style native` for kernels whose MMAs are tiled MMAs of a library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from porter.diagnostics import Code
from porter.lang.text import Edit
from porter.model.pipeline.facts import HostLaunch
from porter.passes.moves import Moves
from porter.passes.native import (
    double_buffer,
    mma_thread,
    pair,
    release,
    stages,
    tiled_mma_thread,
    tiled_pairs,
    tiled_release,
    tiled_stages,
)
from porter.passes.native.sites import Left
from porter.passes.native.step import STEPS, Launches, Taken
from porter.passes.native.tiled_mainloop import TiledPipelined
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.full_rate import as_kernel

Take = Callable[[TiledContext, list[TiledPipelined]], None]
_TAKES: dict[str, Take] = {
    release.NAME: tiled_release.take,
    mma_thread.NAME: tiled_mma_thread.take,
    double_buffer.NAME: tiled_mma_thread.double,
}

_State = tuple[dict[str, Any], dict[str, list[Edit]]]
"""Helpers and edits."""


def take(context: TiledContext, wanted: tuple[str, ...], count: int = 0, launches: Launches | None = None) -> Taken:
    """Take the wanted steps that there are for such kernels, or say what they lack; `count` stages are asked for, 0
    for those that there are. `launches`: what host code launches the kernels of the sources with."""
    port = context.port
    names = ", ".join(k.function.name for k in context.kernels)
    if not context.kernels:
        return Taken()
    taking = _Taking(context, launches, count)
    for name in (n for n in STEPS if n in wanted and (n in (*_TAKES, pair.NAME) or (n == stages.NAME and count))):
        before = taking.before[name] = taking.state()
        try:
            taking.take(name)
        except Left as left:
            taking.restore(before)
            port.report(Code.NATIVE_LEFT, left.function, left.span, kernel=names, step=name, what=left.what)
        else:
            taking.taken.append(name)
    return Taken(tuple(taking.taken), taking.made)


@dataclass
class _Taking:
    """Steps that are taken, one after the other."""

    context: TiledContext
    launches: Launches | None
    count: int
    taken: list[str] = field(default_factory=list)
    made: int = 0
    before: dict[str, _State] = field(default_factory=dict)

    def take(self, name: str) -> None:
        """
        Raises:
            Left: a fact is missing.
        """
        found = self._found()
        if name == stages.NAME:
            self.made = tiled_stages.take(self.context, found, self.count)
        elif name == pair.NAME:
            self._pair(found)
        else:
            _TAKES[name](self.context, found)

    def _found(self) -> list[TiledPipelined]:
        context = self.context
        found = [
            TiledPipelined(context.port, as_kernel(context, k.function), Moves(), tiled=context)
            for k in context.kernels
        ]
        _all_seen(context, found)
        return found

    def _pair(self, found: list[TiledPipelined]) -> None:
        """Steps that move statements find those of a pair: they are taken again behind what a pair changes."""
        if mma_thread.NAME not in self.taken:
            raise found[0].begin.left("a thread of its own that issues the MMAs")
        self.restore(self.before[mma_thread.NAME])
        launch = self._launch()
        tiled_pairs.ahead(self.context, found, launch)
        for name in (n for n in (mma_thread.NAME, double_buffer.NAME) if n in self.taken):
            _TAKES[name](self.context, self._found())
        tiled_pairs.take(self.context, self._found(), launch)

    def _launch(self) -> HostLaunch | None:
        kernel, sources = self.context.kernels[0].function.name, self.context.tiled.program.sources
        known = self.launches(Path(sources.root), sources.include_dirs) if self.launches is not None else ()
        return next((k.launch for k in known if k.pipeline.kernel == kernel), None)

    def state(self) -> _State:
        port = self.context.port
        return dict(vars(port.helpers)), {rule: list(edits) for rule, edits in port.edits.items()}

    def restore(self, state: _State) -> None:
        port = self.context.port
        vars(port.helpers).update(state[0])
        port.edits = {rule: list(edits) for rule, edits in state[1].items()}


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
