# SPDX-License-Identifier: Apache-2.0
"""What steps write with, each on top of those ahead of it for all kernels of a source set; one is left out with the
fact that is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.text import Edit
from porter.model.accumulators import Accumulator
from porter.model.pipeline.facts import HostLaunch, KernelPipeline
from porter.passes.context import PortContext
from porter.passes.helpers import Helpers
from porter.passes.moves import Moves
from porter.passes.native.sites import Left
from porter.steps.step import Step, Trial

Launches = Callable[[Path, Sequence[Path]], Sequence[KernelPipeline]]
"""What the host code of a file and its headers launches kernels with."""


@dataclass(frozen=True)
class Taken:
    """Names of the steps that kernels have; the number of their stages, and the registers that warps which give some
    back keep, where a step changed it, else 0."""

    steps: tuple[str, ...] = ()
    stages: int = 0
    registers: int = 0


@dataclass(frozen=True)
class State:
    """A port ahead of a step: its helpers, its edits, and where accumulators are loaded."""

    helpers: Helpers
    edits: Mapping[str, tuple[Edit, ...]]
    loads: Mapping[Accumulator, list[Node]]

    @staticmethod
    def of(context: PortContext, moves: Moves) -> State:
        edits = {rule: tuple(found) for rule, found in context.edits.items()}
        return State(replace(context.helpers), edits, dict(moves.loads))

    def restore(self, context: PortContext, moves: Moves) -> None:
        context.helpers = replace(self.helpers)
        context.edits = {rule: list(found) for rule, found in self.edits.items()}
        moves.loads = dict(self.loads)


@dataclass(eq=False)
class Taking:
    """What a step gets to write with. `context` is that of its dialect, with its `kernels`, which `look` looks at anew
    each time; `launches`: what host code launches the kernels of the sources with; `alone`: no other file
    has the same helpers; `asked`: numbers that steps are taken with, 0 for what there is."""

    port: PortContext
    context: Any
    kernels: Sequence[Any]
    look: Callable[[], Sequence[Any]]
    moves: Moves = field(default_factory=Moves)
    launches: Launches | None = None
    alone: bool = True
    asked: Mapping[str, int] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    """Numbers that steps came to."""
    trial: Trial[State] = field(default_factory=Trial)
    again: Sequence[Step] = ()
    """Steps that the one which is taken rebuilds: the state is that ahead of them."""

    @property
    def found(self) -> list[Any]:
        return list(self.look())

    @property
    def launch(self) -> HostLaunch | None:
        sources = self.port.program.sources
        known = self.launches(Path(sources.root), sources.include_dirs) if self.launches is not None else ()
        mine = (k for k in known if k.pipeline.kernel == self.kernels[0].function.name)
        of_library = self.context is not self.port
        return next((k.launch for k in mine if of_library or k.pipeline.barriers or k.pipeline.roles), None)

    def rebuild(self) -> None:
        """Take the steps again that this one rebuilds."""
        for step in self.again:
            assert step.write is not None
            step.write(self)

    def take(self, steps: Sequence[Step]) -> Taken:
        """Take steps, or say why not."""
        for step in steps:
            before = State.of(self.port, self.moves)
            try:
                self._take(step)
            except Left as left:
                before.restore(self.port, self.moves)
                names = ", ".join(k.function.name for k in self.kernels)
                self.port.report(
                    Code.NATIVE_LEFT, left.function, left.span, kernel=names, step=step.name, what=left.what
                )
            else:
                self.trial = self.trial.on_top(step, before)
        made = {name: number for name, number in self.made.items() if name in self.trial.names}
        return Taken(self.trial.names, made.get("stages", 0), made.get("registers", 0))

    def _take(self, step: Step) -> None:
        assert step.write is not None
        what = self.trial.lacks(step)
        if what in step.after.values():
            raise self.found[0].begin.left(what)
        if what:
            function = self.kernels[0].function
            raise Left(function, function.span(function.body), what)
        if step.rebuilds:
            state, self.again = self.trial.ahead_of(step.rebuilds)
            state.restore(self.port, self.moves)
        step.write(self)
