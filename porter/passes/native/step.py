# SPDX-License-Identifier: Apache-2.0
"""The steps of `--style native`: those that are known, and those that are taken in kernels of raw CUDA."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache

from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.taking import Launches, Taken, Taking
from porter.steps.step import Declared, Dialect, Step, discovered


@cache
def steps_for(dialect: Dialect) -> tuple[Step, ...]:
    """All steps of this style for sources of a dialect, in their order."""
    found = discovered("porter.passes.native", "porter.steps")
    return tuple(s for s in found if s.dialect == dialect and s.style == "native")


def declared(names: Collection[str]) -> list[Declared]:
    """What steps of some names say that they change."""
    return [s.changes for s in _of_all_dialects() if s.name in names]


def chosen_alone() -> set[str]:
    """Names of steps that files have only where they are chosen for them."""
    return {s.name for s in steps_for("cuda") if s.chosen}


def steps_of(
    drop_promotion: bool = False, block_scale: bool = False, layouts: bool = False, tiles: bool = False
) -> tuple[str, ...]:
    """Names of all steps that are asked for."""
    asked = {"promotion": drop_promotion, "scales": block_scale, "sm100-layouts": layouts, "next-tiles": tiles}
    steps = _of_all_dialects()
    return tuple(dict.fromkeys(s.name for s in steps if not s.on_request or asked.get(s.name, False)))


def _of_all_dialects() -> tuple[Step, ...]:
    return (*steps_for("cuda"), *steps_for("cute"), *steps_for("dsl"))


def wanted(dialect: Dialect, names: Sequence[str], asked: Mapping[str, int]) -> list[Step]:
    """The steps of some names that write a text, in their order; those of a number where one is asked for."""
    return [
        s for s in steps_for(dialect) if s.name in names and s.write is not None and (not s.asked or asked.get(s.name))
    ]


def take(
    context: PortContext,
    moves: Moves,
    names: tuple[str, ...],
    count: int = 0,
    least: int = 0,
    launches: Launches | None = None,
    alone: bool = True,
) -> Taken:
    """Take steps of some names in kernels of raw CUDA; `count` stages, and `least` registers for warps that give some
    back, where 0 leaves as many as there are."""
    asked = {"stages": count, "registers": least}

    def look() -> list[Pipelined]:
        return [Pipelined(context, k, moves) for k in context.kernels]

    taking = Taking(context, context, context.kernels, look, moves, launches, alone, asked)
    return taking.take(wanted("cuda", names, asked) if context.kernels else ())


STEPS = steps_of()
"""Names of the steps that a port has where nobody asks for one by name."""
OF_DSL = tuple(s.name for s in steps_for("dsl") if not s.on_request)
"""Those of CuTe DSL, which the default style has, too."""
OF_DSL_ON_REQUEST = tuple(s.name for s in steps_for("dsl") if s.on_request)
ON_REQUEST = tuple(s.name for s in steps_for("cuda") if s.on_request)
"""Those that are taken only where they are asked for by name, as results differ with them."""
