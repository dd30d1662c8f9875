# SPDX-License-Identifier: Apache-2.0
"""What a step is: a text that is proposed, and what it says that it changes. Whether it is right is for the compiler,
PTX and runs to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, Literal, TypeVar

Along = Literal["k", "tiles", "others' tiles"]
"""The loop that a ring turns with: steps of k, tiles of a block, or tiles of blocks that have not begun."""
Style = Literal["full-rate", "native"]
"""M=128 MMAs, which the default style has too, or what goes on from there."""
Dialect = Literal["cuda", "cute", "dsl"]
"""Raw CUDA, whose MMAs are inline PTX; CuTe C++ and CuTe DSL, whose ports are in SM100's own words."""


@dataclass(frozen=True)
class Ring:
    """Stages that a step makes, or makes more of: a run has to come round them twice."""

    name: str
    along: Along


@dataclass(frozen=True)
class Declared:
    """What a step changes beside statements: `rows` that a thread has, `roles`, that is who issues and who waits,
    `rings`, `barriers` or their counts, words of the `launch` (grid, cluster, block, shared memory), `constants`,
    boxes of tensor `maps`, and `numerics`, where sums are made in another order on purpose."""

    rows: bool = False
    roles: bool = False
    rings: tuple[Ring, ...] = ()
    barriers: bool = False
    launch: tuple[str, ...] = ()
    constants: bool = False
    maps: bool = False
    numerics: bool = False

    @property
    def more_stages(self) -> bool:
        """Whether a ring that turns with steps of k is another one."""
        return any(ring.along == "k" for ring in self.rings)

    @property
    def level(self) -> Literal["grid", "bound"]:
        """How its results are held against the original's: the same words for each byte that the grid leaves, or the
        bound of the case where sums are meant to differ."""
        return "bound" if self.numerics else "grid"


@dataclass(frozen=True)
class Step:
    """One step. `rule` is the ID of the rule that says why. `write` proposes its text for all kernels of a source set
    and raises what says which fact is missing; None: the text that is ported is another one ahead of all passes.

    `after`: steps without which it is nothing, each with what is missing then; `beside`: steps that it does not stand
    beside, each with what is said then; `follows`: steps that come ahead of it where both are taken. `rebuilds`: steps
    that find its text, and are taken again behind it. `asked`: it is taken where a number is asked for alone; `chosen`:
    in files alone for which it was chosen; `on_request`: the option without which it is not taken, and `lacking` what
    the plan of a kernel says that is missing for it, None where a kernel has no use for it. `cost`: a gain is graded
    for it, which `note` names."""

    name: str
    rule: str
    write: Callable[[Any], None] | None
    dialect: Dialect = "cuda"
    changes: Declared = Declared()
    after: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    follows: tuple[str, ...] = ()
    rebuilds: tuple[str, ...] = ()
    asked: bool = False
    chosen: bool = False
    on_request: str = ""
    lacking: Callable[[Any], str | None] = lambda plan: None
    cost: bool = False
    note: str = ""
    style: Style = "native"


@cache
def discovered(*packages: str) -> tuple[Step, ...]:
    """The steps of packages, which each module has as `STEP`, or `STEPS`: those that follow others behind them."""
    found: list[Step] = []
    for package in packages:
        for module in iter_modules(import_module(package).__path__, f"{package}."):
            there = vars(import_module(module.name))
            found += [one for one in (there.get("STEP"), *there.get("STEPS", ())) if isinstance(one, Step)]
    return tuple(_in_order(found))


def _in_order(steps: Sequence[Step]) -> Iterator[Step]:
    left = list(steps)
    while left:
        names = {s.name for s in left}
        free = next((s for s in left if not names - {s.name} & {*s.follows, *s.after}), None)
        if free is None:
            raise ValueError(f"steps that follow each other in a circle: {', '.join(sorted(names))}")
        yield free
        left.remove(free)


S = TypeVar("S")


@dataclass(frozen=True)
class Trial(Generic[S]):
    """Steps that are taken, one on top of the other, each with the state ahead of it, which nothing changes: a step is
    left out by going back there."""

    steps: tuple[tuple[Step, S], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step.name for step, _ in self.steps)

    def lacks(self, step: Step) -> str:
        """What keeps a step from being taken on top of these; empty if nothing does."""
        missing = [what for name, what in step.after.items() if name not in self.names]
        barred = [what for name, what in step.beside.items() if name in self.names]
        return next(iter([*barred, *missing]), "")

    def ahead_of(self, names: Sequence[str]) -> tuple[S, list[Step]]:
        """The state ahead of the first of some steps that are taken, and those of them that are."""
        again = [(step, state) for step, state in self.steps if step.name in names]
        return again[0][1], [step for step, _ in again]

    def on_top(self, step: Step, before: S) -> Trial[S]:
        return Trial((*self.steps, (step, before)))
