# SPDX-License-Identifier: Apache-2.0
"""The steps of `--style native`, in their order: each is taken for all kernels of a source set, or left out with the
fact that is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.text import Edit
from porter.model.accumulators import Accumulator
from porter.model.pipeline.facts import HostLaunch, KernelPipeline
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native import (
    ahead,
    blocks,
    bulk_store,
    double_buffer,
    mma_thread,
    pair,
    promotion,
    raster,
    registers,
    release,
    scales,
    stages,
    tiles,
    wide,
)
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Left

Launches = Callable[[Path, Sequence[Path]], Sequence[KernelPipeline]]
"""What the host code of a file and its headers launches kernels with."""
_TAKES = {release.NAME: release.take, mma_thread.NAME: mma_thread.take, double_buffer.NAME: double_buffer.take}
STEPS = (
    wide.NAME,
    release.NAME,
    raster.NAME,
    mma_thread.NAME,
    tiles.NAME,
    double_buffer.NAME,
    pair.NAME,
    stages.NAME,
    ahead.NAME,
    blocks.NAME,
    bulk_store.NAME,
    registers.NAME,
)
"""Names of the steps that the port has. The first is that of the text which is ported: it goes ahead of all passes."""

ON_REQUEST = (promotion.NAME, scales.NAME)
"""Those that are taken only where they are asked for by name, ahead of the others: results differ with them."""


def steps_of(drop_promotion: bool = False, block_scale: bool = False) -> tuple[str, ...]:
    """Names of all steps that are asked for."""
    asked = {promotion.NAME: drop_promotion, scales.NAME: block_scale}
    return (*(name for name in ON_REQUEST if asked[name]), *STEPS)


@dataclass(frozen=True)
class Taken:
    """Names of the steps that kernels have; the number of their stages, and the registers that warps which give some
    back keep, where a step changed it, else 0."""

    steps: tuple[str, ...] = ()
    stages: int = 0
    registers: int = 0


def take(
    context: PortContext,
    moves: Moves,
    wanted: tuple[str, ...],
    count: int = 0,
    least: int = 0,
    launches: Launches | None = None,
    alone: bool = True,
) -> Taken:
    """Take the wanted steps of the port itself; `count` stages, and `least` registers for warps that give some back,
    where 0 leaves as many as there are. `launches`: what host code launches the kernels of the sources with; `alone`:
    no other file has the same helpers."""
    taking = _Taking(context, moves, launches, least, alone)
    numbers = {stages.NAME: count, registers.NAME: least}
    for name in (n for n in (*ON_REQUEST, *STEPS) if n in wanted and context.kernels and numbers.get(n, 1)):
        taking.take(name, count)
    taken = tuple(taking.taken)
    return Taken(taken, taking.made if stages.NAME in taken else 0, least if registers.NAME in taken else 0)


_State = tuple[dict[str, Any], dict[str, list[Edit]], dict[Accumulator, list[Node]]]
"""Helpers, edits and where accumulators are loaded."""


@dataclass
class _Taking:
    """Steps that are taken, one after the other."""

    context: PortContext
    moves: Moves
    launches: Launches | None
    least: int = 0
    alone: bool = True
    taken: list[str] = field(default_factory=list)
    made: int = 0
    _before: dict[str, _State] = field(default_factory=dict)

    def take(self, name: str, count: int) -> None:
        """Take one of them, or say why not."""
        context = self.context
        state = self._before[name] = self._state()
        try:
            if name == mma_thread.NAME and scales.NAME in self.taken:
                raise self._found()[0].begin.left(scales.BESIDE)
            if name == mma_thread.NAME and not self.alone:
                at = self._found()[0].begin
                raise at.left("helpers of its own: they stand in a header that kernels of other files share")
            if name == pair.NAME:
                self._pair()
            elif name == raster.NAME:
                raster.take(context, self._found(), self._launch()).make()
            elif name == tiles.NAME:
                self._tiles()
            elif name == promotion.NAME:
                promotion.take(context, self.moves).make()
            elif name == scales.NAME:
                scales.take(context, self.moves).make()
            elif name == ahead.NAME:
                ahead.take(context, self.moves).make()
            elif name == blocks.NAME:
                blocks.take(context, self.moves).make()
            elif name == bulk_store.NAME:
                self._bulk_store()
            elif name == registers.NAME:
                self._registers()
            elif name == stages.NAME:
                changes, self.made = stages.take(context, self._found(), count)
                changes.make()
            else:
                _TAKES[name](context, self._found()).make()
        except Left as left:
            self._restore(state)
            names = ", ".join(k.function.name for k in context.kernels)
            context.report(Code.NATIVE_LEFT, left.function, left.span, kernel=names, step=name, what=left.what)
        else:
            self.taken.append(name)

    def _found(self) -> list[Pipelined]:
        return [Pipelined(self.context, k, self.moves) for k in self.context.kernels]

    def _bulk_store(self) -> None:
        if {double_buffer.NAME, pair.NAME} & set(self.taken):
            function = self.context.kernels[0].function
            raise Left(function, function.span(function.body), bulk_store.BESIDE)
        bulk_store.take(self.context).make()

    def _registers(self) -> None:
        if blocks.NAME in self.taken:
            function = self.context.kernels[0].function
            raise Left(function, function.span(function.body), blocks.SHARED_OUT)
        registers.take(self.context, self.least).make()

    def _tiles(self) -> None:
        """The thread of its own is put into a loop over tiles: it is taken again."""
        context = self.context
        if mma_thread.NAME not in self.taken:
            raise self._found()[0].begin.left("a thread of its own that issues the MMAs")
        if context.helpers.shares:
            raise self._found()[0].begin.left("stages of one CTA: those of a cluster are for tiles beside each other")
        self._restore(self._before[mma_thread.NAME])
        tiles.take(context, self._found(), self._launch())

    def _pair(self) -> None:
        """Steps that move statements find those of a pair: they are taken again behind what a pair changes."""
        context = self.context
        found = self._found()
        if mma_thread.NAME not in self.taken:
            raise found[0].begin.left("a thread of its own that issues the MMAs")
        if tiles.NAME in self.taken:
            raise found[0].begin.left("tiles that are a number of CTAs apart: these are handed out one by one")
        self._restore(self._before[mma_thread.NAME])
        launch = self._launch()
        context.helpers.buffers = double_buffer.BUFFERS if double_buffer.NAME in self.taken else 1
        pair.ahead(context, found, launch).make()
        for name in (n for n in (mma_thread.NAME, double_buffer.NAME) if n in self.taken):
            _TAKES[name](context, self._found()).make()
        pair.take(context, self._found(), launch).make()

    def _launch(self) -> HostLaunch | None:
        kernel = self.context.kernels[0].function.name
        root = self.context.program.sources
        known = self.launches(Path(root.root), root.include_dirs) if self.launches is not None else ()
        mine = (k for k in known if k.pipeline.kernel == kernel and (k.pipeline.barriers or k.pipeline.roles))
        return next((k.launch for k in mine), None)

    def _state(self) -> _State:
        edits = self.context.edits
        kept = {rule: list(found) for rule, found in edits.items()}
        return dict(vars(self.context.helpers)), kept, dict(self.moves.loads)

    def _restore(self, state: _State) -> None:
        vars(self.context.helpers).update(state[0])
        self.context.edits = {rule: list(found) for rule, found in state[1].items()}
        self.moves.loads = dict(state[2])
